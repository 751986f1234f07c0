"""Runs the built reload_checkpoint on the GPU and on the host, and compares the two dumps byte for byte.

    reload_cuda_test.py FOLDER      of the executables: reload_checkpoint and quantize_checkpoint

The cases are a share of those of reload_checkpoint_test, reload_runtimes_test and reload_modes_test, which compare the
host's dumps with references of their own. Without a GPU it checks the refusal, and skips the rest aloud.
"""

import json
import os
import random
import sys

import reload_checkpoint_test as checkpoints
import reload_kit
import reload_modes_test as modes
import reload_runtimes_test as runtimes
from reload_kit import check, linear, tool

DEVICES = ["host", "cuda"]


class PairRunner(reload_kit.Runner):
    """Runs a share of the cases that it is given, each on both devices."""

    share = 1.0
    asked = 0

    def is_chosen(self, what):
        self.asked += 1
        return random.Random(f"{what} {self.asked}").random() < self.share

    def same(self, what, paths, loads, setup, *arguments, warnings=(), partial=False):
        if not self.is_chosen(what):
            return
        words = [*paths, *setup.arguments(), *map(str, arguments), *(["--scope", "partial"] if partial else [])]
        self.cases.append((what, words, self.pool.submit(self.both, words, self.path("dump"))))

    @staticmethod
    def both(words, dump):
        results = []
        for device in DEVICES:
            code, out, err = tool(*words, "--device", device, "--dump", f"{dump}.{device}", "--json")
            data = b""
            if os.path.exists(f"{dump}.{device}"):
                with open(f"{dump}.{device}", "rb") as file:
                    data = file.read()
                os.unlink(f"{dump}.{device}")
            results.append((code, out, err, data))
        return results

    def finish(self):
        for what, words, running in self.cases:
            (code, out, err, data), (code2, out2, err2, data2) = running.result()
            if not check(code == code2 == 0 and err == err2 == "", what, f"{err} {err2} {out2} {' '.join(words)}"):
                continue
            check(data == data2 != b"", f"{what}: dump", f"{self.differing(data, data2)} {' '.join(words)}")
            found = [json.loads(text) for text in (out, out2)]
            measured = ("seconds", "gb_per_s", "pause_seconds", "peak_extra_device_bytes")
            facts = [{key: value for key, value in each.items() if key not in measured} for each in found]
            check(facts[0] == facts[1] and list(found[0]) == list(found[1]), f"{what}: JSON", facts)
            check(reload_kit.is_extra_right(words, found[1]["peak_extra_device_bytes"]), f"{what}: memory", out2)
        self.cases.clear()

    def differing(self, *images):
        paths = [reload_kit.put(self.path("image"), image) for image in images]
        host, cuda = map(reload_kit.read, paths)
        return [name for name in host.keys() | cuda.keys() if host.get(name) != cuda.get(name)][:5]


class PairRefusals(reload_kit.Refusals):
    """Runs that must be refused on both devices, in the same words, with the same state."""

    def expect(self, what, words, *names, state="undefined", version=0):
        if self.run.is_chosen(what):
            self.waiting.append((what, self.run.pool.submit(
                lambda: [tool(*words, "--device", device, "--json") for device in DEVICES])))

    def finish(self):
        for what, running in self.waiting:
            host, cuda = running.result()
            check(host == cuda and cuda[0] == 2, what, f"{host} {cuda}")
        self.waiting.clear()


def large(run):
    """Beyond the executor's pinned window, and beyond a load of the feed; with and without buckets, a bucket inside a row
    too."""
    source = random.Random(41)
    loads = [linear(source, "m.gate_proj", (4096, 3585), how) | linear(source, "m.up_proj", (1000, 3585), "fp8")
             for how in ("fp8", "bf16")]
    paths = [run.folder(load) for load in loads]
    setup = checkpoints.Setup({"gate_up_proj": ["gate_proj", "up_proj"]})
    for picks in ([0], [0, 1], [0, 1, 0]):
        for extra in (["--order", "reverse"], ["--bucket", 30_000_000], ["--order", "reverse", "--bucket", 100_000],
                      *(["--mode", mode] for mode in modes.MODES)):
            run.same(f"large {picks} {extra}", [paths[i] for i in picks], [loads[i] for i in picks], setup, *extra)
    run.finish()


def refuse_partial(run):
    source = random.Random(42)
    checkpoints.refuse_partial(PairRefusals(run, source, checkpoints.model(source)))


# Groups, and the share of their cases that runs: about 400 in all.
GROUPS = {checkpoints.orders_and_buckets: 0.3, checkpoints.spellings_and_blocks: 0.3, checkpoints.bf16_over_fp8: 0.5,
          checkpoints.tensor_parallel: 0.3, checkpoints.partial_scope: 0.4, checkpoints.quantised: 1,
          checkpoints.everything_random: 0.3, runtimes.fused_linears: 0.1, runtimes.split_linears: 0.5,
          runtimes.partial_linears: 0.5, runtimes.nvfp4_experts: 0.2, runtimes.kept_fp8: 0.15,
          runtimes.dequantised_experts: 0.15, runtimes.mixed_model: 1, large: 1, refuse_partial: 0.3,
          runtimes.refuse_nvfp4: 0.15, runtimes.refuse_kept: 0.5, modes.fused_fp8: 0.15, modes.quantised_linears: 0.1,
          modes.stacked_experts: 0.1, modes.cut_for_ranks: 0.5, modes.undo_and_success: 1,
          modes.files_by_feed: 0.5, modes.budgets: 1, modes.refuse_over_budget: 0.3, modes.refuse_missing_scale: 0.15, modes.refuse_tensors: 0.3}


def run_groups(run):
    path = run.folder(linear(random.Random(40), "m.o_proj", (130, 129), "fp8"))
    code, out, err = tool(path, path, "--device", "cuda")
    if code == 2 and "--device cuda" in err:
        dump = run.path("dump")
        again = tool(path, path, "--device", "cuda", "--json", "--dump", dump)
        check(out == "" and err.count("\n") == 1 and again[::2] == (2, err), "no CUDA: one line", f"{out}{err}{again}")
        check(not os.path.exists(dump) and json.loads(again[1])["state"] == "undefined", "no CUDA: no dump", again)
        code, out, words = tool(path, path)
        check(code == 0 and out.startswith("device: host (") and words == "", "no CUDA: auto is the host", out + words)
        print(f"skipped: {err.strip()}: {len(GROUPS)} groups of cases do not run on a GPU")
        skipped.append(len(GROUPS))
        return
    check(code == 0 and err == "" and out.startswith("device: cuda ("), "--device cuda", out + err)
    code, out, err = tool(path, path)
    check(code == 0 and err == "" and out.startswith("device: cuda ("), "auto is the GPU", out + err)
    runtimes.Refusals = modes.Refusals = PairRefusals
    for group, run.share in GROUPS.items():
        before, began = sum(reload_kit.counts), os.times().elapsed
        group(run)
        seconds = os.times().elapsed - began
        print(f"{group.__name__}: {sum(reload_kit.counts) - before} checks, {seconds:.0f} s", flush=True)


skipped = []

if __name__ == "__main__":
    reload_kit.Runner = PairRunner
    sys.exit(reload_kit.main(run_groups, skipped))
