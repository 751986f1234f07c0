"""Runs the built memory_table and compares its figures with sums written from the model's dimensions.

    memory_table_test.py TOOL        the executable, or the folder it lies in
"""

import os
import re
import subprocess
import sys

TOOL = sys.argv[1]
if os.path.isdir(TOOL):
    TOOL = os.path.join(TOOL, "memory_table")
counts = [0, 0]


def check(good, what, detail=""):
    counts[0 if good else 1] += 1
    if not good:
        print(f"FAILED: {what} {detail}", flush=True)


done = subprocess.run([TOOL], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
check(done.returncode == 0 and done.stderr == "", "exit", done.stderr)
experts, inner, hidden = 384, 2048 // 4, 7168
scales = experts * (2 * inner * hidden // 16 + hidden * inner // 16)
weights = experts * (2 * inner * hidden // 2 + hidden * inner // 2)
scalars = 4 * (experts * (2 + 2 + 1 + 1 + 3) + 2)
found = re.search(r"MoE block scales: (\d+) bytes", done.stdout)
check(found and int(found[1]) == 60 * scales, "MoE block scales saved", done.stdout)
check(14.5 < 60 * scales / 2**30 < 15.5, "about 15 GiB a rank")
row = re.search(r"^routed experts.* 60 +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
want = [60 * (weights + scalars + copies * scales) / 2**30 for copies in (2, 1, 1)] + [60 * scales / 2**30]
check(row and all(abs(float(a) - b) < 0.001 for a, b in zip(row.groups(), want)), "routed experts", f"{row} {want}")
need = sum(int(size) for size in re.findall(r"(\d+) bytes(?:  retired)?$", done.stdout, re.M))
check(need == weights + scales + scalars, "one layer's storage_plan", f"{need} {weights + scales + scalars}")

print(f"{counts[0]} passed, {counts[1]} failed", flush=True)
sys.exit(1 if counts[1] else 0)
