"""Runs the built reload_checkpoint on small checkpoints and compares its dumps with a plain Python reference.

    reload_checkpoint_test.py TOOL [QUANTIZE]     the executables, or the folder they lie in

The reference knows nothing of landings, phases or orders: it dequantises whole matrices, then cuts and stacks them.
"""

import json
import math
import os
import pty
import random
import struct
import subprocess
import sys

import reload_kit
from reload_kit import (BLOCKS, BUCKETS, IN_ORDER, ORDERS, QUANTIZE, SIZES, TOOL, Refusals, check, dequantise, image,
                        linear, put, read, scale_values, tool)


# --- the reference -------------------------------------------------------------------------------------------------

class Setup:
    """What the command line says of the model."""

    def __init__(self, fuse=None, parallel=None, tp=1, rank=0, block=(128, 128)):
        self.fuse, self.parallel, self.tp, self.rank, self.block = fuse or {}, parallel or {}, tp, rank, block

    def expected(self, checkpoints, partial):
        return expected(checkpoints, self, partial)

    def arguments(self):
        words = [f"--fuse={name}={','.join(modules)}" for name, modules in self.fuse.items()]
        words += [f"--parallel={leaf}={how}" for leaf, how in self.parallel.items()]
        return words + (["--tp", str(self.tp), "--rank", str(self.rank)] if self.tp > 1 else [])


def module_of(name):
    return name.rpartition(".")[0]


def is_fp8(module, checkpoints):
    has = lambda leaf, good: any(good(c[f"{module}.{leaf}"]) for c in checkpoints if f"{module}.{leaf}" in c)
    return has("weight", lambda t: t[0] == "F8_E4M3") and (
        has("weight_scale_inv", lambda t: True) or has("weight_scale", lambda t: len(t[1]) == 2))


def cut(dtype, shape, data, how, tp, rank):
    """This rank's part of a checkpoint tensor."""
    size = SIZES[dtype]
    if how == "column" and shape:
        rows = shape[0] // tp
        step = math.prod(shape[1:]) * size * rows
        return [rows, *shape[1:]], data[rank * step:(rank + 1) * step]
    if how == "row" and len(shape) > 1:
        cols = shape[1] // tp
        inner = math.prod(shape[2:]) * size
        step = shape[1] * inner
        parts = (data[row * step + rank * cols * inner:row * step + (rank + 1) * cols * inner] for row in range(shape[0]))
        return [shape[0], cols, *shape[2:]], b"".join(parts)
    return list(shape), data


def expected(checkpoints, setup, partial=False):
    """The dump after loading the checkpoints one after the other: {name: (dtype, shape, bytes)}."""
    members = {leaf: fused for fused, leaves in setup.fuse.items() for leaf in leaves}
    modules = {module_of(name) for name in checkpoints[0]}
    fp8 = {module for module in modules if is_fp8(module, checkpoints)}
    for module in set(fp8):  # a fused layer is FP8 if any member is
        parent, dot, leaf = module.rpartition(".")
        fp8 |= {parent + dot + other for other in setup.fuse.get(members.get(leaf), [])}
    values = {}  # checkpoint name -> (dtype, shape, bytes), runtime dtype
    for checkpoint in checkpoints if partial else checkpoints[-1:]:
        for name, (dtype, shape, data) in checkpoint.items():
            module, _, leaf = name.rpartition(".")
            if module in fp8 and leaf in ("weight_scale", "weight_scale_inv"):
                continue
            if dtype == "F8_E4M3":
                found = checkpoint.get(f"{module}.weight_scale_inv") or checkpoint[f"{module}.weight_scale"]
                dtype, data = "BF16", dequantise(data, *shape, scale_values(found[0], found[2]), setup.block)
            values[name] = (dtype, shape, data)
    stacks = {}  # runtime name -> checkpoint names
    for name in values:
        module, _, param = name.rpartition(".")
        parent, _, leaf = module.rpartition(".")
        if leaf not in members:
            stacks[name] = [name]
            continue
        prefix = parent + "." if parent else ""
        stacks[f"{prefix}{members[leaf]}.{param}"] = [f"{prefix}{m}.{param}" for m in setup.fuse[members[leaf]]]
    dump = {}
    for runtime, names in stacks.items():
        how = setup.parallel.get(module_of(runtime).rpartition(".")[2], "replicated") if "." in runtime else "replicated"
        parts = [cut(*values[name], how, setup.tp, setup.rank) for name in names]
        shape = parts[0][0] if len(names) == 1 or not all(s == [] for s, _ in parts) else [len(names)]
        if len(names) > 1 and parts[0][0]:
            shape = [sum(s[0] for s, _ in parts), *parts[0][0][1:]]
        dump[runtime] = (values[names[0]][0], shape, b"".join(data for _, data in parts))
    return dump


# --- models --------------------------------------------------------------------------------------------------------

def others(source):
    """What is not a linear: scalars, empties, vectors, filters, every dtype."""
    shapes = {"norm.weight": ("BF16", [127]), "bias": ("F32", [3]), "scalar": ("F32", []), "one": ("F64", [1]),
              "layers.0.k_scale": ("F32", []), "none": ("BF16", [0]), "layers.0.empty.weight": ("F16", [3, 0]),
              "layers.0.conv.weight": ("F16", [3, 1, 4]), "vision.patch.weight": ("BF16", [2, 3, 2, 1, 2]),
              "ids": ("I64", [1, 3]), "mask": ("BOOL", [5]), "codes": ("U8", [7, 3]), "small.weight": ("I8", [1, 1]),
              "e5": ("F8_E5M2", [3]), "e8": ("F8_E8M0", [2, 2]), "counts.weight": ("I32", [2])}
    return {name: (dtype, shape, source.randbytes(SIZES[dtype] * math.prod(shape)))
            for name, (dtype, shape) in shapes.items()}


# --- cases ---------------------------------------------------------------------------------------------------------

QKV = {"fused_qkv_a_proj": ["q_a_proj", "kv_a_proj"]}


def model(source, block=(128, 128), q="fp8", kv="fp8", up="fp8", spelling="weight_scale_inv", scale="F32"):
    """Two layers with a ragged fused pair, an odd linear, biases."""
    tensors = others(source)
    for i in range(2):
        at = f"model.layers.{i}"
        tensors |= linear(source, f"{at}.attn.q_a_proj", (130, 129), q, block, spelling, scale)
        tensors |= linear(source, f"{at}.mlp.up_proj", (3, 127), up, block, spelling, scale)
        tensors |= linear(source, f"{at}.attn.kv_a_proj", (67, 129), kv, block, spelling, scale)
        tensors[f"{at}.attn.q_a_proj.bias"] = ("F32", [130], source.randbytes(520))
        tensors[f"{at}.attn.kv_a_proj.bias"] = ("F32", [67], source.randbytes(268))
        tensors[f"{at}.attn.q_a_proj.k"] = ("F32", [], source.randbytes(4))
        tensors[f"{at}.attn.kv_a_proj.k"] = ("F32", [], source.randbytes(4))
    return tensors


def orders_and_buckets(run):
    source = random.Random(1)
    for name, fuse in (("plain", {}), ("fused", QKV)):
        a, b = model(source), model(source, q="bf16")
        paths = {id(c): run.folder(c, files=3, source=source) for c in (a, b)}
        for order in ORDERS:
            for bucket in BUCKETS + [None]:
                loads = random.Random(f"{order}{bucket}").choice([[a], [a, b], [a, b, a], [b, a]])
                extra = ["--bucket", bucket] if bucket else []
                run.same(f"{name}, {order}, bucket {bucket}", [paths[id(c)] for c in loads], loads, Setup(fuse),
                         "--order", order, *extra)
    run.finish()


def spellings_and_blocks(run):
    source = random.Random(2)
    for block in BLOCKS:
        for spelling, scale in (("weight_scale_inv", "F32"), ("weight_scale", "F32"), ("weight_scale", "BF16"),
                                ("weight_scale_inv", "F8_E8M0")):
            a = model(source, block, spelling=spelling, scale=scale)
            b = model(source, block, kv="bf16", up="bf16")  # the other spelling or dtype, and no scale
            paths = [run.folder(c, block=None if block == (128, 128) and c is a else block) for c in (a, b)]
            for loads in ([a], [a, b], [a, b, a], [b, a, b]):
                run.same(f"block {block}, {spelling}, {scale}", [paths[0 if c is a else 1] for c in loads], loads,
                         Setup(QKV, block=block), "--order", source.choice(ORDERS), "--bucket", source.choice(BUCKETS))
    run.finish()


def bf16_over_fp8(run):
    """A FP8 -> B BF16 without a scale -> A; a stray scale; a BF16 FIRST that a later FP8 one makes FP8."""
    source = random.Random(3)
    ways = {"fp8": model(source), "bf16": model(source, q="bf16", kv="bf16", up="bf16"),
            "stray": model(source, q="stray", kv="stray", up="stray"), "mixed": model(source, kv="bf16", up="stray")}
    paths = {way: run.folder(tensors) for way, tensors in ways.items()}
    chains = ["fp8 bf16 fp8", "bf16 fp8 bf16", "fp8 stray fp8", "stray fp8 stray", "fp8 mixed fp8", "mixed fp8 mixed",
              "bf16 fp8 mixed", "stray fp8 bf16 stray", "fp8 bf16 stray mixed", "mixed mixed", "stray stray", "bf16 bf16"]
    for chain in chains:
        for fuse in ({}, QKV):
            run.same(f"{chain} {list(fuse)}", [paths[way] for way in chain.split()], [ways[way] for way in chain.split()],
                     Setup(fuse), "--order", source.choice(ORDERS), "--bucket", source.choice(BUCKETS))
    run.finish()


def tensor_parallel(run):
    source = random.Random(4)
    fuse = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
    parallel = {"qkv_proj": "column", "gate_up_proj": "column", "o_proj": "row", "conv": "row", "lm_head": "column",
                "head": "replicated", "scaled": "column"}

    def tp_model(kinds):
        tensors = {}
        shapes = {"attn.q_proj": (260, 129), "attn.k_proj": (68, 129), "attn.v_proj": (132, 129), "attn.o_proj": (3, 576),
                  "mlp.gate_proj": (8, 127), "mlp.up_proj": (392, 127), "mlp.down.o_proj": (129, 704),
                  "lm_head": (60, 7), "head": (5, 3), "other": (127, 1)}
        for name, shape in shapes.items():
            kind = source.choice(kinds)
            tensors |= linear(source, f"l.{name}" if "." in name else name, shape, kind)
            if name.endswith(("q_proj", "k_proj", "v_proj", ".o_proj")):
                tensors[f"l.{name}.bias"] = ("BF16", [shape[0]], source.randbytes(2 * shape[0]))
        tensors["l.conv.weight"] = ("F32", [3, 4, 5], source.randbytes(240))
        tensors["l.conv.vector"] = ("F32", [3], source.randbytes(12))
        tensors["l.scaled.k_scale"] = ("F32", [], source.randbytes(4))
        tensors["l.scaled.empty"] = ("F32", [0, 3], b"")
        return tensors

    a, b = tp_model(["fp8"]), tp_model(["fp8", "bf16"])
    paths = {id(c): run.folder(c, files=2, source=source) for c in (a, b)}
    for tp in (1, 2, 4):
        for rank in range(tp):
            for loads in ([a], [a, b], [a, b, a]):
                run.same(f"tp {tp} rank {rank}, {len(loads)} loads", [paths[id(c)] for c in loads], loads,
                         Setup(fuse, parallel, tp, rank), "--order", source.choice(ORDERS), "--bucket",
                         source.choice(BUCKETS[1:]))
    run.finish()
    for block in BLOCKS:  # a row cut at 64, 192 and 352 columns
        tensors = linear(source, "l.o_proj", (130, 704), "fp8", block) | linear(source, "m.o_proj", (2, 256), "fp8", block)
        path = run.folder(tensors, block=block)
        for tp, rank in ((2, 1), (4, 1), (4, 3)):
            run.same(f"row cut, block {block}, tp {tp}", [path] * 2, [tensors] * 2,
                     Setup({}, {"o_proj": "row"}, tp, rank, block), "--bucket", 127)
    run.finish()


def partial_scope(run):
    source = random.Random(5)
    a = model(source)
    b = model(source, q="bf16", up="stray")
    first, fused = run.folder(a), Setup(QKV)
    at = "model.layers.1.attn"
    pick = lambda c, *starts: {name: t for name, t in c.items() if name.startswith(starts)}
    parts = {"one shard": pick(b, f"{at}.kv_a_proj.weight"), "one BF16 shard": pick(b, f"{at}.q_a_proj.weight"),
             "a scalar": pick(b, "scalar"), "a fused scalar": pick(b, f"{at}.kv_a_proj.k"), "a bias": pick(b, f"{at}.q_a_proj.bias"),
             "a BF16 weight beside a scale": pick(b, "model.layers.0.mlp.up_proj"), "a layer": pick(b, "model.layers.0."),
             "all": b, "an empty one": pick(b, "none")}
    paths = {what: run.folder(tensors) for what, tensors in parts.items()}
    for what, tensors in parts.items():
        for order in ORDERS[:3]:
            run.same(f"partial: {what}", [first, paths[what]], [a, tensors], fused, "--order", order, "--bucket", 127,
                     partial=True)
    for _ in range(6):
        chain = [source.choice(list(parts)) for _ in range(3)]
        run.same(f"partial: {chain}", [first, *(paths[c] for c in chain)], [a, *(parts[c] for c in chain)], fused,
                 partial=True)
    run.same("partial: FIRST alone", [first], [a], fused, partial=True)
    run.finish()


def everything_random(run):
    leaves = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    for seed in range(80):
        source = random.Random(1000 + seed)
        block, tp = source.choice(BLOCKS), source.choice([1, 1, 2, 3])
        fuse = {"qkv": ["q_proj", "k_proj", "v_proj"], "gate_up": ["up_proj", "gate_proj"]}
        fuse = {name: modules for name, modules in fuse.items() if source.random() < 0.6}
        parallel = {leaf: source.choice(["column", "row", "replicated"]) for leaf in ["qkv", "gate_up", *leaves]}
        merged = {leaf for modules in fuse.values() for leaf in modules}
        parallel = {leaf: how for leaf, how in parallel.items() if leaf not in merged and (leaf in leaves or leaf in fuse)}
        cols = {leaf: source.choice([1, 3, 43, 67, 129]) * tp for leaf in ("qkv", "gate_up", "o", "down")}
        shape = {leaf: (source.choice([1, 3, 42, 65, 127]) * tp,
                        cols["qkv" if leaf in "q_proj k_proj v_proj" else "gate_up" if leaf in "gate_proj up_proj" else "o"])
                 for leaf in leaves}

        def make(kinds):
            tensors = {}
            for prefix in ("", "m.0."):
                for leaf in leaves:
                    tensors |= linear(source, prefix + leaf, shape[leaf], source.choice(kinds), block,
                                      source.choice(["weight_scale", "weight_scale_inv"]),
                                      source.choice(["F32", "F32", "BF16", "F8_E8M0"]))
                    tensors[f"{prefix}{leaf}.bias"] = ("BF16", [shape[leaf][0]], source.randbytes(2 * shape[leaf][0]))
            return tensors

        checkpoints = [make(["fp8"]), make(["fp8", "fp8", "bf16", "stray"]), make(["fp8", "bf16"])]
        paths = [run.folder(c, block=block, files=source.choice([1, 2, 5]), source=source) for c in checkpoints]
        picks = [0] + [source.randrange(3) for _ in range(source.randrange(4))]
        run.same(f"random {seed}", [paths[i] for i in picks], [checkpoints[i] for i in picks],
                 Setup(fuse, parallel, tp, source.randrange(tp), block), "--order",
                 source.choice(ORDERS + [f"shuffle:{seed}"]), "--bucket", source.choice(BUCKETS[1:]))
        if seed % 20 == 19:
            run.finish()
    run.finish()


def files_and_shapes(run):
    source = random.Random(6)
    a, b = model(source), model(source)
    single = put(run.path("file") + ".safetensors", image(a))
    run.same("one file", [single, single], [a, a], Setup(QKV))
    loose = run.folder(b, files=4, index=False, source=source)
    run.same("a folder without an index", [loose], [b], Setup(QKV))
    run.same("a file, then a folder", [single, loose + "/"], [a, b], Setup(QKV))
    for rows in (1, 3, 127, 129, 576):
        for cols in (1, 3, 127, 129, 576):
            if rows * cols > 80000:
                continue
            tensors = linear(source, "x", (rows, cols), "fp8") | linear(source, "y.z", (cols, rows), "fp8", (128, 128),
                                                                         "weight_scale", "BF16")
            path = run.folder(tensors)
            run.same(f"{rows} x {cols}", [path], [tensors], Setup(), "--order", "reverse", "--bucket", 127)
    empty = linear(source, "x", (0, 5), "fp8") | linear(source, "y", (5, 0), "fp8")
    run.same("FP8 without elements", [run.folder(empty)] * 2, [empty] * 2, Setup())
    # Scalars: [] and [1] stand for each other.
    scalar, one = {"s": ("F32", [], b"abcd")}, {"s": ("F32", [1], b"efgh")}
    paths = [run.folder(c) for c in (scalar, one)]
    for first, then in ((0, 1), (1, 0)):
        dump = run.path("dump")
        code, _, err = tool(paths[first], paths[then], "--dump", dump)
        check(code == 0 and read(dump)["s"] == ("F32", [[], [1]][first], [b"abcd", b"efgh"][then]), "[] and [1]", err)
    # A wide mix of fused names: a rename, a fused top-level pair, rules that meet nothing.
    tensors = linear(source, "a", (3, 4), "fp8") | linear(source, "b", (2, 4), "bf16") | linear(source, "p.c", (2, 2), "bf16")
    run.same("top-level modules", [run.folder(tensors)], [tensors], Setup({"ab": ["b", "a"], "d": ["c"]}))
    run.same("rules that meet nothing", [run.folder(tensors)], [tensors], Setup({"xy": ["x", "y"]}, {"z": "row"}),
             warnings=["--fuse xy: the model has none of its modules", "--parallel z: the model has no layer of this name"])
    run.same("a known backend", [single], [a], Setup(), "--backend", "cutlass", "--mode", "direct", "--undo", "none")
    run.finish()


def words_and_options(run):
    source = random.Random(7)
    path = run.folder(model(source))
    code, out, err = tool(path, path)
    check(code == 0 and err == "" and "0 mismatched, 0 moved, 0 bytes" in out and path in out, "in words", f"{out}{err}")
    code, out, err = tool(path, "--json", "--no-audit")
    keys = ["state", "version", "tensors", "bytes", "seconds", "gb_per_s", "pause_seconds", "peak_extra_device_bytes",
            "warnings", "audit"]
    check(code == 0 and list(json.loads(out)) == keys and json.loads(out)["audit"] is None, "--no-audit", out + err)
    code, out, err = tool(path, "--json", "--device", "auto")
    found = json.loads(out)
    check(list(found) == keys and list(found["audit"]) == ["compared", "mismatched", "moved", "memory_growth", "retired",
                                                           "names"], "keys", out)
    check(found["audit"]["retired"] == 6 and set(found["seconds"]) >= {"load", "prepare", "commit", "publish"}
          and found["gb_per_s"] > 0, "figures", out)
    code, out, err = tool("--help")
    check(code == 0 and err == "" and "--fuse" in out, "--help", err)
    # A progress line on a terminal only.
    for words in ([], IN_ORDER):
        near, far = pty.openpty()
        done = subprocess.run([TOOL, path, "--no-audit", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=far, timeout=300)
        os.close(far)
        shown = b""
        try:
            while chunk := os.read(near, 65536):
                shown += chunk
        except OSError:
            pass  # the other end is closed
        os.close(near)
        check(done.returncode == 0 and b"100 %" in shown and shown.endswith(b"\r\x1b[K"), f"progress on a terminal {words}",
              shown)


def quantised(run):
    """What quantize_checkpoint writes is read, and dequantises to what the reference says."""
    if not os.path.exists(QUANTIZE):
        return
    source = random.Random(8)
    floats = lambda *shape: ("F32", list(shape), struct.pack(f"<{math.prod(shape)}f",
                                                             *(source.gauss(0, 1) for _ in range(math.prod(shape)))))
    original = run.folder({"l.q.weight": floats(130, 70), "l.k.weight": floats(7, 70), "l.q.bias": floats(130),
                           "l.k.bias": floats(7), "norm.weight": floats(70)})
    loads, paths = [], []
    for extra in ([], ["--perturb", "1", "--shards", "3"], ["--perturb", "2", "--scale-dtype", "BF16", "--scale-name",
                                                           "weight_scale"]):
        paths.append(run.path("q"))
        done = subprocess.run([QUANTIZE, original, paths[-1], "--block", "64,64", *extra], capture_output=True)
        check(done.returncode == 0, "quantize_checkpoint", done.stderr)
        loads.append({})
        for name in sorted(os.listdir(paths[-1])):
            if name.endswith(".safetensors"):
                loads[-1] |= read(os.path.join(paths[-1], name))
    setup = Setup({"qk": ["q", "k"]}, block=(64, 64))
    for picks in ([0], [0, 1], [0, 1, 0], [2, 1, 2]):
        run.same(f"quantised {picks}", [paths[i] for i in picks], [loads[i] for i in picks], setup)
    run.finish()


# --- refusals ------------------------------------------------------------------------------------------------------

def refuse_usage(r):
    ok = r.path
    for words, *names in (
            ([], "FIRST"), ([ok, "--frob"], "--frob"), ([ok, "--tp", "0"], "--tp"), ([ok, "--tp", "x"], "--tp"),
            ([ok, "--tp", "2", "--rank", "2"], "--rank"), ([ok, "--rank", "1"], "--rank"), ([ok, "--rank=-1"], "--rank"),
            ([ok, "--tp", "99999999999"], "--tp"), ([ok, "--bucket", "0"], "--bucket"), ([ok, "--bucket=-1"], "--bucket"),
            ([ok, "--bucket", "1k"], "--bucket"), ([ok, "--bucket", str(2**63)], "--bucket"),
            ([ok, "--bucket", "1", "--bucket", "2"], "--bucket"), ([ok, "--order", "random"], "--order"),
            ([ok, "--order", "shuffle"], "--order"), ([ok, "--order", "shuffle:"], "--order"),
            ([ok, "--order", "shuffle:-1"], "--order"), ([ok, "--order", f"shuffle:{2**64}"], "--order"),
            ([ok, "--fuse", "x"], "--fuse"), ([ok, "--fuse", "x="], "--fuse"), ([ok, "--fuse", "=a"], "--fuse"),
            ([ok, "--fuse", "x=a,"], "--fuse"), ([ok, "--fuse", "x=a.b"], "--fuse"), ([ok, "--fuse", "x=a,a"], "--fuse"),
            ([ok, "--fuse", "x=a,b", "--fuse", "y=b,c"], "--fuse", "b"), ([ok, "--fuse", "x=a", "--fuse", "x=b"], "--fuse"),
            ([ok, "--parallel", "x"], "--parallel"), ([ok, "--parallel", "x=diagonal"], "--parallel"),
            ([ok, "--parallel", "=row"], "--parallel"), ([ok, "--parallel", "x=row", "--parallel", "x=column"], "--parallel"),
            ([ok, "--device", "tpu"], "--device"), ([ok, "--scope", "half"], "--scope"), ([ok, "--mode", "fast"], "--mode"),
            ([ok, "--undo", "disk"], "--undo"), ([ok, "--backend", "x"], "--backend"), ([ok, "--budget", "x"], "--budget"),
            ([ok, "--keep-fp8", "mlp.up_proj"], "--keep-fp8", "mlp.up_proj"), ([ok, "--mode", ""], "--mode"),
            ([ok, "--mode", "Staged"], "--mode"), ([ok, "--mode", "swap", "--mode", "swap"], "--mode"),
            *(([ok, "--mode", "staged", f"--budget={budget}"], "--budget", budget) for budget in
              ("0", "-1", "1k", "1.5", str(2**63), "")),
            # What a mode has no use for.
            ([ok, "--budget", "1000"], "--budget", "direct"), ([ok, "--mode", "direct", "--budget", "1000"], "--budget", "direct"),
            ([ok, "--mode", "swap", "--budget", "1000"], "--budget", "swap"),
            ([ok, "--mode", "swap", "--undo", "host"], "--undo", "host")):
        r.expect(f"usage {words[1:]}", words, *names)
    code, out, err = tool(ok, "--dump=")
    check(code == 2 and err.count("\n") == 1 and "--dump" in err, "usage --dump=", err)
    r.finish()


def refuse_in_order(r):
    """What came before a refused tensor was written, so that the order shows in the state."""
    weight, scale = linear(r.source, "x", (2, 2), "fp8").items()
    first = r.run.folder(dict([weight, scale]) | {"y": ("F32", [1], b"1234")})
    bad = ("F32", [3], bytes(12))
    for what, tensors, live in (
            ("a bad weight", [(weight[0], bad), scale], ["file", "weights-first"]),
            ("a bad scale", [weight, (scale[0], bad)], ["reverse", "scales-first"]),
            ("a bad scale before its weight", [(scale[0], bad), weight], ["file", "scales-first"]),
            ("a bad tensor between", [weight, ("y", bad), scale], [])):
        path = put(r.run.path("ordered") + ".safetensors", image(dict(tensors)))
        for order in ("file", "reverse", "scales-first", "weights-first"):
            for bucket in ([], ["--bucket", "1"], ["--bucket", "1000"]):
                state = "live" if order in live or bucket[1:] == ["1000"] else "undefined"  # a bucket is all or nothing
                r.expect(f"{what}, {order} {bucket}", [first, path, "--order", order, *bucket], path, state=state, version=1)
    states = [json.loads(tool(first, path, "--order", f"shuffle:{seed}", "--json")[1])["state"] for seed in range(12)]
    again = [json.loads(tool(first, path, "--order", f"shuffle:{seed}", "--json")[1])["state"] for seed in range(12)]
    check(states == again and len(set(states)) == 2, "seeds give different orders, and the same twice", states)


def refuse_formats(r):
    bytes_of = r.source.randbytes
    at = "model.layers.0.mlp.up_proj"
    for where in ("FIRST", "NEXT"):
        def one(what, changes, *names, base=None):
            path = r.changed(changes, base)
            r.expect(f"{what} in {where}", [path] if where == "FIRST" else [r.path, path], path, *names)

        one("FP8 without a scale", {"f.weight": ("F8_E4M3", [2, 2], bytes_of(4))}, "f.weight")
        one("FP8 with a 0-d scale", {"f.weight": ("F8_E4M3", [2, 2], bytes_of(4)), "f.weight_scale": ("F32", [], bytes_of(4))},
            "f.weight")
        one("FP8 with a 1-d scale", {"f.weight": ("F8_E4M3", [2, 2], bytes_of(4)), "f.weight_scale": ("F32", [1], bytes_of(4))},
            "f.weight")
        one("FP8 that is no weight", {"f.table": ("F8_E4M3", [2, 2], bytes_of(4))}, "f.table")
        one("FP8 without a module", {"weight": ("F8_E4M3", [2, 2], bytes_of(4)), "weight_scale_inv": ("F32", [1, 1], bytes_of(4))},
            "weight")
        one("FP8 vector", {"f.weight": ("F8_E4M3", [2], bytes_of(2)), "f.weight_scale_inv": ("F32", [1, 1], bytes_of(4))},
            "f.weight")
        one("FP8 filter", {"f.weight": ("F8_E4M3", [1, 2, 2], bytes_of(4)), "f.weight_scale_inv": ("F32", [1, 1], bytes_of(4))},
            "f.weight")
        one("E5M2 weight", {"f.weight": ("F8_E5M2", [1, 2], bytes_of(2))}, "f.weight")
    path = r.changed({f"{at}.weight": None})
    r.expect("a scale without its weight in FIRST", [path], path, f"{at}.weight")
    for what, changes, name in (
            ("scale", {f"{at}.weight_scale_inv": None}, f"{at}.weight_scale_inv"),
            ("scale, wrong grid", {f"{at}.weight_scale_inv": ("F32", [1, 2], bytes_of(8))}, f"{at}.weight_scale_inv"),
            ("scale, 1-d", {f"{at}.weight_scale_inv": ("F32", [3], bytes_of(12))}, f"{at}.weight_scale_inv"),
            ("scale in F16", {f"{at}.weight_scale_inv": ("F16", [1, 1], bytes_of(2))}, f"{at}.weight_scale_inv"),
            ("scale in FP8", {f"{at}.weight_scale_inv": ("F8_E4M3", [1, 1], bytes_of(1))}, f"{at}.weight_scale_inv"),
            ("two spellings", {f"{at}.weight_scale": ("F32", [1, 1], bytes_of(4))}, f"{at}.weight_scale"),
            ("weight in F16", {f"{at}.weight": ("F16", [3, 127], bytes_of(762))}, f"{at}.weight"),
            ("weight in F32", {f"{at}.weight": ("F32", [3, 127], bytes_of(1524))}, f"{at}.weight"),
            ("weight, other shape", {f"{at}.weight": ("F8_E4M3", [127, 3], bytes_of(381))}, f"{at}.weight"),
            ("weight left out", {f"{at}.weight": None}, f"{at}.weight"),
            ("vector left out", {"norm.weight": None}, "norm.weight"),
            ("vector, other length", {"norm.weight": ("BF16", [126], bytes_of(252))}, "norm.weight"),
            ("vector, other rank", {"norm.weight": ("BF16", [127, 1], bytes_of(254))}, "norm.weight"),
            ("vector, other dtype", {"norm.weight": ("F16", [127], bytes_of(254))}, "norm.weight"),
            ("vector, wider", {"norm.weight": ("F32", [127], bytes_of(508))}, "norm.weight"),
            ("narrower", {"bias": ("BF16", [3], bytes_of(6))}, "bias"),
            ("scalar left out", {"scalar": None}, "scalar"),
            ("scalar of two", {"scalar": ("F32", [2], bytes_of(8))}, "scalar"),
            ("a new layer", linear(r.source, "new.layer", (2, 2), "fp8"), "new.layer.weight"),
            ("a new tensor", {"new": ("F32", [1], bytes_of(4))}, "new"),
            ("a stray scale of a plain weight", {"norm.weight_scale": ("F32", [1], bytes_of(4))}, "norm.weight_scale")):
        path = r.changed(changes)
        # In file order norm.weight comes first.
        for words, is_live in (IN_ORDER, what.startswith("vector, ")), ([], None not in changes.values()):
            r.expect(f"NEXT: {what} {words}", [r.path, path, r.path, *words], path, name, version=1,
                     state="live" if is_live else "undefined")
    path = r.changed({f"{at}.weight_scale_inv": None})
    r.expect("a scale that only NEXT has", [path, r.path], path, f"{at}.weight_scale_inv")
    # Nothing was written yet: the weights still serve.
    path = r.changed({"aaa": ("F32", [1], bytes_of(4))}, base={})
    r.expect("refused before any write", [r.path, path], path, "aaa", state="live", version=1)
    refuse_in_order(r)
    path = r.run.folder({})
    r.expect("nothing sent", [r.path, path], path, version=1, state="live")
    r.expect("an empty FIRST", [path], path)
    path = r.changed({"bad\nname\x1b": ("F32", [1], bytes_of(4))})
    r.expect("a name with control characters", [r.path, path], path, "bad\\x0aname\\x1b", version=1, state="live")
    # A scale of a weight that is FP8 nowhere and has none in FIRST; the same beside an FP8 one is taken.
    stray = linear(r.source, "x", (2, 2), "stray")
    a, b = r.run.folder({"x.weight": stray["x.weight"]}), r.run.folder(stray)
    r.expect("a stray scale without a layout", [a, b], b, "x.weight_scale_inv", version=1, state="live")
    r.finish()


def refuse_partial(r):
    at = "model.layers.0.attn.q_a_proj"
    take = lambda *names: {name: r.good[name] for name in names}
    for what, tensors, name, state in (
            ("an FP8 weight without its scale", take(f"{at}.weight"), f"{at}.weight_scale_inv", "undefined"),
            ("a scale without its weight", take(f"{at}.weight_scale_inv"), f"{at}.weight", "undefined"),
            ("one of two scales", take(f"{at}.weight", f"{at}.weight_scale_inv", "model.layers.1.attn.q_a_proj.weight"),
             "model.layers.1.attn.q_a_proj.weight_scale_inv", "undefined"),
            ("an unknown name", take("scalar") | {"new": ("F32", [], b"1234")}, "new", "live"),
            ("another shape", {"scalar": ("F32", [2], b"12345678")}, "scalar", "live"),
            ("nothing", {}, "", "live")):
        path = r.run.folder(tensors)
        for fuse in ([], ["--fuse", "fused_qkv_a_proj=q_a_proj,kv_a_proj"]):
            r.expect(f"partial: {what} {fuse}", [r.path, path, r.path, "--scope", "partial", *fuse], path, name, state=state,
                     version=1)
    path = r.changed({"scalar": None})
    r.expect("partial: FIRST is complete", [path, r.path, "--scope", "partial"], r.path, "scalar", version=1, state="live")
    r.finish()


def refuse_fuse_and_split(r):
    ok = r.path
    bias = "model.layers.1.attn.kv_a_proj.bias"
    path = r.changed({bias: None})
    fuse = ["--fuse", "fused_qkv_a_proj=q_a_proj,kv_a_proj"]
    r.expect("fuse: a bias is missing", [path, *fuse], path, bias)
    module = "model.layers.1.attn.kv_a_proj"
    path = r.changed({name: None for name in r.good if name.startswith(module)})
    r.expect("fuse: a module is missing", [path, *fuse], path, module)
    r.expect("fuse: a module is missing everywhere", [ok, "--fuse", "x=q_a_proj,nope"], ok, "model.layers.0.attn.nope")
    rows = {"p.a.weight": ("BF16", [2, 3], bytes(12)), "p.b.weight": ("BF16", [2, 4], bytes(16))}
    path = r.run.folder(rows)
    r.expect("fuse: other columns", [path, "--fuse", "ab=a,b"], path, "p.b.weight")
    path = r.run.folder(rows | {"p.b.weight": ("F16", [2, 3], bytes(12))})
    r.expect("fuse: another dtype", [path, "--fuse", "ab=a,b"], path, "p.b.weight")
    path = r.run.folder(linear(r.source, "p.a", (2, 3), "fp8") | linear(r.source, "p.b", (2, 4), "fp8"))
    r.expect("fuse: FP8 of other columns", [path, "--fuse", "ab=a,b"], path, "p.b")
    path = r.run.folder(rows | {"p.b.weight": ("BF16", [2], bytes(4))})
    r.expect("fuse: another rank", [path, "--fuse", "ab=a,b"], path, "p.b.weight")
    path = r.run.folder(rows | {"p.ab.weight": ("BF16", [1], bytes(2)), "p.b.weight": ("BF16", [2, 3], bytes(12))})
    r.expect("fuse: the name is taken", [path, "--fuse", "ab=a,b"], path, "p.ab.weight")
    for tp, rule, name in ((2, "up_proj=column", "mlp.up_proj"), (2, "up_proj=row", "mlp.up_proj"),
                           (4, "q_a_proj=column", "attn.q_a_proj"), (2, "norm=column", "norm"), (7, "conv=row", "conv"),
                           (2, "vision=row", "")):
        if name:
            r.expect(f"split: {rule} over {tp}", [ok, "--tp", tp, "--rank", 1, "--parallel", rule], ok, name)
    r.expect("split: a fused module", [ok, *fuse, "--tp", 2, "--parallel", "fused_qkv_a_proj=column"], ok, "kv_a_proj")
    r.finish()


def refuse_blocks(r):
    source = r.source
    for block in BLOCKS:
        for config in BLOCKS:
            if block != config:
                a, b = (r.run.folder(model(source, size), block=size) for size in (block, config))
                r.expect(f"blocks {block} then {config}", [a, b], b, "weight_block_size", "%dx%d" % config)
    small = linear(source, "x", (5, 5), "fp8")
    path = r.run.folder(small, block=(32, 32))
    r.expect("a block size that is not compiled in", [path], path, "32x32", "128x128", "64x64", "1x128", "128x1")
    a, b = r.run.folder(small), r.run.folder(small, block=(64, 64))
    r.expect("FIRST has the default, NEXT another", [a, b], b, "64x64")
    for text in ("{", "[]", "", '{"quantization_config": 3}', '{"quantization_config": {"weight_block_size": [0, 1]}}',
                 '{"quantization_config": {"weight_block_size": [128]}}', "\x00"):
        path = r.run.folder(small)
        put(os.path.join(path, "config.json"), text)
        r.expect(f"config.json {text!r}", [path], os.path.join(path, "config.json"))
        r.expect(f"config.json {text!r} in NEXT", [a, path], os.path.join(path, "config.json"))
    path = r.run.folder(small)
    os.mkdir(os.path.join(path, "config.json"))
    r.expect("config.json is a folder", [path], os.path.join(path, "config.json"))
    r.finish()


def refuse_files(r):
    def header(text, data=b"", length=None):
        text = text.encode() if isinstance(text, str) else text
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    entry = lambda dtype="F32", shape="[1]", offsets="[0,4]": f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'
    whole = image(r.good)
    broken = {
        "empty": b"", "short": b"1234567", "no header": struct.pack("<Q", 0), "huge header": struct.pack("<Q", 2**63) + b"{}",
        "longest header": struct.pack("<Q", 2**64 - 1) + b"{}", "long header": struct.pack("<Q", 10**8) + b"{}",
        "not JSON": header("{" * 5), "deep": header('{"x":' + "[" * 100000 + "]" * 100000 + "}"), "a list": header("[]"),
        "truncated": whole[:-1], "trailing": whole + b"x", "half a header": whole[:200], "zero byte": header('{"x\0":1}'),
        "two values": header("{}{}"), "not UTF-8": header(b'{"\xff":1}')}
    entries = {
        "unknown dtype": entry("F4"), "dtype is a number": '{"dtype":1,"shape":[1],"data_offsets":[0,4]}',
        "no dtype": '{"shape":[1],"data_offsets":[0,4]}', "no shape": '{"dtype":"F32","data_offsets":[0,4]}',
        "no offsets": '{"dtype":"F32","shape":[1]}', "negative dim": entry(shape="[-1]"), "huge dim": entry(shape=f"[{2**64}]"),
        "float dim": entry(shape="[1.0]"), "product wraps": entry(shape=f"[{2**32},{2**32}]"),
        "product wraps to 4": entry(shape=f"[{2**62},{2**2},1]"), "9 dims": entry(shape="[1,1,1,1,1,1,1,1,1]"),
        "size is not the shape's": entry(shape="[2]"), "begin after end": entry(offsets="[4,0]"),
        "beyond the data": entry(offsets="[0,8]"), "negative offset": entry(offsets="[-4,0]"), "one offset": entry(offsets="[0]"),
        "three offsets": entry(offsets="[0,4,4]"), "unknown key": '{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}',
        "a hole": entry(offsets="[4,8]"), "not an object": "3"}
    cases = [(name, data, "") for name, data in broken.items()]
    cases += [(name, header('{"some.tensor":' + text + "}", bytes(4 if name != "a hole" else 8)), "some.tensor")
              for name, text in entries.items()]
    cases += [("overlap", header(f'{{"a":{entry()},"some.tensor":{entry(offsets="[2,6]")}}}', bytes(6)), "some.tensor"),
              ("a name twice", header(f'{{"some.tensor":{entry()},"some.tensor":{entry(offsets="[4,8]")}}}', bytes(8)), "some.tensor"),
              ("metadata is a list", header('{"__metadata__":[]}'), "__metadata__")]
    for what, data, name in cases:
        path = put(r.run.path("bad") + ".safetensors", data)
        r.expect(f"file: {what}", [path], path, name)
        if what in ("truncated", "unknown dtype"):
            r.expect(f"file: {what} in NEXT", [r.path, path], path, name)
            folder = r.run.folder({"x": ("F32", [1], b"1234")})
            path = put(os.path.join(folder, "more.safetensors"), data)
            r.expect(f"file: {what} in a folder", [folder], path, name)
    missing = r.run.path("missing")
    r.expect("no such path", [missing], missing)
    r.expect("no such NEXT", [r.path, missing], missing)
    empty = r.run.path("empty")
    os.mkdir(empty)
    r.expect("an empty folder", [empty], empty)
    fifo = r.run.path("fifo")
    os.mkfifo(fifo)
    r.expect("a pipe", [fifo], fifo)
    dangling = r.run.path("folder")
    os.mkdir(dangling)
    os.symlink("nowhere", os.path.join(dangling, "x.safetensors"))
    r.expect("a dangling link", [dangling], os.path.join(dangling, "x.safetensors"))
    # Folders and their index.
    two = {"x": ("F32", [1], b"1234"), "y": ("F32", [1], b"5678")}
    index_name = "model.safetensors.index.json"
    files = {"x": "model-00001-of-00002.safetensors", "y": "model-00002-of-00002.safetensors"}
    for what, weight_map, *names in (
            ("a file that is not there", files | {"y": "gone.safetensors"}, "y", "gone.safetensors"),
            ("a tensor that is not there", files | {"z": files["x"]}, "z"),
            ("a tensor in another file", {"x": files["y"], "y": files["x"]}, "x"),
            ("a tensor left out", {"x": files["x"]}, files["y"]), ("outside the folder", files | {"y": "../y.safetensors"}, "y"),
            ("a number", files | {"y": 3}, "y"), ("a list", [], "weight_map")):
        path = r.run.folder(two, files=2)
        put(os.path.join(path, index_name), json.dumps({"weight_map": weight_map}))
        r.expect(f"index: {what}", [path], path, *names)
    for text in ("", "{", "[]", "{}", '{"weight_map": null}'):
        path = r.run.folder(two, files=2)
        put(os.path.join(path, index_name), text)
        r.expect(f"index: {text!r}", [path], os.path.join(path, index_name))
    path = r.run.folder(two)
    put(os.path.join(path, "other.safetensors"), image({"y": two["y"]}))
    r.expect("a name in two files", [path], path, "y", "other.safetensors")
    r.finish()


def refuse_dump(run):
    path = run.folder(model(random.Random(10)))
    for target in (os.path.join(run.work, "no", "such", "folder"), run.work, "/dev/full"):
        code, out, err = tool(path, "--json", "--dump", target)
        found = json.loads(out)
        check(code == 2 and err.count("\n") == 1 and target in err and (found["state"], found["version"]) == ("live", 1),
              f"dump to {target}", err + out)
    check(not [name for name in os.listdir(run.work) if ".tmp-" in name], "nothing is left of a failed dump")


def run_groups(run):
    for group in (orders_and_buckets, spellings_and_blocks, bf16_over_fp8, tensor_parallel, partial_scope,
                  files_and_shapes, words_and_options, quantised, everything_random):
        group(run)
    source = random.Random(9)
    refusals = Refusals(run, source, model(source))
    for group in (refuse_usage, refuse_formats, refuse_partial, refuse_fuse_and_split, refuse_blocks, refuse_files):
        group(refusals)
    refuse_dump(run)


if __name__ == "__main__":
    sys.exit(reload_kit.main(run_groups))
