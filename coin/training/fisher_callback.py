"""A Lightning callback that accumulates the diagonal Fisher while a Trainer predicts or validates."""

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from coin.fisher import DiagonalFisher, Directions


class FisherCallback(L.Callback):
    """Forwards every batch to a `DiagonalFisher`; on several devices each treats its share, and one reduction at the
    end makes the result that of one device. Its state can be saved and restored.

        callback = FisherCallback(network)
        Trainer(callbacks=[callback]).predict(module, loader)
        callback.fisher  # {name: tensor}

    Without `network` the LightningModule's own `network`, or the module itself, is treated. A batch is
    what `coin.batch` says: a tensor of inputs, a tuple that begins with it, or a mapping.
    """

    def __init__(self, network: nn.Module | None = None, directions: Directions | None = None):
        self.network, self.directions = network, directions
        self.accumulator: DiagonalFisher | None = None
        self.fisher: dict[str, Tensor] | None = None
        self._state: dict[str, Any] | None = None

    def start(self, module: L.LightningModule) -> None:
        network: nn.Module = self.network or getattr(module, "network", None) or module
        self.accumulator = DiagonalFisher(network, self.directions)
        if self._state is not None:
            self.accumulator.load_state_dict(self._state)
            self._state = None

    def add(self, trainer: L.Trainer, batch: Any) -> None:
        assert self.accumulator is not None
        with trainer.precision_plugin.forward_context():
            self.accumulator.update(batch)

    def finish(self) -> None:
        assert self.accumulator is not None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.accumulator.reduce()
        self.fisher = self.accumulator.compute()
        self.accumulator = None  # the next loop starts afresh; only an unfinished one has a state to save

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.start(pl_module)

    def on_predict_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.add(trainer, batch)

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.finish()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.start(pl_module)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.add(trainer, batch)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.finish()

    def state_dict(self) -> dict[str, Any]:
        return self.accumulator.state_dict() if self.accumulator else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            return
        if self.accumulator:
            self.accumulator.load_state_dict(state)
        else:
            self._state = state
