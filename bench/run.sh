#!/usr/bin/env bash
# Builds and runs every benchmark and its Python peers, and prints one table of what was measured against what was asked for.
#
#   bash bench/run.sh [BUILD [RESULTS]]      default build-bench and bench/results
#
# Builds with meson and ninja, or else with nvcc alone; a program that does not compile is said and counted as failed.
# RESULTS gets NAME.log and NAME.json of each program, runs.tsv, summary.json and summary.svg.
#   WRELOAD_BUILD=never     runs what BUILD (or BUILD/bench) has
#   WRELOAD_WHEELS=FOLDER   wheels that the machine's Python lacks (safetensors); unpacked, not installed
#   WRELOAD_GPU_ARCH=sm_90  WRELOAD_COMMIT=ID, where there is no git   TMPDIR: 8 GiB are written there, and removed
#
# The exit status is 0 if every program ran with right outputs and every figure is reached.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build-bench}
results=${2:-$root/bench/results}
mkdir -p "$build" "$results"
build=$(cd "$build" && pwd) results=$(cd "$results" && pwd)
rm -f "$results"/*.json "$results"/*.log "$results"/runs.tsv
begin=$SECONDS
programs=(dequant_in_place landing landing_swizzled commit finish_model file_to_gpu host_cost plan_replay digest)
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin
arch=${WRELOAD_GPU_ARCH:-sm_90}
cores=$(nproc)

compile() { # FILE: with nvcc or the host compiler alone, unless it is newer than all it may include
  local file=$1 out=$build/$(basename "${1%.*}")
  if [ -x "$out" ] && [ -z "$(find "$root/include" "$root/bench" "$root/tests/heap_counter.hpp" \
    \( -name '*.hpp' -o -name '*.cuh' -o -path "$file" \) -newer "$out" -print -quit)" ]; then return 0; fi
  case $file in
    *.cu) nvcc -std=c++20 -O2 -I"$root/include" -gencode="arch=compute_${arch#sm_},code=$arch" -cudart static "$file" -o "$out" -lpthread ;;
    *) "${CXX:-g++}" -std=c++20 -O2 -I"$root/include" "$file" -o "$out" -lpthread ;;
  esac >"$results/build_$(basename "$out").log" 2>&1 || { rm -f "$out"; echo "does not compile: $file, see $results/build_$(basename "$out").log"; }
}
export -f compile
export root build results arch

if [ "${WRELOAD_BUILD:-}" != never ]; then
  if [ ! -f "$build/build.ninja" ] && command -v meson >/dev/null && command -v ninja >/dev/null; then
    meson setup "$build" "$root" -Dcuda=enabled -Dtests=false -Dexamples=false -Dgpu_arch="$arch" \
      --buildtype=release >"$results/build.log" 2>&1 || tail -5 "$results/build.log"
  fi
  if [ -f "$build/build.ninja" ]; then
    for name in "${programs[@]}"; do rm -f "$build/bench/$name"; done # what does not compile is missing, not old
    ninja -C "$build" -k 0 >>"$results/build.log" 2>&1 || grep -aE 'FAILED|error' "$results/build.log" | head
  else
    for name in "${programs[@]}"; do ls "$root/bench/$name".cu "$root/bench/$name".cpp 2>/dev/null; done |
      xargs -r -P "$cores" -I{} bash -c 'compile {}'
  fi
  echo "built in $((SECONDS - begin)) s"
fi

bad=0
run() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 from code
  shift 2
  from=$(date +%s.%N)
  timeout "$limit" "$@" >"$results/$name.log" 2>&1
  code=$?
  printf '%s\t%d\t%.1f\n' "$name" "$code" "$(echo "$(date +%s.%N) $from" | awk '{print $1 - $2}')" >>"$results/runs.tsv"
  grep -a '^JSON ' "$results/$name.log" | tail -1 | cut -c6- >"$results/$name.json"
  [ -s "$results/$name.json" ] || rm -f "$results/$name.json"
  echo "== $name: exit $code, $(tail -1 "$results/runs.tsv" | cut -f3) s"
  grep -av '^JSON ' "$results/$name.log"
  [ "$code" = 0 ] || bad=$((bad + 1))
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/wreload-bench-XXXXXX")
wheels=$(mktemp -d)
trap 'rm -rf "$folder" "$wheels"' EXIT
for name in "${programs[@]}"; do
  program=$build/bench/$name
  [ -x "$program" ] || program=$build/$name
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then
    echo "== $name: missing"
    printf '%s\tmissing\t0\n' "$name" >>"$results/runs.tsv"
    bad=$((bad + 1))
    continue
  fi
  arguments=()
  [ "$name" = file_to_gpu ] && arguments=("folder=$folder/checkpoint" keep=1)
  run "$name" 150 "$program" "${arguments[@]}"
done

for wheel in "${WRELOAD_WHEELS:-/nonexistent}"/*.whl; do
  [ -f "$wheel" ] && python3 -m zipfile -e "$wheel" "$wheels"
done
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$wheels PYTHONDONTWRITEBYTECODE=1
run peers_dequantise 90 python3 "$root/bench/peers/dequantise.py"
run peers_load_file 120 python3 "$root/bench/peers/load_file.py" "$folder/checkpoint"

commit=${WRELOAD_COMMIT:-$(git -C "$root" describe --always --dirty --abbrev=10 2>/dev/null || echo unknown)}
machine=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
echo
python3 "$root/bench/summary.py" "$results" "$commit" "${machine:-no GPU}"
reached=$?
python3 "$root/bench/plot.py" "$results/summary.json"
echo "$bad of $(wc -l <"$results/runs.tsv") programs missing or failed; $((SECONDS - begin)) s in all"
[ "$bad" = 0 ] && [ "$reached" = 0 ]
