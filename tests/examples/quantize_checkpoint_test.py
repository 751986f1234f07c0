"""Runs the built quantize_checkpoint on small checkpoints and compares with a plain Python reference.

    quantize_checkpoint_test.py TOOL        the executable, or the folder it lies in
"""

import bisect
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

TOOL = sys.argv[1]
if os.path.isdir(TOOL):
    TOOL = os.path.join(TOOL, "quantize_checkpoint")
counts = [0, 0]
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "BOOL": 1, "F64": 8}


def check(good, what, detail=""):
    counts[0 if good else 1] += 1
    if not good:
        print(f"FAILED: {what} {detail}", flush=True)


# --- numbers -------------------------------------------------------------------------------------------------------

def f32_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def bf16_bits(value):
    bits = f32_bits(value)
    return 0x7FFF if math.isnan(value) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def e4m3_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code & 0x80 else size


E4M3 = [e4m3_value(code) for code in range(0x7F)]


def e4m3_code(value):
    """Nearest code, ties to the even one, saturating; NaN is 0x7F."""
    if math.isnan(value):
        return 0x7F
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    size = abs(value)
    above = bisect.bisect_left(E4M3, size)
    if above == len(E4M3):
        return sign | 0x7E
    if above > 0:
        low, high = size - E4M3[above - 1], E4M3[above] - size
        if low < high or (low == high and (above - 1) % 2 == 0):
            above -= 1
    return sign | above


def decode(dtype, data):
    if dtype == "BF16":
        return [bf16_value(bits) for bits in struct.unpack(f"<{len(data) // 2}H", data)]
    letter = {"F32": "f", "F16": "e"}[dtype]
    return list(struct.unpack(f"<{len(data) // SIZES[dtype]}{letter}", data))


def quantise(values, rows, cols, block_rows, block_cols, scale_dtype="F32"):
    """(codes, scale bytes) of a row-major matrix."""
    codes, scales = bytearray(rows * cols), b""
    for top in range(0, rows, block_rows):
        for left in range(0, cols, block_cols):
            at = [r * cols + c for r in range(top, min(top + block_rows, rows))
                  for c in range(left, min(left + block_cols, cols))]
            amax = max((abs(values[i]) for i in at if math.isfinite(values[i])), default=0.0)
            scale = 1.0 if amax == 0 else f32(amax / 448.0) or 2.0**-149
            if scale_dtype == "BF16":
                scale = bf16_value(bf16_bits(scale)) or 2.0**-133
                scales += struct.pack("<H", bf16_bits(scale))
            else:
                scales += struct.pack("<f", scale)
            for i in at:
                value = values[i]
                codes[i] = e4m3_code(f32(value / scale) if math.isfinite(value) else value)
    return bytes(codes), scales


# --- files ---------------------------------------------------------------------------------------------------------

def write(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for name, e in header.items()}


def read_folder(path):
    tensors = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            tensors |= read(os.path.join(path, name))
    return tensors


def tool(*arguments):
    done = subprocess.run([TOOL, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def refused(what, message, *arguments):
    code, out, err = tool(*arguments)
    good = code == 2 and out == "" and err.count("\n") == 1 and message in err
    check(good, f"refusal: {what}", f"{code} {out!r} {err!r}")


# --- inputs --------------------------------------------------------------------------------------------------------

random.seed(7)
NAN, INF = float("nan"), float("inf")


def encode(dtype, values):
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return struct.pack(f"<{len(values)}H", *(bf16_bits(value) for value in values))


def matrix(dtype, rows, cols, spread=1.0):
    return dtype, [rows, cols], encode(dtype, [random.gauss(0, spread) for _ in range(rows * cols)])


def special(dtype, rows, cols, put):
    values = [random.gauss(0, 1) for _ in range(rows * cols)]
    for index, value in put.items():
        values[index] = value
    return dtype, [rows, cols], encode(dtype, values)


def source():
    zero_block = [0.0 if r < 128 and c < 128 else random.gauss(0, 1) for r in range(129) for c in range(130)]
    every_code = [sign * min(448.0, f32(code * nudge))
                  for code in E4M3 for sign in (1, -1) for nudge in (1, 1.000001, 0.999999)]
    halfway = [(E4M3[i] + E4M3[i + 1]) / 2 for i in range(126)] + [448.0, 0.0]
    return {
        "one.weight": matrix("F32", 1, 1),
        "row.weight": matrix("F16", 3, 127),
        "ragged.weight": matrix("BF16", 129, 130, 0.02),
        "zeros.weight": ("F32", [129, 130], encode("F32", zero_block)),
        "minus.weight": ("BF16", [2, 2], encode("BF16", [0.0, -0.0, -0.0, 0.0])),
        "nan.weight": special("F32", 4, 200, {0: NAN, 130: NAN, 500: -NAN}),
        "allnan.weight": ("F16", [2, 3], encode("F16", [NAN] * 6)),
        "inf.weight": special("BF16", 5, 129, {3: INF, 7: -INF, 300: INF, 128: -INF}),
        "onlyinf.weight": ("F32", [1, 2], encode("F32", [INF, -INF])),
        "exact.weight": ("F32", [6, 127], encode("F32", every_code)),  # amax 448: scale exactly 1
        "ties.weight": ("F32", [4, 32], encode("F32", halfway)),
        "tiny.weight": ("F32", [2, 2], encode("F32", [2.0**-149, -(2.0**-149), 3 * 2.0**-149, 0.0])),
        "small.weight": ("F32", [2, 2], encode("F32", [2.0**-126, 1e-42, -1e-40, 0.0])),
        "huge.weight": ("F32", [2, 2], encode("F32", [3.4e38, -3.4e38, 1e30, 1.0])),
        "none.weight": ("BF16", [0, 128], b""),
        "model.embed_tokens.weight": matrix("BF16", 5, 8),
        "input_layernorm.weight": matrix("BF16", 2, 2),
        "encoder.LayerNorm.weight": ("F32", [3], encode("F32", [1.0, 2.0, 3.0])),
        "lm_head.weight": matrix("F16", 4, 4),
        "mlp.gate.weight": matrix("F32", 4, 4),
        "mlp.gate_proj.weight": matrix("BF16", 4, 4),
        "cube.weight": ("F16", [2, 2, 2], encode("F16", [0.5] * 8)),
        "dense.bias": ("F32", [4], encode("F32", [0.0, -1.0, INF, NAN])),
        "zero.bias": ("BF16", [2], encode("BF16", [0.0, 0.0])),
        "scalar": ("F32", [], encode("F32", [1.5])),
        "position_ids": ("I64", [1, 3], struct.pack("<3q", 0, 1, 2)),
        "mask": ("BOOL", [2], b"\1\0"),
    }


KEPT = {"model.embed_tokens.weight", "input_layernorm.weight", "encoder.LayerNorm.weight", "lm_head.weight",
        "mlp.gate.weight", "cube.weight"}


def expected(tensors, block=(128, 128), scale_dtype="F32", scale_name="weight_scale_inv", kept=KEPT):
    result = {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.endswith(".weight") or name in kept:
            result[name] = (dtype, shape, data)
            continue
        codes, scales = quantise(decode(dtype, data), *shape, *block, scale_dtype)
        grid = [-(-shape[0] // block[0]), -(-shape[1] // block[1])]
        result[name] = ("F8_E4M3", shape, codes)
        result[name.removesuffix("weight") + scale_name] = (scale_dtype, grid, scales)
    return result


def same(got, want, what):
    check(got.keys() == want.keys(), f"{what}: names", sorted(got.keys() ^ want.keys()))
    for name in want:
        if name in got:
            check(got[name] == want[name], f"{what}: {name}", f"{got[name][:2]} {want[name][:2]}")


def main():
    with tempfile.TemporaryDirectory(prefix="wreload-quantize-") as work:
        path = lambda *parts: os.path.join(work, *parts)
        tensors = source()
        write(path("in.safetensors"), tensors)

        code, out, err = tool(path("in.safetensors"), path("a"))
        check(code == 0 and err == "" and out.count("\n") == 1, "success", f"{code} {out!r} {err!r}")
        check(sorted(os.listdir(path("a"))) == ["config.json", "model.safetensors"], "files", os.listdir(path("a")))
        got = read_folder(path("a"))
        same(got, expected(tensors), "default")
        check(got["minus.weight"][2] == b"\x00\x80\x80\x00", "a zero block keeps its signs")
        check(got["exact.weight_scale_inv"][2] == struct.pack("<f", 1.0), "amax 448: scale 1")
        check(got["onlyinf.weight"][2] == b"\x7e\xfe", "infinities saturate")
        check(set(got["allnan.weight"][2]) == {0x7F}, "NaN is 0x7F")
        with open(path("a", "config.json")) as file:
            check(json.load(file) == {"quantization_config": {
                "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}},
                "config.json")

        for block in [(1, 128), (64, 64), (128, 1), (3, 5), (1000, 1000)]:
            folder = path("b-%d-%d" % block)
            code, _, err = tool(path("in.safetensors"), folder, "--block", "%d,%d" % block)
            check(code == 0, f"--block {block}", err)
            same(read_folder(folder), expected(tensors, block), f"block {block}")
        tool(path("in.safetensors"), path("c"), "--scale-dtype", "BF16", "--scale-name", "weight_scale")
        same(read_folder(path("c")), expected(tensors, scale_dtype="BF16", scale_name="weight_scale"), "BF16 scales")

        # What is chosen.
        every = {name for name in tensors if name.endswith(".weight")}
        tool("--exclude", "r*", "--exclude", "z*,n*", path("in.safetensors"), path("d"))
        same(read_folder(path("d")),
             expected(tensors, kept=KEPT | {name for name in every if name[0] in "rzn"}), "--exclude")
        tool("--include", "lm_head*", "--include", "*.gate.weight,scalar,cube*", path("in.safetensors"), path("e"))
        same(read_folder(path("e")),
             expected(tensors, kept=every - {"lm_head.weight", "mlp.gate.weight"}), "--include")

        # The others as BF16.
        tool(path("in.safetensors"), path("f"), "--others", "bf16")
        got, want = read_folder(path("f")), expected(tensors)
        for name, (dtype, shape, data) in want.items():
            if dtype in ("F32", "F16") and not name.endswith("_scale_inv"):
                want[name] = ("BF16", shape, encode("BF16", decode(dtype, data)))
        same(got, want, "--others bf16")

        # Several files in and out, and a config that is kept.
        os.mkdir(path("shards"))
        names = list(tensors)
        write(path("shards", "x.safetensors"), {name: tensors[name] for name in names[:9]})
        write(path("shards", "y.safetensors"), {name: tensors[name] for name in names[9:]})
        with open(path("shards", "config.json"), "w") as file:
            json.dump({"model_type": "tëst", "layers": [1, {"a": None}]}, file)
        for shards in (2, 3, 7, 99999):
            folder = path(f"g{shards}")
            code, _, err = tool(path("shards"), folder, "--shards", str(shards))
            check(code == 0, f"--shards {shards}", err)
            same(read_folder(folder), expected(tensors), f"{shards} shards")
            files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
            count = min(shards, len(expected(tensors)))
            wanted = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
            check(files == wanted, f"{shards}: files", files)
            with open(os.path.join(folder, "model.safetensors.index.json")) as file:
                index = json.load(file)
            weight_map = {name: file for file in files for name in read(os.path.join(folder, file))}
            check(index["weight_map"] == weight_map, f"{shards}: index")
            check(index["metadata"]["total_size"] == sum(len(data) for _, _, data in expected(tensors).values()),
                  f"{shards}: total size")
            code, _, err = tool(folder, path("none"), "--exclude", "*")  # the folder is one that the reader takes
            check(code == 0, f"{shards} shards are a checkpoint", err)
            with open(os.path.join(folder, "config.json")) as file:
                config = json.load(file)
            check((config["model_type"], config["layers"]) == ("tëst", [1, {"a": None}]), "config keys are kept")
            check(config["quantization_config"]["weight_block_size"] == [128, 128], "config gets the block size")
        same(read_folder(path("none")), expected(tensors), "everything excluded: nothing changes")

        # The next version: everything differs, the same seed gives the same bytes.
        for seed in ("1", "2", "1"):
            folder = path("p" + seed)
            code, _, err = tool(path("in.safetensors"), folder, "--perturb", seed)
            check(code == 0, f"--perturb {seed}", err)
            got, base = read_folder(folder), expected(tensors)
            check(got.keys() == base.keys(), "perturbed names")
            for name in base:
                check(got[name][:2] == base[name][:2], f"perturbed {name}: dtype and shape")
                check(not base[name][2] or got[name][2] != base[name][2], f"perturbed {name} differs")
            if seed == "1" and "first" in locals():
                check(got == first, "the same seed gives the same values")
            if seed == "1":
                first = got
            else:
                check(all(not got[name][2] or got[name] != first[name] for name in
                          ("ragged.weight", "ragged.weight_scale_inv", "zero.bias", "model.embed_tokens.weight")),
                      "another seed gives other values")
        before, after = expected(tensors), first
        scales = [(struct.unpack(f"<{len(d) // 4}f", d), struct.unpack(f"<{len(d) // 4}f", after[n][2]))
                  for n, (_, _, d) in before.items() if n == "ragged.weight_scale_inv"][0]
        check(all(a != b for a, b in zip(*scales)), "every scale of a perturbed weight differs")
        codes = [folder["ragged.weight"][2] for folder in (before, after)]
        check(all(a != b or a & 0x7F == 0 for a, b in zip(*codes)), "every code of a perturbed weight differs")

        # Refusals: one line, exit 2, nothing written.
        good = path("in.safetensors")
        refused("no arguments", "IN is required")
        refused("missing OUT", "OUT is required", good)
        refused("unknown option", "--bogus", good, path("o"), "--bogus")
        for block in ("128", "0,128", "-1,128", "128,", "128,128,128", "a,b", "", "128;128", "99999999999,1", " 1,1"):
            refused(f"--block {block!r}", "--block", good, path("o"), f"--block={block}")
        refused("--shards 0", "--shards", good, path("o"), "--shards", "0")
        refused("--perturb x", "--perturb", good, path("o"), "--perturb", "x")
        refused("--perturb -1", "--perturb", good, path("o"), "--perturb=-1")
        refused("--perturb 2^64", "--perturb", good, path("o"), "--perturb", str(2**64))
        refused("--perturb nothing", "--perturb", good, path("o"), "--perturb=")
        refused("--scale-dtype", "--scale-dtype", good, path("o"), "--scale-dtype", "F16")
        refused("--scale-name", "--scale-name", good, path("o"), "--scale-name", "scale")
        refused("no input", path("missing") + ": expected a safetensors file or a folder", path("missing"), path("o"))
        os.mkdir(path("empty"))
        refused("empty input", path("empty") + ": expected *.safetensors files", path("empty"), path("o"))
        with open(path("broken.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", 2**63) + b"{}")
        broken = path("broken.safetensors")
        refused("broken input", broken + ": expected a header within", broken, path("o"))
        write(path("fp8.safetensors"), {"a.weight": ("F8_E4M3", [1, 2], b"ab")})
        refused("FP8 input", "a.weight: expected F32, F16 or BF16 to quantise", path("fp8.safetensors"), path("o"))
        write(path("f64.safetensors"), {"a.weight": ("F64", [1, 1], bytes(8))})
        refused("F64 input", "a.weight: expected F32, F16 or BF16 to quantise", path("f64.safetensors"), path("o"))
        write(path("twice.safetensors"), {"a.weight": matrix("F32", 1, 1), "a.weight_scale_inv": matrix("F32", 1, 1)})
        refused("scale is there", "a.weight_scale_inv: expected a weight without a scale yet",
                path("twice.safetensors"), path("o"))
        check(not os.path.exists(path("o")), "a refusal writes nothing")
        refused("OUT is a file", good + ": expected a folder", good, good)
        refused("OUT is IN", "another folder", path("shards"), path("shards"))
        refused("OUT holds IN", "another folder", good, work)
        refused("OUT holds other tensors", path("a", "model.safetensors"), good, path("a"), "--shards", "2")
        refused("OUT holds an index", "expected a folder without other tensors", good, path("g2"))
        with open(path("shards", "config.json"), "w") as file:
            file.write("{")
        broken = path("shards", "config.json")
        refused("broken config.json", broken + ": expected valid JSON", path("shards"), path("o"))
        left = sorted(os.listdir(path("shards")))
        check(left == ["config.json", "x.safetensors", "y.safetensors"], "IN is untouched", left)
        code, _, err = tool(good, path("a"))
        check(code == 0, "writing again over the same files", err)
        same(read_folder(path("a")), expected(tensors), "written again")
        code, out, err = tool("--help")
        check(code == 0 and "--perturb" in out and err == "", "--help")

    print(f"{counts[0]} passed, {counts[1]} failed", flush=True)
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
