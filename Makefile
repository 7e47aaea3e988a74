# Everything runs in .venv, built from pyproject.toml at the versions of constraints.txt.
# Each target builds it first, so any of them may be the first command in a fresh clone.

PYTHON ?= python3
BIN := .venv/bin
ENV := .venv/.up-to-date

.PHONY: help env demo test lint format docs constraints clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(ENV)  ## Build .venv; nothing to do when it is up to date

demo: $(ENV)  ## Train on real cells; write demo/pbmc68k.h5ad and demo/voronoi.png
	@$(BIN)/python examples/demo.py

test: $(ENV)  ## Run the tests; make test ARGS="-k voronoi" picks some
	@$(BIN)/python -m pytest -n 2 $(ARGS)

lint: $(ENV)  ## Check style, types and that imports run one way
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(ENV)  ## Fix what can be fixed by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(ENV)  ## Build docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "Built docs/_build/html/index.html"

constraints:  ## Pin the newest releases anew; PyTorch's pin stays as it is
	@rm -rf build/env && $(PYTHON) -m venv build/env
	@build/env/bin/python -m pip install -qq --upgrade pip
	@build/env/bin/python -m pip install -qq "$$(grep '^torch==' constraints.txt)"
	@build/env/bin/python -m pip install -qq --editable . --group dev
	@{ grep '^#' constraints.txt; \
	   build/env/bin/python -m pip freeze --all --exclude-editable --exclude setuptools; } \
	  | sed 's/+cpu$$//' > build/constraints.txt
	@mv build/constraints.txt constraints.txt

clean:  ## Remove what was built; .venv stays
	rm -rf build demo dist docs/_build docs/generated .coverage .hypothesis .*_cache

# Quiet pip prints no progress, hence the echoes. PyTorch goes first: it is by far the largest
# download, and once its pinned build is in place nothing later can ask for another.
PIP := $(BIN)/python -m pip
$(ENV): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make env PYTHON=python3.11' >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || $(MAKE) --no-print-directory .venv
	@echo 'Installing PyTorch ...'
	@$(PIP) install -qq --upgrade pip -c constraints.txt
	@$(PIP) install -qq torch -c constraints.txt
	@echo 'Installing centroid-encoder and its development tools, a minute or two ...'
	@$(PIP) install -qq --editable . --group dev -c constraints.txt
	@touch $@
	@echo 'Ready: .venv'

# Debian ships Python without ensurepip, which venv needs; python3.X-venv has it.
.PHONY: .venv
.venv: package = $(shell $(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
.venv:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo 'Installing $(package), which this Python needs to make environments ...'; \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(package) >/dev/null; \
	  else \
	    echo 'This Python cannot make environments. Run: sudo apt-get install $(package)' >&2; exit 1; \
	  fi; }
	@echo "Creating .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear .venv
