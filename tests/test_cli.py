"""The Makefile and the command line: help, values from the shell, and errors of one line."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def clean_environment(**extra: str) -> dict[str, str]:
    """The present environment without what an outer `make` put there."""
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(("SERRANO_", "MAKE", "MFLAGS", "VENV"))}  # fmt: skip
    return inherited | extra


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scripts", *arguments], cwd=ROOT, text=True, capture_output=True,
                          env=clean_environment(**environment))  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A project of only the Makefile, whose Python prints its arguments and the values that reached it."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts" / "help.sh", tmp_path / "scripts")
    python = (
        f"#!{sys.executable}\nimport os, sys\nprint('ran', *sys.argv[1:])\n"
        "for name, value in sorted(os.environ.items()):\n"
        "    if name.startswith(('SERRANO_', 'MAKEFLAGS')) and value: print(f'{name}={value!r}')\n"
    )
    programs = {"scripts/bootstrap.sh": "#!/bin/sh\necho bootstrap $1\n", ".venv/bin/python": python}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    outer = clean_environment(**(environment or {}))
    done = subprocess.run(command, text=True, capture_output=True, env=outer)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_every_target() -> None:
    rules = set(re.findall(r"^([a-z][\w%-]*):(?!=)", MAKEFILE, re.M))
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M) for name in line.split() if name[0] != "."}
    assert rules == phony | {"test-%", "bench-%"}
    text = make(ROOT, "help")
    for name in rules:
        assert re.search(rf"^  make {name.replace('%', '<name>')} +\S", text, re.M), (
            f"make help does not tell of {name}"
        )


def test_help_lists_every_variable() -> None:
    text = make(ROOT, "help")
    (variables,) = re.findall(r"^VARIABLES := (.*)$", MAKEFILE, re.M)
    for name in variables.split():
        assert re.search(rf"\b{name}  +\w", text), f"make help does not tell of {name}"


def test_help_is_the_default_and_needs_no_environment(copy: Path) -> None:
    assert make(copy) == make(copy, "help")
    assert "bootstrap" not in make(copy)


@pytest.mark.parametrize(
    "value", ["a b", "it's", 'say "hi"', "cost $5 $(x) `y` \\n", "a;b|c&d>e*?[f]", "#1 100% ünï ="]
)
def test_values_arrive_as_typed(copy: Path, value: str) -> None:
    assert f"SERRANO_PROMPT={value!r}\n" in make(copy, "sim", f"PROMPT={value}")
    assert f"SERRANO_PROMPT={value!r}\n" in make(copy, "sim", environment={"PROMPT": value})


def test_values_do_not_reach_the_makefiles_of_a_build(copy: Path) -> None:
    assert "MAKEFLAGS" not in make(copy, "-j2", "sim", "TOP=x", "CONFIG=y")


@pytest.mark.parametrize(
    ("goal", "environment", "command"),
    [("sim", "sim", "sim"), ("test", "dev", "test"), ("test-router", "dev", "test router"),
     ("bench-slice", "dev", "bench slice"), ("figures", "sim", "figures"), ("report", "sim", "report"),
     ("lint", "dev", "lint"), ("rtl", "sim", "rtl"), ("waves", "sim", "waves"), ("verify", "dev", "verify"),
     ("explore", "dev", "explore"), ("format", "dev", "format"), ("typecheck", "dev", "typecheck")],
)  # fmt: skip
def test_each_target_makes_the_environment_it_needs(copy: Path, goal: str, environment: str, command: str) -> None:
    text = make(copy, goal)
    assert text.startswith(f"bootstrap {environment}\nran -m scripts {command}\n")
    assert f"SERRANO_GOAL='{goal}'" in text


def test_the_recorded_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.cli import command_line

    monkeypatch.setenv("SERRANO_GOAL", "sim")
    monkeypatch.setenv("SERRANO_PROMPT", 'it\'s "so"')
    monkeypatch.setenv("SERRANO_LAYER", "3")
    monkeypatch.delenv("SERRANO_SEED", raising=False)
    assert shlex.split(command_line()) == ["make", "sim", 'PROMPT=it\'s "so"', "LAYER=3"]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("test", "nothing"), {}, "there is no block 'nothing' under tb/; there are: "),
        (("test", "fifo"), {"SERRANO_BENCH": "x"}, "block 'fifo' has no testbench 'x'; it has: fifo_2"),
        (("test", "fifo"), {"SERRANO_SEED": "many"}, "SERRANO_SEED"),
        (("bench", "nothing"), {}, "there is no benchmark 'nothing'"),
        (("rtl",), {"SERRANO_CONFIG": "missing.toml"}, "CONFIG: there is no file 'missing.toml'"),
        (("dance",), {}, "No such command 'dance'"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    done = run(*arguments, **environment)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_full_disk_is_one_line(tmp_path: Path) -> None:
    program = ("import errno, os, sys; sys.argv = ['x', 'figures']; from scripts import cli, figures\n"
               "def full(): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'build/x')\n"
               "figures.newest = full; cli.main()")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, env=clean_environment()
    )
    assert done.returncode == 1
    assert done.stderr == "error: disk full while writing build/x; what was built before is untouched\n"


def test_help_of_the_command_line() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("sim", "test", "bench", "figures", "report", "waves", "rtl", "lint", "verify"):
        assert re.search(rf"\b{name}\b", done.stdout)
