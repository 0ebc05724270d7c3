"""θ_0 for small data: a short, seeded pre-training that predicts by how much an image was turned.

It sees the images but none of their labels, so it knows nothing of the experts' tasks; it gives the filters, and
above all the BatchNorm statistics that fine-tuning freezes, a meaning.
"""

from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coin.problem.recipes import Recipe
from coin.training.data.images import ImageData
from coin.training.data.sets import Labelled

TURNS = 4


@dataclass
class Rotations:
    """Pre-training on `data` by telling 0°, 90°, 180° and 270° apart.

    Few, small steps: enough for the BatchNorm statistics that fine-tuning freezes, and every machine makes nearly the
    same θ_0 in spite of rounding.
    """

    data: ImageData
    epochs: int = 4
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise ValueError(f"pretraining.epochs={self.epochs}: must be at least 1; model.weights=none needs none")
        if not self.learning_rate > 0:
            raise ValueError(f"pretraining.learning_rate={self.learning_rate}: must be positive")

    def recipe(self) -> Recipe:
        return {
            "task": "rotations",
            "data": self.data.recipe(),
            "batch_size": self.data.batch_size,
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
        }


class RotationModule(L.LightningModule):
    def __init__(self, network: nn.Module, learning_rate: float):
        super().__init__()
        self.network, self.learning_rate = network, learning_rate

    def training_step(self, batch: Labelled, batch_idx: int) -> Tensor:
        images, _ = batch
        turned = torch.cat([torch.rot90(images, turns, dims=(2, 3)) for turns in range(TURNS)])
        target = torch.arange(TURNS, device=images.device).repeat_interleave(len(images))
        logits = self.network(turned.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits[:, :TURNS], target)
        self.log("pretrain/loss", loss, prog_bar=True, batch_size=len(target))
        self.log("pretrain/accuracy", (logits[:, :TURNS].argmax(1) == target).float().mean(), prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=self.learning_rate)
