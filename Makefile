# What there is to do here. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Has the newest TensorFlow, tf_keras and Keras.
COMPAT := $(VENV)/compat
FIXTURE := fixtures/tf2.3/exp_mf16_fixed128.h5
# Where the environments of the TensorFlow and Keras releases are kept.
VENVS ?= $(HOME)/.cache/policytool/venvs

# How many tests run at a time.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# Which tests a target runs; the marks are described in tests/helpers/marks.py.
QUICK := not (thorough or slow or compat or browser)
FAST := not (slow or compat or browser)
SLOW := (slow or hypothesis) and not (compat or browser)
# Below what is measured today, in percent of lines and branches; what TensorFlow runs is left out.
COVERAGE_FLOOR := 95

# How many random models make fuzz-convert makes for each library, and the first seed.
N ?= 200
SEED ?= 0

# How long make fuzz runs.
FUZZ_SECONDS ?= 600

.PHONY: help demo quick test test-slow test-browser count check lint types structure golden test-compat test-compat-all test-min crash fuzz bench load fixtures release-data docs clean fuzz-convert
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.user: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable . --config-settings editable_mode=compat
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --config-settings editable_mode=compat
	touch $@ $(VENV)/.user

demo: $(VENV)/.user  ## Set up without TensorFlow, inspect a real model, audit it and migrate it
	$(BIN)/policytool inspect $(FIXTURE)
	$(BIN)/policytool audit $(FIXTURE) --target keras3 --fail-on never
	mkdir -p build/demo
	$(BIN)/policytool migrate $(FIXTURE) -o build/demo --overwrite
	$(BIN)/policytool migrate $(FIXTURE) --to mixed_bfloat16 --dry-run

quick: $(VENV)/.dev  ## Set up, and run the tests that take less than a minute together
	$(PYTEST) -m '$(QUICK)'

test: $(VENV)/.dev  ## Set up, and run the tests that need no TensorFlow; COVERAGE=yes holds the floor
	$(PYTEST) -m '$(FAST)' $(if $(COVERAGE),--cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR))

test-slow: $(VENV)/.dev  ## Set up, TensorFlow too, and run the slow tests and all examples of properties
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python POLICYTOOL_EXAMPLES=all $(PYTEST) -m '$(SLOW)'

# Exactly what the lock file names.
tests/browser/node_modules: tests/browser/package-lock.json
	npm ci --prefix tests/browser --no-audit --no-fund --silent
	touch $@

test-browser: $(VENV)/.dev tests/browser/node_modules  ## Set up, npm too, and look at HTML reports in Chromium
	$(PYTEST) -m browser tests/browser

count: $(VENV)/.dev  ## Count the tests that each target runs, and all together
	$(BIN)/python tests/count.py quick='$(QUICK)' test='$(FAST)' test-slow='$(SLOW)' test-browser=browser test-compat=compat

check: $(VENV)/.dev lint types test  ## Lint, types and make test

lint: $(VENV)/.dev  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## Check types
	$(BIN)/mypy

golden: $(VENV)/.dev  ## Rewrite the golden files; read the difference before committing it
	POLICYTOOL_GOLDEN=1 $(BIN)/python -m pytest tests/reports -p no:randomly
	git diff --stat tests/golden

test-compat: $(VENV)/.dev  ## Ask the newest tf_keras and Keras what they load, and compare
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python $(PYTEST) -m compat tests/compat

test-compat-all: $(VENV)/.dev  ## The same, with every fixture migrated to every policy, and converted for both libraries
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python POLICYTOOL_COMPAT_TARGETS=all $(BIN)/python -m pytest -m compat tests/compat

test-min:  ## Run the fast tests with the lowest versions of every dependency
	$(PYTHON) -m venv --clear $(VENV)-min
	$(VENV)-min/bin/python -m pip install --quiet uv
	$(VENV)-min/bin/uv pip install --quiet --python $(VENV)-min/bin/python --resolution lowest-direct --editable '.[dev]'
	$(VENV)-min/bin/python -m pytest

crash: $(VENV)/.dev  ## Put a fault into every call of the system that writes, and judge what is left (strace; an hour on two processors)
	$(BIN)/python -m tests.crash.run --jobs 3
	$(BIN)/python docs/generate.py

structure: $(VENV)/.dev  ## Measure the package's structure, before and after the move into twelve packages
	$(BIN)/python -m tests.structure

bench: $(VENV)/.dev  ## Measure speed and memory against Keras' own loader, and the cost of hostile files
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	$(BIN)/python tests/bench/run.py --keras $(COMPAT)/bin/python --write docs/benchmarks.md
	$(BIN)/python tests/bench/hostile.py --write docs/hostile.json
	$(BIN)/python docs/generate.py

load: $(VENV)/.dev  ## Read and migrate 2,000 models, every fourth broken, and interrupt and resume it
	mkdir -p build
	$(BIN)/python -m tests.load.run --write docs/load.md

fixtures:  ## Write every fixture again with its own release and compare the recorded truth
	$(PYTHON) fixtures/generate.py --venvs $(VENVS) --check

$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]' --config-settings editable_mode=compat
	touch $@

fuzz: $(VENV)/.fuzz  ## Fuzz every reader and the tool for FUZZ_SECONDS, and add the run to tests/fuzz/record.json
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python nice -n 10 $(BIN)/python -W ignore -m tests.fuzz $(FUZZ_SECONDS)
	$(BIN)/python docs/generate.py

fuzz-convert: $(VENV)/.dev  ## Convert N random models of each library from SEED on, and judge the results; ARGUMENTS=--shrink finds small ones
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python $(BIN)/python -m tests.random_models -n $(N) --seed $(SEED) $(ARGUMENTS)

release-data: $(VENV)/.dev  ## Measure RELEASE, such as keras3.16, with every script that asks releases, and update every table
	$(BIN)/python fixtures/release_data.py --venvs $(VENVS) $(RELEASE)

docs: $(VENV)/.dev  ## Rewrite the generated parts of the documentation
	$(BIN)/python docs/generate.py

clean:  ## Remove what was built
	rm -rf $(VENV) $(VENV)-min build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
