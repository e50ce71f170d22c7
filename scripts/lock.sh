#!/usr/bin/env bash
# Writes requirements/sim.txt and requirements/dev.txt, the locked closures (with hashes) of pyproject.toml.
# For maintainers, after a pin in pyproject.toml changed; needs `uv` on the PATH.
#   sim.txt  what `make sim` installs
#   dev.txt  what `make test`, lint, verify and explore install on top: nothing that is in sim.txt
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "lock: needs 'uv' (pip install uv)" >&2; exit 1; }
lock() { # lock OUTPUT ARGUMENT...: a header, then what uv resolves, in one step
  local output=$1; shift
  {
    echo "# Made by \`make lock\` from pyproject.toml. Do not edit."
    uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet "$@"
  } >"$output.new"
  mv "$output.new" "$output"
}
lock requirements/sim.txt
mapfile -t in_sim < <(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package=\1/p' requirements/sim.txt | sort -u)
lock requirements/dev.txt --extra dev --constraint requirements/sim.txt "${in_sim[@]}"
wc -l requirements/sim.txt requirements/dev.txt
