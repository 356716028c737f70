# Thin over the CMake presets; see CONTRIBUTING.md.
JOBS ?= $(shell nproc)
BATON := build/release/baton

PREFIX ?= /usr/local

.PHONY: build demo up test check-all bench install format clean

build:                ## release binary at build/release/baton
	@tools/install_packages.sh build
	@cmake --preset release -DBATON_TESTS=OFF -DBATON_BENCH=OFF >/dev/null
	@cmake --build --preset release -j$(JOBS) --target baton

demo: build           ## router, prefill and decode worker; a hand-off, a resumed turn, a caught swap
	@$(BATON) demo

up: build             ## the same three processes, staying up
	@$(BATON) up

test:                 ## release: all tests; asan: identity, memory, hand-off and parsers
	@tools/install_packages.sh build test
	@tools/run_tests.sh quick

check-all:            ## every sanitizer, fuzzers and the long runs
	@tools/install_packages.sh build test dev
	@tools/run_tests.sh all

bench:                ## prints ratios with spread; see docs/benchmarks.md
	@tools/install_packages.sh build test
	@cmake --preset release -DBATON_TESTS=ON -DBATON_BENCH=ON >/dev/null
	@cmake --build --preset release -j$(JOBS)

install:              ## the binary, and libbaton with include/baton, under PREFIX (/usr/local)
	@tools/install_packages.sh build
	@cmake --preset release -B build/install -DBATON_TESTS=OFF -DBATON_BENCH=OFF -DBATON_LIBRARY=ON \
	  -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --build build/install -j$(JOBS) --target baton baton_library
	@cmake --install build/install

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format-16 -i

clean:
	rm -rf build
