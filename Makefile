# Every target sets up the virtual environment first if it is not there, or if its requirements changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help

.PHONY: help
help: ## List all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt hatch_build.py src/framp/execution/kernels.cpp
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "FRAMP needs Python 3.11 or newer; name one with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,graph]'
	@touch $@

.PHONY: setup
setup: $(READY) ## Set up the virtual environment (the other targets do it too)

.PHONY: demo
demo: $(READY) ## Train framp and fiarse on handwritten digits, compare them, draw figures
	$(BIN)/framp compare digits --recipes framp,fiarse --seeds 0 --out runs/demo

.PHONY: check
check: $(READY) ## Lint, format and type checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: test
test: check ## Lint, format and type checks, then all tests but the slow ones
	$(BIN)/pytest

.PHONY: test-slow
test-slow: $(READY) ## The slow tests; FRAMP_TEST_DATA names a folder with cifar10/ for those that need real data
	$(BIN)/pytest -m slow -rP

.PHONY: bench
bench: $(READY) ## Benchmarks: speed and memory as ratios inside one run
	$(BIN)/python -m benchmarks

.PHONY: format
format: $(READY) ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## Remove the virtual environment and the tools' caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
