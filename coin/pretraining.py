"""θ_0 for small data: a short, seeded pre-training that predicts by how much an image was turned.

It sees the images but none of their labels, so it knows nothing of the experts' tasks; it gives the filters, and
above all the BatchNorm statistics that fine-tuning freezes, a meaning.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coin.data.images import Batch, ImageData
from coin.expert import MakeTrainer
from coin.models import Model
from coin.store import Artifact, Made, Store

TURNS = 4


@dataclass
class Rotations:
    """Pre-training on `data` by telling 0°, 90°, 180° and 270° apart."""

    data: ImageData
    epochs: int = 10
    learning_rate: float = 3e-3
    seed: int = 0

    def recipe(self) -> dict:
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

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
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


def obtain_base(
    store: Store, model: Model, num_classes: int, pretraining: Rotations, make_trainer: MakeTrainer
) -> Artifact:
    """θ_0 of this model, from the store, or built (and, for weights=rotations, pre-trained) now."""
    recipe = {"model": model.recipe(), "num_classes": num_classes}
    if model.weights == "rotations":
        recipe["pretraining"] = pretraining.recipe()

    def make(scratch: Path) -> Made:
        network = model.build(num_classes)
        if model.weights != "rotations":
            return network.state_dict(), {}
        start = time.perf_counter()
        body = model.build(max(num_classes, TURNS))  # its own head; θ_0 gets the fresh one
        L.seed_everything(pretraining.seed, verbose=False)
        pretraining.data.seed = pretraining.seed
        trainer = make_trainer(
            max_epochs=pretraining.epochs, logger=False, enable_checkpointing=False, limit_val_batches=0
        )
        trainer.fit(RotationModule(body, pretraining.learning_rate), datamodule=pretraining.data)
        if trainer.interrupted:
            raise KeyboardInterrupt
        learned = {k: v for k, v in body.state_dict().items() if not k.startswith(model.head)}
        network.load_state_dict(learned, strict=False)
        facts = {
            "rotation_accuracy": 100 * float(trainer.callback_metrics["pretrain/accuracy"]),
            "seconds": round(time.perf_counter() - start, 2),
        }
        return network.state_dict(), facts

    return store.obtain("bases", f"{model.name}-{model_origin(model)}", recipe, make)


def model_origin(model: Model) -> str:
    named = model.weights in ("none", "imagenet", "rotations")
    return str(model.weights) if named else "".join(c if c.isalnum() else "_" for c in Path(str(model.weights)).stem)
