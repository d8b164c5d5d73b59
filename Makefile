PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
OLDEST ?= .venv-oldest
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo

# One BLAS thread per process: two test workers on two cores must not fight, and timings stay comparable.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-oldest coverage lint format slow fuzz bench docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv and install the package with its development tools

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,parquet,save]"
	touch $(STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[save]"
	touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## fit real data, compare with scikit-learn's grid search, report, predict
	mkdir -p demo
	$(BIN)/foldwise datasets make diabetes demo/diabetes.csv
	$(BIN)/foldwise fit demo/diabetes.csv --target y --seed 0 --compare --out demo/model.skops --report demo/report.html
	$(BIN)/foldwise predict demo/model.skops demo/diabetes.csv > demo/predictions.csv
	@echo "the first three predictions:"; sed -n 2,4p demo/predictions.csv
	@echo "to look at: demo/report.html in a browser; demo/predictions.csv; foldwise report demo/model.skops"

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, then all tests that are not slow
	$(BIN)/python -m pytest -n 2 -q -m "not slow"

test-oldest:  ## the same tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(PYTHON) .ci/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c $(OLDEST)/constraints.txt -e ".[dev,parquet,save]"
	$(OLDEST)/bin/python -m pytest -n 2 -q -m "not slow" -W default::DeprecationWarning

coverage: setup  ## the same tests, counting the lines they reach; fails below the floor in pyproject.toml
	$(BIN)/python -m pytest -n 2 -q -m "not slow" --cov=foldwise

format: setup  ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

slow: setup  ## the slow tests alone
	$(BIN)/python -m pytest -n 2 -q -m slow

SEEDS ?= 1000
FIRST ?= 0
JOBS ?= 2

fuzz: setup  ## random searches before a referee: make fuzz SEEDS=20000 [FIRST=0] [JOBS=2]
	$(BIN)/python -m foldwise.testing.fuzz --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS)

docs: setup  ## the documentation site, in docs/_build/html; warnings are errors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: setup  ## run every script of benchmarks/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	set -e; for script in benchmarks/[a-z]*.py; do \
		test -e "$$script" || { echo "benchmarks/ holds no script yet"; exit 1; }; \
		echo "== $$script"; $(BIN)/python "$$script"; done

clean:  ## remove the virtual environment, caches and demo output
	rm -rf $(VENV) $(OLDEST) demo build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find src tests papers benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
