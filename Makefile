# `make demo` and `make test` are all a newcomer needs; both set up .venv first.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: help setup demo test lint format bench papers clean

help:
	@echo "make demo    set up, then simulate, choose, train over an emulated WAN, compare (out/closed_loop/)"
	@echo "make test    set up, then run the whole test suite"
	@echo "make lint    ruff, mypy, import contracts"
	@echo "make bench   speed and memory of the tools themselves"
	@echo "make papers  claims of papers and field reports, held against this code"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --disable-pip-version-check -c constraints.txt -e ".[torch,jax,kernels,docs,dev]" \
		> $(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log; exit 1; }
	@touch $@

demo: setup
	@$(RUN) -m experiments.closed_loop laptop

test: setup
	@$(RUN) -m pytest

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: setup
	@$(RUN) -m experiments.bench

papers: setup
	@$(RUN) -m papers

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
