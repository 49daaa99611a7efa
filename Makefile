# One command each; everything is made on first use and left alone afterwards (.venv/ and .cache/ hold it all).
#   PYTHON=python3.12 make start     another interpreter for the virtual environment
#   make start ARGS="server.properties --override num.partitions=4"
#   make test ARGS="compat_tests -k kcat"

PYTHON ?= python3
ARGS ?=
CACHE := .cache
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Every pom.xml names jars that a test needs; each gets its own folder of jars: .cache/jars/<folder of the pom>/.
# Those of OpenSearch and Debezium are for `make ecosystem`.
EXAMPLE_POMS := $(patsubst %,spark_examples/%/pom.xml,change_data search)
POMS := $(filter-out $(EXAMPLE_POMS),$(wildcard compat_tests/apache/releases/*/pom.xml spark_examples/pom.xml spark_examples/*/pom.xml))
JARS := $(patsubst %/pom.xml,$(CACHE)/jars/%/.ready,$(POMS))
BENCH_JARS := $(patsubst %,$(CACHE)/jars/compat_tests/apache/releases/%/.ready,kafka_4 kafka_4_tools kafka_3 streams_4) \
    $(CACHE)/jars/spark_examples/flights/.ready
NODE_MODULES := $(CACHE)/node/node_modules/.ready
# Without its packages: one is compiled where it is installed, which needs a compiler, and is for another format of stores.
PYJKS := 'pyjks>=20'
CLIENT_SUITE := $(CACHE)/suites/kafka_python/.ready
GO_CLIENTS := $(patsubst %,$(CACHE)/%/.ready,kgo go_admin)
# Other people's software: each Python package has an environment of its own, because their requirements exclude each other.
ECOSYSTEM := compat_tests/ecosystem
ENVIRONMENTS := $(patsubst $(ECOSYSTEM)/%/requirements.txt,$(CACHE)/ecosystem/%/.ready,$(wildcard $(ECOSYSTEM)/*/requirements.txt))
ENVIRONMENTS_OF_SUITES := $(patsubst $(ECOSYSTEM)/%/requirements.txt,$(CACHE)/ecosystem/%/.ready,$(wildcard $(ECOSYSTEM)/suites/*/requirements.txt))
# Test suites of other packages, of those whose source distributions have them.
SUITES_OF_OTHERS := $(patsubst %,$(CACHE)/strangers/%/.ready,faust kombu taskiq)
JARS_OF_SUITES := $(CACHE)/jars/$(ECOSYSTEM)/suites/pyspark/.ready
SUITES_IN_GO := $(patsubst %,$(CACHE)/strangers/%/.ready,franz_go kafka_go)
SHORT_ENVIRONMENTS := $(patsubst %,$(CACHE)/ecosystem/%/.ready,faststream celery)
GO_SQUARES := $(CACHE)/go_squares/.ready
RUST_SQUARES := $(CACHE)/rust_squares/.ready
ECOSYSTEM_JARS := $(patsubst %/pom.xml,$(CACHE)/jars/%/.ready,$(wildcard $(ECOSYSTEM)/*/pom.xml compat_tests/migration/*/pom.xml) $(EXAMPLE_POMS))
# Apart from .venv, where a package needs the setuptools of old.
DIST_TOOLS := $(CACHE)/dist_tools/.ready
CARGO = $(shell PATH="$$PATH:$$HOME/.cargo/bin" command -v cargo)
GO = $(shell PATH="$$PATH:/usr/local/go/bin" command -v go)

.DEFAULT_GOAL := help
.PHONY: help start test proofs ecosystem strangers check format lint docs pipeline bench golden golden-hunt chaos siege simulate pictures dist release setup packages compiled-tests clean
.DELETE_ON_ERROR:

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

start: .venv/.ready-to-start  ## run the broker (installs it first)
	@exec $(BIN)/ottla start $(ARGS)

# Four processes for two processors, file by file: half of it waits, for deadlines and for others. What takes longest begins first.
test: setup  ## check and test everything, with every client
	@$(MAKE) --no-print-directory --jobs 2 lint compiled-tests
	@$(BIN)/python .ci/tested.py begin
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)
	@$(if $(ARGS),true,$(BIN)/python .ci/tested.py end)

proofs: setup  ## the tests that take longest; each has a shorter twin in `make test`
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m long $(ARGS)

# A package or a jar that cannot be had does not stop the others: its tests are skipped, and say so.
ecosystem: setup  ## stream processors, task queues, connectors and log shippers of others, against Ottla (ARGS="-k faust")
	@sh compat_tests/setup/debian_packages.sh ecosystem
	@$(MAKE) --no-print-directory --keep-going --silent $(ENVIRONMENTS) $(if $(shell command -v mvn),$(ECOSYSTEM_JARS)) $(if $(GO),$(GO_SQUARES)) \
	    $(if $(CARGO),$(RUST_SQUARES)) || \
	    echo "make: some software could not be set up; its tests will be missing" >&2
	$(BIN)/python -m pytest -m "ecosystem or not long" -rs $(ECOSYSTEM) --ignore $(ECOSYSTEM)/test_suites_of_others.py compat_tests/migration \
	    $(wildcard spark_examples/tests/test_*_in_*.py) $(ARGS)

strangers: setup  ## test suites of other packages with ottla.testing: some 25 minutes (ARGS="-k kombu"; WITH=apache: with Apache Kafka)
	@$(MAKE) --no-print-directory --keep-going --silent $(ENVIRONMENTS_OF_SUITES) $(SUITES_OF_OTHERS) $(if $(GO),$(SUITES_IN_GO)) \
	    $(if $(shell command -v mvn),$(JARS_OF_SUITES)) || \
	    echo "make: some suites could not be set up; their tests will be missing" >&2
	OTTLA_STRANGERS_WITH=$(WITH) $(BIN)/python -m pytest -m "ecosystem or not long" -rs -s $(ECOSYSTEM)/test_suites_of_others.py $(ARGS)

golden: setup  ## ask Apache Kafka anew what the golden answers are
	OTTLA_RECORD_GOLDEN=1 $(BIN)/python -m pytest compat_tests/differential $(ARGS)

golden-hunt: setup  ## ask Apache Kafka and Ottla random requests for MINUTES=10 and keep what they answer differently
	OTTLA_HUNT_MINUTES=$(or $(MINUTES),10) $(BIN)/python -m pytest compat_tests/differential/test_random_requests.py $(ARGS)

chaos: .venv/.ready-to-test  ## break BROKERS=1 (or 3) under load for MINUTES=1 and check that no promise was broken
	@$(BIN)/python -m compat_tests.history.run --minutes $(or $(MINUTES),1) --brokers $(or $(BROKERS),1) $(ARGS)

siege: .venv/.ready-to-test  ## attack a broker with requests that are dear, for MINUTES=0 after each was tried once
	@$(BIN)/python -m compat_tests.siege.run --minutes $(or $(MINUTES),0) $(ARGS)

simulate: .venv/.ready-to-test  ## run a cluster in one process on virtual time, ten minutes for each of SEEDS=1..10
	@$(BIN)/python -m compat_tests.simulation.run --seeds $(or $(SEEDS),1..10) $(ARGS)

pictures: .venv/.ready-to-test  ## take pictures of the console's views with Chromium: wide and narrow, light and dark, into pictures/
	@$(BIN)/python -m compat_tests.console.pictures $(or $(ARGS),pictures)

dist: $(DIST_TOOLS)  ## make the sdist and the wheels in dist/, and check that each installs and runs
	@$(CACHE)/dist_tools/bin/python .ci/dist.py $(ARGS)

release: $(DIST_TOOLS)  ## make dist/ and the tag of VERSION=x.y.z, if all was tested and agrees; publishes nothing
	@$(CACHE)/dist_tools/bin/python .ci/release.py $(VERSION)

check: .venv/.ready-to-test  ## format, types, import contracts and unit tests (ARGS=groupcoord: those of one package)
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal -m "not long and not thorough" --hypothesis-profile quick \
	    $(or $(ARGS),wire replication groupcoord server)

format: .venv/.ready-to-test  ## let ruff format the source
	$(BIN)/ruff format

lint: .venv/.ready-to-test  ## ruff, mypy, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Beside mypy, which has one process. Each of those of `make test` would do it by itself.
compiled-tests: .venv/.ready-to-test
	@$(BIN)/python -m pytest --collect-only -qq $(ARGS) > /dev/null 2>&1 || true  # whatever is wrong is told when they run

docs: .venv/.ready-for-docs  ## make a site of docs/ in .cache/site; a broken link ends it
	@# Not --quiet, which would pass over broken links.
	@$(BIN)/python -m mkdocs build
	@echo "file://$(abspath $(CACHE)/site/index.html)"

pipeline: .venv/.ready-to-test packages  ## run the Spark example NAME=payments with a broker of its own, up to "equal"
	@$(BIN)/python spark_examples/pipeline.py $(NAME) $(ARGS)

bench: .venv/.ready-to-bench packages  ## Ottla beside Apache Kafka, measured on this machine (ARGS=--quick: 12 minutes)
	@$(if $(shell command -v mvn),$(MAKE) --no-print-directory --keep-going --silent $(BENCH_JARS),false) || \
	    echo "make: some jars could not be fetched; what needs them will be missing" >&2
	@$(BIN)/python -m benchmarks $(ARGS)

setup: .venv/.ready-to-test packages
	@# A second make, because what the packages step installs decides which clients can be set up. A client that
	@# cannot be set up does not stop the others: its tests are skipped, or fail under CI=true.
	@$(MAKE) --no-print-directory --keep-going --silent $(CLIENT_SUITE) $(DIST_TOOLS) $(SHORT_ENVIRONMENTS) \
	    $(if $(shell command -v npm),$(NODE_MODULES)) $(if $(shell command -v mvn),$(JARS)) $(if $(GO),$(GO_CLIENTS)) || \
	    echo "make: some clients could not be set up; their tests will be missing" >&2
	@$(BIN)/python -m compat_tests.apache.class_sharing || echo "make: no classes are shared; JVMs will start later" >&2

packages:
	@sh compat_tests/setup/debian_packages.sh

clean:  ## remove what was built and downloaded
	rm -rf .venv $(CACHE) build dist *.egg-info wire/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	@echo "making the virtual environment .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: needs Python 3.11 or newer with venv \
	(Debian: apt-get install python3-venv)" >&2; exit 1; }

.venv/.ready-to-start: pyproject.toml setup.py wire/_native.c $(wildcard wire/_*.h) | .venv/bin/python
	@echo "installing ottla into .venv"
	@$(PIP) install -e .
	@touch $@

.venv/.ready-to-test: pyproject.toml setup.py wire/_native.c $(wildcard wire/_*.h) | .venv/bin/python
	@echo "installing ottla and what its tests need into .venv"
	@$(PIP) install -e '.[test,spark]'
	@$(PIP) install --no-deps $(PYJKS)
	@touch $@ .venv/.ready-to-start

.venv/.ready-for-docs: pyproject.toml setup.py wire/_native.c $(wildcard wire/_*.h) | .venv/bin/python
	@echo "installing ottla and what makes its documentation into .venv"
	@$(PIP) install -e '.[docs]'
	@touch $@ .venv/.ready-to-start

.venv/.ready-to-bench: .venv/.ready-to-test
	@echo "installing the brokers to compare with into .venv"
	@$(PIP) install -e '.[test,spark,bench]'
	@touch $@

$(DIST_TOOLS): pyproject.toml
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install 'setuptools>=80' 'wheel>=0.45'
	@touch $@

$(ENVIRONMENTS) $(ENVIRONMENTS_OF_SUITES): $(CACHE)/ecosystem/%/.ready: $(ECOSYSTEM)/%/requirements.txt
	@echo "making an environment for $*"
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

$(SUITES_OF_OTHERS): $(CACHE)/strangers/%/.ready: compat_tests/setup/suite_of_sdist.py $(ECOSYSTEM)/suites/%/suite.toml
	@echo "unpacking the tests of $*"
	@$(PYTHON) $< $(word 2,$^) $(@D)
	@touch $@

$(SUITES_IN_GO): $(CACHE)/strangers/%/.ready: compat_tests/setup/suite_of_go.py $(ECOSYSTEM)/suites/%/suite.toml
	@echo "building the tests of $*"
	@$(PYTHON) $< $(GO) $(word 2,$^) $(@D)
	@touch $@

# A pom.xml in the folder above is the parent: it names the versions.
.SECONDEXPANSION:
$(CACHE)/jars/%/.ready: %/pom.xml $$(wildcard $$(*D)/pom.xml)
	@rm -rf $(@D) && mkdir -p $(@D)
	mvn -q -B -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(@D))
	@touch $@

$(NODE_MODULES): compat_tests/clients/kafkajs/package.json
	@mkdir -p $(CACHE)/node && cp $< $(CACHE)/node/
	npm install --prefix $(CACHE)/node --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

$(CLIENT_SUITE): compat_tests/setup/kafka_python_suite.sh compat_tests/suites/kafka_python/requirements.txt | .venv/.ready-to-test
	sh $< $(BIN)/python $(@D)
	@touch $@

$(GO_CLIENTS): $(CACHE)/%/.ready: compat_tests/setup/go_client.sh $(wildcard compat_tests/clients/kgo/* compat_tests/clients/go_admin/*)
	sh $< $(GO) $* $(@D)
	@touch $@

# librdkafka is compiled with it, which takes two minutes.
$(RUST_SQUARES): $(wildcard compat_tests/clients/rust_squares/* compat_tests/clients/rust_squares/src/*)
	@mkdir -p $(@D)/source && cp -r compat_tests/clients/rust_squares/. $(@D)/source/
	$(CARGO) build --release --quiet --manifest-path $(@D)/source/Cargo.toml --target-dir $(@D)
	@touch $@

$(GO_SQUARES): compat_tests/setup/go_client.sh $(wildcard compat_tests/clients/go_squares/*)
	sh $< $(GO) go_squares $(@D)
	@touch $@
