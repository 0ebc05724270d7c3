"""Jobs: the encode runs below a folder that have left no results. They are running, failed or interrupted.

A job holds a lock in its folder for as long as it lives, which the kernel frees when it dies.
"""

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import yaml

from coin.report.runs import Run, experiment_name

LOCK = ".running"
_held: dict[Path, IO[str]] = {}  # by folder, until the job ends or the process does


def hold(folder: Path) -> None:
    """From here on this job runs. Ranks share the lock. No run is lost to a file system without locks."""
    with suppress(OSError):
        file = open(folder / LOCK, "a")  # noqa: SIM115 (it is held)
        fcntl.flock(file, fcntl.LOCK_SH)
        _held[folder] = file


def release(folder: Path) -> None:
    if folder in _held:
        (folder / LOCK).unlink(missing_ok=True)
        _held.pop(folder).close()


def is_running(folder: Path) -> bool | None:
    """Whether a process holds the lock; None where there is none to ask: older versions had no lock."""
    try:
        with open(folder / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def unfinished(folder: Path) -> list[dict[str, Any]]:
    """Jobs without results, and those whose last attempt failed, in the order of their paths."""
    found = []
    for path in sorted(folder.rglob(".hydra/hydra.yaml")):
        job = path.parent.parent
        running = is_running(job)  # asked first: it may leave results and go
        failed = (job / "error.txt").is_file() and not running
        if (job / "results.json").is_file() and not failed:
            continue
        with suppress(OSError, ValueError, KeyError, TypeError, yaml.YAMLError):  # being written, or not Hydra's
            hydra = yaml.safe_load(path.read_text())["hydra"]
            if hydra["job"]["config_name"] == "encode":
                state = "failed" if failed else {True: "running", False: "interrupted", None: "unfinished"}[running]
                error = (job / "error.txt").read_text().strip() if failed else None
                since = path.stat().st_mtime if running else None
                found.append(
                    {"state": state, "folder": str(job), "run": told(job, hydra), "error": error, "since": since}
                )
    return found


def told(job: Path, hydra: dict[str, Any]) -> Run:
    """As much of results.json as is known before."""
    config = yaml.safe_load((job / ".hydra" / "config.yaml").read_text())
    names = {key: hydra["runtime"]["choices"][key] for key in ("code", "decoder", "experiment")}
    words = [word.lstrip("+~") for word in hydra["overrides"]["task"] if "=" in word]
    overrides = dict(word.split("=", 1) for word in words if not word.startswith("logger."))
    names["experiment"] = experiment_name(names["experiment"], overrides)
    return {**names, "seed": config["seed"], "samples": config["samples"], "overrides": overrides, "experts": []}
