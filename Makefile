PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARGS ?=

CONSTRAINTS := requirements/dev-constraints.txt
INSTALLED := $(VENV)/.installed
RUN := $(VENV)/bin/python -m

.PHONY: help install demo test test-gpu lint types bench bench-compare bench-cpu docs compile-all

help:
	@echo "demo         full-waveform inversion of a small section (ARGS='--iterations 20')"
	@echo "test         all tests that need no GPU"
	@echo "test-gpu     the tests that need one"
	@echo "lint types   ruff; mypy"
	@echo "bench        run the benchmarks (on a GPU)"
	@echo "bench-compare  the same in every other package that is installed"
	@echo "bench-cpu    time the eager backend on a CPU"
	@echo "docs         run every code block of README.md and docs/"
	@echo "compile-all  build every kernel ahead of time for every target"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install -c $(CONSTRAINTS) -e '.[dev,plot]'
	@touch $@

demo: $(INSTALLED)
	$(RUN) wavesim demo $(ARGS)

# Interpreted kernels do not compile, so the two kinds of test need a process each.
# One thread per worker: the tests are small, and the interpreter runs on one core.
test: $(INSTALLED)
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(RUN) pytest -q -n $(JOBS) -m "not gpu" --ignore=tests/compile
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(RUN) pytest -q --doctest-modules wavesim
	env -u TRITON_INTERPRET $(RUN) pytest -q tests/compile

# Asked for by name: a missing GPU is a failure here, not a skip.
test-gpu: $(INSTALLED)
	env -u TRITON_INTERPRET WAVESIM_REQUIRE_GPU=1 $(RUN) pytest -q -n $(JOBS) --dist worksteal tests/gpu

lint: $(INSTALLED)
	$(RUN) ruff check .

types: $(INSTALLED)
	$(RUN) mypy

bench: $(INSTALLED)
	$(RUN) benchmarks run $(ARGS)

bench-compare: $(INSTALLED)
	$(RUN) benchmarks compare $(ARGS)

bench-cpu: $(INSTALLED)
	$(RUN) pytest -q benchmarks --benchmark-only

docs: $(INSTALLED)
	$(RUN) pytest -q tests/unit/test_docs.py

compile-all: $(INSTALLED)
	env -u TRITON_INTERPRET WAVESIM_COMPILE=all $(RUN) pytest -q tests/compile
