#!/usr/bin/env bash
# Builds and runs the tests. `quick`: release, everything; asan on the parts that read hostile
# bytes or own memory. `all`: adds the debug, asan and tsan presets over the whole suite, the
# fuzzers and the long end-to-end runs.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-quick}
jobs=$(nproc)

# The modules whose tests run under AddressSanitizer + UBSan in `quick`.
asan_labels='^(base|identity|memory|connector|handoff|api|text|cache)$'
asan_parsers='^(safetensors_test|config_test)$'

build() {  # preset, extra cmake flags...
  local preset=$1; shift
  cmake --preset "$preset" "$@" >/dev/null
  cmake --build --preset "$preset" -j"$jobs" ${targets:+--target $targets}
}

build release -DBATON_TESTS=ON -DBATON_BENCH=ON
ctest --test-dir build/release --output-on-failure -j"$jobs"

if [ "$mode" = quick ]; then
  cmake --preset asan -DBATON_TESTS=ON >/dev/null
  # Only the listed modules' tests are built: ninja is asked for those targets by name. A test that
  # runs another's program in another environment has no target of its own.
  mapfile -t tests < <(
    { ctest --test-dir build/asan -N -L "$asan_labels"; ctest --test-dir build/asan -N -R "$asan_parsers"; } |
    sed -n 's/^ *Test *#[0-9]*: //p' | sort -u)
  targets=()
  for test in "${tests[@]}"; do
    if ninja -C build/asan -t query "$test" >/dev/null 2>&1; then targets+=("$test"); fi
  done
  cmake --build --preset asan -j"$jobs" --target "${targets[@]}"
  regex=$(IFS='|'; echo "^(${tests[*]})\$")
  ctest --test-dir build/asan --output-on-failure -j"$jobs" -R "$regex"
  exit 0
fi

for preset in debug asan tsan; do
  build "$preset" -DBATON_TESTS=ON
  ctest --test-dir "build/$preset" --output-on-failure -j"$jobs" --timeout 1800
done
tools/test_install.sh
build fuzz
for fuzz in $(find build/fuzz -name '*_fuzz' -type f -perm -u+x | sort); do
  name=$(basename "$fuzz")
  corpus=$(git ls-files "*/testdata/$name/*" | head -1 | xargs -r dirname)
  echo "fuzzing $name for ${FUZZ_SECONDS:-60} s"
  mkdir -p "build/fuzz/corpus/$name"
  "$fuzz" -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=2048 -print_final_stats=0 \
    "build/fuzz/corpus/$name" ${corpus:+"$corpus"}
done
BATON_LONG=1 ctest --test-dir build/release --output-on-failure -L long --timeout 3600
