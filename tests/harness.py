"""What the Python harnesses share: compilers to try, a tally that ends in `N passed, N failed, N skipped`."""

import concurrent.futures
import os
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
ENGINE = ["-std=c++20", "-fno-exceptions", "-fno-rtti", *WARNINGS]  # how a strict engine compiles


def compilers() -> list[str]:
    """g++ and, where it is there, clang++."""
    return [name for name in ("g++", "clang++") if shutil.which(name)]


def nvcc() -> list[str] | None:
    """The nvcc command line up to the file, where Meson found CUDA."""
    if os.environ.get("WRELOAD_CUDA", "1") != "1" or not shutil.which("nvcc"):
        return None
    return ["nvcc", "-std=c++20", "-arch=" + os.environ.get("WRELOAD_GPU_ARCH", "sm_90")]


def call(command: list[str], text: str | None = None) -> tuple[int, str]:
    """Exit status and all output of a command, with `text` on its standard input."""
    done = subprocess.run(
        command, input=text if text is not None else "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def each(work, items) -> list:
    """[work(item), ...] in order, a few at a time."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, items))


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, good: bool, what: str, detail: str = "") -> bool:
        """Counts one check; a failed one is printed with its detail."""
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}\n{detail.rstrip()}".rstrip(), flush=True)
        return good

    def skip(self, what: str):
        self.skipped += 1
        print(f"skipped: {what}", flush=True)

    def done(self):
        """Prints the closing line and exits."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        sys.exit(1 if self.failed else 0)
