# make quickstart · make test: each does everything on a machine with Python 3.11+ and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
# Named after its content, so that a checkout which touches pyproject.toml installs nothing again.
INSTALLED := $(VENV)/.installed-$(shell cksum pyproject.toml | cut -d' ' -f1)
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup quickstart compare fast test lint format schema figures report ui bench soak campaign clean

help:  ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(INSTALLED)  ## the virtual environment with everything in it

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@$(BIN)/python -m disk live --fetch || echo "Galleries will be without live pages (docs/live.md); nothing else needs npm."
	@rm -f $(VENV)/.installed-* && touch $@

quickstart: setup  ## four methods on the point robot: train, measure, draw; minutes
	snakemake --cores $(CORES) --configfile config/quick.yaml
	@python workflow/scripts/show.py results/quick/point

compare: setup  ## every method on the point robot, with controllers; half an hour
	snakemake --cores $(CORES) --configfile config/quick.yaml config/compare.yaml
	@python workflow/scripts/show.py results/compare/point

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

figures: setup  ## figures of a preset's runs, training what they lack: make figures CONFIG=config/laptop.yaml
	snakemake figures --cores $(CORES) --configfile $(or $(CONFIG),config/quick.yaml)

report: setup  ## report.html of what there is of a preset: make report CONFIG=config/laptop.yaml
	python workflow/scripts/report.py report.html $(or $(CONFIG),config/quick.yaml)

ui: setup  ## the MLflow UI over this project's runs
	@test -e results/mlflow.db || { echo "results/mlflow.db is not there yet: run make quickstart first"; exit 1; }
	@echo "MLflow: http://127.0.0.1:$(or $(PORT),5000)"
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow server --host 127.0.0.1 --port $(or $(PORT),5000) --workers 1 \
	  --backend-store-uri sqlite:///$(CURDIR)/results/mlflow.db --artifacts-destination $(CURDIR)/results/mlartifacts

bench: setup  ## our learner beside others, the time to a skill, the loop by phase, the workflow's costs, rollouts; 40 minutes
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	python benchmarks/learner.py
	python benchmarks/time_to_skill.py
	python benchmarks/training.py
	python benchmarks/workflow.py
	python benchmarks/rollouts.py

soak: setup  ## faults into runs of every method, and what became of each: docs/reliability.md; a quarter of an hour
	python tests/faults/soak.py --faults $(or $(FAULTS),200) --workers $(CORES) --out results/soak

campaign: setup  ## tests that take too long for make test: a tracking server that goes away
	DISK_CAMPAIGN=1 pytest -m campaign

clean:  ## remove caches, never results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis report.html
