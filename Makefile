# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer; `make` alone lists what there is.

PYTHON ?= python3
SEED ?= 1
NODES ?= 64
DAYS ?= 8
INTERVAL_S ?= 600
SEEDS ?= 20
FIRST ?= 1
# What brings a cluster up on loopback: a folder with up.sh, down.sh and lib.sh. And where it keeps its state.
LAB_KUBERNETES ?= ../shared/tools/kubernetes
LAB_SLURM ?= ../shared/tools/slurm
DRILL_STATE ?= /tmp/faultlens-drill
TORCHRUN ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# Shows what a command says only when it fails.
QUIETLY = said=$$($(1) 2>&1) || { printf '%s\n' "$$said"; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types format docs simulate soak adversary drill-kubernetes drill-kubernetes-remediation drill-slurm-jobs drill-slurm-requeues drill-slurm-remediation record-ray record-controllers record-torchrun bench clean

help: ## What there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

install: $(INSTALLED) ## The program with an embedded ClickHouse, Kafka clients and what its tests need, in .venv

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python " + sys.version.split()[0] + " is too old: faultlens needs 3.11 or newer. Say where it is: make PYTHON=/path/to/python3")'
	@echo 'Installing into $(VENV) …'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable '.[store,stream,kubernetes]' --group dev
	@touch $@

demo: $(INSTALLED) ## A real Slurm's failures explained, and a fleet of 64 nodes watched for a week
	@$(BIN)/faultlens demo

# Two at a time: each starts brokers of its own. In the order in which they are found, as the slow ones come first.
test: lint types ## Everything that must hold: style, imports, types, tests
	@$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

lint: $(INSTALLED)
	@$(call QUIETLY,$(BIN)/ruff check --quiet .)
	@$(call QUIETLY,$(BIN)/ruff format --quiet --diff .)
	@$(call QUIETLY,$(BIN)/lint-imports --no-logo)

types: $(INSTALLED)
	@$(call QUIETLY,$(BIN)/mypy)

format: $(INSTALLED) ## Rewrite what a program can put in order
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

docs: $(INSTALLED) ## Write the pages that come from the code
	@$(BIN)/python -m streams.attribution.listing > docs/attribution.md.new && mv docs/attribution.md.new docs/attribution.md
	@$(BIN)/faultlens schema --asyncapi > docs/asyncapi.json.new && mv docs/asyncapi.json.new docs/asyncapi.json

simulate: $(INSTALLED) ## A fleet with known causes, and how right the verdicts are: SEED, NODES, DAYS, INTERVAL_S
	@$(BIN)/faultlens simulate --nodes $(NODES) --days $(DAYS) --interval-s $(INTERVAL_S) --seed $(SEED) --out out/simulated-$(SEED)
	@$(BIN)/faultlens replay out/simulated-$(SEED)/events.jsonl.zst --store none --out out/simulated-$(SEED)
	@$(BIN)/faultlens score out/simulated-$(SEED)/truth.jsonl out/simulated-$(SEED) --by-rule

soak: $(INSTALLED) ## Kills, freezes and lost brokers on a real Kafka: SEEDS of them, from the FIRST on
	@FAULTLENS_SOAK=$(SEEDS) FAULTLENS_SOAK_FIRST=$(FIRST) $(BIN)/pytest -q -x tests/integration/test_live_kills.py tests/integration/test_live_behind.py tests/integration/test_sink_kafka.py

drill-kubernetes: $(INSTALLED) ## Twenty jobs on a real control plane (LAB_KUBERNETES brings it up), judged live: 10 minutes
	@nice $(BIN)/python -m tests.drills.kubernetes $(LAB_KUBERNETES) $(DRILL_STATE)/kubernetes

drill-kubernetes-remediation: $(INSTALLED) ## A node of a real control plane (LAB_KUBERNETES) goes bad, is repaired live, and returns
	@nice $(BIN)/python -m tests.drills.kubernetes_remediation $(LAB_KUBERNETES) $(DRILL_STATE)/kubernetes-remediation

drill-slurm-jobs: $(INSTALLED) ## Thirty jobs on a real Slurm (LAB_SLURM brings it up, as root), judged live: 10 minutes
	@nice $(BIN)/python -m tests.drills.slurm $(LAB_SLURM) $(DRILL_STATE)/slurm

drill-slurm-requeues: $(INSTALLED) ## Jobs that a real Slurm (LAB_SLURM, as root) runs again, judged live: 9 minutes
	@nice $(BIN)/python -m tests.drills.slurm_requeues $(LAB_SLURM) $(DRILL_STATE)/slurm-requeues

drill-slurm-remediation: $(INSTALLED) ## A node of a real Slurm (LAB_SLURM, as root) goes bad, is repaired live, and returns: 8 minutes
	@nice $(BIN)/python -m tests.drills.slurm_remediation $(LAB_SLURM) $(DRILL_STATE)/slurm-remediation

record-ray: $(INSTALLED) ## What a real KubeRay operator makes of RayJobs on a real control plane (LAB_KUBERNETES), for tests
	@nice $(BIN)/python -m tests.drills.ray $(LAB_KUBERNETES) $(DRILL_STATE)/ray

record-controllers: $(INSTALLED) ## What JobSet's, LeaderWorkerSet's and Trainer's controllers make of jobs (LAB_KUBERNETES), for tests
	@nice $(BIN)/python -m tests.drills.controllers $(LAB_KUBERNETES) $(DRILL_STATE)/controllers

record-torchrun: $(INSTALLED) ## Jobs that a real torchrun (TORCHRUN, of an environment with PyTorch) runs and restarts, judged: 5 minutes
	@test -n "$(TORCHRUN)" || { echo 'Say where it is: make record-torchrun TORCHRUN=/path/to/torchrun'; exit 2; }
	@nice $(BIN)/python -m tests.drills.torchrun $(TORCHRUN) $(DRILL_STATE)/torchrun

adversary: $(INSTALLED) ## Remediation against a fleet, people and actuators that err: DAYS seeds from the FIRST on, NODES; goes on where it stopped
	@$(BIN)/python -m tests.simulation.campaign --days $(DAYS) --first $(FIRST) --nodes $(NODES) --out out/adversary.jsonl

bench: $(INSTALLED) ## What it does a second, beside what else one would use
	@for file in bench/*.py; do echo "$$file"; $(BIN)/python $$file || exit 1; done

clean: ## Remove everything that was made here
	@rm -rf $(VENV) demo out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
