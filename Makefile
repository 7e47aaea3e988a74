# Everything runs in .venv, built from pyproject.toml at the versions of constraints.txt.
# Each target builds it first, so any of them may be the first command in a fresh clone.
# PACKAGES=newest, floors (the lowest versions of pyproject.toml), pre-releases or pinned takes an
# environment of its own, for instance build/env/python3.13-newest. CI runs the tests there.

PYTHON ?= python3
FOLDER := $(if $(PACKAGES),build/env/$(notdir $(PYTHON))-$(PACKAGES),.venv)
BIN := $(FOLDER)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
ENV := $(FOLDER)/.up-to-date

# Where there is no real screen, the demo opens its windows on a virtual one. Tests always do.
ifeq ($(shell uname),Linux)
XVFB := xvfb-run --auto-servernum --server-args='-screen 0 1600x1000x24'
endif
comma := ,
HEADLESS := $(if $(DISPLAY)$(WAYLAND_DISPLAY),,$(XVFB))

.PHONY: help env demo test test-all day coverage bench bench-all lint format docs constraints \
  release-check screen clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(ENV)  ## Build .venv; nothing to do when it is up to date

demo: XVFB := $(HEADLESS)
demo: screen  ## Train on real cells and open napari on them; write demo/
	@echo 'Blood cells first, then a tissue in napari. All that is made will be in demo/'
	@$(BIN)/python examples/demo.py
	@echo
	@$(if $(HEADLESS),echo 'No screen here$(comma) so napari opens on a virtual one. Half a minute ...')
	@$(XVFB) $(BIN)/python examples/tissue.py $(if $(HEADLESS),--screenshot demo/napari.png)

# A worker for each core; threads of their own, for numbers or for OpenGL, would stand in each
# other's way. A worker with a window takes 1.5 GB, so that there are four at most.
PYTEST = OMP_NUM_THREADS=1 LP_NUM_THREADS=0 $(BIN)/python -m pytest -n auto --maxprocesses 4 $(WARN)

test: screen  ## Run the tests, some minutes; make test ARGS="-k voronoi" picks some
	@echo 'Running the quick tests, about five minutes on two cores, less on more. A dot is a test that'
	@echo 'passed; F or E is one that failed, and what went wrong is printed at the end.'
	@$(PYTEST) -m "not slow" $(ARGS)

test-all: screen  ## Run the long tests as well; CE_CASES=0.2 draws a fifth of the random cases
	@$(PYTEST) --hypothesis-profile=many $(ARGS)
	@$(PYTEST) benchmarks/tests
	@echo 'The same windows once more, with PyQt6 ...'
	@QT_API=pyqt6 $(PYTEST) tests/viewer --ignore tests/viewer/test_pyqt6.py $(ARGS)

# Four minutes for each binding at most. The pictures of each part, and what napari printed, are in
# build/day/.
DAY = OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/day/walk.py -x -v -p no:pytest-qt \
  --timeout 0 -o xvfb_width=1600 -o xvfb_height=1000
TOOLS := xdotool openbox imagemagick x11-utils

day: screen  ## Walk through a day in napari with a real mouse, with PySide6 and PyQt6
	@{ command -v xdotool && command -v openbox && command -v import && command -v xprop; } \
	  >/dev/null || { $(call apt-get,$(TOOLS),a mouse that programs move); }
	@QT_API=pyside6 $(DAY) $(ARGS)
	@QT_API=pyqt6 $(DAY) $(ARGS)

notebook: $(ENV)  ## Try the interactive map in JupyterLab and a browser
	@$(PIP) install -qq --group notebook -c constraints.txt
	@command -v chromium >/dev/null || { $(call apt-get,chromium,a browser); }
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/pl/test_interactive.py -v -rs $(ARGS)

# Slower than `make test` by half, since each line that runs is noted.
coverage: screen  ## Run the tests and say which lines they never reach
	@$(PIP) install -qq --group coverage -c constraints.txt
	@$(PYTEST) -m "not slow" --cov --cov-report=term $(ARGS)

lint: $(ENV)  ## Check style, spelling, types, imports, plain English, references and registry files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python packaging/plain_english.py
	$(BIN)/python packaging/check.py --quick
	$(BIN)/python -m sphinx -q -W --keep-going -b dummy -t local -D nb_execution_mode=off docs \
	  build/references

format: $(ENV)  ## Fix what can be fixed by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

OUTPUT ?= docs/_build/html
docs: $(ENV)  ## Run the tutorials and build docs/_build/html; a warning or a dead link is an error
	@echo 'Running the tutorials, some minutes the first time ...'
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs $(OUTPUT)
	@$(BIN)/python docs/links.py $(OUTPUT)
	@echo 'Built $(OUTPUT)/index.html'

release-check: screen  ## Build what a release would upload, look into it, install and use it
	@echo 'Checking the workflows ...'
	@$(PIP) install -qq --group release -c constraints.txt
	@$(BIN)/zizmor --offline --quiet .github
	@$(BIN)/python packaging/check.py $(ARGS)

# What is in the file is not run again: make bench RESULTS=mine.csv starts from nothing.
RESULTS ?= benchmarks/results/errors.csv
BENCH := $(BIN)/python -m benchmarks.errors --results $(RESULTS)
RENDER := $(BIN)/python -m benchmarks.render --errors $(RESULTS)

bench: $(ENV)  ## Rerun a quick part of the paper's experiments and render docs/benchmarks.md
	@$(BENCH) --quick
	@$(RENDER)

# Needs no network: where there is no .venv, the Python that is there, with what it has.
gpu:  ## On a machine with a GPU: is it right there, and how fast?
	@PYTHONPATH=src:.:$$PYTHONPATH; export PYTHONPATH; \
	  python=$$([ -f $(ENV) ] && echo $(BIN)/python || echo $(PYTHON)); \
	  $$python -m benchmarks.gpu $(ARGS) && $$python -m benchmarks.render

bench-all: $(ENV)  ## Rerun all of the paper's experiments with all rivals
	@$(BENCH) --all
	@$(BIN)/python -m benchmarks.ablation --all --results benchmarks/results/ablation.csv
	@$(BIN)/python -m benchmarks.figures mnist landsat rivals
	@$(RENDER)

constraints:  ## Pin the newest releases anew; PyTorch's pin stays as it is
	@rm -rf build/pins && $(PYTHON) -m venv build/pins
	@build/pins/bin/python -m pip install -qq --upgrade pip
	@build/pins/bin/python -m pip install -qq "$$(grep '^torch==' constraints.txt)"
	@build/pins/bin/python -m pip install -qq --editable '.[napari,notebook,parquet]' --group dev \
	  --group coverage --group release
	@{ grep '^#' constraints.txt; \
	   build/pins/bin/python -m pip freeze --all --exclude-editable --exclude setuptools; } \
	  | sed 's/+cpu$$//' > build/constraints.txt
	@mv build/constraints.txt constraints.txt

clean:  ## Remove what was built; .venv stays
	rm -rf build demo dist docs/_build docs/generated .coverage .hypothesis .*_cache

PIP := $(BIN)/python -m pip
ifndef PACKAGES
# Quiet pip prints no progress, hence the echoes. PyTorch goes first: it is by far the largest
# download, and once its pinned build is in place nothing later can ask for another.
$(ENV): pyproject.toml constraints.txt
	@$(PIP) --version >/dev/null 2>&1 || $(MAKE) --no-print-directory $(FOLDER)
	@echo 'Installing PyTorch ...'
	@$(PIP) install -qq --upgrade pip -c constraints.txt
	@$(PIP) install -qq torch -c constraints.txt
	@echo 'Installing centroid-encoder and its development tools, a minute or two ...'
	@$(PIP) install -qq --editable '.[napari,notebook,parquet]' --group dev -c constraints.txt
	@touch $@
	@echo 'Ready: $(FOLDER)'
else
# uv installs the lowest versions, which pip cannot; the packages of the tests are then the newest.
# On Linux, UV_TORCH_BACKEND=cpu avoids the far larger PyTorch for GPUs.
UV := $(BIN)/python -m uv pip install --python $(BIN)/python --editable '.[napari,notebook,parquet]'
UV_pinned := $(UV) --group test --constraint constraints.txt
UV_newest := $(UV) --group test
UV_floors := $(UV) --resolution lowest-direct && $(UV) --group test
UV_pre-releases := $(UV) --group test --prerelease allow
# Other versions have other warnings. scikit-learn's checks need the variable before 1.7.
WARN := $(if $(filter floors pre-releases,$(PACKAGES)),-W default)
export SCIPY_ARRAY_API := 1

$(ENV): pyproject.toml constraints.txt
	@$(if $(UV_$(PACKAGES)),,$(error PACKAGES: pinned, newest, floors or pre-releases))
	@$(MAKE) --no-print-directory $(FOLDER)
	@$(PIP) install -qq --upgrade pip uv
	@$(UV_$(PACKAGES))
	@touch $@
	@echo 'Ready: $(FOLDER)'
endif

# What the system lacks: $(call apt-get,packages,why).
define apt-get
if { [ "$$(id -u)" = 0 ] || [ -n "$(SUDO)" ]; } && command -v apt-get >/dev/null; then \
  echo 'Installing $(strip $(2)) ...'; \
  $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq --no-install-recommends $(1) >/dev/null; \
else \
  echo 'This system lacks $(strip $(2)). Run: sudo apt-get install $(1)' >&2; exit 1; \
fi
endef

# Debian ships Python without ensurepip, which venv needs; python3.X-venv has it.
.PHONY: $(FOLDER)
$(FOLDER): package = $(shell $(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
$(FOLDER):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make env PYTHON=python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { $(call apt-get,$(package),what this Python needs to make environments); }
	@echo "Creating $(FOLDER) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear $(FOLDER)

# The plugin with which Qt speaks to X11 is linked to all that Qt needs of the system.
QT := $(FOLDER)/lib/python*/site-packages/PySide6/Qt/plugins/platforms/libqxcb.so
LIBRARIES := libdbus-1-3 libegl1 libfontconfig1 libgl1 libglib2.0-0 libxcb-cursor0 libxcb-icccm4 \
  libxcb-image0 libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-sync1 \
  libxcb-xfixes0 libxcb-xkb1 libxkbcommon-x11-0

screen: $(ENV)  ## Install what windows need of the system: make screen SUDO=sudo
ifeq ($(shell uname),Linux)
	@{ [ -z "$(XVFB)" ] || { command -v xvfb-run && command -v xauth; } >/dev/null; } && \
	  ! ldd $(QT) | grep -q 'not found' || \
	  { $(call apt-get,xauth xvfb $(LIBRARIES),a virtual screen or libraries of Qt); }
endif
