"""Runs the built reload_checkpoint in every update mode: what it leaves after a success, and after a refusal.

    reload_modes_test.py TOOL        the executable, or the folder it lies in

Models and references are those of reload_checkpoint_test and reload_runtimes_test: four modes that give the reference's
dump give the same one.
"""

import random
import sys

import reload_checkpoint_test as checkpoints
import reload_kit
import reload_runtimes_test as runtimes
from reload_checkpoint_test import QKV
from reload_kit import IN_ORDER, ORDERS, Refusals, check, linear, read, tool
from reload_runtimes_test import BACKENDS, GATE_UP, Fp8Experts, Nvfp4, Nvfp4Experts, gate_up

MODES = ["direct", "layerwise", "staged", "swap"]
BUCKETS = [1, 7, 1000, 10**9]
UNDO = ["--undo", "host"]


def each_mode(run, what, paths, loads, setup, *words, **how):
    for mode in MODES:
        run.same(f"{mode}: {what}", paths, loads, setup, "--mode", mode, *words, **how)


def merged(layers, source, **how):
    return {name: tensor for layer in layers for name, tensor in layer.fresh(source, **how).items()}


# --- the same dump in every mode -----------------------------------------------------------------------------------

def fused_fp8(run):
    source = random.Random(51)
    a, b = checkpoints.model(source), checkpoints.model(source, q="bf16", up="stray")
    paths = {id(load): run.folder(load, files=3, source=source) for load in (a, b)}
    for name, fuse in (("plain", {}), ("fused", QKV)):
        for order in ORDERS:
            for bucket in BUCKETS:
                loads = source.choice([[a], [a, b], [a, b, a], [b, a]])
                each_mode(run, f"{name} FP8, {order}, bucket {bucket}", [paths[id(load)] for load in loads], loads,
                          checkpoints.Setup(fuse), "--order", order, "--bucket", bucket)
        run.finish()


def quantised_linears(run):
    """The last one, without input scales, keeps those of the first."""
    source = random.Random(52)
    layers = [gate_up("m.mlp", (33, 10), 48), Nvfp4("m.o_proj", {"m.o_proj": 40}, 80)]
    loads = [merged(layers, source), merged(layers, source), merged(layers, source, input_scale=False)]
    paths = [run.folder(load) for load in loads]
    for backend in BACKENDS:
        setup = runtimes.Setup(layers, backend, fuse=[GATE_UP])
        for order in ORDERS:
            for bucket in BUCKETS[1:] if order != "file" else BUCKETS:
                each_mode(run, f"NVFP4 {backend}, {order}, bucket {bucket}", paths, loads, setup, "--order", order,
                          "--bucket", bucket)
    run.finish()


def stacked_experts(run):
    source = random.Random(53)
    for backend in BACKENDS:
        layers = [Nvfp4Experts("m.0.experts", 2, 64, 128), Fp8Experts("m.1.experts", 3, 20, 130, False),
                  runtimes.BlockFp8("m.b_proj", {"m.b_proj": 130}, 5)]
        setup = runtimes.Setup(layers, backend)
        loads = [merged(layers, source), merged(layers, source)]
        paths = [run.folder(load, files=2, source=source) for load in loads]
        half = layers[0].fresh(source, only=[1]) | layers[1].fresh(source, only=[0, 2])
        part = run.folder(half)
        for order in ORDERS:
            for bucket in (1000, 10**9) if order != "reverse" else (7, 1000):
                each_mode(run, f"experts {backend}, {order}, bucket {bucket}", [*paths, paths[0]], [*loads, loads[0]], setup,
                          "--order", order, "--bucket", bucket)
                each_mode(run, f"some experts {backend}, {order}, bucket {bucket}", [paths[0], part], [loads[0], half], setup,
                          "--order", order, "--bucket", bucket, partial=True)
        run.finish()
    layer = Fp8Experts("m.experts", 2, 128, 130, True)
    a, b = layer.fresh(source), layer.fresh(source)
    for order in ORDERS[:3]:
        each_mode(run, f"kept experts, {order}", [run.folder(a), run.folder(b)], [a, b], runtimes.Setup([layer]), "--order",
                  order, "--bucket", 1000)
    run.finish()


def cut_for_ranks(run):
    source = random.Random(54)
    layers = [gate_up("l.mlp", (66, 20), 48, "column"), Nvfp4("l.o_proj", {"l.o_proj": 40}, 160, "row")]
    fp8 = {"l.q_proj": (130, 129), "l.k_proj": (66, 129), "l.o_proj": (3, 704)}
    make = lambda how: {k: t for at, shape in fp8.items() for k, t in linear(source, at, shape, how).items()}
    quantised, others = [merged(layers, source) for _ in range(2)], [make("fp8"), make("bf16")]
    for rank in range(2):
        for loads, setup in ((quantised, runtimes.Setup(layers, tp=2, rank=rank, fuse=[GATE_UP])),
                             (others, checkpoints.Setup({"qk": ["q_proj", "k_proj"]}, {"qk": "column", "o_proj": "row"}, 2,
                                                        rank))):
            for bucket in BUCKETS[1:]:
                each_mode(run, f"rank {rank}, bucket {bucket}", [run.folder(load) for load in loads], loads, setup, "--order",
                          source.choice(ORDERS), "--bucket", bucket)
    run.finish()


def undo_and_success(run):
    """An undo image that nobody needs changes nothing."""
    source = random.Random(55)
    loads = [checkpoints.model(source), checkpoints.model(source, kv="bf16")]
    paths = [run.folder(load) for load in loads]
    for mode in MODES[:3]:
        for bucket in BUCKETS:
            run.same(f"{mode}: undo, bucket {bucket}", [*paths, paths[0]], [*loads, loads[0]], checkpoints.Setup(QKV), "--mode",
                     mode, *UNDO, "--bucket", bucket, "--order", source.choice(ORDERS))
    run.finish()


def files_by_feed(run):
    """Neither --order nor --bucket: what a rank needs of the files, as it lies there, in every mode; and in order."""
    source = random.Random(62)
    fp8 = {"l.q_proj": (130, 129), "l.k_proj": (66, 129), "l.o_proj": (3, 704)}
    make = lambda how: {k: t for at, shape in fp8.items() for k, t in linear(source, at, shape, how).items()}
    layers = [gate_up("m.mlp", (33, 10), 48), Nvfp4Experts("m.0.experts", 2, 64, 128), Fp8Experts("m.1.experts", 3, 20, 130, False)]
    half = layers[1].fresh(source, only=[1]) | layers[2].fresh(source, only=[0, 2])
    for tp, rank in (1, 0), (2, 0), (2, 1):
        cases = [([make("fp8"), make("bf16"), make("fp8")], False,
                  checkpoints.Setup({"qk": ["q_proj", "k_proj"]}, {"qk": "column", "o_proj": "row"}, tp, rank))]
        if tp == 1:
            whole = [merged(layers, source) for _ in range(2)]
            setup = runtimes.Setup(layers, fuse=[GATE_UP])
            cases += [(whole, False, setup), ([whole[0], half], True, setup),
                      ([checkpoints.model(source), checkpoints.model(source, q="bf16", up="stray")], False, checkpoints.Setup(QKV))]
        for loads, partial, setup in cases:
            paths = [run.folder(load, files=min(3, len(load)), source=source) for load in loads]
            for words in ([], UNDO, IN_ORDER):
                for mode in MODES[:3] if words == UNDO else MODES:
                    run.same(f"{mode} {words}: tp {tp} {rank}, {len(loads)} loads", paths, loads, setup, "--mode", mode, *words,
                             partial=partial)
    large = linear(source, "m.o_proj", (8200, 4099), "fp8") | linear(source, "m.b_proj", (3, 5), "fp8")  # cut
    run.same("a matrix larger than a load", [run.folder(large)], [large], checkpoints.Setup())
    run.finish()


# --- budgets -------------------------------------------------------------------------------------------------------

def units(tensors):
    """What tensors take aside when they come whole: in units of 16 bytes."""
    return sum(-(-len(data) // 16) * 16 for _, _, data in tensors.values())


def budgets(run):
    """Exactly enough is enough; layerwise needs room for what is not whole yet, staged for everything."""
    source = random.Random(56)
    layers = [linear(source, f"m.{i}.o_proj", (130, 129), "fp8") for i in range(4)]
    load = {name: tensor for layer in layers for name, tensor in layer.items()}
    path, setup = run.folder(load), checkpoints.Setup()
    for order, needed in (("file", units(layers[0])), ("reverse", units(layers[0]))):
        run.same(f"layerwise: one layer's budget, {order}", [path] * 3, [load] * 3, setup, "--mode", "layerwise", "--budget",
                 needed, "--order", order)
    # The feed would send all scales first.
    run.same("layerwise: one layer's budget, no order", [path] * 3, [load] * 3, setup, "--mode", "layerwise", "--budget",
             units(layers[0]))
    run.same("layerwise: all weights wait for their scales", [path] * 2, [load] * 2, setup, "--mode", "layerwise", "--budget",
             units(load), "--order", "weights-first")
    for mode in ("staged", "layerwise"):
        run.same(f"{mode}: everything's budget", [path] * 3, [load] * 3, setup, "--mode", mode, "--budget", units(load))
    empty = {"a": ("F32", [4], source.randbytes(16)), "none": ("F32", [0], b"")}
    for mode in ("staged", "layerwise"):
        run.same(f"{mode}: no bytes need no room", [run.folder(empty)] * 2, [empty] * 2, setup, "--mode", mode, "--budget", 16)
    run.finish()


def refuse_over_budget(run):
    source = random.Random(57)
    good = {name: tensor for i in range(3) for name, tensor in linear(source, f"m.{i}.o_proj", (130, 129), "fp8").items()}
    r = Refusals(run, source, good)
    one = units({name: tensor for name, tensor in good.items() if name.startswith("m.0.")})
    part = run.folder({"m.1.o_proj.weight": good["m.1.o_proj.weight"],
                       "m.1.o_proj.weight_scale_inv": good["m.1.o_proj.weight_scale_inv"]})
    for mode, budget, order, name in (
            ("staged", 1, "file", "m.0.o_proj.weight"), ("layerwise", 1, "file", "m.0.o_proj.weight"),
            ("staged", units(good) - 16, "file", "m.2.o_proj.weight_scale_inv"),
            ("staged", units(good) - 16, "scales-first", "m.2.o_proj.weight"),
            ("staged", one, "file", "m.1.o_proj.weight"), ("layerwise", one - 16, "file", "m.0.o_proj.weight_scale_inv"),
            ("layerwise", one, "weights-first", "m.1.o_proj.weight")):
        for extra in ([], UNDO):
            words = ["--mode", mode, "--budget", budget, "--order", order, *extra]
            r.expect(f"{mode}: FIRST over {budget}, {order}", [r.path, *words], r.path, name)
    for bucket in ([], ["--bucket", 1000]):  # a NEXT that needs more than FIRST did: BF16
        wide = r.changed({"m.1.o_proj.weight": ("BF16", [130, 129], source.randbytes(2 * 130 * 129))})
        for mode, budget, extra, state in (("staged", units(good) + 4000, [], "live"), ("staged", units(good) + 4000, UNDO, "live"),
                                           ("layerwise", one + 4000, [], "undefined"), ("layerwise", one + 4000, UNDO, "live")):
            r.expect(f"{mode}: NEXT over {budget} {bucket} {extra}",
                     [r.path, wide, r.path, "--mode", mode, "--budget", budget, *bucket, *extra], wide,
                     "m.1.o_proj.weight" if mode == "layerwise" else "m.", state=state, version=1)
    run.same("a partial NEXT needs less", [r.path, part], [good, read_folder(part)], checkpoints.Setup(), "--mode", "staged",
             "--budget", units(good), partial=True)
    r.expect("staged: FIRST over 240, no order", [r.path, "--mode", "staged", "--budget", 240], r.path, "m.0.o_proj.weight")
    r.expect("more memory than there is", [r.path, "--mode", "staged", "--budget", 2**63 - 1], r.path, "bytes of")
    run.finish()
    r.finish()


def read_folder(path):
    return read(f"{path}/model-00001-of-00001.safetensors")


# --- refusals ------------------------------------------------------------------------------------------------------

def state_of(mode, undo, wrote):
    """After a refused update of a live model."""
    return "undefined" if mode in ("direct", "layerwise") and wrote[mode] and not undo else "live"


def refuse_next(r, what, words, bad, name, wrote):
    """A refused NEXT, in every mode, with and without undo. `wrote`: whether the mode wrote before it saw."""
    for mode in MODES:
        for undo in ([], UNDO) if mode != "swap" else ([],):
            r.expect(f"{mode} {undo}: {what}", [r.path, bad, r.path, "--mode", mode, *undo, *words], bad, name,
                     state=state_of(mode, undo, wrote), version=1)


def refuse_missing_scale(run):
    source = random.Random(58)
    at = "model.layers.0.mlp.up_proj"
    scale = f"{at}.weight_scale_inv"
    fuse = ["--fuse", "fused_qkv_a_proj=q_a_proj,kv_a_proj"]
    always, only_direct = {"direct": True, "layerwise": True}, {"direct": True, "layerwise": False}
    r = Refusals(run, source, checkpoints.model(source))
    bad = r.changed({scale: None})
    stacked = "model.layers.1.attn.kv_a_proj.weight_scale_inv"
    shard = r.changed({stacked: None})
    for order in ("file", "scales-first", "shuffle:3"):
        for bucket in (7, 1000, 10**9):
            words = ["--order", order, "--bucket", bucket]
            refuse_next(r, f"no scale, {words}", words, bad, scale, always)
            refuse_next(r, f"no scale of a shard, {words}", [*words, *fuse], shard, stacked, always)
    for mode in MODES:
        for undo in ([], UNDO) if mode != "swap" else ([],):
            r.expect(f"{mode} {undo}: no scale in FIRST", [bad, r.path, "--mode", mode, *undo], bad, scale)
            r.expect(f"{mode} {undo}: partial, no scale", [r.path, run.folder({f"{at}.weight": r.good[f"{at}.weight"]}), "--mode",
                     mode, *undo, "--scope", "partial"], scale, state=state_of(mode, undo, only_direct), version=1)
    r.finish()
    # One layer: layerwise has nothing whole, and writes nothing.
    r = Refusals(run, source, linear(source, at, (130, 129), "fp8"))
    bad = r.changed({scale: None})
    refuse_next(r, "no scale of the only layer", [], bad, scale, only_direct)
    r.finish()
    layers = [Nvfp4("m.o_proj", {"m.o_proj": 32}, 32), Nvfp4Experts("m.experts", 2, 64, 128)]
    r = Refusals(run, source, merged(layers, source))
    for name, wrote in (("m.o_proj.weight_scale", always), ("m.o_proj.weight_scale_2", always),
                        ("m.experts.1.up_proj.weight_scale", always), ("m.experts.0.down_proj.weight", always)):
        bad = r.changed({name: None})
        for words in (["--bucket", 1000], ["--backend", "trtllm"]):
            refuse_next(r, f"no {name} {words}", words, bad, name, wrote)
    r.finish()


def refuse_tensors(run):
    """Refused at `load`: what came before it counts, and the order decides."""
    source = random.Random(59)
    weight, scale = linear(source, "x", (130, 5), "fp8").items()
    r = Refusals(run, source, dict([weight, scale]) | {"y": ("F32", [1], b"1234"), "z": ("F32", [1], b"5678")})
    wide = ("F32", [3], bytes(12))
    none, direct, both = ({"direct": d, "layerwise": l} for d, l in ((False, False), (True, False), (True, True)))
    bad = r.changed({"z": wide})
    refuse_next(r, "the last tensor", IN_ORDER, bad, "z", both)
    refuse_next(r, "the last tensor, no order", [], bad, "z", none)
    refuse_next(r, "the last tensor of one bucket", ["--bucket", 10**9], bad, "z", none)
    refuse_next(r, "the last tensor, sent first", ["--order", "reverse"], bad, "z", none)
    bad = r.changed({"x.weight": None, "y": wide})
    refuse_next(r, "a tensor behind a scale", IN_ORDER, bad, "y", direct)
    refuse_next(r, "a tensor behind a scale, no order", [], bad, "y", none)
    refuse_next(r, "an unknown tensor", ["--order", "reverse"], r.changed({"zz": wide}), "zz", none)
    bad = r.changed({"x.weight_scale": scale[1]})
    refuse_next(r, "a second spelling", IN_ORDER, bad, "x.weight_scale", both)
    refuse_next(r, "a second spelling, no order", [], bad, "x.weight_scale", none)
    refuse_next(r, "a tensor left out", [], r.changed({"z": None}), "z", both)
    refuse_next(r, "all but one tensor left out", [], r.changed({name: None for name in ("y", "z", scale[0])}), "", direct)
    refuse_next(r, "nothing sent", [], run.folder({}), "", none)
    r.finish()


def unsent_stays(run):
    """A partial update, before and after: what it did not send keeps every byte."""
    source = random.Random(60)
    fp8 = checkpoints.model(source)
    layers = [gate_up("m.mlp", (33, 10), 48), Nvfp4Experts("m.experts", 2, 64, 128)]
    nvfp4 = merged(layers, source)
    other = checkpoints.model(source)
    take = lambda tensors, part: {name: tensor for name, tensor in tensors.items() if part in name}
    dump = lambda *words: (tool(*words, "--dump", (path := run.path("dump")))[0] == 0 and read(path))
    for what, first, part, words, changed in (
            ("one linear", fp8, take(other, "layers.1.mlp.up_proj"), [], "layers.1.mlp.up_proj.weight"),
            ("one shard", fp8, take(other, "layers.0.attn.kv_a_proj.weight"),
             ["--fuse", "fused_qkv_a_proj=q_a_proj,kv_a_proj"], "layers.0.attn.fused_qkv_a_proj.weight"),
            ("a vector", fp8, take(other, "norm"), [], "norm.weight"),
            ("one expert's scale", nvfp4, take(layers[1].fresh(source), "1.up_proj.weight_scale"), ["--fuse", GATE_UP],
             "m.experts."),
            ("one NVFP4 shard", nvfp4, take(layers[0].fresh(source), "up_proj.weight"), ["--fuse", GATE_UP], "gate_up_proj")):
        path, small = run.folder(first), run.folder(part)
        for mode in MODES:
            for bucket in BUCKETS[1:]:
                with_mode = ["--mode", mode, "--bucket", bucket, *words]
                before = dump(path, *with_mode)
                after = dump(path, small, "--scope", "partial", *with_mode)
                differing = {name for name in before if before[name] != after.get(name)} if before and after else {"nothing"}
                check(before and after and before.keys() == after.keys() and differing
                      and all(changed in name for name in differing), f"{mode}: {what}, bucket {bucket}", differing)
        if what == "one shard":  # the rows of the other shard too
            fused = f"model.{changed}"
            check(before[fused][2][:2 * 130 * 129] == after[fused][2][:2 * 130 * 129], f"{what}: the other shard's rows")


def words(run):
    path = run.folder(linear(random.Random(61), "m.o_proj", (130, 129), "fp8"))
    for mode in MODES:
        code, out, err = tool(path, path, "--mode", mode, "--device", "host")
        check(code == 0 and err == "" and f"mode: {mode}\n" in out and out.count("pause ") == 2, f"{mode} in words", out + err)
        check(out.count("of extra memory") == (0 if mode == "direct" else 2), f"{mode}: extra memory in words", out)
    code, out, err = tool(path, "--mode", "direct", *UNDO)
    check(code == 0 and "kept for undo" in out, "undo in words", out + err)


GROUPS = (fused_fp8, quantised_linears, stacked_experts, cut_for_ranks, undo_and_success, files_by_feed, budgets, refuse_over_budget,
          refuse_missing_scale, refuse_tensors, unsent_stays, words)


def run_groups(run):
    for group in GROUPS:
        group(run)


if __name__ == "__main__":
    sys.exit(reload_kit.main(run_groups))
