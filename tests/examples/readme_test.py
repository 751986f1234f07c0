"""Demands that the README's first example is, line by line, what examples/01_fp8_over_bf16.cpp compiles.

    readme_test.py [FOLDER]         FOLDER is not looked at
"""

import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    example = (ROOT / "examples/01_fp8_over_bf16.cpp").read_text()
    block = (ROOT / "README.md").read_text().split("## The first twenty lines")[1].split("```cpp\n")[1].split("```")[0]
    body = textwrap.dedent(example.split("int main() {\n")[1].split("\n}")[0])
    good = bool(block) and body.startswith(block)
    if not good:
        pairs = zip(block.splitlines(), body.splitlines())
        shown, compiled = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        print(f"FAILED: README.md says\n  {shown}\nand examples/01_fp8_over_bf16.cpp\n  {compiled}")
    print(f"{int(good)} passed, {int(not good)} failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
