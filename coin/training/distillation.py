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
from torch import nn

from coin import parameters
from coin.codes.code import Code
from coin.decoders import Analytic
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding
from coin.problem.digests import digest_of
from coin.problem.recipes import Recipe
from coin.problem.tuning import Tuner
from coin.training.prediction import Inputs
from coin.training.students import Point, Student, StudentData, check_training, train_student

HISTORY = ("train_nda", "coding_loss", "test_nda", "unseen_loss")  # what may be told of an epoch


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
        check_training(self.epochs, self.batch_size, self.learning_rate, self.weight_decay)
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
            return tuned.params[0]
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
        data = StudentData([Inputs(coding.samples)], target, self.batch_size, self.seed)
        return train_student(module, data, epochs, self.trainer), module.history

    def epoch_scores(self, coding: Coding) -> Callable[[nn.Module], Point]:
        analytic = replace(coding, decoder=Analytic())

        def score(network: nn.Module) -> Point:
            found = analytic.score(analytic.answers(analytic.asked([parameters.trainable(network)])))
            record = {"train_nda": found.nda, "coding_loss": found.coding_loss}
            if self.track and coding.test_score:
                record["test_nda"] = coding.test_score(network, self.track)
            return record

        return score
