# Every command sets up what it needs in .venv. PYTHON may name another interpreter of 3.11 or later.
PYTHON ?= python3
SEED ?=
SEEDS ?=
FIRST ?=
FAULTS ?=
JOBS ?=
SECONDS ?= 60
MINUTES ?= 10
TARGET ?=
SUITES ?=
RERUN ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# With RERUN=1, tests that fail are run once more, when all others are over.
PYTEST = $(BIN)/pytest $(1) $(if $(RERUN),|| { echo "What failed at first is run once more:"; $(BIN)/pytest --last-failed --last-failed-no-failures none $(1); })

.PHONY: help demo demo-report analytics test check integration fault-lab history interop client-stories client-suites scenarios simulate simulate-mutants fuzz bench clean

help:
	@echo "make demo         a cluster, a client, a disk that dies, and proof that no data was lost (ARGS=--keep leaves it running)"
	@echo "make demo-report  the same, then the metadata as Parquet and Spark's report of the disk (needs Java 17)"
	@echo "make test         everything that needs neither root nor network (beyond the package index)"
	@echo "make check        lint, types, import contracts"
	@echo "make integration  real daemons, loop-mounted disks that are killed, part of the fault lab, Docker, Prometheus (root)"
	@echo "make fault-lab    every fault of a disk, a process or a network under load (root, a machine to itself)"
	@echo "make history      MINUTES=n of clients under disk kills, process kills and pauses, judged by their history (root)"
	@echo "make interop      real Kafka clients and tools, clusters with nodes of Apache Kafka (root, Java, Maven)"
	@echo "make client-stories  every client at once, Kafka Connect and Flink, while a disk is lost (root, a machine to itself)"
	@echo "make client-suites  the test suites that clients publish; SUITES=franz-go runs one, REWRITE=1 records the results anew"
	@echo "make scenarios    the recorded scenarios; REWRITE=1 records them anew, SEED=n plays them with another seed"
	@echo "make simulate     SEED=n replays one seed on the simulator (FAULTS=0,3 some of its faults), SEEDS=n runs n of them"
	@echo "make simulate-mutants  plants bugs and reports which seed finds each (BUG=part of a name, SEEDS=n)"
	@echo "make fuzz         SECONDS=n fuzzes the decoders for n seconds, TARGET=name only one (Linux, CPython 3.11 to 3.13)"
	@echo "make bench        every figure, one JSON line each"
	@echo "make analytics    installs what demo-report and the reports need"
	@echo "make clean        removes .venv and everything that was built"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Diskraft needs Python 3.11 or later; $(PYTHON) is not. Install it (Debian: apt install python3), or: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv or ensurepip is missing. Debian and Ubuntu: apt install python3-venv; Fedora: dnf install python3-pip" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing Diskraft into $(VENV)" >&2
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing Diskraft and its development tools into $(VENV)" >&2
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

# What the export and the reports need besides Java: half a gigabyte, so only where it is asked for.
$(VENV)/.analytics: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing Diskraft, pyarrow and pyspark into $(VENV)" >&2
	@$(PIP) --editable '.[analytics]'
	@touch $@ $(VENV)/.demo

analytics: $(VENV)/.analytics

demo: $(VENV)/.demo
	@$(BIN)/diskraft demo $(ARGS)

demo-report: $(VENV)/.analytics
	@$(BIN)/diskraft demo --report $(ARGS)

# Without xdist's own order, which leaves the files with few tests for the end: the longest ones (tests/conftest.py).
test: $(VENV)/.dev
	$(call PYTEST,tests/architecture tests/unit tests/property tests/model tests/simulation --numprocesses 2 --dist loadfile --no-loadscope-reorder)
	@$(BIN)/python -m analytics.requirements | sed 's/^/make test SKIPPED tests of the export and the reports: /' >&2

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# These tests wait for most of their time, so three processes suit two processors.
integration: $(VENV)/.dev
	$(call PYTEST,tests/integration -m "not lab" --timeout 600 --numprocesses 3 --dist loadfile)
	$(call PYTEST,tests/integration -m "lab and brief" --timeout 600)

fault-lab: $(VENV)/.dev
	$(BIN)/pytest tests/integration -m lab --timeout 600

history: $(VENV)/.dev
	DISKRAFT_HISTORY_MINUTES=$(MINUTES) DISKRAFT_HISTORY_SEED=$(SEED) $(BIN)/pytest tests/integration/test_history.py -s

interop: $(VENV)/.dev
	$(call PYTEST,tests/interop -m "not stories" --timeout 300 --numprocesses 3 --dist worksteal)

client-stories: $(VENV)/.dev
	$(BIN)/pytest tests/interop -m stories

client-suites: $(VENV)/.dev
	$(BIN)/python -m tests.interop.client_suites $(SUITES) $(if $(REWRITE),--rewrite)

scenarios: $(VENV)/.dev
	DISKRAFT_REWRITE_SCENARIOS=$(REWRITE) DISKRAFT_SCENARIO_SEED=$(or $(SEED),1) $(BIN)/pytest tests/simulation/test_scenarios.py

simulate: $(VENV)/.dev
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS))

$(VENV)/.fuzz: $(VENV)/.dev
	@echo "installing atheris into $(VENV)" >&2
	@$(PIP) --editable '.[fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(TARGET),--target $(TARGET))

simulate-mutants: $(VENV)/.dev
	$(BIN)/python -m tests.simulation.mutants $(if $(BUG),--bug "$(BUG)") $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS))

bench: $(VENV)/.dev $(VENV)/.analytics
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
