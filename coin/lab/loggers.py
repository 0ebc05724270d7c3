"""Loggers: W&B by default, offline unless WANDB_MODE or an agent says otherwise: nobody needs an account to start."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wandb
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.loggers.logger import DummyLogger

from coin.lab.console import console
from coin.training.ranks import is_first


class WandbRun(WandbLogger):
    """A WandbLogger whose run ends with `finalize`, so that one process can log several runs one after the other.

    Where W&B fails on the way (its disk is full, its service died) there is one warning, and nothing more is logged.
    """

    failed = False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.attempt(super().log_metrics, metrics, step)

    def log_hyperparams(self, params: Any) -> None:  # type: ignore[override]
        self.attempt(super().log_hyperparams, params)

    def finalize(self, status: str) -> None:
        self.attempt(super().finalize, status)
        self.attempt(lambda: self.experiment.finish())

    def attempt(self, log: Callable, *args: Any) -> None:
        if self.failed:
            return
        try:
            log(*args)
        except Exception as error:  # whatever it is, a log is not worth a run
            self.failed = True
            console.print(f"warning: W&B stopped logging ({' '.join(str(error).split())}); the run goes on without it")


def wandb_logger(
    save_dir: str,
    name: str,
    job_type: str,
    config: Mapping | None = None,
    group: str | None = None,
    project: str = "coin",
    **settings,
) -> Logger:
    """A W&B run below save_dir. Where W&B cannot log, a warning and a CSV file: never a lost run."""
    if not is_first():
        return DummyLogger()
    swept = "WANDB_SWEEP_ID" in os.environ  # started by `wandb agent`, whose one run is the encode run
    if swept and job_type != "encode":
        return csv_logger(save_dir, name, job_type, config, group)
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    try:
        run = wandb.init(
            project=project,
            name=name,
            job_type=job_type,
            group=group,
            config=dict(config or {}),
            dir=save_dir,
            mode=os.environ.get("WANDB_MODE", "online" if swept else "offline"),  # type: ignore[arg-type]
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
            **settings,
        )
    except Exception as error:  # whatever it is, a log is not worth a run
        console.print(f"warning: W&B cannot log ({' '.join(str(error).split())}); this run is logged to CSV instead")
        return csv_logger(save_dir, name, job_type, config, group)
    folder = Path(run.dir).parent
    sync = f"  (send it with: wandb sync {folder})" if run.settings.mode == "offline" else ""
    console.print(f"log: {folder}{sync}")
    return WandbRun(experiment=run)


def csv_logger(
    save_dir: str, name: str, job_type: str, config: Mapping | None = None, group: str | None = None
) -> Logger:
    if not is_first():
        return DummyLogger()
    logger = CSVLogger(save_dir, name=job_type, version=name)
    logger.log_hyperparams(dict(config or {}))
    console.print(f"log: {logger.log_dir}")
    return logger


def log_results(logger: Logger, results: Mapping) -> None:
    """All of a run's numbers, and the end of its log."""
    for point in results.get("history", []):
        logger.log_metrics({f"epoch/{key}": value for key, value in point.items()}, step=point["epoch"])
    logger.log_metrics(flat_results(results))
    logger.finalize("success")


def flat_results(results: Mapping) -> dict[str, float]:
    """A run's numbers under stable keys: nda, nda/EXPERT, accuracy/EXPERT, hyperparameters/NAME, seconds/PHASE, …"""
    flat = {key: results[key] for key in ("nda", "samples_nda", "coding_loss", "test_coding_loss")}
    for expert in results["experts"]:
        for key in ("accuracy", "decoded_accuracy", "nda", "agreement"):
            flat[f"{key}/{expert['name']}"] = expert[key]
    for group in ("hyperparameters", "seconds", "bytes"):
        flat |= {f"{group}/{key}": value for key, value in results[group].items()}
    return flat
