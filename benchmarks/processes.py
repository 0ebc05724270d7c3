"""train.py and encode.py as processes of their own, without the seconds that importing torch and Lightning takes each.

A server, started once, has imported what the scripts import and has run nothing. Every process is forked from it into a
session of its own: it has its own pid, limits and death, and is killed like one that a shell started. What such a
process starts in turn, ranks or the workers of a sweep, are new interpreters.
"""

import atexit
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMPORTED = [
    "hydra",
    "lightning",
    "matplotlib.pyplot",
    "sklearn.datasets",
    "wandb",
    "coin.lab.experiment",
    "coin.report",
]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(IMPORTED)
Limit = tuple[int, int]  # a resource, and how much of it there is


class Process:
    """A running script; as much of subprocess.Popen as is needed, its two outputs as one."""

    def __init__(
        self, script: Path, args: list[str], folder: Path, environment: Mapping[str, str], limit: Limit | None = None
    ):
        descriptor, name = tempfile.mkstemp(prefix="output-", dir=folder)
        os.close(descriptor)
        self.output = Path(name)
        self.process = SERVER.Process(target=become, args=(script, args, folder, dict(environment), name, limit))
        self.process.start()
        assert self.process.pid
        self.pid = self.process.pid
        while self.poll() is None and os.getpgid(self.pid) != self.pid:
            time.sleep(0.005)  # it is not its own session's yet

    def poll(self) -> int | None:
        return self.process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a script", timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        self.wait(timeout)
        return self.output.read_text(errors="replace"), None


def become(
    script: Path, args: list[str], folder: Path, environment: dict[str, str], output: str, limit: Limit | None
) -> None:
    """What a forked process does first: it takes on what a shell would have given it."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if limit:
        resource.setrlimit(limit[0], (limit[1], limit[1]))
    import torch

    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", 1)))  # read when it was imported, in the server
    sys.argv = [str(script), *args]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # a forked process does not
