"""What happens around the jobs of a multirun: a failed one does not stop the others, a finished one is not repeated,
and when all have ended a comparison appears in the sweep's folder."""

import csv
import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb

from coin.console import console, is_user_error, message
from coin.loggers import wandb_logger
from coin.report.runs import write_results
from coin.report.write import write_report


@dataclass
class Job:
    folder: Path
    config: dict
    done: bool

    def finish(self, results: dict) -> None:
        (self.folder / "config.json").write_text(json.dumps(self.config, indent=2, sort_keys=True) + "\n")
        write_results(self.folder, results)


@contextmanager
def job_of_sweep(folder: Path, config: dict) -> Iterator[Job]:
    """One job: skipped if this folder holds its results already; what it raises is written down, not raised."""
    done = False
    with suppress(OSError, ValueError):  # unreadable: not a finished run of this config
        done = (folder / "results.json").is_file() and json.loads((folder / "config.json").read_text()) == config
    (folder / "error.txt").unlink(missing_ok=True)
    if done:
        console.print(f"done already: {folder}")
    else:
        (folder / "results.json").unlink(missing_ok=True)
    try:
        yield Job(folder, config, done)
    except Exception as error:
        known = is_user_error(error)
        (folder / "error.txt").write_text((message(error) if known else traceback.format_exc()) + "\n")
        console.print(f"failed: {folder}: {message(error)}", markup=False)


class SweepReport:
    """A Hydra callback (by its methods' names: the library does not import Hydra)."""

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        failed = sorted(path.parent for path in folder.rglob("error.txt"))
        if any(folder.rglob("results.json")):
            written = write_report(folder, folder, console)
            console.print(f"comparison: {folder} ({', '.join(path.name for path in written)})")
            log_report(config, folder, written)
        for path in failed:
            console.print(f"failed: {path}: {(path / 'error.txt').read_text().strip().splitlines()[-1]}", markup=False)
        if failed:
            console.print(f"{len(failed)} runs failed; the same command repeats only those")
            raise SystemExit(1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


def log_report(config: Any, folder: Path, written: list[Path]) -> None:
    """The comparison as a W&B run of the sweep's group: its table, and its figures as images."""
    if "wandb" not in str(config.logger.get("_target_", "")):
        return
    logger: Any = wandb_logger(
        str(folder), name="report", job_type="report", group=str(folder), project=config.logger.project
    )
    if not hasattr(logger.experiment, "log"):
        return  # W&B could not log

    def log() -> None:
        with open(folder / "table.csv", newline="") as file:
            header, *rows = list(csv.reader(file))
        logged: dict[str, Any] = {"table": wandb.Table(columns=[*header], data=rows)}
        logged |= {path.stem: wandb.Image(str(path)) for path in written if path.suffix == ".png"}
        logger.experiment.log(logged)

    logger.attempt(log)
    logger.finalize("success")
