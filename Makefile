# Every target sets up what it needs; nothing has to be installed before `make`.  Kept to what GNU make 3.81 knows,
# which is the one on macOS.

MODEL ?= pocket
PORT ?= 8700
BIN := .venv/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# An interrupted or failed set-up is begun anew.
.DELETE_ON_ERROR:
.PHONY: help demo test soak check lint format docs bench screenshots clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

# exec: signals reach the server itself, and make ends when it has ended.
demo: .venv/.pocket ## a spoken conversation on this machine: MODEL=pocket PORT=8700
	@exec $(BIN)/duologue up --model $(MODEL) --port $(PORT)

# The unit tests on all cores; then what needs real time, by itself.  ARGS may leave nothing of either (pytest's 5).
test: .venv/.ready ## all tests: ARGS='-k name -x'
	@ran=5; \
	part() { \
		$(BIN)/pytest -q -rs "$$@" $(ARGS); code=$$?; \
		case $$code in 5) ;; 0) [ $$ran != 5 ] || ran=0 ;; *) ran=$$code ;; esac; \
	}; \
	part -n auto -m unit; part -m "not unit"; exit $$ran

soak: .venv/.ready ## the longest tests at full length, for about half an hour
	@CYCLES=10000 SCHEDULES=5000 $(BIN)/pytest -q -rs -n auto -m "unit and slow" $(ARGS)

check: lint ## what every commit passes, in a minute or two: lint and the unit tests
	@$(BIN)/pytest -q -m "unit and not slow" --hypothesis-profile quick $(ARGS)

lint: .venv/.ready ## formatting, ruff, mypy
	@$(BIN)/ruff format --check --quiet . || { echo "Some files are not formatted: run 'make format'." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

format: .venv/.ready ## format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: .venv/.ready ## the pages of docs/ that are made from the code
	@page=$$($(BIN)/python -m duologue.settings) && printf '%s\n' "$$page" >docs/settings.md
	@page=$$($(BIN)/python -m duologue.telemetry) && printf '%s\n' "$$page" >docs/metrics.md
	@page=$$($(BIN)/python -m duologue_api.live.table) && printf '%s\n' "$$page" >docs/protocol.md

bench: .venv/.ready ## benchmarks, one JSON line each: NAME=all
	@$(BIN)/duologue bench $(or $(NAME),all) --json

screenshots: .venv/.ready ## pictures of the talk page (needs Chromium): OUT=build/screenshots
	@$(BIN)/python tests/screenshots.py $(or $(OUT),build/screenshots)

clean: ## remove everything that make, the tests and the tools have made
	@rm -rf .venv .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- setting up

# A stamp is younger than pyproject.toml once everything that it asks for is installed.
.venv/.ready: pyproject.toml .venv/bin/python
	@echo "Installing Duologue and its development tools into .venv ..." >&2
	@$(PIP) -e '.[dev]'
	@touch .venv/.pocket $@

.venv/.pocket: pyproject.toml .venv/bin/python
	@echo "Installing Duologue into .venv ..." >&2
	@$(PIP) -e '.[pocket]'
	@touch $@

# The first Python that is new enough and can make environments; Debian and Ubuntu package that ability by itself.
.venv/bin/python:
	@old=; \
	for python in python3.13 python3.12 python3.11 python3; do \
		command -v $$python >/dev/null 2>&1 || continue; \
		$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
		old=$$python; \
		$$python -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
		rm -rf .venv && exec $$python -m venv .venv; \
	done; \
	if [ -n "$$old" ]; then \
		echo "$$old cannot make virtual environments: its module venv or ensurepip is missing." >&2; \
		echo "On Debian and Ubuntu: apt-get install python3-venv (for a Python of its own version: $$old-venv)." >&2; \
	else \
		echo "Duologue needs Python 3.11 or newer, and found none of python3.13, python3.12, python3.11" >&2; \
		echo "and python3 that is. On Debian and Ubuntu: apt-get install python3 python3-venv." >&2; \
	fi; \
	exit 1
