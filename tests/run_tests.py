"""Runs every test that Meson knows in BUILD and adds up their own counts.

    run_tests.py BUILD [NAME...]      only the tests of those names

A doctest executable counts its cases, a script its closing line `N passed, N failed[, N skipped]`, anything else
itself. Exit 77 is "skipped". The last line printed is `N passed, N failed, N skipped`; the exit status is 1 if any
failed.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

DOCTEST = re.compile(r"\[doctest\] test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed\s*\|\s*(\d+) skipped")
DOCTEST_COUNT = re.compile(r"unskipped test cases passing the current filters:\s*(\d+)")
SCRIPT = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def counts(output: str, code: int) -> tuple[int, int, int]:
    """(passed, failed, skipped) of one test."""
    if code == 77:
        counted = DOCTEST_COUNT.search(output)
        return 0, 0, int(counted[1]) if counted else 1
    found = DOCTEST.findall(output) or SCRIPT.findall(output)
    passed, failed, skipped = (int(n or 0) for n in found[-1]) if found else (int(code == 0), 0, 0)
    if code != 0 and failed == 0:
        failed = 1  # it crashed, was stopped, or failed before it counted
    return passed, failed, skipped


def run(test: dict) -> tuple[dict, tuple[int, int, int], str, int, float]:
    begin = time.monotonic()
    environment = {**os.environ, **test["env"]}
    try:
        done = subprocess.run(
            test["cmd"], cwd=test["workdir"], env=environment, timeout=test["timeout"] or None,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        partial = late.stdout or b""
        output = partial if isinstance(partial, str) else partial.decode(errors="replace")
        output, code = f"{output}\nstopped after {late.timeout} s", -1
    except OSError as error:
        output, code = str(error), -1
    output = COLOUR.sub("", output)
    passed, failed, skipped = counts(output, code)
    if any(word.startswith("-tc") for word in test["cmd"]) and code != 77:
        skipped = 0  # what a filter leaves out runs elsewhere
    return test, (passed, failed, skipped), output, code, time.monotonic() - begin


def main() -> int:
    build, names = sys.argv[1], set(sys.argv[2:])
    listed = subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True)
    tests = [test for test in json.loads(listed.stdout) if not names or test["name"] in names]

    total = [0, 0, 0]
    slow = []

    def tell(result):
        test, count, output, code, seconds = result
        word = "FAIL" if count[1] else "skip" if count == (0, 0, count[2]) and count[2] else "ok"
        print(f"{word:4}  {test['name']:28} {count[0]:5} passed {count[1]:3} failed {count[2]:3} skipped"
              f"  {seconds:7.1f} s", flush=True)
        if count[1]:
            print(f"----- {test['name']}: exit {code}: {' '.join(test['cmd'])}\n{output.rstrip()}\n-----", flush=True)
        elif count[2]:
            for line in output.splitlines():
                if "skip" in line and not SCRIPT.match(line) and not DOCTEST_COUNT.search(line):
                    print(f"      {line.strip()}", flush=True)
        for i in range(3):
            total[i] += count[i]
        slow.append((seconds, test["name"]))

    together = [test for test in tests if test["is_parallel"]]
    alone = [test for test in tests if not test["is_parallel"]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, test) for test in together]):
            tell(done.result())
    for test in alone:
        tell(run(test))

    slowest = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(slow, reverse=True)[:5])
    print(f"slowest: {slowest}\n")
    if not tests:
        print("no test was found")
        total[1] += 1
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
