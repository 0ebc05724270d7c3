"""What happens around the jobs of a multirun: a failed one does not stop the others, a finished one is not repeated,
and when all have ended a comparison appears in the sweep's folder."""

import csv
import hashlib
import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wandb

from coin.lab.console import console, is_user_error, message
from coin.lab.journal import Subject
from coin.lab.wandb_journal import Wandb, WandbJournal
from coin.parameters import listing
from coin.report.jobs import hold, release
from coin.report.runs import read_json, write_results
from coin.report.write import write_report


@dataclass
class Job:
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    failed: str = ""  # "known" where the input is bad, "unknown" where it is a bug

    def done(self, contents: Callable[[], dict[str, Any]]) -> bool:
        """Whether its results are there; `contents` says what lies where the config's paths point, if that matters."""
        if not (self.folder / "results.json").is_file():
            return False
        check_same(self.folder, self.config, contents)
        console.print(f"done already: {self.folder}", markup=False)
        return True

    @property
    def id(self) -> str:
        """The same for the same job, whenever it is started."""
        kept = {k: v for k, v in flat(self.config).items() if not k.startswith(HARMLESS) and not k.endswith(".root")}
        told = json.dumps([str(self.folder), kept], sort_keys=True)
        return f"encode-{hashlib.sha256(told.encode()).hexdigest()[:16]}"

    def finish(self, results: dict[str, Any]) -> None:
        (self.folder / "config.json").write_text(json.dumps(self.config, indent=2, sort_keys=True) + "\n")
        write_results(self.folder, results)


@contextmanager
def job_of_sweep(folder: Path) -> Iterator[Job]:
    """One job, to be skipped if this folder holds its results already; what it raises is written down, not raised."""
    (folder / "error.txt").unlink(missing_ok=True)
    job = Job(folder)
    try:
        yield job
    except Exception as error:
        known = is_user_error(error)
        job.failed = "known" if known else "unknown"
        (folder / "error.txt").write_text((message(error) if known else traceback.format_exc()) + "\n")
        console.print(f"failed: {folder}: {message(error)}", markup=False)


def check_same(folder: Path, config: dict[str, Any], contents: Callable[[], dict[str, Any]]) -> None:
    """Refuses to take another config's results for this one's, or to replace them.

    Data, weights and experts that were moved are the same where their contents are those that results.json names.
    """
    before, lay = read_json(folder / "config.json"), read_json(folder / "results.json").get("contents", {})
    before, now = flat(before), flat(config)
    keys = [key for key in sorted(before.keys() | now.keys()) if not key.startswith(HARMLESS) and key not in ROOTS]
    differing = [key for key in keys if before.get(key) != now.get(key)]
    if any(key in lay or key.endswith(".root") for key in differing):
        lie = contents()
        unused = {key for key in differing if key.endswith(".root") and key not in lay and key not in lie}
        moved = {key for key in differing if key in lay and lay[key] == lie.get(key)}
        differing = [key for key in differing if key not in moved | (unused if lay else set())]
    if differing:
        told = [f"{key}={now.get(key, 'nothing')} instead of {before.get(key, 'nothing')}" for key in differing]
        raise ValueError(
            f"{folder} holds the results of another config ({listing(told, 2)}); "
            "choose another folder with hydra.sweep.dir=…, or move that one away"
        )


ROOTS = ("root", "data.root")  # where those of the experts come from
HARMLESS = ("logger.", "store", "train_missing", "checkpoint_minutes", "compile")  # they change no result


def flat(config: Any, name: str = "") -> dict[str, Any]:
    """{a.b: value}"""
    if not isinstance(config, dict):
        return {name: config}
    return {k: v for key, part in config.items() for k, v in flat(part, f"{name}.{key}" if name else key).items()}


def failures(folder: Path) -> list[Path]:
    """What jobs in this folder left that failed; an error.txt elsewhere is somebody else's."""
    return sorted(path for path in folder.rglob("error.txt") if (path.parent / ".hydra").is_dir())


class SweepReport:
    """A Hydra callback (by its methods' names: the library does not import Hydra)."""

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        for path in failures(Path(config.hydra.sweep.dir)):
            path.unlink()  # of other commands in this folder; this one's own follow

    def on_job_start(self, config: Any, **kwargs: Any) -> None:
        hold(Path(config.hydra.runtime.output_dir))

    def on_job_end(self, config: Any, **kwargs: Any) -> None:
        release(Path(config.hydra.runtime.output_dir))

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        failed = [path.parent for path in failures(folder)]
        if any(folder.rglob("results.json")):
            written = write_report(folder, folder, console)
            console.print(f"comparison: {folder} ({', '.join(path.name for path in written)})", markup=False)
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
    subject = Subject(name="report", job_type="report", group=str(folder))
    with Wandb(config.logger.project).open(folder, subject) as journal:
        if isinstance(journal, WandbJournal):
            journal.attempt(log_figures, journal.run, folder / "table.csv", written)


def log_figures(run: Any, table: Path, written: list[Path]) -> None:
    with open(table, newline="") as file:
        header, *rows = list(csv.reader(file))
    logged: dict[str, Any] = {"table": wandb.Table(columns=[*header], data=rows)}
    run.log(logged | {path.stem: wandb.Image(str(path)) for path in written if path.suffix == ".png"})
