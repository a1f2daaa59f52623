PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet -c constraints.txt
ISA_TESTS := tests/test_layout.py tests/test_conformance.py tests/nets/test_train_cifar.py \
  tests/contract/test_contract.py -k "not method_keeps or (not memory_is_flat and (dmse or tent or rmt))"

# Let the processes that tests start keep the compiled package, also where the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-trials test-isa test-data test-models test-ray test-serve test-kserve test-track pythons lowest hostile bench package docs lint check clean

demo: .venv/.installed
	$(BIN)/ctta demo

# One torch thread per worker: two-thread torch beside a busy neighbour is many times slower. A file stays with one
# worker, so that its networks are trained and its fixtures made once.
test: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m "not models and not ray and not serve and not track and not docs and not shared_data and not trial"

# Short forms of the long trials of `make hostile`, and of the measurements of `make bench`.
test-trials: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "trial and not serve"

# Against the published weights and images, where their folder is there: CTTA_SHARED, or ../shared/data.
test-data: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "shared_data and not models"

# A short part of the tests with the instructions of older processors: oneDNN then takes other kernels.
test-isa: .venv/.installed
	ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(ISA_TESTS)
	ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(ISA_TESTS)

test-models: .venv/.installed-models
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m models

# In one process: the tests share a cluster of two workers.
test-ray: .venv/.installed-ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray

# Real clients against real servers on free ports; the page needs a Chromium, and is left out without one.
test-serve: .venv/.installed-serve
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m serve

# With KServe's clients, in an environment of their own: their requirements are not ours.
test-kserve: .venv/.installed-serve .venv-kserve/.installed
	OMP_NUM_THREADS=1 CTTA_KSERVE_PYTHON=.venv-kserve/bin/python $(BIN)/python -m pytest -q tests/serve/test_kserve.py

# With MLflow and Weights & Biases themselves, offline.
test-track: .venv/.installed-track
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m track

# What Python 3.10 and 3.13 can check without a torch of their own.
pythons: .venv/.installed
	$(BIN)/python scripts/pythons.py 3.10 3.13

# The fast tests with the lowest versions that pyproject.toml allows.
lowest: .venv-lowest/.installed
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n auto --dist loadfile -m "not models and not ray and not serve and not track and not docs and not slow and not shared_data and not trial"

# Thousands of damaged files and killed runs: the long forms of tests/hostile; parts by `python -m hostile NAME`.
hostile: .venv/.installed
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m hostile

# Ratios, side by side, one thread; parts of it by `python -m benchmarks --help`.
bench: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --json bench.json

# The built package, its metadata, and the wheel in a fresh environment outside this tree.
package: .venv/.installed
	$(BIN)/python scripts/package.py

# The documentation site in site/: broken links and anchors fail, and so does anything loaded from another host. Not with
# --quiet, which would turn the strict mode off.
docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	$(BIN)/python scripts/check_site.py site
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m docs tests/test_built_site.py tests/test_example.py tests/report/test_script.py

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

check: test test-trials test-isa test-data test-models test-ray test-serve test-kserve test-track pythons package docs lint

clean:
	rm -rf .venv .venv-* site .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e ".[dev]"
	touch $@

.venv/.installed-models: .venv/.installed
	$(INSTALL) -e ".[dev,models,onnx]"
	touch $@

.venv/.installed-ray: .venv/.installed
	$(INSTALL) -e ".[dev,ray]"
	touch $@

.venv/.installed-serve: .venv/.installed
	$(INSTALL) -e ".[dev,serve-test]"
	touch $@

.venv/.installed-track: .venv/.installed
	$(INSTALL) -e ".[dev,track-test]"
	touch $@

.venv/.installed-docs: .venv/.installed
	$(INSTALL) -e ".[dev,docs]"
	touch $@

.venv-kserve/.installed:
	test -x .venv-kserve/bin/python || $(PYTHON) -m venv .venv-kserve
	.venv-kserve/bin/pip install --quiet "kserve==0.21.0"
	touch $@

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet -c constraints-lowest.txt -e ".[test]"
	touch $@
