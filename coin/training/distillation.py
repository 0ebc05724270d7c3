"""Ensemble distillation: a student trained to output Σ β_i f_i(x) on the P samples.

`coin_refined` is the same from COIN's solution, for as many epochs as cross-validation on the samples says.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from coin import parameters
from coin.batch import Batch, Plain
from coin.codes.code import Code
from coin.decoders import Analytic
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding
from coin.problem.digests import digest_of
from coin.problem.recipes import Recipe
from coin.problem.statistics import batch_norms
from coin.problem.tuning import Tuner
from coin.training.data.sets import Batches, Examples, Labelled
from coin.training.trainers import Trainers

Point = dict[str, float]  # what is told of an epoch


@dataclass
class Distillation(Code):
    """AdamW on the squared loss, BatchNorm frozen, from θ_0, from the experts' average, or from another code's choice.

    A student is the same whatever decodes it, so the NDA of its epochs is told for the paper's formula.
    With `folds`, students trained without a fold of the samples each, and judged by it, say after how many epochs the
    coding loss on unseen samples is lowest; none at all may be best, and then the code is where it started.
    """

    epochs: int = 20
    learning_rate: float = 1e-5
    weight_decay: float = 0.1
    batch_size: int = 8
    start: Literal["base", "average"] | Code = "base"
    folds: int = 0
    seed: int = 0
    trainer: Callable[..., L.Trainer] | None = field(default=None, compare=False)
    track: int = field(default=0, compare=False)  # test samples an expert on which NDA is told every epoch; 0: none
    tuner: Tuner = field(default_factory=Tuner)  # of the code it starts from
    history: Sequence[Point] = field(default=(), init=False, repr=False)
    chosen: Mapping[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.start not in ("base", "average") and not isinstance(self.start, Code):
            raise ValueError(f"code.start={self.start}: must be base, average or a code")
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"code.epochs={self.epochs}, code.batch_size={self.batch_size}: must be at least 1")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ValueError(
                f"code.learning_rate={self.learning_rate}: must be positive, the weight decay not negative"
            )
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"code.folds={self.folds}: must be at least 2, or 0 to train for all epochs")

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        start = self.start_params(coding)
        settings = {"student": self.settings(), "start": digest_of(*start.values()), "track": self.track}
        everyone = range(len(coding.experts))
        found = coding.kept("students", everyone, settings, lambda: self.trained(coding, start))
        curves = {key: found[f"history/{key}"].tolist() for key in HISTORY if f"history/{key}" in found}
        self.history = [
            dict(zip(curves, point, strict=True)) | {"epoch": epoch}
            for epoch, point in enumerate(zip(*curves.values(), strict=True), 0 if self.folds else 1)
        ]
        if self.folds:
            losses = [point["unseen_loss"] for point in self.history]
            self.chosen = {**self.chosen, "epochs": losses.index(min(losses))}
        return {name: value for name, value in found.items() if not name.startswith("history/")}

    def check(self, samples: int) -> None:
        if self.folds > samples:
            raise ValueError(f"code.folds={self.folds}: there are only {samples} samples")

    def settings(self) -> Recipe:
        """What determines a student beside its start, the experts and the samples."""
        chosen = ("epochs", "learning_rate", "weight_decay", "batch_size", "folds", "seed")
        return {name: getattr(self, name) for name in chosen}

    def start_params(self, coding: Coding) -> Parameters:
        if isinstance(self.start, Code):
            tuned = self.tuner.tune(self.start, coding)
            self.chosen = tuned.hyperparameters
            return tuned.params
        return coding.base_params if self.start == "base" else weighted_sum(coding.params, coding.beta)

    def trained(self, coding: Coding, start: Parameters) -> Parameters:
        if not self.folds:
            params, history = self.train(coding, start, self.epochs, self.epoch_scores(coding))
            return params | {f"history/{key}": torch.tensor([p[key] for p in history]) for key in history[0]}
        curve = torch.tensor(self.unseen_losses(coding, start)).mean(0).nan_to_num(nan=math.inf)
        epochs = int(curve.argmin())
        params = self.train(coding, start, epochs)[0] if epochs else start
        return params | {"history/unseen_loss": curve}

    def unseen_losses(self, coding: Coding, start: Parameters) -> list[list[float]]:
        """For every fold, its coding loss at the start and after every epoch of training without it."""
        count = len(coding.samples)
        self.check(count)
        fold = torch.arange(count) % self.folds
        losses = []
        for k in range(self.folds):
            seen, unseen = (coding.part(torch.where(rows)[0]) for rows in (fold != k, fold == k))

            def score(network: nn.Module, unseen: Coding = unseen) -> Point:
                return {"loss": unseen.loss(parameters.trainable(network))}

            _, history = self.train(seen, start, self.epochs, score)
            losses.append([unseen.loss(start), *(point["loss"] for point in history)])
        return losses

    def train(
        self,
        coding: Coding,
        start: Parameters,
        epochs: int,
        scores: Callable[[nn.Module], Point] = lambda network: {},
    ) -> tuple[Parameters, list[Point]]:
        """A student's parameters after so many epochs, and its scores after each of them."""
        student = copy.deepcopy(coding.network(start))
        outputs = coding.outputs()
        target = torch.stack([b * f for b, f in zip(coding.beta, outputs, strict=True)]).sum(0)
        module = Student(student, self.learning_rate, self.weight_decay, scores)
        data = StudentData(coding.samples.plain, target, self.batch_size, self.seed)
        make = self.trainer or default_trainer
        trainer = make(max_epochs=epochs, max_steps=-1, logger=False, enable_checkpointing=False)
        module.train()
        trainer.fit(module, datamodule=data)
        if trainer.interrupted:
            raise KeyboardInterrupt
        return {name: p.clone() for name, p in parameters.trainable(student.eval()).items()}, module.history

    def epoch_scores(self, coding: Coding) -> Callable[[nn.Module], Point]:
        analytic = replace(coding, decoder=Analytic())

        def score(network: nn.Module) -> Point:
            found = analytic.score(analytic.answers(parameters.trainable(network)))
            record = {"train_nda": found.nda, "coding_loss": found.coding_loss}
            if self.track and coding.test_score:
                record["test_nda"] = coding.test_score(network, self.track)
            return record

        return score


HISTORY = ("train_nda", "coding_loss", "test_nda", "unseen_loss")  # what may be told of an epoch


class StudentData(L.LightningDataModule):
    """The P samples and what a student shall say of them; each rank gets its slice of every batch."""

    def __init__(self, inputs: Plain, target: Tensor, batch_size: int, seed: int):
        super().__init__()
        self.samples, self.batch_size, self.seed = Examples(inputs, target), batch_size, seed

    def train_dataloader(self) -> DataLoader[Labelled]:
        assert self.trainer is not None
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        batches = Batches(len(self.samples), self.batch_size, self.seed, rank, ranks)
        return DataLoader(self.samples, sampler=batches, batch_size=None)


class Student(L.LightningModule):
    def __init__(
        self, network: nn.Module, learning_rate: float, weight_decay: float, scores: Callable[[nn.Module], Point]
    ):
        super().__init__()
        self.network, self.learning_rate, self.weight_decay, self.scores = network, learning_rate, weight_decay, scores
        self.history: list[Point] = []

    def train(self, mode: bool = True) -> "Student":
        super().train(mode)
        for module in batch_norms(self.network):
            module.eval()
        return self

    def training_step(self, batch: Labelled, batch_idx: int) -> Tensor:
        inputs, target = batch
        errors: Tensor = (Batch.of(inputs).ask(self.network) - target).square().sum(1)
        loss = errors.mean() if len(errors) else errors.sum()  # a rank may have no sample of a small last batch
        if self.trainer.world_size > 1:
            # DDP averages over ranks, the batch's mean is over samples
            count = torch.as_tensor(self.all_gather(torch.tensor(float(len(errors)), device=self.device))).sum()
            loss = errors.sum() * self.trainer.world_size / count
        self.log("distillation/loss", loss, prog_bar=True, on_step=False, on_epoch=True, batch_size=len(target))
        return loss

    def on_train_epoch_end(self) -> None:
        self.eval()
        with torch.no_grad():
            found = self.scores(self.network)
        self.train()
        self.history.append(found)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = [p for p in self.network.parameters() if p.requires_grad]
        fused = not self.trainer.gradient_clip_val  # in mixed precision the two exclude each other
        return torch.optim.AdamW(params, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)


default_trainer = Trainers({"accelerator": "auto", "devices": 1, "enable_model_summary": False})
