"""Compiles each header below include/wreload alone, and twice in one file.

    compile_alone.py INCLUDE_ROOT

A .hpp goes through g++ and (where it is there) clang++ as a strict engine compiles: no exceptions, no RTTI, warnings
are errors. A header whose name says `throw` may throw and is compiled with exceptions. All .cuh go through nvcc in one
file, since nvcc takes seconds for each; without nvcc they are counted as skipped.
"""

import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import ENGINE, Tally, call, compilers, each, nvcc  # noqa: E402


def twice(name: str) -> str:
    # The second include comes by another spelling, so that a guard must hold for the file, not for the text.
    return f'#include "wreload/{name}"\n#include <wreload/{name}>\nint main() {{ return 0; }}\n'


def flags(name: str) -> list[str]:
    return [flag for flag in ENGINE if flag != "-fno-exceptions" or "throw" not in name.split("/")[-1]]


def check(compiler: str, root: pathlib.Path, name: str) -> tuple[int, str]:
    return call([compiler, *flags(name), "-I", str(root), "-fsyntax-only", "-x", "c++", "-"], twice(name))


def self_test(tally: Tally, compiler: str):
    """A header without its include, one without a guard and one that warns must be found; a good one must pass."""
    planted = {
        "good.hpp": ("#pragma once\n#include <vector>\ninline std::vector<int> good() { return {}; }\n", True),
        "needs.hpp": ("#pragma once\ninline std::vector<int> needs() { return {}; }\n", False),
        "unguarded.hpp": ("struct unguarded {};\n", False),
        "narrows.hpp": ("#pragma once\ninline int narrows(long long v) { return v; }\n", False),
        "rtti.hpp": ("#pragma once\n#include <typeinfo>\ninline auto& f(int& v) { return typeid(v); }\n", False),
        "throws.hpp": ("#pragma once\ninline void f() { throw 1; }\n", True),
        "refuses.hpp": ("#pragma once\ninline void f() { throw 1; }\n", False),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "wreload").mkdir()
        for name, (text, good) in planted.items():
            (root / "wreload" / name).write_text(text)
            code, output = check(compiler, root, name)
            tally.check((code == 0) == good, f"self-test: {compiler} on {name}", output)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    base = root / "wreload"
    tally = Tally()
    names = sorted(path.relative_to(base).as_posix() for path in base.rglob("*.hpp"))
    self_test(tally, compilers()[0])
    if "clang++" not in compilers():
        tally.skip("clang++ is not here: headers go through g++ alone")

    if any(name.startswith("source/") for name in names):
        code, _ = call(["g++", "-fsyntax-only", "-x", "c++", "-"], "#include <nlohmann/json.hpp>\n")
        if code != 0:
            for name in [name for name in names if name.startswith("source/")]:
                tally.skip(f"{name}: nlohmann_json is not here")
                names.remove(name)
    jobs = [(compiler, name) for name in names for compiler in compilers()]
    for (compiler, name), (code, output) in zip(jobs, each(lambda job: check(job[0], root, job[1]), jobs)):
        tally.check(code == 0, f"{name} alone and twice, {compiler}", output)

    device = sorted(path.relative_to(base).as_posix() for path in base.rglob("*.cuh"))
    command = nvcc()
    if device and command is None:
        for name in device:
            tally.skip(f"{name}: nvcc is not here")
    elif device:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "all.cu"
            file.write_text("".join(f'#include "wreload/{name}"\n#include <wreload/{name}>\n' for name in device))
            host = ["-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings"]
            code, output = call([*command, *host, "-I", str(root), "-c", "-o", str(file) + ".o", str(file)])
            if tally.check(code == 0, f"all .cuh in one file, nvcc: {', '.join(device)}", output):
                tally.passed += len(device) - 1
    tally.done()


if __name__ == "__main__":
    main()
