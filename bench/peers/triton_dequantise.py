"""Block-FP8 to BF16 out of place, in Triton: a launch a matrix (`of_one`), or one for all of them (`of_all`)."""

import triton
import triton.language as tl


@triton.jit
def tile(q, s, o, rows, cols, at, BM: tl.constexpr, BN: tl.constexpr):
    """One BM x BN tile; BM divides 128, BN is a multiple of 128.

    q  (rows, cols) e4m3, dense      s  (ceil(rows / 128), ceil(cols / 128)) fp32      o  (rows, cols) bf16, dense
    """
    across = tl.cdiv(cols, BN)
    row = at // across * BM
    col = at % across * BN
    r = row + tl.arange(0, BM)
    c = col + tl.arange(0, BN)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    place = r[:, None].to(tl.int64) * cols + c[None, :]
    code = tl.load(q + place, mask=inside)
    grid = s + row // 128 * tl.cdiv(cols, 128)
    if BN == 128:
        value = code.to(tl.float32) * tl.load(grid + col // 128)
    else:
        value = code.to(tl.float32) * tl.load(grid + c // 128, mask=c < cols)[None, :]
    tl.store(o + place, value.to(tl.bfloat16), mask=inside)


@triton.jit
def of_one(q, s, o, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    tile(q, s, o, rows, cols, tl.program_id(0), BM, BN)


@triton.jit
def of_all(qs, ss, os, all_rows, all_cols, which, at, tiles, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr):
    """Program p does tiles p, p + programs, and so on; which[t] and at[t] are tile t's matrix and its place there. Columns
    are multiples of 128."""
    for t in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        m = tl.load(which + t)
        q = tl.multiple_of(tl.load(qs + m).to(tl.pointer_type(tl.float8e4nv)), 16)
        s = tl.load(ss + m).to(tl.pointer_type(tl.float32))
        o = tl.multiple_of(tl.load(os + m).to(tl.pointer_type(tl.bfloat16)), 16)
        cols = tl.multiple_of(tl.load(all_cols + m), 128)
        tile(q, s, o, tl.load(all_rows + m), cols, tl.load(at + t), BM, BN)
