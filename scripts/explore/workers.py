"""Where candidates are judged: processes of this machine, or a cluster through Parsl with the same code.

A Parsl configuration is TOML:

    provider = "local"             # local, slurm, lsf, pbspro, kubernetes
    workers = 2                    # processes a block
    blocks = 1
    [options]                      # passed to the provider: partition, walltime, worker_init, image, ...
"""

import contextlib
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

PROVIDERS = {
    "local": "LocalProvider",
    "slurm": "SlurmProvider",
    "lsf": "LSFProvider",
    "pbspro": "PBSProProvider",
    "kubernetes": "KubernetesProvider",
}


@contextlib.contextmanager
def executor(workers: int = 2, parsl_file: Path | None = None) -> Iterator[Executor]:
    """A `concurrent.futures` executor; raises `ValueError` for a configuration that is not understood."""
    if parsl_file is None:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
        return
    with _parsl(tomllib.loads(parsl_file.read_text())) as pool:
        yield pool


@contextlib.contextmanager
def _parsl(settings: dict) -> Iterator[Executor]:
    name = settings.get("provider", "local")
    if name not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, not {name!r}")
    if unknown := sorted(set(settings) - {"provider", "workers", "blocks", "options"}):
        raise ValueError(f"unknown key {unknown[0]!r}; known: provider, workers, blocks, options")
    import parsl
    from parsl.concurrent import ParslPoolExecutor
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor

    # Parsl starts its own programs by name, here and on the workers; they are beside this Python.
    programs, root = Path(sys.executable).parent, Path(__file__).resolve().parents[2]
    os.environ["PATH"] = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    prepare = f"export PATH={shlex.quote(str(programs))}:$PATH PYTHONPATH={shlex.quote(str(root))}:$PYTHONPATH"
    blocks = int(settings.get("blocks", 1))
    options = {"init_blocks": blocks, "max_blocks": blocks, **settings.get("options", {})}
    options["worker_init"] = "\n".join(filter(None, [prepare, options.get("worker_init", "")]))
    provider = getattr(parsl.providers, PROVIDERS[name])(**options)
    pool = HighThroughputExecutor(
        label="judge",
        max_workers_per_node=int(settings.get("workers", 2)),
        provider=provider,
        encrypted=False,
        **({"address": "127.0.0.1"} if name == "local" else {}),
    )
    run_dir = Path("build") / "explore" / "parsl"
    with ParslPoolExecutor(config=Config(executors=[pool], run_dir=str(run_dir), usage_tracking=0)) as executor_:
        yield executor_
