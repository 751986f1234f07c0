"""Runs the built reload_checkpoint on models that stay quantised, and on stacked experts, and compares its dumps with a
plain Python reference written from the formulas of the formats.

    reload_runtimes_test.py TOOL        the executable, or the folder it lies in

The reference knows nothing of landings or maps: it stacks whole checkpoint tensors, cuts them for the rank, pads,
gathers rows by their sources and only then places scales in 128x4 order.
"""

import json
import math
import random
import struct
import sys

import reload_kit
from reload_kit import (BUCKETS, IN_ORDER, ORDERS, Refusals, bits_value, check, dequantise, f32_bits, linear, scale_values,
                        tool)

BACKENDS = ["cutlass", "trtllm"]
PROJECTIONS = ["gate_proj", "up_proj", "down_proj"]


# --- formulas ------------------------------------------------------------------------------------------------------

def up_to(x, multiple):
    return -(-x // multiple) * multiple


def f32(value):
    return bits_value(f32_bits(value))


def packed_f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def padded(rows, count, width):
    """`rows` of bytes with zero bytes up to `width` and zero rows up to `count`."""
    return [row + bytes(width - len(row)) for row in rows] + [bytes(width)] * (count - len(rows))


def shuffled(rows):
    """TRT-LLM, blocks of 32 rows: new[i] = old[src(i)]."""
    return [rows[32 * (i // 32) + 4 * (i % 8) + (i % 32) // 8] for i in range(len(rows))]


def interleaved_and_shuffled(rows):
    """TRT-LLM, gated: the two halves of `rows` alternate, then the rows are shuffled."""
    half = len(rows) // 2
    return [rows[half * (i // 8 % 2) + 16 * (i // 32) + 2 * (i % 8) + i % 32 // 16] for i in range(len(rows))]


def swizzled(rows):
    """128x4 order of scale rows; rows a multiple of 128, columns of 4."""
    tiles = len(rows[0]) // 4
    out = bytearray(len(rows) * len(rows[0]))
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            out[r // 128 * tiles * 512 + c // 4 * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = value
    return bytes(out)


# Worked rows of formats.md: 2.2 (200 x 5), 2.3 (I = 64).
_probe = swizzled(padded([bytes([r % 251, 7, 7, 7, r % 241]) for r in range(200)], 256, 8))
assert _probe[16] == 1 and _probe[4] == 32 and _probe[1012] == 63 and _probe[1024] == 128 and _probe[1656] == 199
assert len(_probe) == 2048 and _probe[1023] == 0 and _probe[2047] == 0
assert [r for r in interleaved_and_shuffled(list(range(128)))[:18]] == [0, 2, 4, 6, 8, 10, 12, 14, *range(64, 80, 2), 1, 3]
assert interleaved_and_shuffled(list(range(128))).index(17) == 48 and shuffled(list(range(32)))[:9] == [*range(0, 32, 4), 1]
_old = list(range(96))  # the composed form of 2.3: interleave, then shuffle
assert interleaved_and_shuffled(_old) == shuffled([_old[i // 2 + 48 * (i % 2)] for i in range(96)])


# --- the reference -------------------------------------------------------------------------------------------------

def rows_of(tensor):
    """Rows of bytes of a 2-d tensor of one byte an element."""
    _, (count, width), data = tensor
    return [data[r * width:(r + 1) * width] for r in range(count)]


def cut_rows(rows, how, tp, rank):
    if how == "column":
        step = len(rows) // tp
        return rows[rank * step:(rank + 1) * step]
    if how == "row":
        step = len(rows[0]) // tp
        return [row[rank * step:(rank + 1) * step] for row in rows]
    return rows


def scalar(tensor):
    return struct.unpack("<f", tensor[2])[0]


def fp32_grid(tensor):
    """A scale grid widened to rows of FP32 bytes."""
    dtype, (_, across), data = tensor
    words = scale_values(dtype, data)
    return [struct.pack(f"<{across}I", *words[i:i + across]) for i in range(0, len(words), across)]


class Nvfp4:
    """An NVFP4 linear, fused from modules of (rows, columns in values)."""

    def __init__(self, name, modules, cols, how="replicated"):
        self.name, self.modules, self.cols, self.how = name, modules, cols, how

    def fresh(self, source, input_scale=True, same_scale=True, unshaped=False):
        tensors, shared = {}, f32(source.uniform(1e-4, 2e-3))
        for module, rows in self.modules.items():
            second = shared if same_scale else f32(source.uniform(1e-4, 2e-3))
            tensors |= nvfp4(source, module, rows, self.cols, second, input_scale, [1] if unshaped else [])
        return tensors

    def dump(self, values, setup):
        part = lambda leaf: sum((cut_rows(rows_of(values[f"{m}.{leaf}"]), self.how, setup.tp, setup.rank)
                                 for m in self.modules), [])
        weight, scale = part("weight"), part("weight_scale")
        count, across = len(weight), len(scale[0])
        if setup.backend == "trtllm":
            weight = shuffled(padded(weight, up_to(count, 128), 8 * up_to(across, 4)))
            scale = shuffled(padded(scale, up_to(count, 128), up_to(across, 4)))
        else:
            weight = padded(weight, up_to(count, 32), up_to(16 * across, 32) // 2)
            scale = padded(scale, up_to(count, 128), up_to(across, 4))
        inputs = [scalar(values[f"{m}.input_scale"]) for m in self.modules]
        second = max(scalar(values[f"{m}.weight_scale_2"]) for m in self.modules)
        return {f"{self.name}.weight": ("U8", [len(weight), len(weight[0])], b"".join(weight)),
                f"{self.name}.weight_scale_interleaved": ("F8_E4M3", [len(scale), len(scale[0])], swizzled(scale)),
                f"{self.name}.input_scale": ("F32", [len(inputs)], packed_f32(inputs)),
                f"{self.name}.alpha": ("F32", [], packed_f32([f32(max(inputs) * second)])),
                f"{self.name}.input_scale_inv": ("F32", [], packed_f32([f32(1 / max(inputs))]))}


def nvfp4(source, module, rows, cols, second, input_scale, shape):
    tensors = {f"{module}.weight": ("U8", [rows, cols // 2], source.randbytes(rows * cols // 2)),
               f"{module}.weight_scale": ("F8_E4M3", [rows, cols // 16], source.randbytes(rows * cols // 16)),
               f"{module}.weight_scale_2": ("F32", shape, packed_f32([second]))}
    if input_scale:
        tensors[f"{module}.input_scale"] = ("F32", shape, packed_f32([source.uniform(1e-3, 0.5)]))
    return tensors


class Nvfp4Experts:
    def __init__(self, name, count, inner, hidden, gated=True):
        self.name, self.count, self.inner, self.hidden = name, count, inner, hidden
        self.modules = PROJECTIONS if gated else PROJECTIONS[1:]

    def fresh(self, source, input_scale=True, only=None):
        tensors = {}
        for e in range(self.count) if only is None else only:
            for module in self.modules:
                rows, cols = (self.hidden, self.inner) if module == "down_proj" else (self.inner, self.hidden)
                tensors |= nvfp4(source, f"{self.name}.{e}.{module}", rows, cols, f32(source.uniform(1e-4, 2e-3)),
                                 input_scale, [])
        return tensors

    def dump(self, values, setup):
        trtllm, experts, gated = setup.backend == "trtllm", range(self.count), len(self.modules) == 3
        get = lambda e, module, leaf: values[f"{self.name}.{e}.{module}.{leaf}"]
        halves = ["up_proj", "gate_proj"] if gated else ["up_proj"]
        scalars = lambda leaf, modules: [scalar(get(e, m, leaf)) for e in experts for m in modules]

        def stack(leaf, modules):
            def of(e, module):
                how = "replicated" if setup.experts != "column" else "row" if module == "down_proj" else "column"
                return cut_rows(rows_of(get(e, module, leaf)), how, setup.tp, setup.rank)
            return [sum((of(e, m) for m in modules), []) for e in experts]

        out = {}
        for param, modules in (("w13", halves), ("w2", ["down_proj"])):
            order = (interleaved_and_shuffled if len(modules) == 2 else shuffled) if trtllm else lambda rows: rows
            weights = [order(rows) for rows in stack("weight", modules)]
            scales = [order(rows) for rows in stack("weight_scale", modules)]
            scales = [padded(rows, up_to(len(rows), 128), up_to(len(rows[0]), 4)) for rows in scales]
            shape = lambda stacked: [self.count, len(stacked[0]), len(stacked[0][0])]
            out[f"{param}_weight"] = ("U8", shape(weights), b"".join(sum(weights, [])))
            out[f"{param}_blockscale_swizzled"] = ("F8_E4M3", shape(scales), b"".join(swizzled(rows) for rows in scales))
        per_expert = lambda values: ("F32", [self.count], packed_f32([f32(v) for v in values]))
        for param, modules in (("w13", [m for m in self.modules if m != "down_proj"]), ("w2", ["down_proj"])):
            inputs = scalars("input_scale", modules)
            out[f"{param}_input_scale"] = ("F32", [self.count, len(modules)], packed_f32(inputs))
            out[f"{param}_input_scale_quant"] = ("F32", [], packed_f32([f32(1 / max(inputs))]))
            alphas = {m: [f32(max(inputs) * v) for v in scalars("weight_scale_2", [m])] for m in modules}
            if param == "w2":
                out["g2_alphas"] = per_expert(alphas["down_proj"])
            else:
                out["g1_alphas"] = per_expert(alphas[modules[0]])
                if gated:
                    out["g1_alphas_up"] = per_expert(alphas["up_proj"])
                up_alphas = alphas["up_proj"]
        if trtllm:
            quant = f32(1 / max(scalars("input_scale", ["down_proj"])))
            out["g1_scale_c"] = per_expert([quant * v for v in up_alphas])
        return {f"{self.name}.{param}": tensor for param, tensor in out.items()}


class BlockFp8:
    """A linear that stays block FP8 (`--keep-fp8`), or (kept=False) is dequantised."""

    def __init__(self, name, modules, cols, how="replicated", kept=True):
        self.name, self.modules, self.cols, self.how, self.kept = name, modules, cols, how, kept

    def fresh(self, source, block=(128, 128), kind="fp8", scale="F32", spelling="weight_scale_inv"):
        tensors = {}
        for module, rows in self.modules.items():
            tensors |= fp8(source, module, (rows, self.cols), kind, block, spelling, scale)
        return tensors

    def dump(self, values, setup):
        out = fp8_rows(values, list(self.modules), self.kept, lambda m: self.how, setup)
        return {f"{self.name}.{param}": (dtype, [len(rows), len(rows[0]) // size], b"".join(rows))
                for param, (dtype, size, rows) in out.items()}


def fp8(source, module, shape, kind, block, spelling, scale):
    """No NaN among the scales: kept ones are compared as FP32, and which NaN a widened one is has its own tests."""
    tensors = linear(source, module, shape, kind, block, spelling, scale)
    name = f"{module}.{spelling}"
    if name in tensors:
        _, grid, data = tensors[name]
        good = {"F32": lambda: struct.pack("<f", source.uniform(-0.01, 0.02)),
                "BF16": lambda: struct.pack("<f", source.uniform(-0.01, 0.02))[2:],
                "F8_E8M0": lambda: bytes([source.choice([0, 1, 100, 127, 130, 254])])}[scale]
        tensors[name] = (scale, grid, b"".join(good() for _ in range(math.prod(grid))))
    return tensors


def fp8_rows(values, modules, kept, how_of, setup):
    """{leaf: (dtype, element bytes, local rows)} of modules one below the other."""
    block = setup.block
    weights, grids = [], []
    for module in modules:
        how, (dtype, (rows, cols), data) = how_of(module), values[f"{module}.weight"]
        scales = values.get(f"{module}.weight_scale_inv") or values.get(f"{module}.weight_scale")
        if not kept:
            if dtype == "F8_E4M3":
                data = dequantise(data, rows, cols, scale_values(scales[0], scales[2]), block)
            whole = [data[2 * cols * r:2 * cols * (r + 1)] for r in range(rows)]
        else:
            whole = rows_of(values[f"{module}.weight"])
            grids += cut_rows(fp32_grid(scales), how, setup.tp, setup.rank)
        weights += cut_rows(whole, how, setup.tp, setup.rank)
    if not kept:
        return {"weight": ("BF16", 2, weights)}
    return {"weight": ("F8_E4M3", 1, weights), "weight_scale_inv": ("F32", 4, grids)}


class Fp8Experts:
    def __init__(self, name, count, inner, hidden, kept):
        self.name, self.count, self.inner, self.hidden, self.kept = name, count, inner, hidden, kept

    def fresh(self, source, block=(128, 128), kind="fp8", scale="F32", spelling="weight_scale_inv", only=None):
        tensors = {}
        for e in range(self.count) if only is None else only:
            for module in PROJECTIONS:
                shape = (self.hidden, self.inner) if module == "down_proj" else (self.inner, self.hidden)
                tensors |= fp8(source, f"{self.name}.{e}.{module}", shape, kind if kind != "mixed" else
                               source.choice(["fp8", "bf16", "stray"]), block, spelling, scale)
        return tensors

    def dump(self, values, setup):
        how = lambda m: "replicated" if setup.experts != "column" else "row" if m.endswith("down_proj") else "column"
        out = {}
        for param, modules in (("w13", PROJECTIONS[:2]), ("w2", PROJECTIONS[2:])):
            parts = [fp8_rows(values, [f"{self.name}.{e}.{m}" for m in modules], self.kept, how, setup)
                     for e in range(self.count)]
            for leaf, (dtype, size, rows) in parts[0].items():
                out[f"{self.name}.{param}_{leaf}"] = (dtype, [self.count, len(rows), len(rows[0]) // size],
                                                      b"".join(b"".join(p[leaf][2]) for p in parts))
        return out


class Setup:
    """The layers of a model, and what the command line says of them."""

    def __init__(self, layers, backend="cutlass", experts="replicated", tp=1, rank=0, block=(128, 128), fuse=()):
        self.layers, self.backend, self.experts = layers, backend, experts
        self.tp, self.rank, self.block, self.fuse = tp, rank, block, fuse

    def arguments(self):
        words = ["--backend", self.backend, *(f"--fuse={rule}" for rule in self.fuse)]
        leaf = lambda layer: layer.name.rpartition(".")[2]
        words += [f"--keep-fp8={name}" for name in sorted({leaf(one) for one in self.layers if getattr(one, "kept", False)})]
        ways = {leaf(one): one.how for one in self.layers if getattr(one, "how", "replicated") != "replicated"}
        if self.experts != "replicated":
            ways["experts"] = self.experts
        words += [f"--parallel={name}={how}" for name, how in ways.items()]
        return words + (["--tp", str(self.tp), "--rank", str(self.rank)] if self.tp > 1 else [])

    def expected(self, loads, partial):
        """Values overlay each other in partial scope; else only an `input_scale` outlives its checkpoint."""
        values = {}
        for load in loads:
            if not partial:
                values = {name: tensor for name, tensor in values.items() if name.endswith("input_scale")}
            for name in load:  # one spelling of a scale at a time
                module, _, leaf = name.rpartition(".")
                other = {"weight_scale": "weight_scale_inv", "weight_scale_inv": "weight_scale"}.get(leaf)
                values.pop(f"{module}.{other}", None)
            values |= load
        out = {}
        for layer in self.layers:
            out |= layer.dump(values, self)
        return out


# --- cases ---------------------------------------------------------------------------------------------------------

GATE_UP = "gate_up_proj=gate_proj,up_proj"
SHAPES = [((128, 128), 128), ((96, 104), 80), ((160, 96), 192)]


def gate_up(at, rows, cols, how="replicated"):
    return Nvfp4(f"{at}.gate_up_proj", {f"{at}.gate_proj": rows[0], f"{at}.up_proj": rows[1]}, cols, how)


def each_chain(run, what, setup, a, b, c, orders=ORDERS, buckets=BUCKETS[1:], source=random.Random(0), warnings=()):
    """A, A -> B, A -> B -> B, A -> C -> A (C without what it may leave out), in every order, cycling through buckets."""
    paths = {id(load): run.folder(load, files=source.choice([1, 3]), source=source) for load in (a, b, c)}
    chains = [[a], [a, b], [a, b, b], [a, c], [a, b, c], [a, c, a], [a, b, a]]
    for i, order in enumerate(orders):
        for j, chain in enumerate(chains):
            bucket = buckets[(i + j) % len(buckets)]
            run.same(f"{what}, {order}, bucket {bucket}, {len(chain)} loads", [paths[id(load)] for load in chain], chain,
                     setup, "--order", order, "--bucket", bucket, warnings=warnings)


def fused_linears(run):
    source = random.Random(21)
    for backend in BACKENDS:
        for rows, cols in SHAPES:
            layers = [gate_up("m.mlp", rows, cols), Nvfp4("m.o_proj", {"m.o_proj": rows[0]}, cols)]
            make = lambda **how: layers[0].fresh(source, **how) | layers[1].fresh(source, **how)
            setup = Setup(layers, backend, fuse=[GATE_UP])
            each_chain(run, f"NVFP4 {rows}x{cols} {backend}", setup, make(), make(unshaped=True), make(input_scale=False),
                       source=source)
    run.finish()
    # A bucket of one byte cuts everything everywhere.
    layer = gate_up("mlp", (3, 5), 16)
    a, b = layer.fresh(source), layer.fresh(source)
    for backend in BACKENDS:
        run.same(f"bucket 1 {backend}", [run.folder(a), run.folder(b)], [a, b], Setup([layer], backend, fuse=[GATE_UP]),
                 "--bucket", 1)
    run.finish()


def split_linears(run):
    source = random.Random(22)
    for backend in BACKENDS:
        for tp in (2, 3):
            layers = [gate_up("l.mlp", (33 * tp, 10 * tp), 48, "column"),
                      Nvfp4("l.o_proj", {"l.o_proj": 40}, 80 * tp, "row"), Nvfp4("l.k_proj", {"l.k_proj": 7}, 16)]
            make = lambda **how: {k: t for one in layers for k, t in one.fresh(source, **how).items()}
            a, b, c = make(), make(), make(input_scale=False)
            paths = [run.folder(load) for load in (a, b, c)]
            for rank in range(tp):
                for picks in ([0, 1], [0, 2, 0]):
                    run.same(f"NVFP4 tp {tp} rank {rank} {backend}", [paths[i] for i in picks], [[a, b, c][i] for i in picks],
                             Setup(layers, backend, tp=tp, rank=rank, fuse=[GATE_UP]), "--order", source.choice(ORDERS),
                             "--bucket", source.choice(BUCKETS[1:]))
    run.finish()


def partial_linears(run):
    """Each NVFP4 tensor may come alone."""
    source = random.Random(23)
    layers = [gate_up("m.mlp", (96, 104), 80), Nvfp4("m.o_proj", {"m.o_proj": 7}, 48)]
    make = lambda: layers[0].fresh(source) | layers[1].fresh(source)
    a, b = make(), make()
    b["m.mlp.gate_proj.weight_scale_2"] = a["m.mlp.gate_proj.weight_scale_2"]  # no warning: both shards have one
    b["m.mlp.up_proj.weight_scale_2"] = a["m.mlp.gate_proj.weight_scale_2"]
    first = run.folder(a)
    for backend in BACKENDS:
        setup = Setup(layers, backend, fuse=[GATE_UP])
        for leaf in ("weight", "weight_scale", "weight_scale_2", "input_scale"):
            part = {name: b[name] for name in (f"m.mlp.up_proj.{leaf}", f"m.o_proj.{leaf}")}
            run.same(f"partial NVFP4 {leaf} {backend}", [first, run.folder(part)], [a, part], setup, "--bucket", 127,
                     partial=True)
        one = {name: tensor for name, tensor in b.items() if "gate_proj" in name}
        run.same(f"partial NVFP4 shard {backend}", [first, run.folder(one)], [a, one], setup, partial=True)
        run.same(f"partial NVFP4 all {backend}", [first, run.folder(b)], [a, b], setup, partial=True)
    run.finish()


def unequal_shards(run):
    """Shards of one weight with different weight_scale_2: a warning by name, exit 0."""
    source = random.Random(24)
    layer = gate_up("m.mlp", (3, 5), 32)
    a, b = layer.fresh(source), layer.fresh(source, same_scale=False)
    paths = [run.folder(a), run.folder(b)]
    for backend in BACKENDS:
        words = ["--backend", backend, "--fuse", GATE_UP]
        for picks, count in (([0, 0], 0), ([0, 1, 1, 0], 1), ([1, 0], 1)):
            code, out, err = tool(*[paths[i] for i in picks], *words, "--json")
            found = json.loads(out)["warnings"]
            check(code == 0 and err == "" and len(found) == count, f"unequal weight_scale_2 {picks}", out + err)
            check(all(name in text for text in found for name in ("m.mlp.gate_up_proj.weight_scale_2", "m.mlp.gate_proj",
                                                                  "m.mlp.up_proj")), "the warning names them", found)
        code, out, err = tool(*paths, *words)
        check(code == 0 and err == "" and "warning: m.mlp.gate_up_proj.weight_scale_2" in out, "the warning in words", out)


def nvfp4_experts(run):
    source = random.Random(25)
    for backend, hidden, tps in (("cutlass", 192, (1, 2, 4)), ("trtllm", 384, (1, 2))):
        layer = Nvfp4Experts("m.layers.3.mlp.experts", 4, 128, hidden)
        a, b, c = layer.fresh(source), layer.fresh(source), layer.fresh(source, input_scale=False)
        each_chain(run, f"NVFP4 experts {backend}", Setup([layer], backend), a, b, c, ORDERS[:4], source=source)
        half = layer.fresh(source, only=[1, 3])
        less = layer.fresh(source, only=[0, 2], input_scale=False)
        one = {name: t for name, t in layer.fresh(source, only=[2]).items() if name.endswith("up_proj.weight_scale")}
        two = {name: t for name, t in layer.fresh(source, only=[0]).items() if name.endswith("down_proj.input_scale")}
        paths = {id(load): run.folder(load) for load in (a, b, c, half, less, one, two)}
        for tp in tps:
            for rank in range(tp):
                setup = Setup([layer], backend, "column" if tp > 1 else "replicated", tp, rank)
                for loads in ([a, half], [a, less], [a, one], [a, two], [a, half, less, half], [a, b]):
                    run.same(f"partial NVFP4 experts {backend} tp {tp} rank {rank}", [paths[id(l)] for l in loads], loads,
                             setup, "--order", source.choice(ORDERS), "--bucket", source.choice(BUCKETS[2:]), partial=True)
                run.same(f"NVFP4 experts {backend} tp {tp} rank {rank}", [paths[id(l)] for l in (a, c, b)], [a, c, b], setup)
        run.finish()
    for backend, inner, hidden in (("cutlass", 48, 80), ("cutlass", 100 * 16, 16), ("trtllm", 128, 256), ("trtllm", 64, 128)):
        for gated in (True, False):
            if backend == "trtllm" and not gated and inner % 128:
                continue
            layer = Nvfp4Experts("experts", 3, inner, hidden, gated)
            a, b = layer.fresh(source), layer.fresh(source)
            run.same(f"NVFP4 experts {backend} {inner}x{hidden} gated {gated}", [run.folder(a), run.folder(b)], [a, b],
                     Setup([layer], backend), "--order", "reverse")
    run.finish()


def kept_fp8(run):
    source = random.Random(26)
    for block in ((128, 128), (64, 64), (1, 128), (128, 1)):
        layers = [BlockFp8("m.mlp.gate_up_proj", {"m.mlp.gate_proj": 256, "m.mlp.up_proj": 67}, 129),
                  BlockFp8("m.o_proj", {"m.o_proj": 130}, 3, kept=False), Fp8Experts("m.experts", 3, 128, 200, True)]
        make = lambda **how: {k: t for one in layers for k, t in one.fresh(source, block, **how).items()}
        a, b, c = make(), make(scale="BF16", spelling="weight_scale"), make(scale="F8_E8M0")
        paths = [run.folder(load, block=block) for load in (a, b, c)]
        setup = Setup(layers, block=block, fuse=[GATE_UP])
        for picks in ([0], [0, 1], [1, 0, 1], [0, 2, 0], [2, 1]):
            for order in ORDERS:
                run.same(f"kept FP8 {block} {picks} {order}", [paths[i] for i in picks], [[a, b, c][i] for i in picks], setup,
                         "--order", order, "--bucket", source.choice(BUCKETS[1:]))
        half = layers[2].fresh(source, block, only=[1]) | {n: t for n, t in b.items() if n.startswith("m.mlp.up")}
        run.same(f"partial kept FP8 {block}", [paths[0], run.folder(half, block=block)], [a, half], setup, partial=True)
    run.finish()
    for tp in (2, 4):
        layers = [BlockFp8("l.gate_up_proj", {"l.gate_proj": 128 * tp, "l.up_proj": 256 * tp}, 129, "column"),
                  BlockFp8("l.o_proj", {"l.o_proj": 70}, 128 * tp, "row"), Fp8Experts("l.experts", 2, 128 * tp, 130, True)]
        make = lambda: {k: t for one in layers for k, t in one.fresh(source).items()}
        a, b = make(), make()
        paths = [run.folder(a), run.folder(b)]
        for rank in range(tp):
            run.same(f"kept FP8 tp {tp} rank {rank}", paths, [a, b],
                     Setup(layers, experts="column", tp=tp, rank=rank, fuse=[GATE_UP]), "--order", source.choice(ORDERS))
    run.finish()


def dequantised_experts(run):
    source = random.Random(27)
    for block, inner, hidden in (((128, 128), 96, 200), ((64, 64), 130, 70), ((1, 128), 6, 129), ((128, 1), 130, 4)):
        layer = Fp8Experts("m.mlp.experts", 4, inner, hidden, False)
        ways = {"fp8": layer.fresh(source, block), "bf16": layer.fresh(source, block, "bf16"),
                "mixed": layer.fresh(source, block, "mixed", spelling="weight_scale", scale="BF16")}
        paths = {id(load): run.folder(load, block=block) for load in ways.values()}
        half = layer.fresh(source, block, only=[0, 3])
        some = layer.fresh(source, block, "bf16", only=[2])
        paths |= {id(load): run.folder(load, block=block) for load in (half, some)}
        for tp, rank in ((1, 0), (2, 0), (2, 1)):
            setup = Setup([layer], experts="column" if tp > 1 else "replicated", tp=tp, rank=rank, block=block)
            for chain in ("bf16", "fp8", "bf16 bf16", "fp8 bf16 fp8", "bf16 fp8 mixed", "mixed fp8", "fp8 mixed fp8"):
                loads = [ways[way] for way in chain.split()]
                run.same(f"experts {chain} {block} tp {tp} rank {rank}", [paths[id(l)] for l in loads], loads, setup,
                         "--order", source.choice(ORDERS), "--bucket", source.choice(BUCKETS[1:]))
            for loads in ([ways["fp8"], half], [ways["fp8"], some, half], [ways["bf16"], half], [ways["bf16"], some]):
                run.same(f"partial experts {block} tp {tp}", [paths[id(l)] for l in loads], loads, setup, partial=True)
    run.finish()


def mixed_model(run):
    """Everything beside each other: experts take no part in --fuse, a shared expert does."""
    source = random.Random(28)
    for backend in BACKENDS:
        layers = [Nvfp4Experts("l.mlp.experts", 2, 64, 128), gate_up("l.mlp.shared_experts", (48, 48), 64),
                  Fp8Experts("m.mlp.experts", 2, 20, 130, False), BlockFp8("m.b_proj", {"m.b_proj": 130}, 5)]
        make = lambda: {k: t for one in layers for k, t in one.fresh(source).items()}
        a, b = make(), make()
        setup = Setup(layers, backend, fuse=[GATE_UP])
        run.same(f"mixed model {backend}", [run.folder(a), run.folder(b), run.folder(a)], [a, b, a], setup, "--parallel",
                 "gate_up_proj=replicated", "--order", "shuffle:5", "--bucket", 1000)
    run.finish()


# --- refusals ------------------------------------------------------------------------------------------------------

def refuse_nvfp4(run):
    source = random.Random(29)
    layer = Nvfp4("m.o_proj", {"m.o_proj": 128}, 128)
    r = Refusals(run, source, layer.fresh(source))
    at, u8, e4m3 = "m.o_proj", source.randbytes, source.randbytes
    for backend in BACKENDS:
        words = ["--backend", backend]
        for what, changes, name in (
                ("odd packed columns", {f"{at}.weight": ("U8", [128, 39], u8(128 * 39))}, at),
                ("K not a multiple of 16", {f"{at}.weight": ("U8", [128, 20], u8(128 * 20))}, at),
                ("no block scale", {f"{at}.weight_scale": None}, f"{at}.weight_scale"),
                ("no weight_scale_2", {f"{at}.weight_scale_2": None}, f"{at}.weight_scale_2"),
                ("no input_scale in FIRST", {f"{at}.input_scale": None}, f"{at}.input_scale"),
                ("no weight", {f"{at}.weight": None}, f"{at}.weight"),
                ("a scale of another layout", {f"{at}.weight_scale": ("F8_E4M3", [1, 1024], e4m3(1024))}, f"{at}.weight_scale"),
                ("a padded scale", {f"{at}.weight_scale": ("F8_E4M3", [128, 12], e4m3(128 * 12))}, f"{at}.weight_scale"),
                ("a scale in F32", {f"{at}.weight_scale": ("F32", [128, 8], e4m3(4096))}, f"{at}.weight_scale"),
                ("a scalar of two", {f"{at}.weight_scale_2": ("F32", [2], u8(8))}, f"{at}.weight_scale_2"),
                ("a scalar in BF16", {f"{at}.weight_scale_2": ("BF16", [], u8(2))}, f"{at}.weight_scale_2"),
                ("a vector", {f"{at}.weight": ("U8", [128], u8(128))}, f"{at}.weight"),
                ("a swizzled scale", {f"{at}.weight_scale_interleaved": ("F8_E4M3", [128, 8], e4m3(1024))}, at)):
            path = r.changed(changes)
            r.expect(f"FIRST: {what} {backend}", [path, *words], path, name)
        for what, changes, name in (
                ("no block scale", {f"{at}.weight_scale": None}, f"{at}.weight_scale"),
                ("no weight_scale_2", {f"{at}.weight_scale_2": None}, f"{at}.weight_scale_2"),
                ("no weight", {f"{at}.weight": None}, f"{at}.weight"),
                ("another weight shape", {f"{at}.weight": ("U8", [64, 128], u8(8192))}, f"{at}.weight"),
                ("another scale shape", {f"{at}.weight_scale": ("F8_E4M3", [8, 128], e4m3(1024))}, f"{at}.weight_scale")):
            path = r.changed(changes)
            for order, is_live in (IN_ORDER, what == "another weight shape"), ([], None not in changes.values()):
                r.expect(f"NEXT: {what} {backend} {order}", [r.path, path, r.path, *words, *order], path, name,
                         state="live" if is_live else "undefined", version=1)  # in order the weight comes first
        for what, weight in (("BF16", ("BF16", [128, 128], u8(32768))), ("FP8", ("F8_E4M3", [128, 128], u8(16384)))):
            path = r.changed({f"{at}.weight": weight})
            r.expect(f"NVFP4 then {what} {backend}", [r.path, path, *words], path, f"{at}.weight")
            r.expect(f"{what} then NVFP4 {backend}", [path, r.path, *words], path, f"{at}.weight")
        path = r.changed({f"{at}.weight_scale_2": None})
        r.expect(f"partial: FIRST is complete {backend}", [path, r.path, "--scope", "partial", *words], path, f"{at}.weight_scale_2")
    r.expect("kept NVFP4", [r.path, "--keep-fp8", "o_proj"], r.path, f"{at}.weight", "F8_E4M3")
    r.expect("a row cut inside a scale", [r.path, "--tp", 16, "--rank", 1, "--parallel", "o_proj=row"], r.path, at)
    r.expect("a column cut", [r.path, "--tp", 3, "--rank", 1, "--parallel", "o_proj=column"], r.path, at)
    for what, other in (("BF16", {"m.b.weight": ("BF16", [4, 64], u8(512))}), ("FP8", linear(source, "m.b", (4, 64), "fp8")),
                        ("columns", nvfp4(source, "m.b", 4, 48, 1.0, True, []))):
        path = r.changed(other)
        r.expect(f"NVFP4 fused with {what}", [path, "--fuse", "ab=o_proj,b"], path, "m.b.weight")
    r.finish()


def refuse_experts(run):
    source = random.Random(30)
    layer = Nvfp4Experts("m.experts", 4, 64, 192)
    good = layer.fresh(source)
    r = Refusals(run, source, good)
    u8 = source.randbytes
    without = lambda part: {name: None for name in good if part in name}
    for what, changes, name in (
            ("a gap", without("experts.1."), "m.experts.1.gate_proj.weight"),
            ("a gap at 0", without("experts.0."), "m.experts.0.gate_proj.weight"),
            ("a far expert", {"m.experts.99999999999.up_proj.weight": ("U8", [64, 96], u8(6144))}, "m.experts.4.gate_proj.weight"),
            ("a number too large", {f"m.experts.{2**63}.up_proj.weight": ("U8", [64, 96], u8(6144))}, f"m.experts.{2**63}.up_proj.weight"),
            ("a number with zeros", {"m.experts.04.up_proj.weight": ("U8", [64, 96], u8(6144))}, "m.experts.04.up_proj.weight"),
            ("one projection missing", without("experts.2.down_proj"), "m.experts.2.down_proj.weight"),
            ("no down projections", without("down_proj"), "m.experts.0.down_proj.weight"),
            ("one gate missing", without("experts.3.gate_proj"), "m.experts.3.gate_proj.weight"),
            ("a scale missing", {"m.experts.2.up_proj.weight_scale": None}, "m.experts.2.up_proj.weight_scale"),
            ("a scalar missing", {"m.experts.2.up_proj.input_scale": None}, "m.experts.2.up_proj.input_scale"),
            ("a weight missing", {"m.experts.2.up_proj.weight": None}, "m.experts.2.up_proj.weight"),
            ("another shape", {"m.experts.2.up_proj.weight": ("U8", [32, 96], u8(3072))}, "m.experts.2.up_proj.weight"),
            ("other halves", {f"m.experts.{e}.up_proj.weight": ("U8", [32, 96], u8(3072)) for e in range(4)}, "m.experts.0.up_proj.weight"),
            ("another down", {f"m.experts.{e}.down_proj.weight": ("U8", [64, 96], u8(6144)) for e in range(4)}, "m.experts.0.down_proj.weight"),
            ("three dims", {"m.experts.2.up_proj.weight": ("U8", [1, 64, 96], u8(6144))}, "m.experts.2.up_proj.weight"),
            ("BF16 among them", {"m.experts.2.up_proj.weight": ("BF16", [64, 192], u8(24576))}, "m.experts.2.up_proj.weight"),
            ("a bias", {"m.experts.2.up_proj.bias": ("BF16", [64], u8(128))}, "m.experts.2.up_proj.bias"),
            ("a deeper name", {"m.experts.2.up_proj.a.weight": ("BF16", [64], u8(128))}, "m.experts.2.up_proj.a.weight"),
            ("wrong grid", {"m.experts.2.up_proj.weight_scale": ("F8_E4M3", [12, 64], u8(768))}, "m.experts.2.up_proj.weight_scale")):
        path = r.changed(changes)
        r.expect(f"experts: {what}", [path], path, name)
    r.expect("experts: H % 128 for TRT-LLM", [r.path, "--backend", "trtllm"], r.path, "m.experts")
    r.expect("experts=row", [r.path, "--tp", 2, "--parallel", "experts=row"], r.path, "m.experts")
    r.expect("experts: a cut inside a scale", [r.path, "--tp", 8, "--parallel", "experts=column"], r.path, "m.experts.N.down_proj")
    r.expect("experts: an uneven cut", [r.path, "--tp", 3, "--parallel", "experts=column"], r.path, "m.experts.N.up_proj")
    trtllm = Nvfp4Experts("m.experts", 2, 128, 128).fresh(source)
    path = run.folder(trtllm)
    r.expect("experts: 2I % 128 for TRT-LLM", [path, "--tp", 4, "--parallel", "experts=column", "--backend", "trtllm"], path, "m.experts")
    more = r.changed(Nvfp4Experts("m.experts", 5, 64, 192).fresh(source, only=[4]))
    for order, state in (IN_ORDER, "undefined"), ([], "live"):
        r.expect(f"experts: one more in NEXT {order}", [r.path, more, *order], more, "m.experts.4.", version=1, state=state)
    path = r.changed(without("experts.3."))
    r.expect("experts: one fewer in NEXT", [r.path, path], path, "m.experts.3.", version=1)
    run.same("experts: one fewer in FIRST is a smaller model", [path] * 2, [{n: t for n, t in good.items() if "experts.3." not in n}] * 2,
             Setup([Nvfp4Experts("m.experts", 3, 64, 192)]))
    run.finish()
    r.finish()
    # Not NVFP4.
    for kept in (False, True):
        words = ["--keep-fp8", "experts"] if kept else []
        layer = Fp8Experts("m.experts", 3, 128, 130, kept)
        good = layer.fresh(source)
        r = Refusals(run, source, good)
        for what, changes, name in (
                ("no gates", {name: None for name in good if "gate_proj" in name}, "m.experts.0.gate_proj.weight"),
                ("F16", {"m.experts.1.up_proj.weight": ("F16", [128, 130], u8(33280))}, "m.experts.1.up_proj.weight"),
                ("an input scale", {"m.experts.1.up_proj.input_scale": ("F32", [], u8(4))}, "m.experts.1.up_proj.input_scale"),
                ("a scale missing", {"m.experts.1.up_proj.weight_scale_inv": None}, "m.experts.1.up_proj.weight")):
            path = r.changed(changes)
            r.expect(f"FP8 experts: {what}, kept {kept}", [path, *words], path, name)
        part = {name: t for name, t in layer.fresh(source, only=[1]).items() if name.endswith("down_proj.weight")}
        path = run.folder(part)
        r.expect(f"FP8 experts: a weight alone, kept {kept}", [r.path, path, "--scope", "partial", *words], path,
                 "m.experts.1.down_proj.weight_scale_inv", version=1)
        part = {name: t for name, t in layer.fresh(source, only=[1]).items() if name.endswith("down_proj.weight_scale_inv")}
        path = run.folder(part)
        r.expect(f"FP8 experts: a scale alone, kept {kept}", [r.path, path, "--scope", "partial", *words], path,
                 "m.experts.1.down_proj.weight", version=1)
        r.finish()


def refuse_kept(run):
    source = random.Random(31)
    layers = [BlockFp8("m.o_proj", {"m.o_proj": 256}, 256), Fp8Experts("m.experts", 2, 256, 130, True)]
    make = lambda **how: {k: t for one in layers for k, t in one.fresh(source, **how).items()}
    r = Refusals(run, source, make())
    bf16 = run.folder(make(kind="bf16"))
    mixed = r.changed(layers[0].fresh(source, kind="bf16") | {"m.o_proj.weight_scale_inv": None})
    stray = r.changed(layers[0].fresh(source, kind="stray"))
    r.expect("kept: BF16 in FIRST", [bf16, "--keep-fp8", "o_proj"], bf16, "m.o_proj.weight", "F8_E4M3")
    r.expect("kept: BF16 experts in FIRST", [bf16, "--keep-fp8", "experts"], bf16, "m.experts.0.gate_proj.weight", "F8_E4M3")
    r.expect("kept: BF16 in NEXT", [r.path, mixed, "--keep-fp8", "o_proj"], mixed, "m.o_proj.weight",
             state="live", version=1)
    r.expect("kept: BF16 beside a scale", [r.path, stray, "--keep-fp8", "o_proj"], stray, "m.o_proj.weight",
             state="live", version=1)
    for order, state in (IN_ORDER, "undefined"), ([], "live"):
        r.expect(f"kept: BF16 experts in NEXT {order}", [r.path, bf16, "--keep-fp8", "experts", *order], bf16, "m.experts.",
                 version=1, state=state)
    r.expect("kept: BF16 in FIRST, FP8 in NEXT", [bf16, r.path, "--keep-fp8", "o_proj"], bf16, "m.o_proj.weight")
    for words, name in ((["o_proj=column"], "m.o_proj"), (["o_proj=row"], "m.o_proj"), (["experts=column"], "m.experts.N.")):
        r.expect(f"kept: a cut inside a block, {words}",
                 [r.path, "--tp", 4, "--rank", 1, "--parallel", *words, "--keep-fp8", "o_proj", "--keep-fp8", "experts"],
                 r.path, name)
    path = run.folder(linear(source, "p.a", (130, 4), "fp8") | linear(source, "p.b", (128, 4), "fp8"))
    r.expect("kept: a shard that ends inside a block", [path, "--fuse", "ab=a,b", "--keep-fp8", "ab"], path, "p.a")
    at = "m.o_proj"
    for what, part in (("a weight alone", [f"{at}.weight"]), ("a scale alone", [f"{at}.weight_scale_inv"])):
        path = run.folder({name: r.good[name] for name in part})
        other = f"{at}.weight_scale_inv" if part == [f"{at}.weight"] else f"{at}.weight"
        r.expect(f"kept: {what}", [r.path, path, "--scope", "partial", "--keep-fp8", "o_proj"], path, other, version=1)
    r.finish()
    code, out, err = tool(r.path, "--keep-fp8", "nope", "--json")
    check(code == 0 and json.loads(out)["warnings"] == ["--keep-fp8 nope: the model has no layer of this name"], "unused --keep-fp8", out + err)


def run_groups(run):
    for group in (fused_linears, split_linears, partial_linears, unequal_shards, nvfp4_experts, kept_fp8,
                  dequantised_experts, mixed_model, refuse_nvfp4, refuse_experts, refuse_kept):
        group(run)


if __name__ == "__main__":
    sys.exit(reload_kit.main(run_groups))
