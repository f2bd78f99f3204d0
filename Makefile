# Each target sets up what it needs in .venv first, once: again only after pyproject.toml or constraints.txt changed.
# All paths are relative, so that the project may live in a folder with spaces in its name.

PYTHON ?= python3
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
LOG := .setup.log
PIP := $(PY) -m pip install --disable-pip-version-check --no-input --constraint constraints.txt
# What to run Sparkport needs, and on top what to develop it, and what to compare it with, need. Each holds the folder it
# was made in.
RUNTIME := $(VENV)/.sparkport-runtime
DEV := $(VENV)/.sparkport-dev
BENCH := $(VENV)/.sparkport-bench

CHECKED := $(wildcard src tests benchmarks)
# Annotations of the examples are Arrow types, which mypy does not take for types.
LINTED := $(CHECKED) $(wildcard examples)

# Tests and benchmarks start Python some hundred times, which then reads what was compiled before.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-long check format bench clean venv
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo '  ARGS="…" is passed on to serve, test, test-long and bench; PYTHON=… chooses the interpreter .venv is made with.'

setup: $(DEV) ## install everything into .venv; the other targets do it by themselves

serve: $(RUNTIME) ## serve the lake in ./lake, with a demo schema; needs Java (ARGS="--help" lists the options)
	@$(VENV)/bin/sparkport serve --warehouse ./lake --demo $(ARGS)

test: $(DEV) ## run the tests, in ten minutes at most (ARGS="-k filters -x" as for pytest)
	@$(PY) -m tests.parts.s3 >/dev/null
	@$(PY) -m pytest -n 3 -m 'not long' $(ARGS)

test-long: $(DEV) ## run the tests that take long: many random examples, kills, load, clusters, browsers
	@$(PY) -m tests.parts.s3 >/dev/null
	@$(PY) -m pytest -n 3 -m long $(ARGS)

check: $(DEV) ## ruff, mypy --strict, import-linter
	@$(PY) -m ruff check --output-format=concise $(LINTED)
	@$(PY) -m ruff format --check $(LINTED) || { echo 'Some files are not formatted: run `make format`.' >&2; exit 1; }
	@$(PY) -m mypy $(CHECKED)
	@$(VENV)/bin/lint-imports --no-logo

format: $(DEV) ## let ruff format the code and repair what it can
	@$(PY) -m ruff check --fix-only $(LINTED)
	@$(PY) -m ruff format $(LINTED)

bench: $(BENCH) ## run the benchmarks and print their table (ARGS="lake" runs one group)
	@$(PY) -m benchmarks $(ARGS)

clean: ## remove .venv, caches and everything built
	@rm -rf $(VENV) $(LOG) build dist src/*.egg-info
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --------------------------------------------------------------------------------------------------------------------

SETUP_FAILED = { echo 'Setup failed: see why at the end of $(LOG), check that pip can reach its package registry (network, proxy, index), and run make again.' >&2; exit 1; }

# pip and setuptools first, at their pins: the rest then does not depend on how old the pip of the interpreter is, and
# the package is built by that setuptools, not by one fetched for the occasion.
$(RUNTIME): pyproject.toml constraints.txt | venv
	@echo 'Installing into $(VENV) (details in $(LOG)) ...'
	@{ $(PIP) pip setuptools && $(PIP) --no-build-isolation --editable .; } >$(LOG) 2>&1 || $(SETUP_FAILED)
	@pwd -P >$@

$(DEV): $(RUNTIME) | venv
	@echo 'Installing the development tools (details in $(LOG)) ...'
	@$(PIP) --no-build-isolation --editable '.[dev]' >$(LOG) 2>&1 || $(SETUP_FAILED)
	@pwd -P >$@

$(BENCH): $(RUNTIME) | venv
	@echo 'Installing what the benchmarks compare with (details in $(LOG)) ...'
	@$(PIP) --no-build-isolation --editable '.[bench]' >$(LOG) 2>&1 || $(SETUP_FAILED)
	@pwd -P >$@

# Runs every time and costs some 30 ms: a .venv that cannot work is named here and not by a riddle later.
venv:
	@fail() { echo "$$1" >&2; exit 1; }; \
	recent='import sys; sys.exit(sys.version_info < (3, 10))'; \
	version='import sys; print(*sys.version_info[:3], sep=".")'; \
	if [ ! -e $(VENV) ]; then \
	    "$(PYTHON)" -c "$$recent" >/dev/null 2>&1 \
	        || fail "$(PYTHON) is not a working Python 3.10 or newer: install one, or name it with make PYTHON=/path/to/python."; \
	    "$(PYTHON)" -m venv $(VENV) >$(LOG) 2>&1 \
	        || { rm -rf $(VENV); fail "$(PYTHON) could not make a virtual environment (see $(LOG)): install its venv module (Debian, Ubuntu: apt install python3-venv), or name another Python with make PYTHON=/path/to/python."; }; \
	fi; \
	$(PY) -c "import pip; $$recent" >/dev/null 2>&1 \
	    || fail "$(VENV) is broken or older than Python 3.10: run make clean, then make again."; \
	[ ! -e $(RUNTIME) ] || [ "$$(cat $(RUNTIME))" = "$$(pwd -P)" ] \
	    || fail "$(VENV) was made in another folder, $$(cat $(RUNTIME)): run make clean, then make again."; \
	[ '$(origin PYTHON)' = file ] || [ "$$("$(PYTHON)" -c "$$version" 2>&1)" = "$$($(PY) -c "$$version")" ] \
	    || fail "$(VENV) was made with Python $$($(PY) -c "$$version"), not with $(PYTHON): run make clean, then make again."
