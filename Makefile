# make setup   builds .venv                     PYTHON=, TORCH_INDEX_URL=, CUDA=1: see scripts/setup
# make demo    trains, compares and explains a few small models
# make check   ruff, mypy, sqlfluff
# make test    what continuous integration runs   JOBS=4: test processes, otherwise 2
# make test-all  the same with the slow tests that tests/gate.py lists
# make test-servers  tests of the engine on PostgreSQL 16, 17 and 18, which it downloads   SERVERS="18"
# make test-bi  tests against BI tools, which it installs into environments of their own
# make test-bench  runs every bench and experiment in small on both engines, which takes minutes
# make audit   asks the advisories about what an image installs, and lists it: build/sbom.json
# make bench   measures this machine             BENCH="hop": only this one, MMDB_URL=: a database
# make clean   removes what the other targets made

export PYTHON TORCH_INDEX_URL CUDA

BIN := .venv/bin
BENCH ?= hop train store $(if $(MMDB_URL),load)
JOBS ?= 2
SERVERS ?= 16 17 18
# What `make test` tries on the newest server beside the one that this machine has.
NEWEST := $(addprefix tests/integration/test_,upgrade.py privileges.py strategies.py)
STAMP := .venv/.stamp

.PHONY: help setup demo check test test-all test-servers test-bi test-bench audit bench clean

help:
	@sed -n 's/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@scripts/setup

demo: setup
	@$(BIN)/mmdb demo

check: setup
	@scripts/check

test: setup
	@$(BIN)/python -m scripts.system_packages
	@scripts/check
	@$(BIN)/python -m pytest -n $(JOBS)
	@$(BIN)/python -m scripts.packaged_servers --optional 18 -- -m pytest -q -n $(JOBS) -k "not duckdb" $(NEWEST)

test-all: setup
	@$(BIN)/python -m scripts.system_packages
	@scripts/check
	@$(BIN)/python -m pytest -n $(JOBS) --all

test-servers: setup
	@$(BIN)/python -m scripts.packaged_servers $(SERVERS) -- -m pytest -n $(JOBS) -k "not duckdb" tests/integration tests/attacks

test-bi: setup
	@$(BIN)/python -m scripts.system_packages
	@$(BIN)/python -m scripts.bi_environments
	@$(BIN)/python -m pytest tests/bi

test-bench: setup
	@$(BIN)/python -m scripts.system_packages
	@$(BIN)/python -m pytest tests/lanes

audit: setup
	@$(BIN)/python -m scripts.locked_packages sbom
	@$(BIN)/python -m scripts.locked_packages audit

bench: setup
	@set -e; for name in $(BENCH); do $(BIN)/mmdb bench $$name $${MMDB_URL:+--database "$$MMDB_URL"}; done

clean:
	rm -rf .venv .venv-audit .venv-bi .venv-mlflow .venv-superset .mypy_cache .pytest_cache .ruff_cache build dist mmdb-demo.duckdb mmdb-demo.duckdb.wal
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
