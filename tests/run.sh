#!/usr/bin/env bash
# Installs what is missing, configures and builds in build/, runs every test, and ends with one line:
#   N passed, N failed, N skipped
#
#   bash tests/run.sh [BUILD]        BUILD: another build folder; default build/ in the repository
#   WRELOAD_CUDA=disabled            leaves CUDA out even where nvcc is there
set -uo pipefail
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${1:-$source_root/build}")
# shellcheck source=tests/setup.sh
. "$source_root/tests/setup.sh"

stop() {
  echo "$1"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

step "packages"
setup_packages doctest-dev librapidcheck-dev || stop "a package could not be installed"

step "CUDA"
cuda=disabled
if [ "${WRELOAD_CUDA:-auto}" = disabled ]; then
  echo "WRELOAD_CUDA=disabled: only the host half is built"
elif setup_cuda "$build/cuda"; then
  cuda=enabled
fi

step "configure"
setup_configure "$source_root" "$build" -Ddebug=false -Dtests=true -Dexamples=true -Dbench=true -Dcuda=$cuda ||
  stop "meson failed: see $build/meson-logs/meson-log.txt"

step "build"
ninja -C "$build" </dev/null || stop "the build failed"

step "tests"
python3 "$source_root/tests/run_tests.py" "$build" </dev/null
