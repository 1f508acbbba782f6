# Everything is created inside this folder: a virtual environment, compiled kernels, reports.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= test
export FORERUN_CACHE_DIR ?= $(CURDIR)/$(VENV)/cache
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where this is set, each command that a test starts would compile the package's modules anew.
unexport PYTHONDONTWRITEBYTECODE
# An offline mirror of the public data, where one lies beside the checkout.
ifneq ($(wildcard $(CURDIR)/../shared/data),)
export FORERUN_DATA_DIR ?= $(abspath $(CURDIR)/../shared/data)
endif

.PHONY: demo test test-lowest check bench validate validate-slurm validate-vllm clean help

help:
	@echo "make demo    install and answer the first question, ending in a report"
	@echo "make test    install and run the whole test suite (ONLY=spot: the contracts and the tests of one package)"
	@echo "make test-lowest   the same with the oldest supported release of every dependency"
	@echo "make check   lint, types and import contracts"
	@echo "make bench   speed against the named peers, as ratios (ARGS=--keep renews benchmarks/results)"
	@echo "make validate   real loaders, servers and trainings against their predictions; needs a quiet machine"
	@echo "make validate-slurm   the real slurmctld against the model of it; says why where it cannot run"
	@echo "make validate-vllm   vLLM's own scheduler against ours, step for step; installs it first (3.5 GB)"
	@echo "make clean   remove everything made here"

demo: $(VENV)/.installed
	@$(BIN)/forerun demo serving -o demo-report.html

# One process more than two cores are: a third of the tests' time is spent on waiting for other processes.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 3 --dist worksteal $(if $(ONLY),tests/contract tests/$(ONLY)) $(ARGS)

# In an environment of its own, so that the usual one stays as it is.
test-lowest:
	$(MAKE) test VENV=.venv-lowest PIP_CONSTRAINT=$(CURDIR)/tests/lowest.txt

validate: $(VENV)/.installed-test
	$(BIN)/python -m pytest validation $(ARGS)

validate-slurm: $(VENV)/.installed-test
	$(BIN)/python -m pytest validation/slurm -rs $(ARGS)

validate-vllm: $(VENV)/.installed-test
	FORERUN_VLLM=1 $(BIN)/python -m pytest validation/vllm -rs $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check src tests benchmarks examples validation
	$(BIN)/ruff format --check src tests benchmarks examples validation
	$(BIN)/mypy
	MYPYPATH=src:examples/domain-plugin/src $(BIN)/mypy -p forerun_evaluation
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .venv-lowest demo-report.html forerun-demo.html .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "forerun needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $(VENV)/.installed $@
