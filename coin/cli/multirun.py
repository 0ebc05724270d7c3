"""A multirun at the terminal: how many of its jobs are done, running and failed, and when it is expected to end.

What is shown is read off the sweep's folder, so it is the same whatever launches the jobs.
"""

import threading
import time
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from coin.lab.console import console, display
from coin.report.jobs import LOCK, is_running
from coin.report.sweep import SweepReport

SECONDS = 1.0  # between two looks


class Multirun(SweepReport):
    """Hydra's callback: the display meanwhile, and the report at the end."""

    row: "Row | None" = None

    def __getstate__(self) -> dict[str, Any]:
        """Launchers pickle it for jobs in other processes, which have nobody to show a row to."""
        return {}

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        super().on_multirun_start(config)
        if console.is_terminal:
            self.row = Row(Path(config.hydra.sweep.dir), jobs_of(config))
            self.row.start()

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        if self.row:
            self.row.stop()
        super().on_multirun_end(config)


class Row(threading.Thread):
    """The sweep's row of the display, for as long as it runs."""

    def __init__(self, folder: Path, jobs: int):
        super().__init__(daemon=True)
        self.folder, self.jobs, self.over = folder, jobs, threading.Event()
        self.began, self.before = time.time(), len(finished(folder))

    def run(self) -> None:
        row = display.add("sweep")
        while not self.over.wait(SECONDS):
            done = len(finished(self.folder))
            display.update(row, min(done, self.jobs), self.jobs, self.text())
        display.remove(row)

    def stop(self) -> None:
        self.over.set()
        self.join()

    def text(self, now: float | None = None) -> str:
        done, failed = (len(found) for found in (finished(self.folder), list(self.folder.rglob("error.txt"))))
        running = sum(is_running(lock.parent) is True for lock in self.folder.rglob(LOCK))
        told = f"sweep: {done} of {self.jobs} done, {running} running, {failed} failed"
        ended, left = done - self.before + failed, self.jobs - done - failed
        if not ended or left <= 0:
            return told
        seconds = ((now or time.time()) - self.began) / ended * left
        return f"{told}, end about {time.strftime('%H:%M', time.localtime((now or time.time()) + seconds))}"


def finished(folder: Path) -> list[Path]:
    return list(folder.rglob("results.json"))


def jobs_of(config: Any) -> int:
    """How many jobs the overrides of a multirun, and those that its file sweeps, make together."""
    told = {key: f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()}
    told |= {override.split("=")[0]: override for override in config.hydra.overrides.task}
    parsed = OverridesParser.create().parse_overrides(list(told.values()))
    jobs = 1
    for override in parsed:
        jobs *= len(list(override.sweep_string_iterator())) if override.is_sweep_override() else 1
    return jobs
