"""Two files include <wreload/wreload.hpp>, built as a strict engine builds; they must link, run, and compile fast.

    check.py INCLUDE_ROOT

A compile takes at most 1 s: the best of up to five tries in processor seconds, which is what an idle machine's clock
shows for a single-threaded compiler.
"""

import pathlib
import resource
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import ENGINE, Tally, call, compilers  # noqa: E402

LIMIT_SECONDS = 1.0  # a file, on the two-core machines here


def timed(command: list[str]) -> tuple[int, str, float, float]:
    """Exit status, output, processor seconds, wall seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code, output = call(command)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main():
    root, here = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(__file__).resolve().parent
    tally = Tally()
    if not (root / "wreload" / "wreload.hpp").is_file():
        tally.skip("include/wreload/wreload.hpp is not there yet")
        tally.done()
    if "clang++" not in compilers():
        tally.skip("clang++ is not here: the two files go through g++ alone")
    for compiler in compilers():
        with tempfile.TemporaryDirectory() as folder:
            objects = []
            for name in ("a", "b"):
                file, target = here / f"{name}.cpp", pathlib.Path(folder) / f"{name}.o"
                command = [compiler, *ENGINE, "-I", str(root), "-c", str(file), "-o", str(target)]
                tries = []
                for _ in range(5):
                    code, output, processor, wall = timed(command)
                    tries.append((processor, wall))
                    if code != 0 or (len(tries) >= 3 and min(tries)[0] <= LIMIT_SECONDS):
                        break
                if not tally.check(code == 0, f"{compiler} {file.name}", output):
                    continue
                objects.append(str(target))
                best, clock = min(tries)[0], min(wall for _, wall in tries)
                told = (f"{compiler} {file.name}: {best:.2f} s of processor, {clock:.2f} s by the clock, "
                        f"best of {len(tries)}")
                print(told)
                tally.check(best <= LIMIT_SECONDS, f"{told}: expected at most {LIMIT_SECONDS} s")
            if len(objects) == 2:
                program = str(pathlib.Path(folder) / "both")
                code, output = call([compiler, *objects, "-o", program])
                if tally.check(code == 0, f"{compiler} links a and b", output):
                    code, output = call([program])
                    tally.check(code == 0, f"{compiler}: the program runs", f"exit {code}\n{output}")
    tally.done()


if __name__ == "__main__":
    main()
