#!/bin/sh
# Prints the targets of a makefile from their `##` comments, then the variables. Needs no environment.
exec awk '
  /^##@/ { printf "\n%s\n", substr($0, 5) }
  /^[a-z%-]+:.*## / { split($0, part, ":.*## "); name = part[1]; sub("%", "<name>", name); printf "  make %-16s %s\n", name, part[2] }
  END {
    print "\nVariables, as in: make sim PROMPT=\"Why is the sky blue?\" LAYER=3"
    print "  CONFIG   chip configuration (TOML)           SEED   seed of everything random (default 1)"
    print "  PROMPT   text that the model reads           LAYER  transformer layer to run (default 0)"
    print "  BLOCK    one block: a folder of tb/          WAVES  1: write waveforms"
    print "  BENCH    one testbench of the block          TEST   one test of the testbench"
    print "  DUT      Verilog file of a circuit           SPEC   its specification"
    print "  TOP      its top module                      MAP    its port map (TOML)"
    print "  BUDGET   how long to search, as 10m          PROPOSER  program that proposes circuits"
    print "  LIBERTY  cell library                        VARIANT  circuit for dot units, from make explore"
    print "  LONG     1: also what takes minutes"
  }' "$1"
