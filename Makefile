# Two commands start everything: `make run` shows a cluster at work, `make test` proves it.
# Each target does its own set-up; the second time that takes no time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run setup tools test test-clients-apache test-cluster test-long check format gen lock clean sim bench-operator
.PHONY: docs docs-serve docs-check abuse bench-loop compile blackbox protocol-diff bench bench-smoke profile kind-up kind-down images e2e spark test-spark

# Compiling its modules anew is half of what a broker needs to start, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
JOBS ?= 2
SEEDS ?= 1000
TOPICS ?= 1000
START ?= 0
KIND ?= cluster
CASE ?=
MERGE ?=
STORY ?=
ENGINE ?= both
BOOTSTRAP ?=
SEED ?= 1
REQUESTS ?= 3000

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' Makefile

run: .venv/.stamp ## three racks, six brokers, all of them restarted under load; with Spark after `make spark`
	@$(BIN)/odradek local demo

test: .venv/.spark tools compile ## run the quick test suite (minutes)
	@$(BIN)/pytest -m "not long and not kind" -n $(JOBS) --dist worksteal

test-long: .venv/.spark tools compile ## run the tests that take longer than the quick suite may
	@$(BIN)/pytest -m "long and not kind"

test-cluster: .venv/.stamp tools compile ## run all tests with 3 and 5 brokers, the long ones too
	@$(BIN)/pytest -s broker/broker_tests/cluster cli/cli_tests/test_cluster.py

test-clients-apache: .venv/.stamp tools ## run the client tests against Apache Kafka instead of us
	@ODRADEK_TEST_ENGINE=apache $(BIN)/pytest broker/broker_tests/clients

bench-operator: .venv/.stamp tools ## memory, CPU and time of the operator: make bench-operator TOPICS=1000
	@cd operator && ../$(BIN)/python -m operator_tests.kubernetes.footprint --topics $(TOPICS)

blackbox: .venv/.stamp tools compile ## one suite for both engines: make blackbox ENGINE=embedded|apache|both, or BOOTSTRAP=host:port
	@$(BIN)/python -m odradek_e2e.blackbox --engine "$(ENGINE)" --bootstrap "$(BOOTSTRAP)" -k "$(CASE)"

protocol-diff: .venv/.stamp tools compile ## generated requests to both engines, answers compared: SEED=1 REQUESTS=3000
	@$(BIN)/python -m odradek_e2e.diff --seed $(SEED) --requests $(REQUESTS)

sim: .venv/.stamp ## simulate clusters under faults: make sim SEEDS=1000 START=0 KIND=cluster|disk|group|txn
	@cd broker && ODRADEK_COMPILED=0 ../$(BIN)/python -m broker_tests.sim.cluster_main --kind $(KIND) --seeds $(SEEDS) --start $(START)

bench: .venv/.stamp tools compile ## compare with Apache Kafka, 25 min, docs/benchmarks.md: make bench CASE=name,name MERGE=1
	@$(BIN)/python -m odradek_bench --case "$(CASE)" $(if $(MERGE),--merge)

bench-smoke: .venv/.stamp tools compile ## every benchmark once, small, one line each (a minute; no real numbers)
	@$(BIN)/python -m odradek_bench --smoke --case "$(CASE)"

bench-loop: .venv/.stamp compile ## the longest that thousands of partitions keep a broker's event loop (5 min)
	@$(BIN)/python -m odradek_bench.loop_time --case "$(CASE)"

abuse: .venv/.stamp tools compile ## hostile clients and full disks against both engines (20 min, root): docs/reliability.md, CASE=name
	@$(BIN)/python -m odradek_bench.abuse --case "$(CASE)"

profile: .venv/.stamp tools compile ## what our broker's time goes to (docs/profile.md): make profile CASE=raw-produce
	@$(BIN)/python -m odradek_bench.profile --case "$(or $(CASE),connections-100)"

kind-up: .venv/.stamp ## a Kubernetes of four nodes in three zones on this machine: docs/how-to/kind.md
	@$(BIN)/python -m odradek_e2e.kind up

kind-down: .venv/.stamp ## remove it, and all that it changed on this machine
	@$(BIN)/python -m odradek_e2e.kind down

images: .venv/.spark ## build the container images: docs/how-to/images.md
	@$(BIN)/python -m odradek_images.build

e2e: .venv/.spark kind-up ## the stories on that Kubernetes, with real clients: make e2e STORY=roll
	@$(BIN)/python -m odradek_images.build | xargs \
		$(BIN)/python -m odradek_e2e.kind load
	@$(BIN)/pytest -m kind e2e/e2e_tests/kind -k "$(STORY)"

check: .venv/.stamp ## lint, formatting, types and the layering of the packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m odradek_api.crd --check
	@$(MAKE) --no-print-directory helm-lint

helm-lint: .venv/.stamp ## lint the Helm chart with every set of values in charts/odradek/ci
	@diff -r crds charts/odradek/files/crds || { echo "run make gen"; exit 1; }
	@$(BIN)/python -m odradek_e2e.chart lint

helm-golden: .venv/.stamp ## write the golden files of the Helm chart again
	@$(BIN)/python -m odradek_e2e.chart golden

docs: .venv/.stamp ## build the documentation as a site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f docs/odradek_docs/mkdocs.yml

docs-serve: .venv/.stamp ## the same on http://127.0.0.1:8000, built again when a page changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve -f docs/odradek_docs/mkdocs.yml

docs-check: .venv/.stamp ## run the code blocks of the docs that are marked as runnable
	@$(BIN)/python -m odradek_docs.run_blocks

format: .venv/.stamp ## format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

gen: .venv/.stamp ## write generated files again (a test holds them equal to their sources)
	@$(BIN)/python -m odradek_protocol.messages.generate
	@$(BIN)/ruff format -q broker/odradek_protocol/messages/kio_table.py
	@$(BIN)/python -m odradek_api.crd
	@cp crds/*.yaml charts/odradek/files/crds/
	@$(BIN)/python -m odradek_docs.generate

lock: .venv/.stamp ## pin all dependencies again, with hashes (after a change in pyproject.toml)
	@.ci/setup lock

setup: .venv/.spark tools compile ## only the set-up: Python environment, Java, Maven, kcat, Kafka's jars, Spark

spark: .venv/.spark ## only what pipelines need: pyspark and its Kafka connector (430 MB, once)

test-spark: .venv/.spark tools ## run all tests of the pipelines, the long ones too
	@$(BIN)/pytest spark-on-k8s/spark_tests cli/cli_tests/test_pipeline.py

clean: ## remove the environment and all caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +

.venv/.stamp: requirements.lock pyproject.toml
	@.ci/setup python
	@touch $@

# pyspark (430 MB to download) and the jars that it lacks; plain brokers need neither.
.venv/.spark: .venv/.stamp spark-on-k8s/requirements.lock spark-on-k8s/odradek_spark/session/pom.xml
	@.ci/setup spark
	@touch $@

# Brokers run what was compiled as long as no source changes after it.
compile: .venv/.stamp ## the broker's hot path as C: half of the CPU per request (2 min, once per change)
	@$(BIN)/python broker/compile.py > /dev/null

tools: .venv/.stamp
	@.ci/setup tools
