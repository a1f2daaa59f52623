PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet -c constraints.txt

.PHONY: demo test test-models test-ray hostile bench lint check clean

demo: .venv/.installed
	$(BIN)/ctta demo

# One torch thread per worker: two-thread torch beside a busy neighbour is many times slower.
test: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not models"

test-models: .venv/.installed-models
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m models

# In one process: the tests share a cluster of two workers.
test-ray: .venv/.installed-ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray

# Thousands of damaged files and killed runs: the long forms of tests/hostile; parts by `python -m hostile NAME`.
hostile: .venv/.installed
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m hostile

# Ratios, side by side, one thread; parts of it by `python -m benchmarks --help`.
bench: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --json bench.json

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

check: test test-models test-ray lint

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e ".[dev]"
	touch $@

.venv/.installed-models: .venv/.installed
	$(INSTALL) -e ".[dev,models]"
	touch $@

.venv/.installed-ray: .venv/.installed
	$(INSTALL) -e ".[dev,ray]"
	touch $@
