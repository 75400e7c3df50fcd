# Development commands. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Contains the newest TensorFlow, tf_keras and Keras.
COMPAT := $(VENV)/compat
# Contains Keras with JAX, and no TensorFlow.
JAX := $(VENV)/jax
# Contains KerasHub with TensorFlow.
HUB := $(VENV)/hub
# Contains Keras with torch, and no TensorFlow.
TORCH := $(VENV)/torch
# Contains an MLflow server.
MLFLOW := $(VENV)/mlflow
# Contains uv, which installs everything else.
TOOLS := $(VENV)/tools
UV := $(TOOLS)/bin/uv pip install
# Lock files: pinned versions with hashes. Targets install nothing else, so that a run does not depend on the day.
LOCKS := tests/requirements
# Options of pip and uv for a lock file. It is complete, and a source distribution would need build requirements, which are not locked.
HASHED := --quiet --no-deps --only-binary :all: --require-hashes --requirement
# Installs the project. Build isolation would install the newest hatchling. Without an index, pip fails if a dependency is missing.
EDITABLE := --quiet --no-index --no-build-isolation --editable .
FIXTURE := fixtures/tf2.3/exp_mf16_fixed128.h5
# Directory of the virtual environments of the TensorFlow and Keras releases.
VENVS ?= $(HOME)/.cache/policytool/venvs

# Containers often set this variable. Without bytecode, each process compiles policytool and each run compiles all tests.
unexport PYTHONDONTWRITEBYTECODE

# Number of tests to run at a time.
WORKERS ?= auto
# After a crash of a worker, pytest-xdist 3.8 waits for its tests without end if they have groups. The run ends at a crash instead.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart=0 --durations=30 --durations-min=2
# The tests that each target runs. tests/helpers/marks.py describes the marks.
QUICK := not (thorough or slow or compat or browser)
FAST := not (slow or compat or browser)
SLOW := (slow or hypothesis) and not (compat or browser)
# Slightly below the current coverage of lines and branches, in percent, without code that TensorFlow runs.
COVERAGE_FLOOR := 95

# Number of random models that make fuzz-convert creates for each library, and the first seed.
N ?= 200
SEED ?= 0

# Duration of make fuzz in seconds.
FUZZ_SECONDS ?= 600

.PHONY: help demo quick test test-slow test-browser count check lint types structure golden test-compat test-compat-all test-all test-torch gpu-wheels test-gpu lock test-min test-newest crash signals fuzz bench bench-compare bench-short fixtures release-data docs docs-site package clean fuzz-convert
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(TOOLS)/.uv: $(LOCKS)/uv.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install $(HASHED) $<
	touch $@

$(VENV)/.user: pyproject.toml $(LOCKS)/user.txt $(TOOLS)/.uv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(UV) --python $(BIN)/python $(HASHED) $(LOCKS)/user.txt
	$(UV) --python $(BIN)/python $(EDITABLE)
	touch $@

$(VENV)/.dev $(VENV)/.docs: $(VENV)/.%: $(LOCKS)/%.txt $(VENV)/.user
	$(UV) --python $(BIN)/python $(HASHED) $<
	touch $@

demo: $(VENV)/.user  ## Set up without TensorFlow, then inspect, audit and migrate a real model
	$(BIN)/policytool inspect $(FIXTURE)
	$(BIN)/policytool audit $(FIXTURE) --target keras3 --fail-on never
	mkdir -p build/demo
	$(BIN)/policytool migrate $(FIXTURE) -o build/demo --existing replace
	$(BIN)/policytool migrate fixtures/tf2.15/rnn.h5 --to mixed_bfloat16 --preview || test $$? -eq 1

quick: $(VENV)/.dev  ## Set up and run the fastest tests (less than a minute)
	$(PYTEST) -m '$(QUICK)'

test: $(VENV)/.dev  ## Set up and run all tests that do not need TensorFlow, with a sample of expensive cases; COVERAGE=yes also enforces the minimum coverage
	$(PYTEST) -m '$(FAST)' $(if $(COVERAGE),--cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR))

test-slow: $(VENV)/.dev $(TOOLS)/.uv  ## Set up with TensorFlow and MLflow, and run the slow tests, with a sample of expensive cases, and all property-test examples
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	$(PYTHON) -m tests.compat.environment $(MLFLOW) mlflow
	PATH="$$PATH:$(CURDIR)/$(TOOLS)/bin" POLICYTOOL_COMPAT=$(COMPAT)/bin/python POLICYTOOL_MLFLOW=$(MLFLOW)/bin/python POLICYTOOL_EXAMPLES=all $(PYTEST) -m '$(SLOW)'

# Exactly the versions of the lock files.
tests/browser/node_modules tests/tfjs/node_modules: %/node_modules: %/package-lock.json
	npm ci --prefix $* --no-audit --no-fund --silent
	touch $@

test-browser: $(VENV)/.dev $(VENV)/.docs tests/browser/node_modules  ## Set up, including npm, and test the HTML reports and the documentation site in Chromium
	$(PYTEST) -m browser tests/browser

count: $(VENV)/.dev  ## Count the tests of each target and in total
	$(BIN)/python -m tests.count quick='$(QUICK)' test='$(FAST)' test-slow='$(SLOW)' test-browser=browser test-compat=compat

check: $(VENV)/.dev lint types test  ## Run make lint, make types and make test

lint: $(VENV)/.dev  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## Check types
	$(BIN)/mypy

# Output of TensorFlow is regenerated only if make test-slow or make test-compat has installed it.
golden: $(VENV)/.dev  ## Regenerate the golden files and the output in the tutorials; review the diff before you commit it
	POLICYTOOL_GOLDEN=1 $(if $(wildcard $(COMPAT)/bin/python),POLICYTOOL_COMPAT=$(COMPAT)/bin/python) $(BIN)/python -m pytest tests/reports tests/rules/test_findings.py tests/test_public_api.py tests/test_tutorials.py -p no:randomly
	git diff --stat tests/golden docs/tutorials

test-compat: $(VENV)/.dev tests/tfjs/node_modules  ## Compare verdicts and conversions with the newest tf_keras, Keras and TensorFlow.js, for a sample of the modules and models that the files draw
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	$(PYTHON) -m tests.compat.environment $(JAX) jax
	$(PYTHON) -m tests.compat.environment $(HUB) hub
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python POLICYTOOL_JAX=$(JAX)/bin/python POLICYTOOL_HUB=$(HUB)/bin/python $(PYTEST) -m 'compat and sampled' tests/compat

test-compat-all: $(VENV)/.dev tests/tfjs/node_modules  ## Run test-compat with every fixture, migrated to every policy and converted for both libraries
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	$(PYTHON) -m tests.compat.environment $(JAX) jax
	$(PYTHON) -m tests.compat.environment $(HUB) hub
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python POLICYTOOL_JAX=$(JAX)/bin/python POLICYTOOL_HUB=$(HUB)/bin/python POLICYTOOL_SAMPLE=all $(BIN)/python -m pytest -m compat tests/compat

test-all:  ## Run make test, test-slow and test-compat-all with all cases instead of samples (hours); do this before a release
	POLICYTOOL_SAMPLE=all $(MAKE) test
	POLICYTOOL_SAMPLE=all $(MAKE) test-slow
	$(MAKE) test-compat-all

$(TORCH)/.ready: $(TOOLS)/.uv
	$(PYTHON) -m venv --clear $(TORCH)
	$(UV) --quiet --python $(TORCH)/bin/python --editable '.[torch]'
	touch $@

test-torch: $(VENV)/.dev $(TORCH)/.ready  ## Run the tests of backends with torch, and record the answers on planted failures; CI does not run this (5 GB)
	POLICYTOOL_COMPAT=$(TORCH)/bin/python POLICYTOOL_TORCH=$(TORCH)/bin/python $(PYTEST) -m compat tests/compat/test_backends.py
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	$(COMPAT)/bin/python -m tests.trained.models build/backends/models keras after
	$(BIN)/python -m tests.trained.backends build/backends --backend torch --python $(TORCH)/bin/python --seed 1 --streams --trained build/backends/models --record

# For machines that have JAX or torch with CUDA, but no network: this collects everything else.
gpu-wheels:  ## Collect the wheels that make test-gpu installs
	$(PYTHON) -m pip wheel --quiet --wheel-dir build/wheels . 'keras>=3.15'

# DEVICE=cpu ARGUMENTS='--name LSTM' tries the target without a GPU, and records nothing. The environment of PYTHON has the backend, and stays as it is.
BACKEND ?= torch
DEVICE ?= gpu:0
GPU := build/gpu/bin/python
test-gpu:  ## Compare five architectures on the CPU and the GPU, with times, memory and tune, and record the tables: make test-gpu PYTHON=python3 BACKEND=jax, where make gpu-wheels was run before; CI does not run this
	$(PYTHON) -m venv --clear build/gpu
	$(PYTHON) -c 'import site; print(*site.getsitepackages(), sep="\n")' > "$$($(GPU) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/backend.pth"
	$(GPU) -m pip install --quiet --no-index --find-links build/wheels policytool keras
	CUDA_VISIBLE_DEVICES=0 $(GPU) -m tests.architectures.compare build/gpu/models $(BACKEND):cpu=$(GPU) $(BACKEND):$(DEVICE)=$(GPU) --device-checks $(if $(filter gpu%,$(DEVICE)),--record) $(ARGUMENTS)

lock: $(TOOLS)/.uv  ## Update the lock files after a change of the dependencies; UPGRADE=yes also replaces all versions by the newest ones
	$(PYTHON) -m tests.requirements.compile $(TOOLS)/bin/uv $(if $(UPGRADE),--upgrade)

test-min: $(TOOLS)/.uv  ## Run the fast tests with the lowest supported version of every dependency; CI does not run this
	$(PYTHON) -m venv --clear $(VENV)-min
	$(UV) --quiet --python $(VENV)-min/bin/python --resolution lowest-direct --group dev --editable .
	$(VENV)-min/bin/python -m pytest -m 'not browser'

test-newest: $(TOOLS)/.uv  ## Run the fast tests with the newest version of every dependency, and build the documentation site; CI does not run this
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(UV) --quiet --python $(VENV)-newest/bin/python --upgrade --group dev --group docs --editable .
	$(VENV)-newest/bin/python -m pytest -m 'not browser'
	NO_MKDOCS_2_WARNING=1 $(VENV)-newest/bin/python -m mkdocs build --strict

crash: $(VENV)/.dev  ## Inject a fault into every system call that writes, and check the files left behind (needs strace; about an hour on two CPUs)
	$(BIN)/python -m tests.crash.run --jobs 3
	$(BIN)/python docs/generators/generate.py

signals: $(VENV)/.dev  ## Send signals at random moments to runs of each command, until each has 500 runs in the record (hours)
	$(PYTHON) tests/compat/environment.py $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python $(BIN)/python -m tests.crash.signals --add
	$(BIN)/python docs/generators/generate.py

structure: $(VENV)/.dev  ## Print metrics of the package structure, compared with a revision before each fact had one place
	$(BIN)/python -m tests.structure

bench-compare: $(VENV)/.dev  ## Say whether this tree is slower than another revision: make bench-compare REV=main~5
	$(BIN)/python tests/bench/compare.py $(REV)

bench-short: $(VENV)/.dev  ## Check that start-up, inspect and audit are not slower than recorded (less than two minutes on an idle machine)
	$(BIN)/python tests/bench/short.py

bench: $(VENV)/.dev  ## Measure speed and memory compared with load_model of Keras, and the cost of hostile files
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	$(BIN)/python tests/bench/run.py --keras $(COMPAT)/bin/python --write docs/evidence/benchmarks.md
	$(BIN)/python tests/bench/hostile.py --write docs/evidence/hostile.json
	$(BIN)/python tests/bench/fleet_table.py --write docs/evidence/benchmarks.md
	$(BIN)/python tests/bench/large_presets.py --write docs/evidence/benchmarks.md
	$(BIN)/python tests/bench/load_times.py $(VENVS)/tf2.15/bin/python $(COMPAT)/bin/python --write docs/evidence/benchmarks.md
	$(BIN)/python docs/generators/generate.py

fixtures:  ## Regenerate every fixture with its own release, and compare the results with the recorded ones
	$(PYTHON) fixtures/generate.py --venvs $(VENVS) --check

fuzz: $(VENV)/.dev  ## Fuzz all readers and the command line for FUZZ_SECONDS seconds, and add the run to tests/fuzz/record.json
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python nice -n 10 $(BIN)/python -W ignore -m tests.fuzz $(FUZZ_SECONDS)
	$(BIN)/python docs/generators/generate.py

fuzz-convert: $(VENV)/.dev  ## Convert N random models of each library, starting at SEED, and check the results; ARGUMENTS=--shrink reduces failing models
	$(PYTHON) -m tests.compat.environment $(COMPAT)
	POLICYTOOL_COMPAT=$(COMPAT)/bin/python $(BIN)/python -m tests.random_models -n $(N) --seed $(SEED) $(ARGUMENTS)

release-data: $(VENV)/.dev  ## Measure RELEASE, such as keras3.16, with all measurement scripts, and update all tables
	$(BIN)/python fixtures/release_data.py --venvs $(VENVS) $(RELEASE)

docs: $(VENV)/.dev  ## Regenerate the generated parts of the documentation
	$(BIN)/python docs/generators/generate.py

docs-site: $(VENV)/.dev $(VENV)/.docs  ## Set up, and build the documentation site into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

package:  ## Build the wheel and the source distribution, and run both with each installed Python
	$(PYTHON) -m tests.packaging.run

clean:  ## Remove virtual environments, builds and caches
	rm -rf $(VENV) $(VENV)-min $(VENV)-newest build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
