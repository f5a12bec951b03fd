PYTHON ?= python3
VENV := .venv/bin

# Many images forbid it; then each of the hundreds of processes that the tests start compiles all it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-tests demo test test-fast lint types web-test wheel bench conformance chaos oracle chaos-kafka kafka kafka-cluster kafka-jars lock clean

help:            ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

setup:           ## prepare everything, into .venv
	@$(PYTHON) scripts/setup.py

setup-tests:
	@$(PYTHON) scripts/setup.py --tests

demo: setup      ## the page-view pipeline, live in the browser
	@$(VENV)/python examples/pageviews/demo.py

test: setup-tests  ## all tests
	@$(VENV)/pytest -n 3 --no-loadscope-reorder --max-worker-restart=0 --durations=40 --durations-min=5

test-fast:       ## one to two minutes: no Spark, no processes, no browser, fewer examples
	@$(VENV)/pytest -q -n 3 --hypothesis-profile=some -m "not spark and not slow and not browser"

lint:            ## style, and nothing that should not be in the tree
	@$(VENV)/ruff check . && $(VENV)/ruff format --check .

types:           ## mypy, strict
	@$(VENV)/mypy

web-test:        ## the console's types and unit tests
	@cd web && npm run check --silent && npm test --silent

wheel: setup     ## dist/headrace-*.whl, with console and connector
	@$(VENV)/python -m build --wheel

bench: setup     ## measure, as ratios to baselines in the same run; BENCH="log http …" picks
	@$(VENV)/python -m benchmarks $(BENCH)

conformance: setup-tests ## KSQL cases: CASES=path.jsonl [REPORT=out.jsonl] [FILTER=tier or part of an id]
	@$(VENV)/python -m tests.conformance $(CASES) $(if $(REPORT),--report $(REPORT)) $(if $(FILTER),--filter $(FILTER))

chaos: setup-tests ## hundreds of kill -9 under load, then every fault of the log; ROUNDS=300 SCALE=1
	@$(VENV)/python -m tests.chaos.crash --rounds $(or $(ROUNDS),300)
	@$(VENV)/python -m tests.chaos.freeze --rounds $(or $(FREEZES),3)
	@$(VENV)/python -m tests.chaos.deploy
	@$(VENV)/python -m tests.chaos.deploy --spark
	@$(VENV)/python -m tests.chaos.change --points --rounds $(or $(CHANGES),100)
	@$(VENV)/python -m tests.chaos.layers
	@$(VENV)/python -m tests.chaos.batch_job
	@$(VENV)/python -m tests.chaos.switch --rounds $(or $(SWITCHES),10)
	@$(VENV)/python -m tests.chaos.operators --rounds $(or $(OPERATOR_ROUNDS),30)
	@$(VENV)/python -m tests.chaos.producers --kills $(or $(KILLS),200)
	@$(VENV)/python -m tests.chaos.hostile --cases $(or $(HOSTILE),200000)
	@$(VENV)/python -m tests.chaos.described --examples $(or $(EXAMPLES),100)
	@$(VENV)/python -m tests.chaos.clients --events $(or $(EVENTS),3000) --kills $(or $(CLIENT_KILLS),10)
	@$(VENV)/python -m tests.chaos.kinesis --records $(or $(KINESIS),100000)
	@$(VENV)/python -m tests.chaos.agents --rotations $(or $(ROTATIONS),50) --kills $(or $(AGENT_KILLS),10) --away $(or $(AWAY),60)
	@$(VENV)/python -m tests.chaos.debezium --kills $(or $(DEBEZIUM_KILLS),4)
	@$(VENV)/python -m tests.chaos.listeners --rounds $(or $(LISTENER_ROUNDS),20)
	@$(VENV)/python -m tests.chaos.clock --jumps $(or $(JUMPS),50)
	@$(VENV)/python -m tests.chaos.restore --rounds $(or $(RESTORES),30)
	@$(VENV)/python -m tests.chaos.connections --silent $(or $(SILENT),5000) --subscribers $(or $(SUBSCRIBERS),10000)
	@$(VENV)/python -m tests.chaos.log --scale $(or $(SCALE),1)

oracle: setup-tests ## random queries as streams, as batches, changed while events arrive, and in DuckDB, and mutated SQL; QUERIES=2000 LAYERS=500 LIVE=500 MUTATIONS=100000
	@$(VENV)/python -m tests.process.oracle --queries $(or $(QUERIES),2000)
	@$(VENV)/python -m tests.process.oracle --queries $(or $(LAYERS),500) --layers
	@$(VENV)/python -m tests.views.oracle --queries $(or $(LIVE),500)
	@$(VENV)/python -m tests.sql.mutations --count $(or $(MUTATIONS),100000)
	@$(VENV)/pytest -q --hypothesis-profile=others -m "not spark and not browser" tests/sql tests/log tests/store tests/contracts tests/collect tests/deliver

chaos-kafka: setup-tests ## three brokers killed and paused under load; KILLS=30 PAUSES=10
	@$(VENV)/python -m tests.chaos.kafka --kills $(or $(KILLS),30) --pauses $(or $(PAUSES),10)
	@$(VENV)/python -m tests.chaos.spool --pauses 5

kafka:           ## one Kafka broker on this machine, until Ctrl-C; DATA=folder keeps its data, PORT=9092
	@$(PYTHON) -m scripts.kafka --port $(or $(PORT),9092) $(if $(DATA),--data $(DATA))

kafka-cluster:   ## three Kafka brokers, every topic on all of them
	@$(PYTHON) -m scripts.kafka --brokers 3 --port $(or $(PORT),9092) $(if $(DATA),--data $(DATA))

kafka-jars:      ## fetch Kafka and Spark's Kafka connector with Maven, into .cache
	@$(PYTHON) -m scripts.jars

lock:            ## resolve the dependencies again
	@$(VENV)/python -m uv pip compile --quiet pyproject.toml --group dev --generate-hashes --no-header --no-emit-index-url --upgrade -o requirements/dev.lock

clean:           ## remove what was built
	@rm -rf .venv dist web/node_modules src/headrace/console src/headrace/process/jars
