.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
FOR ?=

.PHONY: help setup run test prove crash lint type check bench schema schema-check clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Every day
setup: .venv/ready ## make .venv and install everything into it

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headway needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

run: .venv/ready ## the main job: keep a fleet of real processes as declared (FOR=20 ends by itself)
	@exec $(BIN)/python -m examples.fleet $(if $(FOR),--for $(FOR))

test: .venv/ready ## the tests, in under five minutes
	$(BIN)/pytest -n 2 --dist worksteal -m 'not deep'

check: lint type schema-check test ## what CI runs: lint, format, layers, types, generated code, tests

lint: .venv/ready ## style, format and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: .venv/ready ## mypy, strict
	$(BIN)/mypy

##@ Deeper
prove: .venv/ready ## the stateful tests with many more examples, and the long tests
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest --timeout 3000 tests

crash: .venv/ready ## kill -9 a process that writes to a store, a thousand times at random moments
	$(BIN)/pytest -s -m deep -o faulthandler_timeout=0 tests/storage/test_sqlite_crash.py

bench: .venv/ready ## the numbers, as a table and in benchmarks/results.json
	$(BIN)/python -m benchmarks

##@ Made things
schema: .venv/ready ## schema/*.proto -> engine/headway/_gen
	$(BIN)/python schema/generate.py engine/headway/_gen

schema-check: .venv/ready ## fail when the generated code is out of date
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(BIN)/python schema/generate.py "$$fresh" && \
	  diff -ru --exclude=__pycache__ engine/headway/_gen "$$fresh" || \
	  { echo 'engine/headway/_gen is out of date: run `make schema` and commit the result'; exit 1; }

clean: ## remove what the other targets made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis run
