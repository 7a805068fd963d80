# Every target sets up what it needs, inside the checkout: .venv, node_modules and, for the tests, tests/npm.
# Needed beforehand: python3 (3.11 or newer), make and git.

PYTHONS = python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(or $(shell for p in $(PYTHONS); do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; \
	done),$(error go-ent needs Python 3.11 or newer, and none of "$(PYTHONS)" is: \
	install one, or name it with `make PYTHON=/path/to/python3.12 ...`))
SETUP = $(PYTHON) scripts/setup.py

BIN = .venv/bin
WORKERS = $(CURDIR)/node_modules/.bin
# The tests and the benchmark measure one OpenCode, whatever else is installed.
PINNED = PATH="$(WORKERS):$$PATH" GOENT_OPENCODE="$(WORKERS)/opencode"
# A file's tests stay together, for they share an OpenCode process; tests/conftest.py says which file
# comes first. Four on two cores, for most wait now and then: for a process, or a model.
PYTEST_ARGS = -q -n 4 --dist=loadfile --no-loadscope-reorder

# What needs the programs of others, or plays on the real ones for long.
PEERS = tests/attacks tests/peers

# Stories of tests/faults: a range, a list or one.
SEEDS ?= 0-39

.PHONY: help demo quick test peers soak check bench lock

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

demo: ## see it work: a demonstration with OpenCode, without a key
	@$(SETUP) run --opencode any
	@PATH="$$PATH:$(WORKERS)" GOENT_OPENCODE="$(CURDIR)/.venv/opencode" $(BIN)/go-ent demo $(ARGS)

quick: ## check, and run every test that needs no OpenCode (ARGS="-k word" to choose)
	@$(SETUP) dev
	@$(CHECK)
	@$(BIN)/pytest $(PYTEST_ARGS) --quick $(PEERS:%=--ignore=%) $(ARGS)

# The types take as long as a tenth of the tests, on one core: they are checked beside them.
test: ## check, and run every test but those of `make peers` (ARGS="-k word" to choose)
	@$(SETUP) dev --opencode pinned --clients
	@$(CHECK)
	@$(TYPES) > .venv/types.txt 2>&1 & types=$$!; \
	$(PINNED) $(BIN)/pytest $(PYTEST_ARGS) $(PEERS:%=--ignore=%) $(ARGS); tests=$$?; \
	wait $$types || { cat .venv/types.txt; exit 1; }; \
	exit $$tests

peers: ## play the attacks, and run the agents and clients of others (ARGS="-k word" to choose)
	@$(SETUP) dev --opencode pinned --clients --peers
	@$(PINNED) $(BIN)/pytest $(PYTEST_ARGS) $(PEERS) $(ARGS)

soak: ## many stories of faults, each from its seed (SEEDS=40-79 others, SEEDS=7 one of them)
	@$(SETUP) dev --opencode pinned
	@$(PINNED) GOENT_SEEDS="$(SEEDS)" $(BIN)/pytest -v --no-header --tb=short tests/faults $(ARGS)

check: ## lint, format, types, import rules, dependencies
	@$(SETUP) dev
	@$(CHECK)
	@$(TYPES)

bench: ## print the benchmark table
	@$(SETUP) dev --opencode pinned
	@$(PINNED) $(BIN)/python -m bench $(ARGS)

lock: ## write the lock files anew (ARGS=--upgrade for newer versions)
	@$(SETUP) dev
	@$(BIN)/python scripts/lock.py $(ARGS)

TYPES = $(BIN)/basedpyright

define CHECK
$(BIN)/ruff check --quiet . && \
$(BIN)/ruff format --quiet --check . && \
$(BIN)/lint-imports --no-cache --no-logo && \
$(BIN)/deptry src
endef
