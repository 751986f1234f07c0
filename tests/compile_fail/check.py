"""Demands that each tests/compile_fail/*.cpp does not compile, for the reason it names.

    check.py INCLUDE_ROOT

A case holds one or more lines `// expect: TEXT`; each TEXT must stand in the compiler's output. Compiled with -DGOOD
the same file must be clean: that is its positive twin, so a case cannot pass by a slip elsewhere.

    // A dtype is a tag type, not a C++ type.
    // expect: dtype_tag
    #include <wreload/core/dtype.hpp>
    #ifdef GOOD
    using element = wreload::bf16;
    #else
    using element = float;
    #endif
    static_assert(wreload::dtype_tag<element>);
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import ENGINE, Tally, call, compilers, each  # noqa: E402

EXPECT = re.compile(r"^\s*//\s*expect:\s*(.+?)\s*$", re.MULTILINE)


def check(compiler: str, root: pathlib.Path, case: pathlib.Path) -> str:
    """Why the case does not hold; empty if it does."""
    text = case.read_text(encoding="utf-8")
    expected = EXPECT.findall(text)
    if not expected:
        return "no line `// expect: TEXT`"
    if "GOOD" not in EXPECT.sub("", text):
        return "no #ifdef GOOD: a case needs its positive twin"
    # The diagnostics of both compilers echo source lines. Those are left out, so that TEXT is the compiler's own word
    # (or the static_assert's), never a comment or a name that the echoed line happens to hold.
    quiet = ["-fno-diagnostics-show-caret"] if compiler == "g++" else ["-fno-caret-diagnostics"]
    command = [compiler, *ENGINE, *quiet, "-fsyntax-only", "-I", str(root), str(case)]
    code, output = call(command + ["-DGOOD"])
    if code != 0:
        return f"with -DGOOD it must compile:\n{output}"
    code, output = call(command)
    if code == 0:
        return "it compiles"
    missing = [line for line in expected if line not in output]
    if missing:
        return "it fails, but without saying " + " | ".join(missing) + f":\n{output}"
    return ""


def self_test(tally: Tally, compiler: str):
    good = "#ifdef GOOD\nint v = 0;\n#else\nstatic_assert(sizeof(int) == 1, \"the reason\");\n#endif\n"
    planted = {
        "holds": ("// expect: the reason\n" + good, ""),
        "compiles": ("// expect: the reason\n#ifdef GOOD\n#endif\n", "it compiles"),
        "other_reason": ("// expect: another one\n" + good, "without saying another one"),
        "bad_twin": (
            "// expect: the reason\nstatic_assert(false, \"the reason\");\n#ifdef GOOD\n#endif\n", "with -DGOOD"),
        "no_expect": (good, "no line"),
        "no_twin": ("// expect: the reason\nstatic_assert(false, \"the reason\");\n", "no #ifdef"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, expected) in planted.items():
            case = pathlib.Path(folder) / f"{name}.cpp"
            case.write_text(text)
            told = check(compiler, pathlib.Path(folder), case)
            tally.check(expected in told if expected else told == "", f"self-test {name}, {compiler}", told)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tally = Tally()
    for compiler in compilers():
        self_test(tally, compiler)
    if "clang++" not in compilers():
        tally.skip("clang++ is not here: cases go through g++ alone")
    cases = sorted(pathlib.Path(__file__).resolve().parent.glob("*.cpp"))
    jobs = [(compiler, case) for case in cases for compiler in compilers()]
    for (compiler, case), told in zip(jobs, each(lambda job: check(job[0], root, job[1]), jobs)):
        tally.check(not told, f"{case.name}, {compiler}", told)
    tally.done()


if __name__ == "__main__":
    main()
