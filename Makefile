# make quickstart · make test: each does everything on a machine with Python 3.11+ and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
LOCKS := requirements.lock requirements-torch.lock
# Named after the content of these files, so that a checkout which touches them installs nothing again.
INSTALLED := $(VENV)/.installed-$(shell cat pyproject.toml $(LOCKS) | cksum | cut -d' ' -f1)
# Snakemake without its blocks of text: trainings say in a line what they have learned, and errors stay.
CALM := snakemake --cores $(CORES) --quiet rules progress host reason
CALMLY := 2>&1 | grep --line-buffered -vE '^(Config file|Using |Singularity|Assuming|Building DAG|Select jobs|Execute |Complete log|Elapsed|$$)'; exit $${PIPESTATUS[0]}
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup quickstart compare docs fast test lint format schema lock figures report ui bench costs soak campaign clean

help:  ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(INSTALLED)  ## the virtual environment with everything in it

# torch has a version and no hash: its build, for CPUs or CUDA, is the machine's choice. PyPI's build for Linux needs CUDA's
# libraries, which are packages too; a CPU build does not.
$(INSTALLED): pyproject.toml $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV): about two and a half minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps torch==2.13.0
	$(BIN)/python -m pip show torch | grep -q '+cpu$$' \
	  || $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-torch.lock
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps -e .
	@$(BIN)/python -m disk live --fetch || echo "Galleries will be without live pages (docs/live.md); nothing else needs npm."
	@rm -f $(VENV)/.installed-* && touch $@

quickstart: setup  ## four methods on the point robot: train, measure, draw; minutes
	@echo "Four methods learn eight skills each, then they are measured and drawn: about two minutes on two cores."
	@echo "Messages of every job: logs/quick/"
	@$(CALM) --configfile config/quick.yaml $(CALMLY)
	@python workflow/scripts/show.py results/quick/point

compare: setup  ## every method on the point robot, with controllers; half an hour
	@$(CALM) --configfile config/quick.yaml config/compare.yaml $(CALMLY)
	@python workflow/scripts/show.py results/compare/point

docs: setup  ## the documentation as a site with search, in build/site
	@test -d docs/live || python -m disk live pretrained/* --out docs/live/ || echo "No live pages in it (docs/live.md)."
	python docs/gather.py
	zensical build --clean --strict
	@echo "Open build/site/index.html"

fast: setup lint  ## lint, types and unit tests
	pytest -n $(CORES) --dist worksteal tests/unit

test: setup lint  ## lint, types and all tests; one more at a time than there are cores, since some wait for SLURM
	pytest -n $$(($(CORES) + 1)) --dist worksteal

lint: setup  ## formatting, lint and types
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

format: setup  ## format everything
	ruff format .
	ruff check --fix .
	snakefmt Snakefile workflow

schema: setup  ## workflow/schemas/config.schema.yaml from disk/config/
	python -c 'import yaml, disk.config; print(yaml.safe_dump(disk.config.schema(), sort_keys=False), end="")' \
	  > workflow/schemas/config.schema.yaml

lock: setup  ## requirements.lock from pyproject.toml; versions that still fit stay: make lock UPGRADE=--upgrade
	cat $(LOCKS) > .lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(UPGRADE) \
	  --extra all --extra dev --output-file .lock pyproject.toml
	awk '/^[a-z0-9]/ { file = /^(torch|triton|cuda|nvidia)[-=]/ ? "requirements-torch.lock" : "requirements.lock" } \
	  { print > file }' .lock
	rm .lock

figures: setup  ## figures of a preset's runs, training what they lack: make figures CONFIG=config/laptop.yaml
	snakemake figures --cores $(CORES) --configfile $(or $(CONFIG),config/quick.yaml)

report: setup  ## report.html of what there is of a preset: make report CONFIG=config/laptop.yaml
	python workflow/scripts/report.py report.html $(or $(CONFIG),config/quick.yaml)

ui: setup  ## the MLflow UI over this project's runs; it opens on DISk beside other methods
	@python workflow/scripts/ui.py $(or $(PORT),5000)

bench: setup  ## our learner beside others, and the time to a skill; 20 minutes
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	python benchmarks/learner.py
	python benchmarks/time_to_skill.py --total 9

costs: setup  ## the loop by phase, the workflow's own costs, rollouts; 25 minutes
	python benchmarks/training.py
	python benchmarks/workflow.py
	python benchmarks/rollouts.py

soak: setup  ## faults into runs of every method, and what became of each: docs/reliability.md; a quarter of an hour
	python tests/faults/soak.py --faults $(or $(FAULTS),200) --workers $(CORES) --out results/soak

campaign: setup  ## tests that take too long for make test: a tracking server that goes away
	DISK_CAMPAIGN=1 pytest -m campaign

clean:  ## remove caches, never results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache build docs/live report.html
