# Verbs only; the build is described in CMakeLists.txt and CMakePresets.json. Each verb does its own
# set-up: system packages (tools/deps.sh), the Python environment .venv (tools/venv.sh), the build.

TORCH_REQUIREMENT ?= torch==2.13.0
export TORCH_REQUIREMENT

VENV_PYTHON := .venv/bin/python

.PHONY: all setup-demo setup-test setup-bench demo corpus test bench release asan tsan fuzz tidy docs clean

# The command at build/tocsin, the Python package at build/python.
all: setup-demo
	cmake --preset release -DTOCSIN_PYTHON=$(abspath $(VENV_PYTHON))
	cmake --build build

setup-demo setup-test setup-bench: setup-%:
	tools/deps.sh $*
	tools/venv.sh $*

# Learn from healthy runs, then find the broken ones.
demo: all
	tools/demo.sh

# Errors that people have really made, and their healthy twins (tests/corpus/README.md).
corpus: all
	PYTHONPATH=build/python $(VENV_PYTHON) tests/corpus/prove.py
	$(VENV_PYTHON) tests/corpus/run_corpus.py --explain

# Everything that a change must pass.
test: setup-test
	tools/test.sh test release asan fuzz

# One stage of it; tsan is extra.
release asan tsan fuzz: setup-test
	tools/test.sh $@

# All figures, or those of bench/bench_NAME.c or bench/NAME.py: make bench-NAME.
bench: bench-all
bench-%: setup-bench
	cmake --preset release -DTOCSIN_BENCH=ON -DTOCSIN_PYTHON=$(abspath $(VENV_PYTHON))
	cmake --build build
	tools/bench.sh $*

# The house rules that a program can check.
tidy:
	tools/tidy
	tools/layers

# Do the pages' links lead somewhere?
docs:
	tools/links

clean:
	rm -rf build build-test build-release build-asan build-tsan build-fuzz
