"""What people use instead: PyTorch loops and a Triton kernel on the 60 matrices of bench/dequant_in_place.

    dequantise.py [REPETITIONS] [LAYERS]        default 7 and 20

In place means that the FP8 codes lie in the first half of each BF16 row, so a loop has to put rows aside before it writes
over them; every chunk size and formulation here is tried, the fastest counts. Triton writes elsewhere (it has twice the
memory) and is tuned over block shapes, warps and stages, in a launch a matrix and in one launch for all. The stream is
kept busy while the host enqueues, as in the C++ programs. Every result is compared bit for bit.
"""

import statistics
import sys
import time

from block_fp8 import BLOCK, Table, dequantise_rows, expected_bits, need

SHAPES = ((2112, 7168), (24576, 1536), (7168, 16384))
TUNING_SECONDS = 25


def seconds_of(torch, work, prepare=lambda: None, repetitions=1) -> list[float]:
    """Device seconds of `work()`, enqueued behind a busy stream."""
    found = []
    for _ in range(repetitions):
        prepare()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(40_000_000)  # some 20 ms
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e-3)
    return found


def in_fp32(torch, codes, scales, weight, begin, end):
    """Three kernels, all in fp32."""
    wide = codes[begin:end].to(torch.float32)
    some = scales[begin // BLOCK : (end + BLOCK - 1) // BLOCK]
    whole = (end - begin) // BLOCK
    columns = weight.shape[1] // BLOCK
    if whole:
        wide[: whole * BLOCK].view(whole, BLOCK, columns, BLOCK).mul_(some[:whole, None, :, None])
    if (end - begin) % BLOCK:
        wide[whole * BLOCK :].view(-1, columns, BLOCK).mul_(some[-1, :, None])
    weight[begin:end].copy_(wide)


def expanded(torch, codes, scales, weight, begin, end):
    """As `in_fp32`, with the scales repeated along columns first."""
    some = scales[begin // BLOCK : (end + BLOCK - 1) // BLOCK].repeat_interleave(BLOCK, 1)
    some = some.repeat_interleave(BLOCK, 0)[: end - begin]
    weight[begin:end] = (codes[begin:end].to(torch.float32) * some).to(torch.bfloat16)


def main():
    (torch,) = need("torch")
    try:
        import triton
        from triton_dequantise import of_all, of_one
    except ImportError:
        triton = None
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    began = time.monotonic()
    device = torch.device("cuda")
    random = torch.Generator(device).manual_seed(7)
    matrices = []  # (codes aside, scales, weight)
    for _ in range(layers):
        for rows, cols in SHAPES:
            codes = torch.randint(0, 256, (rows, cols), dtype=torch.uint8, device=device, generator=random)
            codes ^= ((codes & 0x7F) == 0x7F).to(torch.uint8)  # no NaN
            grid = ((rows + BLOCK - 1) // BLOCK, cols // BLOCK)
            scales = torch.rand(grid, device=device, generator=random) * (2**-7 - 2**-9) + 2**-9
            weight = torch.empty((rows, cols), dtype=torch.bfloat16, device=device)
            matrices.append((codes, scales, weight))
    elements = sum(codes.numel() for codes, _, _ in matrices)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton {triton.__version__ if triton else 'not here'}; "
          f"{len(matrices)} matrices, {elements * 1e-9:.2f} G elements; medians of {repetitions}")
    table, verified = Table(), True

    def reset():
        for codes, _, weight in matrices:
            weight.view(torch.uint8)[:, codes.shape[1] :].fill_(0xA5)
            weight.view(torch.uint8)[:, : codes.shape[1]].copy_(codes)

    def check(what: str, results) -> bool:
        wrong = 0
        for (codes, scales, _), result in zip(matrices, results):
            wrong += int((result.view(torch.int16) != expected_bits(torch, codes, scales)).sum())
        if wrong:
            print(f"FAILED: {what}: {wrong} wrong elements")
        return wrong == 0

    source = torch.empty(elements, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    source.random_(0, 256)
    seconds = seconds_of(torch, lambda: target.copy_(source), repetitions=2 + repetitions)[2:]
    copy_rate = 2 * elements / statistics.median(seconds)
    table.add("device copy (copy_)", seconds, 2 * elements, copy_rate)
    del source, target

    def chunked(form, chunk_elements: int):
        for codes, scales, weight in matrices:
            rows, cols = codes.shape
            lying = weight.view(torch.float8_e4m3fn)[:, :cols]
            step = max(chunk_elements // cols // BLOCK, 1) * BLOCK
            for begin in range(0, rows, step):
                form(torch, lying, scales, weight, begin, min(begin + step, rows))

    best = None
    for form in (dequantise_rows, in_fp32, expanded):
        for chunk in (1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 26, 1 << 40):
            found = seconds_of(torch, lambda: chunked(form, chunk), reset, 2)
            if best is None or min(found) < best[0]:
                best = (min(found), form, chunk)
    _, form, chunk = best
    seconds = seconds_of(torch, lambda: chunked(form, chunk), reset, repetitions)
    verified &= check("PyTorch chunked", [weight for _, _, weight in matrices])
    size = f"{chunk >> 20} Mi elements a chunk" if chunk < 1 << 40 else "whole matrices"
    table.add(f"PyTorch chunked in place: {form.__name__}, {size}", seconds, 3 * elements, copy_rate)

    def per_matrix():
        for codes, scales, weight in matrices:
            rows, cols = codes.shape
            grid = scales.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :cols]
            weight.copy_((weight.view(torch.float8_e4m3fn)[:, :cols].to(torch.float32) * grid).to(torch.bfloat16))

    seconds = seconds_of(torch, per_matrix, reset, 1 + repetitions)[1:]
    verified &= check("PyTorch per matrix", [weight for _, _, weight in matrices])
    table.add("PyTorch per matrix: repeat_interleave", seconds, 3 * elements, copy_rate)

    if triton is not None:
        outputs = [torch.empty_like(weight) for _, _, weight in matrices]
        lying = [codes.view(torch.float8_e4m3fn) for codes, _, _ in matrices]

        def one_by_one(bm, bn, warps):
            for (codes, scales, _), q, out in zip(matrices, lying, outputs):
                rows, cols = codes.shape
                of_one[(triton.cdiv(rows, bm) * triton.cdiv(cols, bn),)](q, scales, out, rows, cols, BM=bm, BN=bn, num_warps=warps)

        def int_table(values, type=torch.int32):
            return torch.tensor(values, dtype=type, device=device)

        pointers = [int_table([each.data_ptr() for each in column], torch.int64)
                    for column in (lying, [scales for _, scales, _ in matrices], outputs)]
        all_rows, all_cols = (int_table([codes.shape[d] for codes, _, _ in matrices]) for d in (0, 1))
        places = {}

        def together(bm, bn, warps, programs, stages):
            if (bm, bn) not in places:
                counts = [triton.cdiv(codes.shape[0], bm) * triton.cdiv(codes.shape[1], bn) for codes, _, _ in matrices]
                places[bm, bn] = (torch.repeat_interleave(int_table(range(len(counts))), int_table(counts)),
                                  torch.cat([torch.arange(n, dtype=torch.int32, device=device) for n in counts]))
            which, at = places[bm, bn]
            tiles = which.numel()
            grid = (tiles if programs == 0 else min(tiles, programs),)
            of_all[grid](*pointers, all_rows, all_cols, which, at, tiles, BM=bm, BN=bn, STAGES=stages, num_warps=warps)

        def tune(run, choices):
            limit = time.monotonic() + TUNING_SECONDS / 2
            times, tried = [], 0
            for choice in choices:
                if time.monotonic() > limit:
                    break
                try:
                    run(*choice)  # compiles
                    times.append((min(seconds_of(torch, lambda: run(*choice), repetitions=2)), choice))
                except Exception as error:  # too many registers, too much shared memory
                    print(f"Triton {choice}: {type(error).__name__}")
                tried += 1
            print(f"Triton: {tried} of {len(choices)} variants tried")
            return sorted(times)

        def report(name, run, choices):
            times = tune(run, choices)
            if not times:
                print(f"{name}: not measured")
                return [], True
            choice = times[0][1]
            for out in outputs:
                out.view(torch.int16).fill_(-1)
            seconds = seconds_of(torch, lambda: run(*choice), repetitions=repetitions)
            good = check(name, outputs)
            table.add(f"{name} {choice}", seconds, 3 * elements, copy_rate, extra_bytes=2 * elements)
            return times, good

        blocks = [(16, 128), (8, 256), (4, 512), (2, 1024), (1, 2048), (32, 128), (8, 512), (4, 1024), (64, 128), (16, 256),
                  (1, 1024), (128, 128), (2, 2048), (16, 512)]
        times, good = report("Triton out of place, a launch a matrix, (rows, cols, warps)", one_by_one,
                             [(bm, bn, warps) for bm, bn in blocks for warps in (4, 8, 2)])
        verified &= good
        many = torch.cuda.get_device_properties(device).multi_processor_count
        shapes = [choice for _, choice in times[:4]]
        choices = [(*shape, 0, 1) for shape in shapes]
        choices += [(*shape, many * per, stages) for shape in shapes for per in (8, 16) for stages in (1, 2, 3)]
        _, good = report("Triton out of place, one launch, (rows, cols, warps, programs, stages)", together, choices)
        verified &= good

    print(f"{'verified' if verified else 'FAILED'}; {time.monotonic() - began:.1f} s in all")
    table.print(verified)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
