"""How far a training is, for whoever watches."""

from collections.abc import Callable
from typing import Any

import lightning as L


class Progress(L.Callback):
    """Tells `advance` after every step how many are done, and of how many."""

    def __init__(self, advance: Callable[[float, float], None]):
        self.advance = advance

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self.advance(trainer.global_step, trainer.estimated_stepping_batches)
