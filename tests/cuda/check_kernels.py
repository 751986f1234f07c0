"""Checks what nvcc makes of the headers, without a GPU.

    check_kernels.py INCLUDE_ROOT

No kernel by mere inclusion of the umbrella; one kernel per (stored, runtime, scale) and per verb in a file that uses a
model, with any number of layouts; kernels and their launchers hidden; registers but no spills; 16-byte accesses and
unflushed multiplies in the PTX, with -use_fast_math too.
"""

import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import Tally, call, nvcc  # noqa: E402

EMPTY = "#include <wreload/wreload.cuh>\nint main() { return sizeof(wreload::model<wreload::cuda_executor>) == 0; }\n"
MODEL = """#include <wreload/wreload.cuh>
namespace wr = wreload;
struct e5m2_linear : wr::ParamLayout<
    wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e5m2, wr::Over<wr::fp16>>, wr::ScaledBy<wr::names::weight_scale>>,
    wr::Param<wr::names::weight_scale, wr::BlockScale<64, 32, wr::bf16>, wr::Retired>> {};
wr::status use(wr::model<wr::cuda_executor>& model, void* memory) {
  (void)model.add<wr::Fp8DequantLinear>("a", wr::extents::matrix("a", 128, 128), memory, memory);
  (void)model.add<wr::Fp8DequantLinearOf<64, 64>>("b", wr::extents::matrix("b", 128, 128), memory, memory);
  (void)model.add<e5m2_linear>("c", wr::extents::matrix("c", 128, 128), memory, memory);
  (void)model.add<wr::Plain>("d", wr::extents::tensor("d", {4}, wr::dtype::bf16), memory);
  if (wr::status refused = model.seal(); !refused.ok()) return refused;
  wr::status refused;
  auto update = model.start({}, &refused);
  wr::audit_result result;
  wr::digest_list digests;
  (void)model.digests(&digests);
  (void)model.audit(model, {}, &result);
  return update.finish();
}
"""
KERNELS = {"dequant_rows": 18, "land_rows": 2, "fill_rows": 1, "combine_scalars": 1, "digest_tiles": 1, "first_difference": 1}


def entries(ptx: str) -> list[str]:
    return re.findall(r"^\s*(?:\.visible |\.weak )?\.entry (\w+)", ptx, re.MULTILINE)


def bodies(ptx: str, name: str) -> list[str]:
    """PTX of each kernel whose name contains `name`."""
    parts = re.split(r"^\s*(?:\.visible |\.weak )?\.entry ", ptx, flags=re.MULTILINE)[1:]
    return [part for part in parts if name in part.split("(")[0]]


def check_ptx(tally: Tally, command: list[str], folder: pathlib.Path, flags: list[str]):
    told = " ".join(flags) or "usual flags"
    code, output = call([*command, *flags, "-ptx", "-o", str(folder / "model.ptx"), str(folder / "model.cu")])
    if not tally.check(code == 0, f"PTX of a model, {told}", output):
        return
    ptx = (folder / "model.ptx").read_text()
    names = entries(ptx)
    for kernel, count in KERNELS.items():
        found = [name for name in names if f"{len(kernel)}{kernel}" in name]
        tally.check(len(found) == count, f"{kernel}: expected {count} kernels, got {len(found)} ({told})", "\n".join(found))
    tally.check(len(names) == sum(KERNELS.values()), f"no other kernels ({told})", "\n".join(names))
    for body in bodies(ptx, "dequant_rows"):
        name = body.split("(")[0]
        multiplies = re.findall(r"mul\.[a-z.]*f32", body)
        tally.check(bool(multiplies) and set(multiplies) == {"mul.rn.f32"},
                    f"{name}: only mul.rn.f32 ({told})", str(set(multiplies)))
        tally.check(re.search(r"\bst\.(global\.)?v4\.[ubf]32", body) is not None, f"{name}: 16-byte stores ({told})")
        runtime = re.search(r"dequant_rowsINS_\d+\w+?ENS_\d(bf16|fp16|fp32)E", name)
        if tally.check(runtime is not None, f"{name}: expected a mangled (stored, runtime, scale)") and runtime[1] != "fp32":
            tally.check(re.search(r"\bld\.(global\.)?v2\.[ubf]32", body) is not None, f"{name}: 8-byte loads ({told})")
        tally.check(".ftz" not in "".join(line for line in body.splitlines() if "cvt" in line and ".rn" in line),
                    f"{name}: conversions keep subnormals ({told})")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tally = Tally()
    command = nvcc()
    if command is None:
        tally.skip("nvcc is not here: kernels are not checked")
        tally.done()
    command += ["-I", str(root)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "empty.cu").write_text(EMPTY)
        (folder / "model.cu").write_text(MODEL)
        code, output = call([*command, "-ptx", "-o", str(folder / "empty.ptx"), str(folder / "empty.cu")])
        if tally.check(code == 0, "the umbrella alone compiles", output):
            found = entries((folder / "empty.ptx").read_text())
            tally.check(not found, "including the umbrella makes no kernel", "\n".join(found))
        for flags in ([], ["-use_fast_math"]):
            check_ptx(tally, command, folder, flags)

        # With the flags of nvcc before 13 a kernel's launcher is visible unless its namespace is hidden.
        flags = ["-Xptxas", "-v", "--device-entity-has-hidden-visibility=false", "-static-global-template-stub=false"]
        code, output = call([*command, *flags, "-c", "-o", str(folder / "model.o"), str(folder / "model.cu")])
        if tally.check(code == 0, "a model compiles with the flags of older nvcc", output):
            # The paths through maps cost the audit's kernels (digest, compare) a few spilled registers; no others.
            spills = re.findall(r"properties for (\S+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill", output)
            spilled = [name for name, frame, stores in spills if (frame, stores) != ("0", "0")]
            in_audit = [name for name in spilled if "digest_tiles" in name or "compare_sink" in name]
            tally.check(bool(spills) and spilled == in_audit, "no stack frame, no spills", "\n".join(spilled))
            if shutil.which("readelf") is None:
                tally.skip("readelf is not here: visibility is not checked")
            else:
                _, symbols = call(["readelf", "-sW", str(folder / "model.o")])
                kernels = [line for line in symbols.splitlines()
                           if "wreload6kernel" in line and re.search(r" (WEAK|GLOBAL) ", line)]
                visible = [line for line in kernels if "HIDDEN" not in line and " UND " not in line]
                tally.check(bool(kernels), "the object has kernel symbols", symbols[:2000])
                tally.check(not visible, "kernels and launchers are hidden", "\n".join(visible[:10]))
    tally.done()


if __name__ == "__main__":
    main()
