# Two commands to begin with: `make run` shows a cluster at work, `make test` proves that it works.
# Each target sets up what it needs; the second time there is nothing left to do.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: helm-lint helm-golden
.PHONY: chaos chaos-smoke chaos-planted fuzz
.PHONY: help run setup tools test properties test-kubernetes test-long test-all test-clients-apache test-cluster check format gen lock clean sim
.PHONY: packages packages-java jars spark-jars kubernetes-programs check-tiers bench-operator
.PHONY: console-screenshots docs docs-serve docs-check abuse bench-balance bench-loop compile blackbox ecosystem protocol-diff acl-diff bench bench-smoke bench-acls bench-instructions profile kind-up kind-down images e2e spark test-spark

# Keep .pyc files: compiling modules is half of a broker's start, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Tests wait for their servers more than half of the time: six processes fill two cores.
JOBS ?= 6
SEEDS ?= 1000
TOPICS ?= 1000
START ?= 0
KIND ?= cluster
CASE ?=
MERGE ?=
STORY ?=
ENGINE ?= both
BOOTSTRAP ?=
CLIENT_CONFIG ?=
SECURITY ?= plaintext
SEED ?= 1
REQUESTS ?= 3000
MINUTES ?= 10
TARGET ?=
COVERAGE ?=

# The packages that users run; they may not import what only the extra `dev` has.
PRODUCT := broker/odradek_protocol broker/odradek_schemas broker/odradek_broker operator/odradek_api operator/odradek_operator \
	spark-on-k8s/odradek_spark cli/odradek_cli cli/odradek_console images/odradek_apache

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' Makefile

# The parts of a set-up that do not need each other run at the same time.
run: .venv/.stamp ## everything at once: six brokers in three racks, restarted under load while Spark counts along
	@$(MAKE) -s -j4 .venv/.spark || echo "Spark could not be installed (see above); the demo runs without it." >&2
	@$(BIN)/odradek local demo

test: ## run the quick tests: real brokers, real clients, Spark; needs neither Go nor containers
	@$(MAKE) -s -j4 tools spark compile .venv/.test-modules
	@$(BIN)/pytest --tier=quick -n $(JOBS) --dist loadfile

test-kubernetes: ## run the tests with a real API server, whose programs are downloaded or built once
	@$(MAKE) -s -j4 tools compile kubernetes-programs
	@$(BIN)/pytest --tier=kubernetes -n 2 --dist worksteal

test-long: ## run the tests that are too slow for the quick ones
	@$(MAKE) -s -j4 tools spark compile kubernetes-programs
	@$(BIN)/pytest --tier=long

properties: .venv/.stamp ## try the properties of the quick tests with new random examples, five times as many
	@$(BIN)/pytest --tier=quick -m hypothesis --hypothesis-profile=random -n $(JOBS) --dist worksteal

test-all: test test-kubernetes test-long ## run all of these; only the stories of `make e2e` are left

test-cluster: .venv/.stamp tools compile ## run all tests with 3 and 5 brokers, including the long ones
	@$(BIN)/pytest -s broker/broker_tests/cluster cli/cli_tests/test_cluster.py

test-clients-apache: .venv/.stamp tools ## run the client tests against Apache Kafka instead of our broker
	@ODRADEK_TEST_ENGINE=apache $(BIN)/pytest broker/broker_tests/clients

bench-operator: .venv/.stamp tools ## measure memory, CPU and time of the operator: make bench-operator TOPICS=1000
	@cd operator && ../$(BIN)/python -m operator_tests.kubernetes.footprint --topics $(TOPICS)

blackbox: .venv/.stamp tools compile ## run one client suite against both engines: ENGINE=embedded|apache|both SECURITY=plaintext|sasl_ssl (with ACLs), or BOOTSTRAP=host:port CLIENT_CONFIG=FILE
	@$(BIN)/python -m odradek_e2e.blackbox --engine "$(ENGINE)" --security "$(SECURITY)" \
		--bootstrap "$(BOOTSTRAP)" --client-config "$(CLIENT_CONFIG)" -k "$(CASE)"

protocol-diff: .venv/.stamp tools compile ## send generated requests to both engines and compare the answers: SEED=1 REQUESTS=3000
	@$(BIN)/python -m odradek_e2e.diff --seed $(SEED) --requests $(REQUESTS)

ecosystem: .venv/.stamp tools compile ## run clients of others (Go, npm, kcat) against both engines and write the table: CASE=sarama,kcat ENGINE=both
	@$(BIN)/python -m odradek_e2e.ecosystem --case "$(CASE)" --engine "$(ENGINE)"

acl-diff: REQUESTS := 5000
acl-diff: .venv/.stamp tools compile ## the same ACLs and requests for both engines: SEED=1 REQUESTS=5000
	@$(BIN)/python -m odradek_e2e.acl_diff --seed $(SEED) --requests $(REQUESTS)

sim: .venv/.stamp ## simulate clusters under faults: make sim SEEDS=1000 START=0 KIND=cluster|disk|group|txn COVERAGE=1
	@cd broker && ODRADEK_COMPILED=0 ../$(BIN)/python -m broker_tests.sim.cluster_main --kind $(KIND) --seeds $(SEEDS) --start $(START) $(if $(COVERAGE),--coverage)

chaos: .venv/.stamp tools compile ## real brokers under faults, checked (root): make chaos MINUTES=20 SEED=1 ENGINE=embedded|apache
	@$(BIN)/python -m odradek_e2e.chaos run --minutes $(MINUTES) --seed $(SEED) \
		--engine $(if $(filter apache,$(ENGINE)),apache,embedded)

chaos-smoke: .venv/.stamp tools compile ## the same for three minutes
	@$(BIN)/python -m odradek_e2e.chaos run --minutes 2 --seed $(SEED) --fault-seconds 30 --smoke

chaos-planted: .venv/.stamp ## plant bugs in real brokers, each of which a campaign must find (20 min, root)
	@$(BIN)/python -m odradek_e2e.chaos planted --seed $(SEED) --fault-seconds 30 --per-second 1000 --no-java

fuzz: .venv/.stamp ## fuzz decoders, recovery, snapshots, manifests: make fuzz TARGET=produce,recovery MINUTES=10
	@cd broker && ../$(BIN)/python -m broker_tests.fuzz --target "$(TARGET)" --minutes $(MINUTES)

bench: .venv/.stamp tools compile ## compare our speed with Apache Kafka (25 min): make bench CASE=name,name MERGE=1
	@$(BIN)/python -m odradek_bench --case "$(CASE)" $(if $(MERGE),--merge)

bench-smoke: .venv/.stamp tools compile ## run every benchmark once with little data (a minute; the numbers mean nothing)
	@$(BIN)/python -m odradek_bench --smoke --case "$(CASE)"

bench-loop: .venv/.stamp compile ## measure how long thousands of partitions block a broker's event loop (5 min)
	@$(BIN)/python -m odradek_bench.loop_time --case "$(CASE)"

bench-balance: .venv/.stamp ## measure the optimizer of `odradek rebalance`: time over size, quality (8 min of one core)
	@$(BIN)/python -m odradek_bench.balance

abuse: .venv/.stamp tools compile ## run hostile clients and full disks against both engines (20 min, root): CASE=name
	@$(BIN)/python -m odradek_bench.abuse --case "$(CASE)"

bench-acls: .venv/.stamp ## measure the check of an ACL: time over the number of ACLs (10 s)
	@$(BIN)/python -m odradek_bench.acl_check

bench-instructions: .venv/.stamp compile ## count the instructions per small request (valgrind; not noisy as time is)
	@$(BIN)/python -m odradek_bench.instructions

profile: .venv/.stamp tools compile ## profile our broker under a benchmark: make profile CASE=raw-produce
	@$(BIN)/python -m odradek_bench.profile --case "$(or $(CASE),connections-100)"

kind-up: .venv/.stamp ## a Kubernetes of four nodes in three zones on this machine: docs/how-to/kind.md
	@$(BIN)/python -m odradek_e2e.kind up

kind-down: .venv/.stamp ## remove that Kubernetes and everything it changed on this machine
	@$(BIN)/python -m odradek_e2e.kind down

images: .venv/.spark ## build the container images: docs/how-to/images.md
	@$(BIN)/python -m odradek_images.build

e2e: .venv/.spark kind-up ## run the end-to-end stories on that Kubernetes: make e2e STORY=roll
	@$(BIN)/python -m odradek_images.build | xargs \
		$(BIN)/python -m odradek_e2e.kind load
	@$(BIN)/pytest --tier=kind e2e/e2e_tests/kind -k "$(STORY)"

check: .venv/.stamp ## check lint, formatting, types, layers, declared dependencies, tiers of tests, CRDs, chart
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/deptry $(PRODUCT) --ignore DEP002
	@$(BIN)/deptry . --ignore DEP002,DEP004
	@$(BIN)/python -m odradek_testkit.tiers
	@$(BIN)/python -m odradek_api.crd --check
	@diff -r crds charts/odradek/files/crds || { echo "run make gen"; exit 1; }
	@$(BIN)/python -m odradek_e2e.chart lint-if-built

helm-lint: .venv/.stamp ## lint the Helm chart with every set of values in charts/odradek/ci (builds helm once, with Go)
	@$(BIN)/python -m odradek_e2e.chart lint

helm-golden: .venv/.stamp ## regenerate the golden files of the Helm chart
	@$(BIN)/python -m odradek_e2e.chart golden

docs: .venv/.stamp ## build the documentation as a site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f docs/odradek_docs/mkdocs.yml

console-screenshots: .venv/.stamp tools ## make the console's screenshots in docs/assets/console anew (needs Chromium)
	@ODRADEK_SCREENSHOTS=1 $(BIN)/pytest cli/console_tests/test_browser.py -k screenshots

docs-serve: .venv/.stamp ## the same on http://127.0.0.1:8000, built again when a page changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve -f docs/odradek_docs/mkdocs.yml

docs-check: .venv/.stamp ## run the code blocks of the docs that are marked as runnable
	@$(BIN)/python -m odradek_docs.run_blocks

format: .venv/.stamp ## format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

gen: .venv/.stamp ## regenerate generated files (tests compare them with their sources)
	@$(BIN)/python -m odradek_protocol.messages.generate
	@$(BIN)/ruff format -q broker/odradek_protocol/messages/kio_table.py
	@$(BIN)/python -m odradek_api.crd
	@cp crds/*.yaml charts/odradek/files/crds/
	@$(BIN)/python -m odradek_docs.generate
	@$(BIN)/python -m odradek_e2e.monitoring

lock: .venv/.stamp ## pin all dependencies with hashes (after a change in pyproject.toml)
	@.ci/setup lock

setup: ## set everything up for `make test`: Python environment, Java, Maven, kcat, Kafka's jars, Spark
	@$(MAKE) -s -j4 tools spark compile

spark: .venv/.spark-classes ## install what pipelines need: pyspark and its Kafka connector (520 MB, once)

test-spark: spark tools ## run all tests of the pipelines, including the long ones
	@$(BIN)/pytest spark-on-k8s/spark_tests cli/cli_tests/test_pipeline.py

clean: ## remove the environment and all caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +

.venv/.stamp: requirements.lock pyproject.toml
	@.ci/setup python
	@touch $@

# pyspark with what its pipelines need (520 MB to download), and the jars that it lacks; plain brokers need neither.
.venv/.spark: .venv/.pyspark spark-on-k8s/odradek_spark/session/pom.xml | spark-jars
	@touch $@

# Later sessions start in half of the time; the first `make run` would have to wait for it.
.venv/.spark-classes: .venv/.spark
	@.ci/setup spark-classes
	@touch $@

.venv/.pyspark: .venv/.stamp spark-on-k8s/requirements.lock
	@.ci/setup spark
	@touch $@

spark-jars: .venv/.stamp packages-java
	@.ci/setup spark-jars

# Brokers run the compiled modules as long as the sources have not changed since.
compile: .venv/.stamp packages ## compile the broker's hot path to C, which halves the CPU per request (once per change)
	@$(BIN)/python broker/compile.py > /dev/null

# pytest compiles the modules of tests in its own way and keeps the result: once here, not once in
# each of its processes, which begin at the same time (10 s of CPU each).
.venv/.test-modules: .venv/.stamp
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	@touch $@

tools: .venv/.stamp packages jars ## install kcat, Java, Maven, gcc and Chromium, and fetch Apache Kafka

jars: .venv/.stamp packages
	@.ci/setup jars

packages packages-java:
	@.ci/setup $@

kubernetes-programs: .venv/.stamp ## download Kubernetes' API server and its companions, or build them (8 min, once)
	@.ci/setup kubernetes

# -- what is released ------------------------------------------------------------------------------
.PHONY: dist release lint-workflows

dist: .venv/.stamp ## build wheels that work without this repository into dist/: docs/how-to/install.md
	@$(BIN)/python -m odradek_dist.wheel

release: .venv/.stamp ## check, tag and build a release: make release VERSION=0.2.0 (DRY_RUN=1: no commit, no tag)
	@$(BIN)/python -m odradek_dist.release $(or $(VERSION),$(error name the version: VERSION=0.2.0)) \
		$(if $(DRY_RUN),--dry-run) $(if $(FILES),--files)

lint-workflows: .venv/.stamp ## lint .github/workflows with actionlint, which is built once (needs Go)
	@$(BIN)/python -m odradek_dist.workflows
