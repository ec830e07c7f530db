# The same verbs locally and in CI. Each makes .venv and installs what it needs.
PYTHON ?= python3
PY := .venv/bin/python
# Asserts are rewritten once, not at each call, also where Python may not write byte code otherwise: ten seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest
export UV_PYTHON_DOWNLOADS := never

.PHONY: demo check test lowest lint crash taps interop bench proof nightly dist machine clean
.DEFAULT_GOAL := test

demo: .venv/ready
	@$(PY) -m bridge demo

# Many tests wait for something now and then: three workers keep two cores busy.
test: .venv/ready
	$(PYTEST) -m "not slow" -n 3 --dist worksteal --durations 25 $(ARGS)

# With the lowest versions that pyproject.toml allows, in a venv of their own: the unit tests, and runs of each kind. It is
# meant for the oldest Python: make lowest PYTHON=python3.10
LOWEST := .venv/lowest
lowest: .venv/ready
	@.venv/bin/uv venv --quiet --clear --python "$(PYTHON)" $(LOWEST)
	@.venv/bin/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --all-extras --group dev \
		--requirements pyproject.toml --editable .
	PYTHONDONTWRITEBYTECODE= $(LOWEST)/bin/python -m pytest tests/test_architecture.py tests/unit tests/contract \
		$(addprefix tests/e2e/test_, run.py upsert.py formats.py target.py service.py) \
		-m "not slow" -n 3 --dist worksteal $(ARGS)

# What to run while you work: no Spark, no S3 server, about three minutes on two cores.
# ROOM=load/tap runs the tests of one wing or room.
check: lint
	$(PYTEST) tests/test_architecture.py tests/unit/$(ROOM) -m "not slow and not heavy" -n 2 --dist worksteal -q $(ARGS)

lint: .venv/ready
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

# KILLS, SEED, LAKES, LANES, SOAK_MINUTES, SIGNALS, ROUNDS, WORLD, SCHEDULES and JOBS are explained in tests/crash/README.md.
crash: .venv/ready
	$(PYTEST) tests/crash tests/unit/protocol/decode/test_native.py tests/unit/load/run/test_replay_guard.py tests/unit/load/views tests/test_packaging.py \
		$(addprefix tests/e2e/test_, class_archive.py cluster.py formats.py history.py lookback.py many.py run.py service.py shared.py \
		spark_source.py view_commits.py view_deaths.py views.py views_verify.py) -m "slow or not slow" -s $(ARGS)

# Real taps in venvs of their own, from PyPI, against PostgreSQL, Debian's MariaDB and sshd, S3, DynamoDB; a real Meltano, the SDK's suite;
# the page in Debian's Chromium, its figures in Debian's Prometheus.
# ROUNDS (3) and SEED are of the kills under LOG_BASED replication: tests/e2e/test_slot.py.
taps: .venv/ready
	$(PYTEST) $(addprefix tests/e2e/test_, real_taps.py real_files.py real_repeats.py real_runs.py add_real.py slot.py source_docs.py views_postgres.py personal_postgres.py history_postgres.py \
		demo_kill.py doctor_postgres.py one_line.py postgres_log.py mariadb_binlog.py meltano.py meltano_state.py page.py page_filled.py \
		prometheus.py tap_bridge.py differences_postgres.py differences_mariadb.py row_counts.py reconcile.py backfill.py arrow_batches.py) \
		tests/unit/target/test_target.py $(wildcard tests/unit/taps/test_tap_bridge*.py) \
		-m "slow or not slow" $(ARGS)

# On loopback, kept in .interop/: MinIO and fake-gcs-server, built by Go; Azurite, from npm; Iceberg catalogs, connectors of
# Spark, Trino, and Kafka and a server of MongoDB's protocol for taps, from Maven; DuckDB, Spark, ClickHouse, Dagster, Airflow
# and dbt, from PyPI; docker compose, by Go, on Debian's Docker engine. It needs Java 24 beside Java 17, and Maven; the engine
# needs root.
# KILLS (50, of a catalog 20), SEED and LAKES as in tests/crash/README.md. At the end, also if a test failed, docs/stores.md
# is written from what ran, now and before. ARGS="-k readers" runs one folder; a path would come beside all tests.
interop: .venv/ready
	@$(PYTEST) tests/interop -m "slow or not slow" -s $(ARGS); ended=$$?; $(PY) -m tests.interop.stores_page && exit $$ended

bench: .venv/ready
	$(PY) -m tests.benchmarks $(ARGS)

# KILLS (10) a system and SEED; `make proof ARGS="--only NAME"` for one. It writes the table of docs/proof.md. PostgreSQL is
# Debian's; tests/proof/README.md names the two programs that it does not install.
proof: .venv/ready
	$(PY) -m tests.proof $(ARGS)

# All of these one after the other, each with a time limit; the table of docs/proof.md says how they ended. It takes a day.
# ARGS="--seed 7 taps crash" runs two of them; output is in .nightly/.
nightly: .venv/ready
	$(PY) -m tests.nightly $(ARGS)

# What a release has, as files: an sdist, a pure wheel, and for each platform that Rust can build for here a wheel with the
# compiled reader. zigbuild links against the C library of 2014.
DIST ?= dist
ZIG := .venv/bin/uv run --quiet --no-project --with cargo-zigbuild --with ziglang
FIND_ZIG := import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))
dist: .venv/ready
	.venv/bin/uv build --quiet --sdist --out-dir "$(DIST)"
	SINGER_BRIDGE_READER=no .venv/bin/uv build --quiet --wheel --out-dir "$(DIST)"
	@for target in x86_64 aarch64; do \
		if [ -d "$$(rustc --print sysroot)/lib/rustlib/$$target-unknown-linux-gnu" ]; then \
			CARGO_ZIGBUILD_ZIG_PATH=$$($(ZIG) python -c '$(FIND_ZIG)') SINGER_BRIDGE_READER=yes \
				SINGER_BRIDGE_PLATFORM=manylinux_2_17_$$target \
				$(ZIG) .venv/bin/uv build --wheel --out-dir "$(DIST)" || exit; \
		else echo "no wheel for $$target: rustup target add $$target-unknown-linux-gnu"; fi; done
	@ls -l "$(DIST)"

clean:
	rm -rf .venv .bench .interop .nightly .singer-bridge .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

# pyproject.toml and the lock decide; nothing is installed twice. Where Python may not write byte code as it goes, as in
# many containers, it is made here, once: each process would compile a thousand files anew. Where Rust's cargo and a
# linker work, the compiled reader is built; elsewhere its tests are skipped.
.venv/ready: pyproject.toml uv.lock $(wildcard bridge/protocol/decode/reader/src/*.rs bridge/protocol/decode/reader/*.toml bridge/protocol/decode/reader/*.py)
	@sh .ci/machine "$(PYTHON)"
	@test -x $(PY) || "$(PYTHON)" -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	@.venv/bin/uv sync --quiet --frozen --inexact --all-extras $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode)
	@test -e bridge/protocol/decode/reader.so || echo "without the compiled reader: it needs Rust's cargo and a linker" >&2
	@$(if $(PYTHONDONTWRITEBYTECODE),$(PY) -m compileall -q bridge taps targets tests)
	@touch $@
