"""Ensemble distillation: a student trained to output Σ β_i f_i(x) on the P samples."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from coin import parameters
from coin.batch_norm import batch_norms
from coin.codes.code import Code
from coin.coding import Coding
from coin.parameters import Parameters, weighted_sum


@dataclass
class Distillation(Code):
    """AdamW on the squared loss, BatchNorm frozen, from θ_0 or (`start=average`) from the experts' average."""

    epochs: int = 20
    learning_rate: float = 1e-5
    weight_decay: float = 0.1
    batch_size: int = 8
    start: Literal["base", "average"] = "base"
    seed: int = 0
    trainer: Callable[..., L.Trainer] | None = None
    track: int = 0  # test samples an expert on which NDA is logged every epoch; 0: none
    history: Sequence[dict] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.start not in ("base", "average"):
            raise ValueError(f"code.start={self.start}: must be base or average")
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"code.epochs={self.epochs}, code.batch_size={self.batch_size}: must be at least 1")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ValueError(
                f"code.learning_rate={self.learning_rate}: must be positive, the weight decay not negative"
            )

    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        start = coding.base_params if self.start == "base" else weighted_sum(coding.params, coding.beta)
        student = parameters.load(copy.deepcopy(coding.experts[0]), start)
        outputs = coding.outputs()
        target = torch.stack([b * f for b, f in zip(coding.beta, outputs, strict=True)]).sum(0)
        module = Student(student, self.learning_rate, self.weight_decay, self.epoch_scores(coding, outputs))
        generator = torch.Generator().manual_seed(self.seed)
        loader = DataLoader(
            TensorDataset(torch.cat(list(coding.batches)), target), self.batch_size, shuffle=True, generator=generator
        )
        make = self.trainer or default_trainer
        trainer = make(max_epochs=self.epochs, logger=False, enable_checkpointing=False)
        module.train()
        trainer.fit(module, loader)
        if trainer.interrupted:
            raise KeyboardInterrupt
        self.history = module.history
        return {name: p.clone() for name, p in parameters.trainable(student.eval()).items()}

    def epoch_scores(self, coding: Coding, outputs: list[Tensor]) -> Callable[[nn.Module], dict]:
        def score(network: nn.Module) -> dict:
            params = parameters.trainable(network)
            nda, loss = coding.score(params, outputs)
            found = {"train_nda": nda, "coding_loss": loss}
            if self.track and coding.test_score:
                found["test_nda"] = coding.test_score(network, self.track)
            return found

        return score


class Student(L.LightningModule):
    def __init__(
        self, network: nn.Module, learning_rate: float, weight_decay: float, scores: Callable[[nn.Module], dict]
    ):
        super().__init__()
        self.network, self.learning_rate, self.weight_decay, self.scores = network, learning_rate, weight_decay, scores
        self.history: list[dict] = []

    def train(self, mode: bool = True) -> "Student":
        super().train(mode)
        for module in batch_norms(self.network):
            module.eval()
        return self

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        loss = (self.network(inputs) - target).square().sum(1).mean()
        self.log("distillation/loss", loss, prog_bar=True, on_step=False, on_epoch=True, batch_size=len(inputs))
        return loss

    def on_train_epoch_end(self) -> None:
        self.eval()
        with torch.no_grad():
            found = self.scores(self.network)
        self.train()
        self.history.append({"epoch": self.current_epoch + 1, **found})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = [p for p in self.network.parameters() if p.requires_grad]
        return torch.optim.AdamW(params, lr=self.learning_rate, weight_decay=self.weight_decay)


def default_trainer(**settings) -> L.Trainer:
    return L.Trainer(accelerator="auto", devices=1, enable_model_summary=False, **settings)
