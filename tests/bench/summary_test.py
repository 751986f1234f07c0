"""bench/summary.py, bench/plot.py and bench/run.sh on canned results.

    summary_test.py [INCLUDE_ROOT]          the argument is not looked at
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True
from harness import Tally, call  # noqa: E402
import plot  # noqa: E402
import summary  # noqa: E402


def row(name: str, **fields) -> dict:
    return {"name": name, **fields}


def canned() -> dict:
    """Results as the programs print them, in which every figure is just reached."""
    def rated(name, of_copy, ms=1.0, tb=4.0):
        return row(name, ms=ms, tb_per_s=tb, of_copy=of_copy)

    return {
        "dequant_in_place": [rated("device copy (cudaMemcpyAsync)", 1), rated("plain 1-to-2-byte widening, out of place", 0.96, tb=4.0),
                             rated("60 matrices: landing", 0.95, ms=1.6), rated("60 matrices: conversion in place", 0.94, ms=2.6, tb=3.9),
                             rated("60 matrices: converted on their way (weights and scales in one load)", 0.92, ms=2.7),
                             rated("2112 x 7168 alone: conversion in place", 0.6)],
        "landing": [rated("60 strided matrices", 0.93), rated("60 strided matrices: CUB batched, a copy a row", 0.4),
                    rated("256-byte runs, into every other 256 bytes", 0.80), rated("256-byte runs, out of every other 256 bytes", 0.9),
                    rated("byte-misaligned bucket", 0.75)],
        "file_to_gpu": [rated("first touch, kernels read the pages", 0.5, ms=300), rated("first touch, copied to a lent window", 0.72, ms=200),
                        rated("already pinned, kernels read the pages", 0.95)],
        "peers_dequantise": [rated("PyTorch chunked in place: in_fp32, 4 Mi elements a chunk", 0.094),
                             rated("PyTorch per matrix: repeat_interleave", 0.0375),
                             rated("Triton out of place, a launch a matrix, (8, 256, 4)", 0.8),
                             rated("Triton out of place, one launch, (8, 256, 4, 0, 1)", 0.94)],
        "peers_load_file": [row("safetensors load_file + PyTorch dequantise", ms=1000, tb_per_s=0.01), row("file a", ms=9, tb_per_s=0.01)],
        "host_cost": [row(f"books, {ranks}, by {how}, file order, {cut}", value=value, unit="ns a tensor")
                      for ranks in ("TP 1", "rank 0 of TP 8") for how, value in (("id", 300), ("name", 500))
                      for cut in ("buckets of 1000", "one by one")]
                     + [row("books, TP 1, by name, shuffled, one by one", value=2000, unit="ns a tensor")],
        "plan_replay": [row("ordinary", bucket_us=300, finish_us=4000), row("replayed", bucket_us=20, finish_us=300)],
        "digest": [row("FP8: digest of 60 matrices, device", of_read=0.9), row("BF16: digest of 60 matrices, device", of_read=0.85),
                   row("FP8: landing that adds up digests", of_copy=0.4)],
    }


def summarise(results: dict, wrong: tuple = ()) -> tuple[int, str, dict]:
    """Exit status, output and summary.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, rows in results.items():
            (folder / f"{program}.json").write_text(json.dumps({"verified": program not in wrong, "rows": rows}))
        (folder / "runs.tsv").write_text("landing\t0\t12.5\nmade_up\tmissing\t0\n")
        code, output = call([sys.executable, str(ROOT / "bench/summary.py"), name, "abc", "a machine"])
        return code, output, json.loads((folder / "summary.json").read_text())


def figure(of: dict, subject: str, text: str) -> dict:
    return next(each for each in of["figures"] if each["subject"] == subject and text in each["figure"])


def check_summary(tally: Tally):
    code, output, whole = summarise(canned())
    tally.check(code == 0 and all(each["reached"] for each in whole["figures"]), "what is just reached is reached", output)
    tally.check(len(whole["figures"]) == len(summary.FIGURES) == 19, "every figure is there")
    tally.check(whole["machine"] == "a machine" and whole["commit"] == "abc" and len(whole["date"]) == 20, "where and when", str(whole))
    tally.check(whole["runs"][1] == {"program": "made_up", "exit": "missing", "seconds": 0.0}, "what ran", str(whole["runs"]))
    for how, rate in (("a launch a matrix", 0.94 / 0.8), ("one launch for all", 1)):
        tally.check(abs(figure(whole, "in-place conversion", f"Triton, {how}")["measured"] - rate) < 1e-9, f"Triton, {how}")

    # Each program away, then each row: the figures that need it, and no other, are not measured, and that is a failure.
    for program in canned():
        results = canned()
        del results[program]
        code, output, told = summarise(results)
        lost = [each for each in told["figures"] if each["state"] == "not measured"]
        tally.check(code == 1 and lost != [] and not any(each["reached"] for each in lost) and "not measured" in output
                    and all(each["measured"] is None for each in lost),
                    f"without {program}", output)
        tally.check(all(each["reached"] for each in told["figures"] if each not in lost), f"without {program}: the others", output)
    for program, name in (("dequant_in_place", "60 matrices: conversion in place"), ("landing", "byte-misaligned bucket"),
                          ("plan_replay", "replayed"), ("peers_dequantise", "PyTorch per matrix: repeat_interleave")):
        results = canned()
        results[program] = [each for each in results[program] if each["name"] != name]
        code, output, told = summarise(results)
        tally.check(code == 1 and any(each["state"] == "not measured" for each in told["figures"]), f"without the row {name}", output)

    # A little worse: not reached.
    worse = {"dequant_in_place": ("of_copy", "60 matrices: conversion in place", 0.93), "host_cost": ("value", "books, TP 1, by id, file order, one by one", 301),
             "plan_replay": ("finish_us", "replayed", 301), "landing": ("of_copy", "256-byte runs, out of every other 256 bytes", 0.79),
             "digest": ("of_read", "BF16: digest of 60 matrices, device", 0.84), "peers_load_file": ("ms", "safetensors load_file + PyTorch dequantise", 999)}
    for program, (field, name, value) in worse.items():
        results = canned()
        for each in results[program]:
            if each["name"] == name:
                each[field] = value
        code, output, told = summarise(results)
        missed = [each for each in told["figures"] if each["state"] == "no"]
        tally.check(code == 1 and missed != [] and not any(each["reached"] for each in missed), f"{name}: {value}", output)

    code, output, told = summarise(canned(), wrong=("landing",))
    tally.check(code == 1 and figure(told, "landing", "60")["state"] == "wrong" and not figure(told, "landing", "60")["reached"]
                and figure(told, "digest", "read")["reached"], "wrong outputs count as not reached", output)
    results = canned()
    results["digest"] = [row("FP8: digest of 60 matrices, device", of_read=None)]
    tally.check(figure(summarise(results)[2], "digest", "read")["state"] == "not measured", "a row without its field")


def check_plot(tally: Tally):
    results = canned()
    del results["digest"]
    results["landing"][-1]["of_copy"] = 0.5
    results["peers_dequantise"][1]["of_copy"] = 0.001
    _, _, told = summarise(results)
    told["machine"] = "<&>"
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "summary.json"
        path.write_text(json.dumps(told))
        code, output = call([sys.executable, str(ROOT / "bench/plot.py"), str(path)])
        drawn = path.with_suffix(".svg").read_text() if path.with_suffix(".svg").exists() else ""
    if not tally.check(code == 0 and drawn != "", "plot.py", output):
        return
    tree = xml.etree.ElementTree.fromstring(drawn)
    bars = [each for each in tree.iter() if each.tag.endswith("rect")]
    tally.check(len(bars) == 18, "a bar a figure, none for what was not measured", str(len(bars)))
    tally.check(sum(each.get("fill") == plot.RED for each in bars) == 1, "one is red")
    limit = next(float(each.get("x1")) for each in tree.iter() if each.tag.endswith("line"))
    for bar in bars:
        end = float(bar.get("x")) + float(bar.get("width"))
        good = end < limit - 1 if bar.get("fill") == plot.RED else end > limit - 1
        tally.check(good and end <= plot.LEFT + plot.BAR + 1, "red bars end before the line, green ones reach it", str(bar.attrib))
    tally.check("not measured" in drawn and "»" in drawn, "what has no bar, and what is cut off")
    faster = {"measured": 0.1, "limit": 0.3, "at_most": True, "state": "yes"}
    tally.check(abs(plot.of_limit(faster) - 3) < 1e-9, "less is better")
    tally.check(plot.of_limit({**faster, "state": "wrong"}) is None, "no bar for wrong outputs")


def check_run(tally: Tally):
    """run.sh with two programs of which one fails; no GPU, and no Torch or no CUDA here."""
    with tempfile.TemporaryDirectory() as name:
        build, results = pathlib.Path(name) / "build", pathlib.Path(name) / "results"
        build.mkdir()
        good = json.dumps({"verified": True, "rows": canned()["landing"]})
        for program, text in (("landing", f"echo told; echo 'JSON {good}'"), ("digest", "echo broken; exit 3")):
            path = build / program
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        done = subprocess.run(["bash", str(ROOT / "bench/run.sh"), str(build), str(results)], text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "WRELOAD_BUILD": "never", "CUDA_VISIBLE_DEVICES": ""})
        tally.check(done.returncode != 0, "a run with missing programs fails", done.stdout)
        told = json.loads((results / "summary.json").read_text())
        tally.check(figure(told, "landing", "60")["reached"], "what ran counts", done.stdout)
        ran = {each["program"]: each["exit"] for each in told["runs"]}
        tally.check(ran.get("landing") == "0" and ran.get("digest") == "3" and ran.get("plan_replay") == "missing", "runs", str(ran))
        tally.check("plan_replay: missing" in done.stdout and "digest: exit 3" in done.stdout and "told" in done.stdout, "said aloud", done.stdout)
        tally.check("10 of 11 programs missing or failed" in done.stdout, "counted", done.stdout)
        tally.check((results / "summary.svg").exists(), "drawn", done.stdout)


def main():
    tally = Tally()
    check_summary(tally)
    check_plot(tally)
    check_run(tally)
    tally.done()


if __name__ == "__main__":
    main()
