"""Loggers: W&B by default, offline unless WANDB_MODE says otherwise, so that nobody needs an account to start."""

import os
from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger

from coin.console import console


class WandbRun(WandbLogger):
    """A WandbLogger whose run ends with `finalize`, so that one process can log several runs one after the other."""

    def finalize(self, status: str) -> None:
        super().finalize(status)
        self.experiment.finish()


def wandb_logger(
    save_dir: str, name: str, job_type: str, config: Mapping | None = None, group: str | None = None, **settings
) -> Logger:
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_SILENT", "true")
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    logger = WandbRun(
        save_dir=save_dir, name=name, job_type=job_type, config=dict(config or {}), group=group, **settings
    )
    folder = Path(logger.experiment.dir).parent
    sync = f"  (send it with: wandb sync {folder})" if logger.experiment.settings.mode == "offline" else ""
    console.print(f"log: {folder}{sync}")
    return logger


def csv_logger(
    save_dir: str, name: str, job_type: str, config: Mapping | None = None, group: str | None = None
) -> Logger:
    logger = CSVLogger(save_dir, name=job_type, version=name)
    logger.log_hyperparams(dict(config or {}))
    console.print(f"log: {logger.log_dir}")
    return logger


def flat_results(results: Mapping) -> dict[str, float]:
    """A run's numbers under stable keys: nda, nda/EXPERT, accuracy/EXPERT, hyperparameters/NAME, seconds/PHASE, …"""
    flat = {key: results[key] for key in ("nda", "samples_nda", "coding_loss", "test_coding_loss")}
    for expert in results["experts"]:
        for key in ("accuracy", "decoded_accuracy", "nda", "agreement"):
            flat[f"{key}/{expert['name']}"] = expert[key]
    for group in ("hyperparameters", "seconds", "bytes"):
        flat |= {f"{group}/{key}": value for key, value in results[group].items()}
    return flat
