"""Journals in W&B, offline unless WANDB_MODE or an agent says otherwise: nobody needs an account to start.

A run is open from before its first computation to its end, so that phases, system metrics and a crash are seen.
Networks are artifacts: base → expert → Fisher → coded network, by reference to where they lie, or uploaded. Where W&B
fails on the way (its disk is full, its service died) there is one warning, and nothing more is logged: a log is not
worth a run.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from coin.lab.console import console, say
from coin.lab.journal import PHASES, Attempt, Journal, Kept, Subject
from coin.lab.loggers import Csv, Logs

MOST_CLASSES = 100  # in a confusion matrix: W&B draws no more than 10,000 cells


@dataclass
class Wandb(Logs):
    project: str = "coin"
    upload: bool = False  # networks, instead of references to where they lie

    def journal(self, folder: Path, subject: Subject) -> Journal:
        agent = "WANDB_SWEEP_ID" in os.environ  # `wandb agent` started this process, whose one run is the encode run
        if agent and subject.job_type != "encode":
            return Csv().journal(folder, subject)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            run = wandb.init(
                project=self.project,
                name=subject.name,
                job_type=subject.job_type,
                group=subject.group,
                tags=[tag[:64] for tag in subject.tags],
                config=dict(subject.config),
                dir=str(folder),
                id=None if agent else subject.id,
                resume=None if agent or subject.id is None else "allow",
                mode=os.environ.get("WANDB_MODE", "online" if agent else "offline"),  # type: ignore[arg-type]
                reinit="create_new",  # trainings are runs of their own, while the one that needs them is open
                settings=wandb.Settings(silent=True, console="off"),
            )
        except Exception as error:  # whatever it is, a log is not worth a run
            said = " ".join(str(error).split())
            console.print(f"warning: W&B cannot log ({said}); this run is logged to CSV instead", markup=False)
            return Csv().journal(folder, subject)
        place = Path(run.dir).parent
        hint = f"  (send it with: wandb sync {place.parent}/offline-run-*)" if run.offline else ""
        say(f"log: {place}{hint if subject.job_type != 'train' else ''}")
        return WandbJournal(run, self.upload)


class Unfinished(WandbLogger):
    """Trainers end a logger when they have ended; the run of this one goes on until its journal is closed. It fails
    quietly, after one warning."""

    def __init__(self, run: Any, attempt: Attempt):
        super().__init__(experiment=run)
        self.attempt = attempt

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.attempt(super().log_metrics, metrics, step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.attempt(super().log_hyperparams, params)

    def finalize(self, status: str) -> None:
        self.attempt(super().finalize, status)


class WandbJournal(Journal):
    def __init__(self, run: Any, upload: bool):
        self.run, self.upload = run, upload
        super().__init__(Unfinished(run, self.attempt))
        self.attempt(self.axes)

    def axes(self) -> None:
        """What is drawn against what."""
        for pattern, axis in {"train/*": "trainer/global_step", "test/*": "epoch", "epoch/*": "epoch/epoch"}.items():
            self.run.define_metric(pattern, step_metric=axis)

    def close(self, status: str) -> None:
        self.attempt(self.run.finish, exit_code=0 if status == "success" else 1)

    def entered(self, phase: str) -> None:
        done = PHASES.index(phase) / len(PHASES)
        self.attempt(self.run.log, {"progress": done})
        self.attempt(self.run.summary.update, {"phase": phase})

    def used(self, kept: Kept) -> None:
        self.attempt(self.keep, kept, True)

    def made(self, kept: Kept) -> None:
        self.attempt(self.keep, kept, False)

    def keep(self, kept: Kept, used: bool) -> None:
        """As an artifact whose version follows its recipe: a reference counts by its path, which ends in its hash."""
        name = re.sub(r"[^\w.-]", "_", f"{kept.kind}-{kept.name}", flags=re.ASCII)[:128]
        artifact = wandb.Artifact(name, kept.kind, metadata=dict(kept.facts))
        files = sorted(p for p in kept.path.iterdir() if p.is_file()) if kept.path.is_dir() else [kept.path]
        for file in files:
            if self.upload:
                artifact.add_file(str(file), policy="immutable")
            else:
                artifact.add_reference(file.resolve().as_uri(), name=file.name, checksum=kept.kind == "coded")
        if not used:
            self.run.log_artifact(artifact, aliases=["latest", kept.key])
        elif self.run.offline:  # use_artifact refuses; this is what it does, and syncing does the rest
            self.run._log_artifact(artifact, aliases=[kept.key], is_user_created=True, use_after_commit=True)
        else:
            self.run.use_artifact(artifact, aliases=[kept.key])
        if kept.kind == "expert":
            self.run.config.update({f"trainings/{kept.name}": kept.key}, allow_val_change=True)

    def confused(self, expert: str, counts: Tensor, ndas: Mapping[int, float]) -> None:
        def log() -> None:
            table = wandb.Table(columns=["class", "NDA %"], data=[[str(c), nda] for c, nda in ndas.items()])
            title = f"NDA of each class of {expert}"
            logged: dict[str, Any] = {f"classes/{expert}": wandb.plot.bar(table, "class", "NDA %", title)}
            if len(counts) <= MOST_CLASSES:
                cells = [[str(i), str(j), int(n)] for i, row in enumerate(counts) for j, n in enumerate(row)]
                pairs = wandb.Table(columns=["Actual", "Predicted", "nPredictions"], data=cells)
                fields = {"Actual": "Actual", "Predicted": "Predicted", "nPredictions": "nPredictions"}
                texts = {"title": f"{expert}: its own class (actual), the decoded one (predicted)"}
                chart = "wandb/confusion_matrix/v1"
                logged[f"confusion/{expert}"] = wandb.plot_table(chart, pairs, fields, texts)
            self.run.log(logged)

        self.attempt(log)

    def told(self, results: Mapping[str, Any]) -> None:
        self.attempt(self.tell_candidates, results)
        self.attempt(self.tell_experts, results)
        self.attempt(self.run.define_metric, "nda", step_metric="samples")
        self.attempt(self.run.log, {"progress": 1.0, "samples": results["samples"]}, commit=False)
        self.attempt(self.run.summary.update, {"phase": "done"})
        super().told(results)

    def tell_candidates(self, results: Mapping[str, Any]) -> None:
        """A table of them, and NDA, divergence and coding loss as lines over what was tuned."""
        candidates = results["candidates"]
        scores = ("nda", "divergence", "coding_loss")
        tuned = [key for key in candidates[0] if key not in scores]
        table = wandb.Table(columns=[*tuned, *scores], data=[[c[k] for k in (*tuned, *scores)] for c in candidates])
        self.run.log({"candidates": table})
        if not tuned:
            return
        self.run.define_metric(f"tuning/{tuned[0]}")
        self.run.define_metric("tuning/*", step_metric=f"tuning/{tuned[0]}")
        for candidate in candidates:
            self.run.log({f"tuning/{key}": value for key, value in candidate.items()})
        charts = {f"{s} against {tuned[0]}": wandb.plot.line(table, tuned[0], s, title=s) for s in scores}
        self.run.log(charts)

    def tell_experts(self, results: Mapping[str, Any]) -> None:
        columns: list[str | int] = ["name", "accuracy", "decoded_accuracy", "nda", "agreement", "own_classes_nda"]
        rows = [[expert.get(column) for column in columns] for expert in results["experts"]]
        self.run.log({"experts": wandb.Table(columns=columns, data=rows)})
