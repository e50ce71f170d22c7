# The commands of the project; `make help` lists them. All of them make what they need, the environment first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
VENV ?= .venv
export VENV

# Values reach the commands through the environment, exactly as typed, whatever spaces and quotes they hold. They are
# not handed to the makefiles of the simulator's build.
VARIABLES := CONFIG PROMPT LAYER SEED BLOCK BENCH TEST WAVES DUT SPEC TOP MAP BUDGET PROPOSER LIBERTY VARIANT LONG
define pass
export SERRANO_$(1) = $$(value $(1))
endef
$(foreach name,$(VARIABLES),$(eval $(call pass,$(name))))
export SERRANO_GOAL = $(MAKECMDGOALS)
MAKEOVERRIDES :=
unexport MAKEFLAGS MFLAGS $(VARIABLES)

RUN := $(VENV)/bin/python -m scripts

.PHONY: help
help: ## list every target and variable
	@scripts/help.sh $(firstword $(MAKEFILE_LIST))

##@ Simulate

.PHONY: sim
sim: .environment-sim ## run a real transformer layer on the RTL, compare bit for bit, report (BLOCK=x: only that block's testbench)
	@$(RUN) sim

.PHONY: waves
waves: .environment-sim ## run BLOCK's testbench with waveforms (FST or VCD) and write a saved view
	@$(RUN) waves

.PHONY: report
report: .environment-sim ## show the last run again: on the terminal and as build/sim/report.html
	@$(RUN) report

.PHONY: rtl
rtl: .environment-sim ## write the chip's Verilog to rtl/gen, for another flow (CONFIG)
	@$(RUN) rtl

##@ Verify and explore

.PHONY: verify
verify: .environment-dev ## check a circuit (DUT, TOP, MAP) against a specification (SPEC)
	@$(RUN) verify

.PHONY: explore
explore: .environment-dev ## search circuit variants of BLOCK within BUDGET (PROPOSER, LIBERTY)
	@$(RUN) explore

##@ Test and measure

.PHONY: test
test: .environment-dev ## run the whole test suite (LONG=1: also what takes minutes)
	@$(RUN) test

test-%: .environment-dev ## run the testbenches of one block (BENCH, TEST, SEED, WAVES, VARIANT)
	@$(RUN) test $*

bench-%: .environment-dev ## measure the figures of one area (LONG=1: on the larger sizes too)
	@$(RUN) bench $*

.PHONY: figures
figures: .environment-sim ## print the newest of every figure, with the commit and the command that made it
	@$(RUN) figures

.PHONY: lint
lint: .environment-dev ## check the emitted Verilog (Verilator -Wall, commented waivers), the style and the types
	@$(RUN) lint

.PHONY: format
format: .environment-dev ## put the Python sources into the project's style
	@$(RUN) format

.PHONY: typecheck
typecheck: .environment-dev ## check the types
	@$(RUN) typecheck

##@ The project

.PHONY: environment
environment: .environment-dev ## make the virtual environment with everything in it

.PHONY: lock
lock: ## for maintainers: pin the dependencies anew after a change in pyproject.toml (needs uv)
	@scripts/lock.sh

.PHONY: clean
clean: ## remove what was built, not the environment and not build/bench
	@find build -mindepth 1 -maxdepth 1 ! -name bench -exec rm -rf {} + 2>/dev/null || true
	@rm -rf rtl/gen

.PHONY: .environment-sim .environment-dev
.environment-sim:
	@scripts/bootstrap.sh sim
.environment-dev:
	@scripts/bootstrap.sh dev
