#!/usr/bin/env bash
# Installs into a folder of its own, and builds and runs the example against what was installed, by
# find_package and by pkg-config.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S . -B build/install -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_TESTS=OFF -DBATON_BENCH=OFF \
  -DBATON_LIBRARY=ON -DCMAKE_INSTALL_PREFIX="$work/prefix" >/dev/null
cmake --build build/install -j"$(nproc)" --target baton_library
cmake --install build/install --component library >/dev/null

cmake -S examples -B "$work/example" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/example"
"$work/example/hand_over"

pc=$(dirname "$(find "$work/prefix" -name baton.pc)")
flags=$(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs baton)
# shellcheck disable=SC2086  # flags are words
g++ -std=c++20 examples/hand_over.cc -o "$work/by_pkg_config" $flags
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name libbaton.so)") "$work/by_pkg_config"

printf '#include <baton/baton.h>\nint main(void) { baton_error_free(0); return 0; }\n' > "$work/c.c"
# shellcheck disable=SC2086
gcc -std=c11 -Wall -Werror "$work/c.c" -o "$work/c_api" $flags
echo "installed library: example by find_package, by pkg-config, and a C program: ok"
