"""What the tests of reload_checkpoint share: numbers, files, and a runner that compares dumps.

The first argument of a test is TOOL, the second QUANTIZE: the executables, or the folder they lie in.
"""

import concurrent.futures
import functools
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

TOOL = sys.argv[1]
QUANTIZE = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(TOOL), "quantize_checkpoint")
if os.path.isdir(TOOL):
    TOOL, QUANTIZE = os.path.join(TOOL, "reload_checkpoint"), os.path.join(TOOL, "quantize_checkpoint")
counts = [0, 0]
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1,
         "F8_E5M2": 1, "F8_E8M0": 1}
BLOCKS = [(128, 128), (64, 64), (1, 128), (128, 1)]
ORDERS = ["file", "reverse", "shuffle:1", "shuffle:18446744073709551615", "scales-first", "weights-first"]
BUCKETS = [1, 3, 127, 4096, 10**9]
# Without --order and --bucket a feed sends the files: it names first what the model refuses by name, dtype or shape.
IN_ORDER = ["--order", "file"]


def check(good, what, detail=""):
    counts[0 if good else 1] += 1
    if not good:
        print(f"FAILED: {what} {detail}"[:2000], flush=True)
    return good


# --- numbers -------------------------------------------------------------------------------------------------------

def bits_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def e4m3_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return math.nan
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code & 0x80 else size


def e8m0_value(code):
    return math.nan if code == 255 else 2.0 ** (code - 127)


def f32_bits(value):
    """Rounds a double to FP32, to nearest even."""
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def dequantised(code, scale):
    """BF16 bits of code * scale: rounded to FP32, then to BF16; every NaN is 0x7FFF."""
    product = e4m3_value(code) * scale  # 4 x 24 bits of significand: exact in a double
    if math.isnan(product):
        return 0x7FFF
    bits = f32_bits(product)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


@functools.lru_cache(maxsize=None)
def tables(scale_bits):
    """Low and high BF16 bytes of all 256 codes times a scale."""
    words = [dequantised(code, bits_value(scale_bits)) for code in range(256)]
    return bytes(word & 255 for word in words), bytes(word >> 8 for word in words)


# Worked rows of formats.md 2.5.
assert dequantised(0x38, bits_value(0x3F808000)) == 0x3F80 and dequantised(0x39, bits_value(0x3F69C71C)) == 0x3F84
assert dequantised(0x80, 1.0) == 0x8000 and dequantised(0xFF, 1.0) == 0x7FFF and dequantised(0, math.inf) == 0x7FFF
assert dequantised(0x7E, 3e38) == 0x7F80 and dequantised(0x01, 2.0**-124) == 1 and dequantised(0x81, 2.0**-125) == 0x8000


def scale_values(dtype, data):
    """FP32 bits of each scale."""
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}I", data))
    if dtype == "BF16":
        return [word << 16 for word in struct.unpack(f"<{len(data) // 2}H", data)]
    return [f32_bits(e8m0_value(code)) for code in data]


def dequantise(codes, rows, cols, scales, block):
    across = -(-cols // block[1])
    out = bytearray(2 * rows * cols)
    for row in range(rows):
        for left in range(0, cols, block[1]):
            low, high = tables(scales[row // block[0] * across + left // block[1]])
            begin, end = row * cols + left, row * cols + min(left + block[1], cols)
            out[2 * begin:2 * end:2] = codes[begin:end].translate(low)
            out[2 * begin + 1:2 * end:2] = codes[begin:end].translate(high)
    return bytes(out)


# --- files ---------------------------------------------------------------------------------------------------------

def image(tensors, metadata=None):
    header, end = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == SIZES[dtype] * math.prod(shape), name
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def put(path, data):
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path


def write_folder(path, tensors, block=None, files=1, index=True, source=None):
    """A folder of `files` shards; weights and scales may fall apart."""
    os.mkdir(path)
    names = list(tensors)
    if source:
        source.shuffle(names)
    weight_map = {}
    for i in range(files):
        part = {name: tensors[name] for name in names[i::files]}
        file = f"model-{i + 1:05}-of-{files:05}.safetensors"
        weight_map |= dict.fromkeys(part, file)
        put(os.path.join(path, file), image(part, {} if i % 2 else {"format": "pt"}))
    if files > 1 and index:
        put(os.path.join(path, "model.safetensors.index.json"), json.dumps({"metadata": {}, "weight_map": weight_map}))
    if block:
        config = {"model_type": "x", "quantization_config": {"weight_block_size": list(block)}}
        put(os.path.join(path, "config.json"), json.dumps(config))
    return path


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for name, e in header.items()}


def tool(*arguments, cwd=None):
    done = subprocess.run([TOOL, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd,
                          timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# --- runs -----------------------------------------------------------------------------------------------------------

ODD_SCALES = [0x00000000, 0x80000000, 0x00000001, 0x00400000, 0x7F800000, 0x7FC00000, 0xFFFFFFFF, 0x7F7FFFFF, 0x3F808000]


def scale_bytes(source, dtype, count):
    if dtype == "F8_E8M0":
        return bytes(source.choice([0, 1, 120, 127, 128, 254, 255, 130]) for _ in range(count))
    bits = [source.choice(ODD_SCALES) if source.random() < 0.1 else f32_bits(source.uniform(-0.01, 0.02)) for _ in
            range(count)]
    return struct.pack(f"<{count}I", *bits) if dtype == "F32" else struct.pack(f"<{count}H", *(b >> 16 for b in bits))


def linear(source, module, shape, how, block=(128, 128), spelling="weight_scale_inv", scale="F32"):
    """Tensors of one linear: block FP8, BF16, or BF16 beside a stray scale."""
    rows, cols = shape
    grid = [-(-rows // block[0]), -(-cols // block[1])]
    tensors = {}
    if how == "fp8":
        tensors[f"{module}.weight"] = ("F8_E4M3", [rows, cols], source.randbytes(rows * cols))
    else:
        tensors[f"{module}.weight"] = ("BF16", [rows, cols], source.randbytes(2 * rows * cols))
    if how != "bf16":
        tensors[f"{module}.{spelling}"] = (scale, grid, scale_bytes(source, scale, math.prod(grid)))
    return tensors


def option(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


def is_extra_right(words, extra):
    """Direct takes no memory, a budget is taken whole, the other modes take some."""
    if option(words, "--mode", "direct") == "direct":
        return extra == 0
    budget = option(words, "--budget")
    return extra == int(budget) if budget else extra > 0


class Runner:
    """Numbers its folders, runs cases on both cores, compares dumps."""

    def __init__(self, work):
        self.work, self.next, self.cases = work, 0, []
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)

    def path(self, name=""):
        self.next += 1
        return os.path.join(self.work, f"{name}{self.next}")

    def folder(self, tensors, **how):
        return write_folder(self.path("c"), tensors, **how)

    def same(self, what, paths, checkpoints, setup, *arguments, warnings=(), partial=False):
        """Queues a run whose dump must be the reference's."""
        dump = self.path("dump")
        words = [*paths, *setup.arguments(), *map(str, arguments), "--dump", dump, "--json", "--device", "host"]
        if partial:
            words += ["--scope", "partial"]
        loads = checkpoints
        self.cases.append((what, words, dump, loads, setup, list(warnings), partial, self.pool.submit(tool, *words)))

    def finish(self):
        """Checks everything that was queued."""
        known = {}
        for what, words, dump, loads, setup, warnings, partial, running in self.cases:
            code, out, err = running.result()
            if not check(code == 0 and err == "", what, f"{code} {err} {out} {' '.join(words)}"):
                continue
            key = (tuple(map(id, loads)), repr(vars(setup)), partial)
            if key not in known:
                known[key] = setup.expected(loads, partial)
            want, got = known[key], read(dump)
            os.unlink(dump)
            bad = [name for name in want.keys() | got.keys() if want.get(name) != got.get(name)]
            check(not bad, f"{what}: dump", f"{bad[:3]} {[got.get(n, [None] * 2)[:2] for n in bad[:3]]} "
                  f"{[want.get(n, [None] * 2)[:2] for n in bad[:3]]} {' '.join(words)}")
            self.check_json(what, words, out, loads, want, warnings)
        self.cases.clear()

    @staticmethod
    def check_json(what, words, out, loads, want, warnings):
        found = json.loads(out)
        audit = found["audit"]
        pauses = any(data for _, _, data in loads[-1].values())
        check(is_extra_right(words, found["peak_extra_device_bytes"]) and (found["pause_seconds"] > 0) == pauses,
              f"{what}: memory, pause", out)
        facts = (found["state"], found["version"], found["tensors"], found["bytes"], found["warnings"],
                 audit["compared"], audit["mismatched"], audit["moved"], audit["memory_growth"], audit["names"])
        right = ("live", len(loads), sum(map(len, loads)), sum(len(t[2]) for c in loads for t in c.values()), warnings,
                 len(want), 0, 0, 0, [])
        check(facts == right, f"{what}: JSON", f"{facts} {right}")


class Refusals:
    """Runs that must be refused; `good` is a checkpoint that loads."""

    def __init__(self, run, source, good):
        self.run, self.source, self.good = run, source, good
        self.path = run.folder(self.good)
        self.waiting = []

    def changed(self, changes, base=None, **how):
        """A folder with some tensors replaced, or (None) left out."""
        tensors = {name: t for name, t in ((self.good if base is None else base) | changes).items() if t is not None}
        return self.run.folder(tensors, **how)

    def expect(self, what, words, *names, state="undefined", version=0):
        """Queues two runs: exit 2, one line on stderr with every name, no dump, or an old one left alone."""
        def both():
            dump = self.run.path("dump")
            first = tool(*words, "--dump", dump)
            absent = not os.path.exists(dump)
            put(dump, "an old dump")
            second = tool(*words, "--dump", dump, "--json")
            with open(dump, "rb") as file:
                return first, absent, second, file.read() == b"an old dump"
        self.waiting.append((what, names, state, version, self.run.pool.submit(both)))

    def finish(self):
        for what, names, state, version, running in self.waiting:
            (code, out, err), absent, (code2, out2, err2), kept = running.result()
            check(code == code2 == 2, f"{what}: exit", f"{code} {code2} {err}")
            check(err.count("\n") == 1 and err.endswith("\n") and out == "", f"{what}: one line", repr(err) + repr(out))
            check(all(name in err for name in names), f"{what}: names", f"{err!r} {names}")
            check(err == err2, f"{what}: the same line", repr(err) + repr(err2))
            check(absent and kept, f"{what}: dump", f"{absent} {kept}")
            try:
                found = json.loads(out2)
            except ValueError:
                found = {}
            check(list(found) == ["state", "version", "error"] and (found["state"], found["version"]) == (state, version)
                  and all(name in found["error"] for name in names), f"{what}: JSON", out2)
        self.waiting.clear()


def main(run_groups, skipped=()):
    """Runs the groups with a Runner in a folder of its own; the exit status. `skipped`: numbers to add up."""
    with tempfile.TemporaryDirectory(prefix="wreload-reload-") as work:
        run = Runner(work)
        run_groups(run)
        run.pool.shutdown()
    print(f"{counts[0]} passed, {counts[1]} failed" + (f", {sum(skipped)} skipped" if skipped else ""), flush=True)
    return 1 if counts[1] else 0
