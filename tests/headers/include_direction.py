"""Checks that includes below include/wreload follow the arrows of the design.

    include_direction.py INCLUDE_ROOT

Arrows run one way: core <- numerics; on these policy <- layout <- layouts, and tuning <- kernel <- executor; both meet
in update <- source <- transport. Also: a .hpp includes no .cuh and no CUDA, nlohmann_json stays in source/, NCCL in
transport/, every include of ours names a header that exists, and no header includes itself through others.
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import Tally  # noqa: E402

BASE = {"core"}
ARROWS = {  # folder -> what it may include besides itself and version.hpp
    "core": set(),
    "numerics": BASE,
    "policy": BASE | {"numerics"},
    "layout": BASE | {"numerics", "policy"},
    "layouts": BASE | {"numerics", "policy", "layout"},
    "tuning": BASE | {"numerics"},
    "kernel": BASE | {"numerics", "tuning"},
    "executor": BASE | {"numerics", "tuning", "kernel"},
    "update": BASE | {"numerics", "policy", "layout", "layouts", "tuning", "kernel", "executor"},
}
ARROWS["source"] = ARROWS["update"] | {"update"}
ARROWS["transport"] = ARROWS["source"] | {"source"}
UMBRELLA = set(ARROWS) - {"source", "transport"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
CUDA = re.compile(r"^(cuda|cub/|thrust/|cooperative_groups|nv/|curand|mma\.h|device_launch)")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def problems(root: pathlib.Path) -> dict[str, list[str]]:
    """header -> what is wrong with its includes."""
    base = (root / "wreload").resolve()
    headers = sorted(path for path in base.rglob("*") if path.suffix in (".hpp", ".cuh", ".h"))
    found: dict[str, list[str]] = {}
    graph: dict[str, list[str]] = {}
    for header in headers:
        name = header.relative_to(base).as_posix()
        folder = name.split("/")[0] if "/" in name else ""
        wrong = found.setdefault(name, [])
        graph[name] = []
        if folder and folder not in ARROWS:
            wrong.append(f"the folder {folder}/ is not in the design (ARROWS in {pathlib.Path(__file__).name})")
            continue
        # Comments go first, so that an example in a docstring is not an include; no include name holds // or /*.
        for quoted, angled in INCLUDE.findall(COMMENT.sub("", header.read_text(encoding="utf-8"))):
            if quoted or angled.startswith("wreload/"):
                target = (header.parent / quoted) if quoted else (root / angled)
                if not target.is_file() and quoted:
                    target = root / quoted
                target = target.resolve()
                if not target.is_file() or not target.is_relative_to(base):
                    wrong.append(f"includes {quoted or angled}, which is not a header of wreload")
                    continue
                other = target.relative_to(base).as_posix()
                graph[name].append(other)
                if name.endswith(".hpp") and other.endswith(".cuh"):
                    wrong.append(f"a host header includes {other}")
                other_folder = other.split("/")[0] if "/" in other else ""
                if not other_folder:
                    if folder and other != "version.hpp":
                        wrong.append(f"includes the umbrella {other}")
                elif not folder:
                    allowed = set() if name == "version.hpp" else UMBRELLA
                    if other_folder not in allowed:
                        wrong.append(f"includes {other}, which {name} leaves to its user")
                elif other_folder != folder and other_folder not in ARROWS[folder]:
                    wrong.append(f"includes {other}: {folder}/ must not see {other_folder}/")
            else:
                if name.endswith(".hpp") and CUDA.match(angled):
                    wrong.append(f"a host header includes <{angled}>")
                if angled.startswith("nlohmann/") and folder not in ("source", "transport"):
                    wrong.append(f"includes <{angled}>: JSON stays in source/")
                if angled.startswith("nccl") and folder != "transport":
                    wrong.append(f"includes <{angled}>: NCCL stays in transport/")
    for name in graph:
        reached, todo = set(), list(graph[name])
        while todo:
            other = todo.pop()
            if other not in reached:
                reached.add(other)
                todo += graph.get(other, [])
        if name in reached:
            found[name].append("includes itself through its own includes")
    return found


def self_test(tally: Tally):
    """Plants each kind of bad include in a small tree and demands that it is found, alone."""
    good = {
        "version.hpp": "",
        "core/dtype.hpp": '#include <vector>\n// #include "../layout/param.hpp"\n#include "../version.hpp"\n',
        "numerics/e4m3.hpp": '#include "../core/dtype.hpp"\n',
        "layout/param.hpp": '#include "../core/dtype.hpp"\n',
        "executor/host.hpp": '#include <wreload/core/dtype.hpp>\n',
        "executor/cuda.cuh": '#include <cuda_runtime.h>\n#include "../core/dtype.hpp"\n',
        "update/model.hpp": '#include "../layout/param.hpp"\n#include "../executor/executor.hpp"\n',
        "executor/executor.hpp": '#include "../numerics/e4m3.hpp"\n',
        "source/file.hpp": '#include <nlohmann/json.hpp>\n#include "../update/model.hpp"\n',
        "wreload.hpp": '#include "update/model.hpp"\n',
        "wreload.cuh": '#include "wreload.hpp"\n#include "executor/cuda.cuh"\n',
    }
    planted = [
        ("core/dtype.hpp", '#include "../layout/param.hpp"\n', "core/ must not see layout/"),
        ("executor/host.hpp", '#  include "../layout/param.hpp"\n', "executor/ must not see layout/"),
        ("executor/host.hpp", "#include <wreload/update/model.hpp>\n", "executor/ must not see update/"),
        ("layout/param.hpp", '#include "../executor/host.hpp"\n', "layout/ must not see executor/"),
        ("update/model.hpp", '#include "../source/file.hpp"\n', "update/ must not see source/"),
        ("executor/host.hpp", '#include "cuda.cuh"\n', "a host header includes executor/cuda.cuh"),
        ("executor/host.hpp", "#include <cuda_runtime.h>\n", "a host header includes <cuda_runtime.h>"),
        ("update/model.hpp", "#include <nlohmann/json.hpp>\n", "JSON stays in source/"),
        ("update/model.hpp", '#include "../wreload.hpp"\n', "includes the umbrella"),
        ("wreload.hpp", '#include "source/file.hpp"\n', "leaves to its user"),
        ("core/dtype.hpp", '#include "gone.hpp"\n', "not a header of wreload"),
        ("misc/thing.hpp", "", "not in the design"),
        ("executor/executor.hpp", '#include "host.hpp"\n', None),
        ("core/dtype.hpp", '#include "dtype.hpp"\n', "includes itself"),
    ]
    for name, text, expected in planted:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, content in {**good, name: good.get(name, "") + text}.items():
                (root / "wreload" / path).parent.mkdir(parents=True, exist_ok=True)
                (root / "wreload" / path).write_text(content)
            found = problems(root)
            if expected is None:
                held = not any(found.values())
            else:
                held = any(expected in line for line in found[name])
            tally.check(held, f"self-test: {name} with {text.strip()!r}: expected {expected}", str(found[name]))


def main():
    tally = Tally()
    self_test(tally)
    for name, wrong in problems(pathlib.Path(sys.argv[1])).items():
        tally.check(not wrong, name, "\n".join(wrong))
    tally.done()


if __name__ == "__main__":
    main()
