#!/bin/sh
# Makes the virtual environment from the lock, or finds in a moment that it is already there.
#
#   scripts/bootstrap.sh sim     what `make sim` needs        (requirements/sim.txt)
#   scripts/bootstrap.sh dev     also the tools for tests     (requirements/dev.txt)
#
# Nothing is downloaded before all system tools are known to be there. An environment lives in .venvs/<digest of lock
# and Python>, and .venv points to the newest that is complete: an interrupted or failed installation changes nothing,
# and going back to an earlier lock finds its environment again. Environment: VENV (default .venv), PYTHON.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=${1:?usage: scripts/bootstrap.sh sim|dev}
venv=${VENV:-.venv}
store=${venv}s

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# -- System tools: one line with every package that is missing ---------------------------------------------------------
missing='' packages=''
need() { missing="$missing${missing:+, }$1"; packages="$packages${packages:+ }$2"; }
have() { command -v "$1" >/dev/null 2>&1; }

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
python='' found=''
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  have "$candidate" || continue
  found=$candidate
  if "$candidate" -c "$new_enough" >/dev/null 2>&1; then python=$candidate; break; fi
done
if [ -n "$python" ]; then
  "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || need "the venv module of $python" "$(basename "$python")-venv"
elif [ -n "$found" ]; then
  need "Python 3.11 or later ($found is $("$found" -c 'import platform; print(platform.python_version())' 2>/dev/null))" python3.11-venv
else
  need 'Python 3.11 or later' python3-venv
fi
have g++ || need g++ g++
have make || need make make
# Debian's minimal perl lacks the modules that the simulator's front end loads.
{ have perl && perl -MFindBin -MGetopt::Long -MPod::Usage -e 1 >/dev/null 2>&1; } || need perl perl
have git || need git git
[ -z "$missing" ] || fail "missing $missing; install with: apt-get install $packages"

# -- Is the environment complete already? ------------------------------------------------------------------------------
digest() { cat "$@" | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read() + sys.version.encode()).hexdigest()[:16])'; }
sim=$(digest requirements/sim.txt) || fail "cannot read requirements/sim.txt"
dev=$(digest requirements/sim.txt requirements/dev.txt) || fail "cannot read requirements/dev.txt"
complete() { # complete ENVIRONMENT sim|dev: its stamp carries the digest of the present lock
  case $2 in sim) set -- "$1" sim "$sim" ;; *) set -- "$1" dev "$dev" ;; esac
  [ -x "$1/bin/python" ] && [ "$(cat "$1/.complete-$2" 2>/dev/null)" = "$3" ]
}
all_complete() { complete "$1" sim && { [ "$wanted" = sim ] || complete "$1" dev; }; }

room() { # room MEGABYTES WHAT
  free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024)}')
  [ "${free:-$1}" -ge "$1" ] || fail "disk full: $free MB free in $(pwd), $2 needs $1 MB"
}
if all_complete "$venv"; then room 100 'a build'; exit 0; fi
if [ -e "$venv" ] && [ ! -L "$venv" ]; then
  fail "$venv does not fit the lock and was not made here; move it away, or choose another with VENV=..."
fi

# -- Install, one process at a time ------------------------------------------------------------------------------------
mkdir -p "$store" 2>/dev/null || fail "cannot write to $(pwd)/$store"
if have flock && [ -z "${SERRANO_BOOTSTRAP_LOCKED:-}" ]; then
  SERRANO_BOOTSTRAP_LOCKED=1 exec flock "$store/lock" "$0" "$wanted"
fi
environment=$store/$sim
install() { # install sim|dev DIGEST
  lock=requirements/$1.txt log=$environment/install-$1.log
  count=$(grep -c '^[a-z0-9].*==' "$lock")
  printf 'environment: installing %s packages from %s\n' "$count" "$lock"
  again=''
  [ -e "$environment/.partial-$1" ] && again=--force-reinstall # pip takes half-written packages for installed ones
  : >"$environment/.partial-$1" || fail "cannot write to $environment"
  { "$environment/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --require-hashes \
      --only-binary :all: --no-compile $again -r "$lock" 2>&1; echo "exit $?"; } | tee "$log" | awk -v count="$count" '
        /^Collecting / { n++; split($2, name, "="); printf "  [%d/%d] %s\n", n, count, name[1]; fflush() }'
  if [ "$(tail -n 1 "$log")" != 'exit 0' ]; then
    grep -q 'No space left' "$log" && fail "disk full while installing $lock"
    fail "installing $lock failed: $(grep -E 'ERROR|error' "$log" | tail -n 1 | cut -c 1-200); the whole log is $log"
  fi
  rm -f "$environment/.partial-$1"
  printf '%s\n' "$2" >"$environment/.complete-$1"
}
room 1500 'the environment with a first build'
if [ ! -x "$environment/bin/pip" ]; then
  rm -rf "$environment"
  "$python" -m venv "$environment" >/dev/null 2>&1 || { rm -rf "$environment"; fail "$python -m venv $environment failed (disk full?)"; }
fi
complete "$environment" sim || install sim "$sim"
[ "$wanted" = sim ] || complete "$environment" dev || install dev "$dev"
ln -sfn "$(basename "$store")/$sim" "$venv.new" && mv -T "$venv.new" "$venv" || fail "cannot make the link $venv"
# Keep the environment before this one, for whoever goes back to the earlier lock.
ls -1dt "$store"/*/ | grep -v "$sim" | tail -n +2 | xargs -r rm -rf
