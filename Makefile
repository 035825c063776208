# The commands of the README. `make help` lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PACKAGES := contracts identity bus broker sandbox_host agent_core strawberry_skills chat hub_registry hub_agent hub_live hub_home_assistant hub_server hub_web voice spoke tray deploy
DENO   := DENO_DIR="$(CURDIR)/$(VENV)/deno" NO_COLOR=1 "$(CURDIR)/$(BIN)/deno"
# Each worker would rewrite the asserts of all test files again where Python may not keep bytecode.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --dist worksteal --durations 15 --durations-min 2 --numprocesses
# Two workers more than cores: the tests wait for processes and sockets for a third of their time.
WORKERS := "$$($(BIN)/python -c 'import os; print(2 + (os.cpu_count() or 1))')"
# What needs a browser, sound, a screen or another home. Deselected alone, every worker would still import it.
OF_ITSELF := --ignore tests/web --ignore tests/home_assistant --ignore tests/voice --ignore tests/tray
CHAOS_SECONDS ?= 600
FUZZ_MESSAGES ?= 20000
SOAK_SECONDS ?= 1800

.DEFAULT_GOAL := help

help:  ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Strawberry needs Python 3.11 or newer. Name one: make run PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV) (once; one to three minutes) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[hub]'
	@# A start that compiles all of it takes a quarter longer.
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

# What `make run` does without: first what the tests need, then speech and the desktop program.
EXTRAS := $(VENV)/.extras
# One stamp where a goal needs all of it: two runs of pip at once would spoil each other's .venv.
ALL_OF_IT := lint check test-voice test-tray test-home-assistant
DEV := $(if $(filter $(ALL_OF_IT),$(MAKECMDGOALS)),$(EXTRAS),$(VENV)/.dev)
$(VENV)/.dev: $(READY)
	@echo "Installing what the tests need (once; about a minute) …"
	@$(PIP) -e '.[dev]'
	@touch $@

$(EXTRAS): $(READY)
	@echo "Installing what all tests need (once; about a minute) …"
	@$(PIP) -e '.[dev,voice,esphome,desktop]'
	@touch $(VENV)/.dev $@

setup: $(READY)  ## Make .venv and install into it

run: $(READY)  ## Broker, hub and a local spoke with the sample skills, on loopback
	@exec $(BIN)/strawberry up

test: $(DEV)  ## The tests that are quick, in parallel (minutes)
	@$(PYTEST) $(WORKERS) -m "not slow" $(OF_ITSELF)

test-slow: $(DEV)  ## The others: whole homes, kills, clocks, cut wires
	@$(PYTEST) $(WORKERS) -m slow $(OF_ITSELF)

AXE := $(VENV)/deno/.axe-core
$(AXE): $(DEV)
	@$(DENO) cache --quiet --no-config npm:axe-core@4.14.1
	@touch $@

HOME_ASSISTANT := .venv-home-assistant
$(HOME_ASSISTANT)/.installed: tests/home_assistant/requirements.txt
	@$(PYTHON) -m venv $(HOME_ASSISTANT)
	@# All of it is pinned, and its parts do not agree on what they need.
	@$(HOME_ASSISTANT)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@# Its integrations of Ollama and of ESPHome, as they are in a version that the Python of this venv cannot run.
	@$(HOME_ASSISTANT)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--ignore-requires-python --dest $(HOME_ASSISTANT)/newer homeassistant==2024.5.5
	@touch $@

test-home-assistant: $(EXTRAS) $(HOME_ASSISTANT)/.installed  ## Beside a real Home Assistant, in a venv of its own
	@$(PYTEST) 2 -m home_assistant tests/home_assistant

test-web: $(AXE)  ## The web UI in a browser (Debian: chromium, chromium-headless-shell); pictures go to build/pictures
	@$(PYTEST) 2 -m web tests/web

test-voice: $(EXTRAS)  ## Speech, from sound files (Debian: see .ci/run)
	@$(PYTEST) $(WORKERS) -m voice tests/voice

ON_POSTGRESQL := tests/hub_registry tests/hub_live \
	$(addprefix tests/hub_agent/test_,record.py long_conversations.py replaced_turns.py search.py events.py audit.py traces.py)
# Of these, what opens no database.
WITHOUT_DATABASE := $(patsubst %,--ignore=tests/hub_registry/test_%.py,directory targets) \
	--ignore=tests/hub_live/test_files.py \
	$(patsubst %,--ignore=tests/hub_live/watchers/test_%.py,phases predicate_errors predicates)
test-postgresql: $(DEV)  ## Stores, record, access and live home with PostgreSQL (Debian: postgresql)
	@STRAWBERRY_TEST_DATABASE=postgresql $(PYTEST) $(WORKERS) -m "not slow" $(ON_POSTGRESQL) $(WITHOUT_DATABASE)

test-tray: $(EXTRAS)  ## The desktop program on a virtual screen (Debian: see .ci/run)
	@$(PYTEST) 2 -m tray tests/tray

test-all: $(DEV)  ## All tests
	@$(PYTEST) $(WORKERS) $(OF_ITSELF)
	@# Playwright keeps an event loop running, beside which asynchronous tests cannot run theirs.
	@$(MAKE) --no-print-directory test-web test-voice test-tray test-home-assistant

chaos: $(DEV)  ## Random kills for CHAOS_SECONDS=600 on each kind of broker
	@STRAWBERRY_CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest -s --timeout 0 tests/chaos

fuzz: $(DEV)  ## FUZZ_MESSAGES=20000 hostile messages, others in each run, and an adversary for a minute
	@STRAWBERRY_FUZZ_MESSAGES=$(FUZZ_MESSAGES) STRAWBERRY_ADVERSARY_SECONDS=60 $(BIN)/python -m pytest -s --timeout 0 tests/adversary

lint: $(EXTRAS)  ## Format, lint, types, layers; the sandbox's TypeScript too
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd sandbox_host/deno && $(DENO) fmt --check && $(DENO) lint && $(DENO) check *.ts

check: lint test test-slow test-postgresql test-web test-voice test-tray test-home-assistant  ## What the gate runs

generated: $(DEV)  ## Write the files that are made of the operations
	@$(BIN)/python -m tests.generated

bench: $(DEV)  ## The rows of docs/performance.md, measured here
	@$(BIN)/python -m benchmarks

soak: $(DEV)  ## What a home holds after SOAK_SECONDS=1800 of use, as a table over time
	@$(BIN)/python -m benchmarks.soak $(SOAK_SECONDS)

dist: $(DEV)  ## Wheel and source archive, in dist/
	@$(BIN)/python .ci/dist.py dist

image-test: $(READY)  ## The container image, without an engine (as root; Debian: buildah debootstrap)
	@$(BIN)/python .ci/image.py build/image

format: $(DEV)  ## Put the code into the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove .venv and all caches
	rm -rf $(VENV) $(HOME_ASSISTANT) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help setup run test test-slow test-postgresql test-web test-voice test-tray test-home-assistant test-all chaos fuzz lint check generated bench soak dist image-test format clean
