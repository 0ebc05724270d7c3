"""Experts: a foundation model fine-tuned on one data set with BatchNorm frozen."""

from dataclasses import asdict, dataclass

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from coin.batch import Batch, Plain
from coin.problem.recipes import Recipe
from coin.problem.statistics import batch_norms
from coin.training.batch_norm import MODES, Mode, freeze_batch_norm
from coin.training.data.sets import Labelled


@dataclass
class FineTuning:
    """The paper's recipe for an expert: AdamW on the cross-entropy.

    `batch_norm` is frozen, all of it; or its affine parameters are trained; or its statistics are too.
    """

    epochs: int
    learning_rate: float = 1e-5
    weight_decay: float = 0.1
    seed: int = 0
    batch_norm: Mode = "frozen"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"finetune.epochs={self.epochs}: must be at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"finetune.learning_rate={self.learning_rate}: must be positive")
        if not self.weight_decay >= 0:
            raise ValueError(f"finetune.weight_decay={self.weight_decay}: must not be negative")
        if self.batch_norm not in MODES:
            raise ValueError(f"finetune.batch_norm={self.batch_norm}: must be one of {', '.join(MODES)}")

    def recipe(self) -> Recipe:
        """What was made before there was a choice keeps its name."""
        told = asdict(self)
        if self.batch_norm == "frozen":
            del told["batch_norm"]
        return told


class ExpertModule(L.LightningModule):
    """Fine-tunes `network`; what is frozen of its BatchNorm layers stays as it is bit by bit."""

    def __init__(self, network: nn.Module, num_classes: int, finetune: FineTuning):
        super().__init__()
        self.network, self.finetune = freeze_batch_norm(network, finetune.batch_norm), finetune
        self.accuracy = MulticlassAccuracy(num_classes, average="micro")

    def train(self, mode: bool = True) -> "ExpertModule":
        super().train(mode)
        for module in batch_norms(self.network) if self.finetune.batch_norm != "trained" else ():
            module.eval()  # running statistics are neither used up to date nor updated
        return self

    def forward(self, inputs: Plain) -> Tensor:
        return Batch.of(inputs).ask(self.network)

    def on_train_batch_start(self, batch: Labelled, batch_idx: int) -> None:
        """What dropout draws depends on the batch's number alone, so a killed training goes on as it would have."""
        torch.manual_seed((self.finetune.seed * 100_003 + self.current_epoch) * 1_000_003 + batch_idx)

    def training_step(self, batch: Labelled, batch_idx: int) -> Tensor:
        inputs, labels = batch
        outputs = self(inputs)
        loss = (
            F.cross_entropy(outputs, labels) if len(labels) else outputs.sum()
        )  # a rank may have none of a last batch
        if self.trainer.world_size > 1:
            # ranks may hold one sample more or less; DDP averages over ranks, the batch's mean is over samples
            counts = torch.as_tensor(self.all_gather(torch.tensor(float(len(labels)), device=self.device)))
            loss = loss * len(labels) * self.trainer.world_size / counts.sum()
        self.log("train/loss", loss, prog_bar=True, batch_size=max(len(labels), 1))
        return loss

    def validation_step(self, batch: Labelled, batch_idx: int) -> None:
        inputs, labels = batch
        if len(labels):  # of a small last batch, some ranks have none
            self.accuracy.update(self(inputs), labels)
        self.log("test/accuracy", self.accuracy, on_epoch=True, prog_bar=True, batch_size=max(len(labels), 1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = [p for p in self.network.parameters() if p.requires_grad]
        return torch.optim.AdamW(params, lr=self.finetune.learning_rate, weight_decay=self.finetune.weight_decay)
