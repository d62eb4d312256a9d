# Everything a newcomer needs: `make run` and `make test`. Both set up what they need, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run demo test quick coverage check fuzz bench peers report profile etcd docs lock clean

help:  ## Show these targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.server  ## Start a development broker in the foreground
	@exec $(BIN)/flymq server start --dev

demo: $(VENV)/.spark  ## Run an end-to-end demo and exit: broker, orders, a Spark aggregation
	@exec $(BIN)/flymq demo $(ARGS)

test: $(VENV)/.dev  ## Run all tests
	$(BIN)/pytest -n auto $(ARGS)

# No Spark, no third-party clients, few seeds and examples: under a minute on two cores.
QUICK_TESTS := $(addprefix tests/,architecture golden unit property simulation clients/raw clients/native)
QUICK := FLYMQ_HYPOTHESIS_PROFILE=quick FLYMQ_SIMULATION_SEEDS=3 FLYMQ_CRASH_SEEDS=5
# The schemathesis plugin takes a second to load in each process, and none of these tests use it.
QUICK_OPTIONS := -m "not slow" -p no:schemathesis

quick: $(VENV)/.dev  ## Run the tests that take under a minute: no Spark, no third-party clients
	$(QUICK) $(BIN)/pytest -n auto $(QUICK_OPTIONS) $(QUICK_TESTS) $(ARGS)

coverage: $(VENV)/.dev  ## Measure code coverage of the quick tests; ARGS=tests for all tests
	@rm -rf build/coverage && mkdir -p build/coverage
	$(QUICK) $(BIN)/coverage run -m pytest -q -n auto $(or $(ARGS),$(QUICK_OPTIONS) $(QUICK_TESTS))
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage json -q -o build/coverage/report.json
	@$(BIN)/coverage html -q
	@$(BIN)/python tools/coverage_rooms.py build/coverage/report.json
	@echo "Line by line: build/coverage/html/index.html"

check: $(VENV)/.dev  ## Lint, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m flymq.server.settings_reference --check
	$(BIN)/python -m flymq.cli.reference --check
	$(BIN)/python -m flymq.gateways.rest.schema.reference --check
	$(BIN)/python -m flymq.spark.options_reference --check
	$(BIN)/python tools/kafka_protocol_page.py --check
	$(BIN)/python tools/kafka_settings_page.py --check
	$(BIN)/python tools/kafka_clients_page.py --check
	$(BIN)/python tools/kafka_outcomes_page.py --check

fuzz: $(VENV)/.dev  ## Fuzz every parser for five minutes; ARGS="--minutes 30 --target kafka" for one of them
	$(BIN)/python -m tests.campaigns.fuzz $(ARGS)

bench: $(VENV)/.dev  ## Benchmark beside limits and peers; ARGS=--quick for a short run
	$(BIN)/python -m benchmarks --json benchmarks/results/run.json $(ARGS)

peers: $(VENV)/.dev  ## Fetch the peers of the benchmarks into a cache folder
	$(BIN)/python -m benchmarks.peers install

report: $(VENV)/.dev  ## Write docs/performance.md and its pictures from the last run of bench
	$(BIN)/python -m benchmarks.report benchmarks/results/run.json

profile: $(VENV)/.dev  ## Profile the broker; ARGS=consume for another load
	$(BIN)/python -m benchmarks.profiling $(ARGS)

etcd: $(VENV)/.dev  ## Build a current etcd for the tests that kill one, into a cache folder: needs Go, takes minutes
	@$(BIN)/python -m tests.etcd_process

docs: $(VENV)/.dev  ## Write the generated reference pages
	$(BIN)/python -m flymq.server.settings_reference
	$(BIN)/python -m flymq.cli.reference
	$(BIN)/python -m flymq.gateways.rest.schema.reference
	$(BIN)/python -m flymq.spark.options_reference
	$(BIN)/python tools/kafka_protocol_page.py
	$(BIN)/python tools/kafka_settings_page.py

lock: $(VENV)/.dev  ## Pin the newest versions of all dependencies
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-emit-index-url --extra server --extra cli \
	    pyproject.toml -o requirements/server.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-emit-index-url --extra dev \
	    --override requirements/overrides.txt \
	    pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-emit-index-url --extra server --extra cli --extra spark \
	    --constraint requirements/dev.txt --no-annotate \
	    pyproject.toml -o requirements/spark.txt

clean:  ## Remove everything that was built or installed here
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/results site flymq-data
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/flymq/record/_fast.c src/flymq/record/*.so
	rm -rf src/*.egg-info

# --- set-up, done again when its inputs change

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "FlyMQ needs Python 3.11 or newer: install python3 (Debian, Ubuntu: apt install python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FlyMQ needs Python 3.11 or newer, and $(PYTHON) is older: install one and run make PYTHON=python3.11 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python has no venv module: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

BUILD_TOOLS := requirements/build.txt
NATIVE := setup.py pyproject.toml $(wildcard src/flymq/record/_fast*.p[yx][xi])

$(VENV)/.server: $(VENV)/bin/python requirements/server.txt $(BUILD_TOOLS) $(NATIVE)
	@echo "Installing FlyMQ into $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -r requirements/server.txt -r $(BUILD_TOOLS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.spark: $(VENV)/bin/python requirements/spark.txt $(BUILD_TOOLS) $(NATIVE)
	@echo "Installing FlyMQ with Spark into $(VENV), once: a download of about half a gigabyte …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -r requirements/spark.txt -r $(BUILD_TOOLS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@ $(VENV)/.server

$(VENV)/.dev: $(VENV)/bin/python requirements/dev.txt $(BUILD_TOOLS) $(NATIVE)
	@echo "Installing FlyMQ and its development tools into $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -r requirements/dev.txt -r $(BUILD_TOOLS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@ $(VENV)/.server $(VENV)/.spark
