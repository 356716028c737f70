#!/usr/bin/env bash
# Builds and runs the tests. `quick`: release, everything; asan on the parts that read hostile
# bytes or own memory; the fuzzers of the records that travel between workers and of the files of a
# model directory, FUZZ_SECONDS (10) each, where there is clang. `all`: adds the debug, asan and tsan presets over the
# whole suite, all fuzzers for FUZZ_SECONDS (600) each, an hour of soak (SOAK_SECONDS), the hostile
# peer without leaving a lie out, and the long end-to-end runs.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-quick}
jobs=$(nproc)

# The modules whose tests run under AddressSanitizer + UBSan in `quick`.
asan_labels='^(base|identity|memory|connector|handoff|tier|api|text|cache)$'
asan_parsers='^(safetensors_test|config_test)$'

build() {  # preset, extra cmake flags...
  local preset=$1; shift
  cmake --preset "$preset" "$@" >/dev/null
  cmake --build --preset "$preset" -j"$jobs" ${targets:+--target $targets}
}

# The fuzzers of what one worker reads from another, and of what a model directory holds.
wire_fuzzers='seal_fuzz layout_fuzz ask_fuzz offer_fuzz wire_fuzz'
file_fuzzers='config_fuzz safetensors_fuzz tokenizer_fuzz jinja_fuzz'

fuzz_all() {  # seconds, names...; as many at once as there are processors
  local seconds=$1; shift
  export -f fuzz
  printf '%s\n' "$@" | xargs -P "$jobs" -I {} bash -c "fuzz {} $seconds"
}

fuzz() {  # name, seconds; starts from test/corpus/NAME, keeps what it finds under build/fuzz/corpus
  local name=$1 seconds=$2
  mkdir -p "build/fuzz/corpus/$name"
  if ! "$(find build/fuzz/src -name "$name" -type f -perm -u+x)" -max_total_time="$seconds" -rss_limit_mb=2048 \
      -malloc_limit_mb=64 -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" \
      $([ -d "test/corpus/$name" ] && echo "test/corpus/$name") >"build/fuzz/$name.log" 2>&1; then
    tail -40 "build/fuzz/$name.log"
    echo "fuzzing: $name has a finding, see build/fuzz/$name-*" >&2
    return 1
  fi
  echo "fuzzing: $name, $(grep '^Done' "build/fuzz/$name.log")"
}

tools/fetch_vocabularies.sh
build release -DBATON_TESTS=ON -DBATON_BENCH=ON
ctest --test-dir build/release --output-on-failure -j"$jobs"

if [ "$mode" = quick ]; then
  cmake --preset asan -DBATON_TESTS=ON >/dev/null
  # Only the listed modules' tests are built: ninja is asked for those targets by name. A test that
  # runs a program with arguments or in another environment is called after it, plus a suffix, or
  # runs one that has a test of its own.
  mapfile -t tests < <(
    { ctest --test-dir build/asan -N -L "$asan_labels"; ctest --test-dir build/asan -N -R "$asan_parsers"; } |
    sed -n 's/^ *Test *#[0-9]*: //p' | sort -u)
  targets=()
  for test in "${tests[@]}"; do
    while :; do
      if ninja -C build/asan -t query "$test" >/dev/null 2>&1; then targets+=("$test"); break; fi
      [[ $test == *_* ]] || break
      test=${test%_*}
    done
  done
  mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)
  cmake --build --preset asan -j"$jobs" --target "${targets[@]}"
  regex=$(IFS='|'; echo "^(${tests[*]})\$")
  ctest --test-dir build/asan --output-on-failure -j"$jobs" -R "$regex"
  if ! command -v clang++-16 >/dev/null; then
    echo "fuzzing: corpora replayed with mutations; libFuzzer itself needs clang-16, which is not here"
    exit 0
  fi
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz -j"$jobs" --target $wire_fuzzers $file_fuzzers
  fuzz_all "${FUZZ_SECONDS:-10}" $wire_fuzzers $file_fuzzers
  exit 0
fi

for preset in debug asan tsan; do
  build "$preset" -DBATON_TESTS=ON
  ctest --test-dir "build/$preset" --output-on-failure -j"$jobs" --timeout 1800
done
tools/test_install.sh
build fuzz
mapfile -t fuzzers < <(find build/fuzz/src -name '*_fuzz' -type f -perm -u+x -printf '%f\n' | sort)
fuzz_all "${FUZZ_SECONDS:-600}" "${fuzzers[@]}"
for transport in tcp shm ucx; do
  PYTHONDONTWRITEBYTECODE=1 python3 test/hostile/hostile.py build/release/baton --transport "$transport" --long ||
    [ $? -eq 77 ]
done
build/release/test/soak/baton-soak --clean 20000
build/release/test/soak/baton-soak --seconds "${SOAK_SECONDS:-3600}" --baton build/release/baton
BATON_LONG=1 ctest --test-dir build/release --output-on-failure -L long --timeout 3600
