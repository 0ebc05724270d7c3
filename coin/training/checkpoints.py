"""Checkpoints of a training that may be killed at any moment."""

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, ModelCheckpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """A checkpoint replaces the last one complete or not at all, whatever happens while it is written."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        try:
            with open(fresh, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except RuntimeError as error:
            if "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
                raise
            # torch's own words for a write that failed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        finally:
            fresh.unlink(missing_ok=True)


def check_minutes(minutes: float) -> float:
    if not isinstance(minutes, int | float) or not 0 < minutes < float("inf"):
        raise ValueError(f"checkpoint_minutes={minutes}: must be a positive number of minutes")
    return minutes


def checkpoints(folder: Path, minutes: float) -> list[Callback]:
    """Writes folder/last.ckpt after every epoch, and every so many minutes within one."""
    same: dict[str, Any] = {"filename": "last", "save_top_k": 1, "monitor": None, "enable_version_counter": False}
    return [
        ModelCheckpoint(folder, every_n_epochs=1, **same),
        BetweenSteps(folder, train_time_interval=timedelta(minutes=minutes), **same),
    ]


class BetweenSteps(ModelCheckpoint):
    """Never while gradients are accumulated, which are no part of a checkpoint, nor after the last step of an epoch:
    that is its end's to write, and Lightning, going on from there, would miscount the epochs that follow."""

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = batch_idx + 1
        if step % trainer.accumulate_grad_batches == 0 and step != trainer.num_training_batches:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


def check_readable(path: Path) -> None:
    """Refuses a checkpoint that is damaged, or that holds more than tensors and plain data."""
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises all kinds, depending on where the damage is
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{path} is no checkpoint that can be read safely ({reason}); delete it to start this training again"
        ) from error
