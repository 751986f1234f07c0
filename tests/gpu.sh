#!/usr/bin/env bash
# Everything that needs a GPU, from binaries that were built elsewhere.
#
#   bash tests/gpu.sh pack BUILD PACK      copies the stripped binaries of a Meson build folder into PACK (no GPU needed)
#   bash tests/gpu.sh run PACK [PART...]   runs parts, default all: suites examples bench memcheck racecheck initcheck
#                                          synccheck
#
# Logs go to $OUT (default PACK/logs). The last line is `N passed, N failed, N skipped`.
set -uo pipefail
benches=(dequant_in_place landing landing_swizzled commit finish_model file_to_gpu host_cost plan_replay digest)
if [ "${1:-}" = pack ]; then
  build=${2:?a build folder} pack=${3:?a folder to fill}
  mkdir -p "$pack"
  for program in tests/tests_cuda tests/tests_cuda_fast_math examples/reload_checkpoint examples/quantize_checkpoint \
    examples/01_fp8_over_bf16_cuda examples/04_captured_graph examples/05_staged_rollback_cuda \
    examples/memory_table_cuda "${benches[@]/#/bench/}"; do
    strip -o "$pack/$(basename $program)" "$build/$program" || exit 1
  done
  # The one library of the examples that a GPU machine may lack.
  ldd "$pack/reload_checkpoint" "$pack/quantize_checkpoint" | awk '/libfmt/ && $3 ~ /^\// {print $3}' | sort -u |
    xargs -r cp -Lt "$pack" || exit 1
  du -sh "$pack"
  exit 0
fi
[ "${1:-}" = run ] || { sed -n '2,8p' "$0"; exit 2; }
pack=$(realpath "${2:?a packed folder}")
parts=("${@:3}")
[ ${#parts[@]} != 0 ] || parts=(suites examples bench memcheck racecheck initcheck synccheck)
logs=${OUT:-$pack/logs}
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# step NAME SECONDS COMMAND...: adds up doctest's counts or a script's last line, else counts the command itself.
step() {
  local name=$1 limit=$2 begin=$SECONDS code counts script good bad left
  shift 2
  timeout "$limit" "$@" >"$logs/$name.log" 2>&1
  code=$?
  counts=$(grep -aoE 'test cases: *[0-9]+ *\| *[0-9]+ passed *\| *[0-9]+ failed *\| *[0-9]+ skipped' "$logs/$name.log" | tail -1)
  script=$(tail -1 "$logs/$name.log" | grep -axE '[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?')
  if [ -n "$script" ]; then
    counts=$script
    read -r good bad left _ < <(grep -oE '[0-9]+' <<<"$script, 0" | tr '\n' ' ')
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
    [ "$code" = 0 ] || [ "$bad" != 0 ] || failed=$((failed + 1))
  elif [ "$code" = 77 ]; then
    counts=$(grep -aoE 'passing the current filters: [0-9]+' "$logs/$name.log" | grep -oE '[0-9]+$')
    skipped=$((skipped + ${counts:-1}))
    counts="${counts:-1} skipped"
  elif [ -n "$counts" ]; then
    read -r _ good bad _ < <(grep -oE '[0-9]+' <<<"$counts" | tr '\n' ' ')
    passed=$((passed + good)) failed=$((failed + bad))
    [ "$code" = 0 ] || [ "$bad" != 0 ] || failed=$((failed + 1)) # the sanitizer found something
  elif [ "$code" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
  echo "$name: exit $code, ${counts:-no cases counted}, $((SECONDS - begin)) s"
  [ "$code" = 0 ] || [ "$code" = 77 ] ||
    grep -aE 'ERROR|FATAL|=========|terminate|error:|Falsifiable|FAILED|what' "$logs/$name.log" | head -15
}

# Fewer random cases: the tools slow kernels down by 10 to 100 times. API errors are the tests' own business: to ask an
# event that is not ready is one.
sanitize() { # NAME SECONDS TOOL ARGUMENTS...
  local name=$1 limit=$2 tool=$3
  shift 3
  if ! command -v compute-sanitizer >/dev/null; then
    echo "$name: skipped: compute-sanitizer is not here"
    skipped=$((skipped + 1))
    return
  fi
  RC_PARAMS=max_success=3 WRELOAD_TEST_SPARSE=199 step "$name" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
    --report-api-errors no "$pack/tests_cuda" "$@"
}

for part in "${parts[@]}"; do
  case $part in
    suites)
      export RC_PARAMS=${RC_PARAMS:-max_success=25} # random cases of each property; the host suites run 100
      step cuda 400 "$pack/tests_cuda" -d
      step cuda_fast_math 120 "$pack/tests_cuda_fast_math" -d
      for mode in layerwise staged swap; do
        WRELOAD_TEST_MODE=$mode step "cuda_$mode" 120 "$pack/tests_cuda" -tc='*law 1*,*law 3*,*law 5*,kernel order*,NVFP4*,*tied*' \
          -tce='*law 4*,*law 7*,NVFP4*law 6*,NVFP4: tensors in kernel order land whole*' -d
      done
      # With CUDA's lazy loading, so that a kernel that `seal` forgot would show as memory.
      CUDA_MODULE_LOADING=LAZY step flat_lazy 60 "$pack/tests_cuda" -tc='*200 alternating*' -d
      ;;
    examples)
      step example_01 60 "$pack/01_fp8_over_bf16_cuda"
      step example_04 60 "$pack/04_captured_graph"
      step example_05 60 "$pack/05_staged_rollback_cuda"
      step memory_table 60 "$pack/memory_table_cuda"
      cat "$logs/example_01.log" "$logs/example_04.log" "$logs/example_05.log" "$logs/memory_table.log"
      LD_LIBRARY_PATH=$pack${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} step reload_cuda 400 \
        python3 "$(dirname "$0")/examples/reload_cuda_test.py" "$pack"
      ;;
    bench) # with the peers beside them: bench/run.sh
      for bench in "${benches[@]}"; do
        step "$bench" 200 "$pack/$bench"
        grep -av '^JSON' "$logs/$bench.log"
      done
      ;;
    memcheck)
      # The tool takes device memory of its own, so free memory says nothing under it.
      sanitize memcheck 400 memcheck -tse=large,held -tce='*leave free memory flat*' -d
      # One of these waits for two kernels at once, which the tool runs one by one.
      sanitize memcheck_held 60 memcheck -ts=held -tce='*first write of each lane waits*' -d
      sanitize memcheck_large 120 memcheck -ts=large -d
      ;;
    racecheck | synccheck) sanitize "$part" 580 "$part" -tse=large,held -d ;;
    # A test that looks at pages which an arena has just taken reads what nobody wrote.
    initcheck) sanitize "$part" 580 "$part" -tse=large,held -tce='*sleep*,*loses the pages*' -d ;;
    *) echo "no part $part" && failed=$((failed + 1)) ;;
  esac
done
grep -ah 'skipped: \|skipped in part' "$logs"/*.log 2>/dev/null | sort -u | head
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
