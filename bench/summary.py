"""One table of what bench/run.sh has measured, against the figures asked for.

    summary.py RESULTS [COMMIT [MACHINE]]

RESULTS holds NAME.json, a program's JSON line (see bench/table.hpp), and runs.tsv, `name, exit status, seconds` a line.
Writes RESULTS/summary.json. A figure whose rows are missing is "not measured", one whose program found wrong outputs is
"wrong"; neither counts as reached. The exit status is 0 if every figure is reached.
"""

import datetime
import json
import pathlib
import platform
import re
import sys
from dataclasses import dataclass
from typing import Callable


class Missing(Exception):
    """What a figure needs and no result has."""


class Results:
    def __init__(self, folder: pathlib.Path):
        self.programs = {}
        for path in sorted(folder.glob("*.json")):
            if path.name != "summary.json":
                self.programs[path.stem] = json.loads(path.read_text())
        self.wrong = set()  # programs that a figure has read and that found wrong outputs

    def rows(self, program: str, pattern: str) -> list[dict]:
        """Rows whose name begins with a pattern; at least one."""
        if program not in self.programs:
            raise Missing(f"no result of {program}")
        result = self.programs[program]
        if result.get("verified") is not True:
            self.wrong.add(program)
        found = [row for row in result.get("rows", []) if re.match(pattern, row["name"])]
        if not found:
            raise Missing(f"{program}: no row {pattern!r}")
        return found

    def value(self, program: str, pattern: str, field: str) -> float:
        """A field of the one row of that name."""
        found = self.rows(program, pattern)
        if len(found) > 1:
            raise Missing(f"{program}: {len(found)} rows {pattern!r}")
        return number(found[0], program, field)

    def values(self, program: str, pattern: str, field: str) -> list[float]:
        return [number(row, program, field) for row in self.rows(program, pattern)]


def number(row: dict, program: str, field: str) -> float:
    if not isinstance(row.get(field), (int, float)):
        raise Missing(f"{program}: {row['name']}: no {field}")
    return float(row[field])


CONVERSION = r"\d+ matrices: conversion in place$"
LANDING = r"\d+ matrices: landing$"
FUSED = r"\d+ matrices: converted on their way"


def host_cost(how: str) -> Callable[[Results], float]:
    """The worst in file order: in buckets and one by one, either number of ranks; without the bytes' copies."""
    return lambda r: max(r.values("host_cost", rf"books, .*, by {how}, file order", "value")) * 1e-3


def over(program: str, pattern: str) -> Callable[[Results], float]:
    """The conversion's rate over a peer's, each over the device copy of its own process; the fastest peer counts."""
    return lambda r: r.value("dequant_in_place", CONVERSION, "of_copy") / max(r.values(program, pattern, "of_copy"))


@dataclass(frozen=True)
class Figure:
    subject: str
    figure: str
    limit: float
    measure: Callable[[Results], float]
    unit: str = ""
    at_most: bool = False


FIGURES = [
    Figure("in-place conversion", "of device copy", 0.94, lambda r: r.value("dequant_in_place", CONVERSION, "of_copy")),
    Figure("in-place conversion", "of a plain widening kernel", 0.965,
           lambda r: r.value("dequant_in_place", CONVERSION, "tb_per_s") / r.value("dequant_in_place", "plain 1-to-2-byte widening", "tb_per_s")),
    Figure("in-place conversion", "over the best chunked PyTorch loop", 10, over("peers_dequantise", "PyTorch chunked in place"), "x"),
    Figure("in-place conversion", "over the per-matrix PyTorch loop", 25, over("peers_dequantise", "PyTorch per matrix"), "x"),
    Figure("in-place conversion", "over tuned out-of-place Triton, a launch a matrix", 1,
           over("peers_dequantise", "Triton out of place, a launch a matrix"), "x"),
    Figure("in-place conversion", "over tuned out-of-place Triton, one launch for all", 1,
           over("peers_dequantise", "Triton out of place, one launch"), "x"),
    Figure("landing", "60 strided matrices, of device copy", 0.93, lambda r: r.value("landing", "60 strided matrices$", "of_copy")),
    Figure("landing", "256-byte runs, of device copy", 0.80, lambda r: min(r.values("landing", "256-byte runs", "of_copy"))),
    Figure("landing", "byte-misaligned, of device copy", 0.75, lambda r: r.value("landing", "byte-misaligned", "of_copy")),
    Figure("landing + conversion fused", "of device copy", 0.92, lambda r: r.value("dequant_in_place", FUSED, "of_copy")),
    Figure("landing + conversion fused", "over landing, then finish", 1.55,
           lambda r: (r.value("dequant_in_place", LANDING, "ms") + r.value("dequant_in_place", CONVERSION, "ms"))
           / r.value("dequant_in_place", FUSED, "ms"), "x"),
    Figure("file to GPU", "first touch, of pinned H2D", 0.72, lambda r: max(r.values("file_to_gpu", "first touch", "of_copy"))),
    Figure("file to GPU", "already pinned, of pinned H2D", 0.95, lambda r: max(r.values("file_to_gpu", "already pinned", "of_copy"))),
    Figure("file to GPU", "first touch, over load_file + dequantise", 5,
           lambda r: r.value("peers_load_file", "safetensors load_file", "ms") / min(r.values("file_to_gpu", "first touch", "ms")), "x"),
    Figure("host cost a tensor", "by id", 0.3, host_cost("id"), "us", True),
    Figure("host cost a tensor", "by name", 0.5, host_cost("name"), "us", True),
    Figure("replayed plan", "host time a bucket of 1,000", 20, lambda r: r.value("plan_replay", "replayed$", "bucket_us"), "us", True),
    Figure("replayed plan", "finish, host time", 0.3, lambda r: r.value("plan_replay", "replayed$", "finish_us") * 1e-3, "ms", True),
    Figure("digest", "of the device's read rate", 0.85, lambda r: min(r.values("digest", r"(FP8|BF16): digest of \d+ matrices", "of_read"))),
]


def judge(figure: Figure, results: Results) -> dict:
    """A figure as summary.json has it; `measured` is null where something is missing."""
    told = {"subject": figure.subject, "figure": figure.figure, "limit": figure.limit, "at_most": figure.at_most,
            "unit": figure.unit, "measured": None, "reached": False, "state": "not measured", "note": ""}
    results.wrong.clear()
    try:
        measured = figure.measure(results)
    except Missing as missing:
        return {**told, "note": str(missing)}
    except ZeroDivisionError:
        return {**told, "note": "a peer's figure is 0"}
    told["measured"] = measured
    if results.wrong:
        return {**told, "state": "wrong", "note": "outputs not verified: " + ", ".join(sorted(results.wrong))}
    told["reached"] = measured <= figure.limit if figure.at_most else measured >= figure.limit
    return {**told, "state": "yes" if told["reached"] else "no"}


def table_of(figures: list[dict]) -> str:
    lines = [("subject", "figure", "asked for", "measured", "reached")]
    for each in figures:
        sign = "<=" if each["at_most"] else ">="
        measured = "-" if each["measured"] is None else f"{each['measured']:.3g} {each['unit']}".rstrip()
        state = each["state"] + (f" ({each['note']})" if each["note"] else "")
        lines.append((each["subject"], each["figure"], f"{sign} {each['limit']:g} {each['unit']}".rstrip(), measured, state))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)) + "  " + line[4] for line in lines)


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    results = Results(folder)
    figures = [judge(figure, results) for figure in FIGURES]
    runs = []
    if (folder / "runs.tsv").exists():
        for line in (folder / "runs.tsv").read_text().splitlines():
            name, code, seconds = line.split("\t")
            runs.append({"program": name, "exit": code, "seconds": float(seconds)})
    summary = {
        "machine": sys.argv[3] if len(sys.argv) > 3 else platform.node(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": sys.argv[2] if len(sys.argv) > 2 else "unknown",
        "figures": figures,
        "runs": runs,
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(table_of(figures))
    reached = sum(each["reached"] for each in figures)
    print(f"{reached} of {len(figures)} figures reached; {summary['machine']}, commit {summary['commit']}, {summary['date']}")
    return 0 if reached == len(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
