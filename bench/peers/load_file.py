"""What people use instead: `safetensors.torch.load_file` to the GPU, then dequantisation in PyTorch, file by file.

    load_file.py FOLDER [REPETITIONS]       default 3

FOLDER holds *.safetensors with `X.weight` F8_E4M3 and `X.weight_scale_inv` F32 in 128 x 128 blocks, as bench/file_to_gpu
leaves it (`folder=FOLDER keep=1`). Its files are read once beforehand, so that they lie in the page cache. BF16 weights
have their place beforehand; every one is compared bit for bit, but for NaN.
"""

import pathlib
import sys
import time

from block_fp8 import Table, dequantise_rows, expected_bits, need


def main():
    torch, _ = need("torch", "safetensors")
    import safetensors.torch as storage

    folder = pathlib.Path(sys.argv[1])
    repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        print(f"not measured: no *.safetensors in {folder}")
        return 77
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 26):
                pass
    live, total = {}, sum(path.stat().st_size for path in files)
    load_seconds = []

    def update(path, visit=None):
        begin = time.perf_counter()
        tensors = storage.load_file(str(path), device="cuda")
        torch.cuda.synchronize()
        load_seconds[-1] += time.perf_counter() - begin
        for name, codes in tensors.items():
            if not name.endswith(".weight"):
                continue
            scales = tensors[name + "_scale_inv"]
            if name not in live:
                live[name] = torch.empty(codes.shape, dtype=torch.bfloat16, device="cuda")
            dequantise_rows(torch, codes, scales, live[name], 0, codes.shape[0])
            if visit:
                visit(name, codes, scales)
        torch.cuda.synchronize()

    table, wholes = Table(), []
    each = {path: [] for path in files}
    for repetition in range(-1, repetitions):  # the first gives the weights their place
        load_seconds.append(0.0)
        begin = time.perf_counter()
        for path in files:
            start = time.perf_counter()
            update(path)
            if repetition >= 0:
                each[path].append(time.perf_counter() - start)
        if repetition >= 0:
            wholes.append(time.perf_counter() - begin)
    table.add("safetensors load_file + PyTorch dequantise", wholes, total, files=len(files))
    table.add("of that load_file alone", load_seconds[1:], total)
    for path in files:
        table.add(f"file {path.name}", each[path], path.stat().st_size)

    wrong = 0

    def compare(name, codes, scales):
        nonlocal wrong
        raw = codes.view(torch.uint8)
        is_number = (raw & 0x7F) != 0x7F
        differs = live[name].view(torch.int16) != expected_bits(torch, raw, scales)
        wrong += int((differs & is_number).sum())

    for weight in live.values():
        weight.view(torch.int16).fill_(-1)
    for path in files:
        update(path, compare)
    print(f"{'verified' if wrong == 0 else 'FAILED'}: {wrong} wrong elements of {len(live)} weights, {total * 1e-9:.2f} GB")
    table.print(wrong == 0)
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
