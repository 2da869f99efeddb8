# Each target does its own setup; `make help` prints the text after ##.

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-long test-all test-certain certain-runs test-pythons check check-all mutants bench chaos fuzz load spec reference walks web lint fmt types layers setup-run setup-test clean

# The first Python that is new enough; only the targets that need one look for it.
PYTHON = $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
NO_PYTHON = echo "Shoal needs Python 3.11 or newer, and none was found. On Debian: apt-get install python3" >&2; exit 1
SETUP = p="$(PYTHON)"; if [ -z "$$p" ]; then $(NO_PYTHON); fi; "$$p" scripts/setup_env.py

VENV := .venv/bin
# Finds programs that are installed as Python packages (ripgrep).
export PATH := $(CURDIR)/$(VENV):$(PATH)
ARGS ?=
# tests/conftest.py sets the number of workers.
PARALLEL := -n auto --dist worksteal

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-9s %s\n' "$$name" "$$text"; done

demo: setup-run ## a team repairs a small project, offline, in about 30 seconds
	@$(VENV)/shoal demo $(ARGS)

test: setup-test ## run the tests of every change, in 5 to 7 minutes (ARGS="-k name" for some of them)
	@$(VENV)/python -m pytest $(PARALLEL) $(ARGS)

test-slow: setup-test ## run the slow tests, and all variations and examples of those that `make test` samples
	@TEST_SLOW=1 $(VENV)/python -m pytest $(PARALLEL) -m "slow or sampled or hypothesis" $(ARGS)

test-long: setup-test ## run only the tests that take long
	@TEST_ALL=1 $(VENV)/python -m pytest $(PARALLEL) -m exhaustive $(ARGS)

# Ctrl-C ends all of it; a step that fails does not.
test-all: setup-test ## run all tests and write docs/proof.md, then chaos for 9 minutes and load for 5, even if one fails
	@trap 'exit 130' INT; failed=; \
	TEST_ALL=1 $(VENV)/python -m pytest $(PARALLEL) --proof=docs/proof.md $(ARGS) || failed="$$failed tests"; \
	$(MAKE) --no-print-directory chaos ARGS= || failed="$$failed chaos"; \
	$(MAKE) --no-print-directory load ARGS="--minutes 5" || failed="$$failed load"; \
	if [ -n "$$failed" ]; then echo "Failed:$$failed" >&2; exit 1; fi

LONG_NAME := a-directory-whose-name-is-so-long-that-a-socket-below-it-has-a-path-over-103-bytes
test-certain: setup-test ## run tests in random order, in the C locale, with long paths (ARGS="tests/runs --shuffle 7")
	@top="$$(mktemp -d)" && mkdir "$$top/$(LONG_NAME)" && { \
		TMPDIR="$$top/$(LONG_NAME)" LC_ALL=C LANG= $(VENV)/python -m pytest $(PARALLEL) --shuffle 1 $(ARGS); \
		status=$$?; rm -rf "$$top"; exit $$status; }

certain-runs: setup-test ## run test-certain 10 times in other orders, in one table (ARGS="--busy 2 --keep" for docs/certain-runs.md)
	@$(VENV)/python scripts/certain_runs.py $(ARGS)

# Each with its own environment; PYTHONS names others, for example PYTHONS="3.13".
PYTHONS ?= 3.12 3.13 $(shell for c in "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.14.*/bin/python python3.14; do \
	"$$c" -c "" >/dev/null 2>&1 && { echo 3.14; break; }; done)
test-pythons: ## run the tests of every change with Python 3.12, 3.13 and, if it is there, 3.14 (PYTHONS="3.13" for one)
	@for v in $(PYTHONS); do \
		p="$$(for c in "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$v.*/bin/python python$$v; do \
			"$$c" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$v')" >/dev/null 2>&1 && { echo "$$c"; break; }; done)"; \
		if [ -z "$$p" ]; then echo "Python $$v was not found. Install it, or name others: make test-pythons PYTHONS=3.13" >&2; exit 1; fi; \
		"$$p" -m venv ".venv-$$v" && ".venv-$$v/bin/python" -m pip install --quiet --upgrade "pip>=25.1" && \
		".venv-$$v/bin/python" -m pip install --quiet --editable . --group dev && \
		echo "Python $$v" && PATH="$(CURDIR)/.venv-$$v/bin:$$PATH" ".venv-$$v/bin/python" -m pytest $(PARALLEL) $(ARGS) || exit 1; done

check: setup-test ## lint, format, types, layers, and the tests of every change
	@$(MAKE) --no-print-directory lint types layers
	@$(VENV)/python -m pytest $(PARALLEL)

check-all: setup-test ## lint, format, types, layers, and all tests of both tiers, none of them twice
	@$(MAKE) --no-print-directory lint types layers
	@TEST_ALL=1 $(VENV)/python -m pytest $(PARALLEL)

mutants: setup-test ## put faults into the program, one at a time; the tests must notice 85 % (ARGS="--room budget --count 30")
	@$(VENV)/python -m tests.mutation $(ARGS)

bench: setup-test ## compare Shoal with a bare loop and other libraries, in one table (ARGS=--keep for docs/bench.md)
	@$(VENV)/python -m bench $(ARGS)

chaos: setup-test ## agents killed, hung, without disk, clock, provider or panes, for 9 minutes (ARGS="--seed 7")
	@PYTHONPATH=src $(VENV)/python -m tests.chaos $(ARGS)

load: setup-test ## 1,000 working members for 10 minutes: memory, latency, lost mail (ARGS="--minutes 1")
	@PYTHONPATH=src $(VENV)/python -m tests.load $(ARGS)

fuzz: setup-test ## random input for all parsers, guided by atheris (ARGS="--seconds 60 --only shell")
	@PYTHONPATH=src $(VENV)/python -m tests.fuzz $(ARGS)

spec: ## list the rules of docs/spec.md that the last full test run proved (ARGS=--json)
	@p="$(PYTHON)"; if [ -z "$$p" ]; then $(NO_PYTHON); fi; "$$p" scripts/spec_table.py $(ARGS)

web: ## build the web view from web/ into the package (needs Node and npm)
	@command -v npm >/dev/null || { echo "make web needs Node 20 or newer with npm. On Debian: apt-get install npm" >&2; exit 1; }
	@cd web && npm ci --no-audit --no-fund --silent && npm run --silent types && npm run --silent build

reference: setup-test ## write docs/reference from the code
	@PYTHONPATH=src $(VENV)/python scripts/reference.py

walks: setup-test ## draw the paths of docs/walks.toml, and list them in ARCHITECTURE.md
	@$(VENV)/python scripts/draw_walks.py

lint: setup-test ## ruff (rules and format), codespell and the prose linter, changing nothing
	@$(VENV)/ruff check --no-cache .
	@$(VENV)/ruff format --check .
	@$(VENV)/codespell
	@$(VENV)/python scripts/lint_prose.py --source

fmt: setup-test ## ruff: repair and format in place
	@$(VENV)/ruff check --fix .
	@$(VENV)/ruff format .

types: setup-test ## mypy, strict
	@$(VENV)/python -m mypy

layers: setup-test ## import-linter: each layer imports only from below
	@$(VENV)/lint-imports

clean: ## remove the virtual environment and every cache
	@rm -rf .venv .venv-bootstrap .venv-3.* .bench-envs .spec-report.json .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup-run:
	@$(SETUP) run

setup-test:
	@$(SETUP) test
