"""Block FP8 in PyTorch: what the peers share. 128 x 128 blocks, fp32 scales; `w = bf16(fp32(q) * s)`, rounded to nearest even."""

import json
import statistics
import sys

BLOCK = 128


def need(*modules: str):
    """Imports modules, or says what was not measured and exits 77, as the C++ programs do without a GPU."""
    import importlib

    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            print(f"not measured: {error}")
            sys.exit(77)
    if not found[0].cuda.is_available():
        print("not measured: no CUDA device")
        sys.exit(77)
    return found


def dequantise_rows(torch, codes, scales, weight, begin: int, end: int):
    """weight[begin:end] = bf16(codes[begin:end] * scales), in two kernels: codes are widened aside, then multiplied in
    fp32 and rounded on the way out. `codes` may lie in `weight`. `begin` is a multiple of 128.

        codes   (rows, cols) float8_e4m3fn, any row stride      scales  (ceil(rows / 128), cols / 128) fp32
        weight  (rows, cols) bf16, dense
    """
    aside = codes[begin:end].to(torch.bfloat16)
    columns = weight.shape[1] // BLOCK
    whole = (end - begin) // BLOCK
    first = begin // BLOCK
    for row, rows, blocks in ((0, whole * BLOCK, whole), (whole * BLOCK, end - begin - whole * BLOCK, 1)):
        if rows == 0:
            continue
        form = (blocks, rows // blocks, columns, BLOCK)
        block = first + row // BLOCK
        torch.mul(aside[row : row + rows].view(form), scales[block : block + blocks, None, :, None],
                  out=weight[begin + row : begin + row + rows].view(form))


def expected_bits(torch, codes, scales):
    """The weight's bits as int16, from the definition of e4m3 and with integer rounding; no NaN among the codes.

    codes  (rows, cols) uint8
    """
    table = []
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        table.append(-value if code & 0x80 else value)
    values = torch.tensor(table, dtype=torch.float32, device=codes.device)
    rows, cols = codes.shape
    bits = torch.empty((rows, cols), dtype=torch.int16, device=codes.device)
    for begin in range(0, rows, BLOCK):  # a row of blocks at a time
        some = codes[begin : begin + BLOCK]
        product = values[some.long()] * scales[begin // BLOCK].repeat_interleave(BLOCK)[:cols]
        raw = product.view(torch.int32)
        bits[begin : begin + BLOCK] = ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).to(torch.int16)
    return bits


class Table:
    """Rows as bench/table.hpp prints them."""

    def __init__(self):
        self.rows = []

    def add(self, name: str, seconds: list[float], moved: float, copy_rate: float | None = None, **more):
        time = statistics.median(seconds)
        row = {"name": name, "ms": round(time * 1e3, 4), "tb_per_s": round(moved / time * 1e-12, 4)}
        if copy_rate is not None:
            row["of_copy"] = round(moved / time / copy_rate, 4)
        row.update(more)
        self.rows.append(row)
        print(f"{name:<70} {time * 1e3:9.3f} ms  {moved / time * 1e-12:6.3f} TB/s"
              + (f"  {row['of_copy']:5.3f} of copy" if copy_rate is not None else ""), flush=True)

    def print(self, verified: bool):
        print("JSON " + json.dumps({"verified": verified, "rows": self.rows}), flush=True)
