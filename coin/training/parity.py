"""A parity model: a network trained to output Σ β_i f_i(x) on all training images of all experts.

Kosaian et al. (2019) train a network to answer coded queries; here models are coded, and queries stay what they are. It
is what coding without training has to be compared with, and it costs as much as experts do.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import lightning as L
import torch
from torch import Tensor, nn

from coin import parameters
from coin.batch import Batch
from coin.codes.code import Code
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding
from coin.problem.training_set import TrainingSet
from coin.training.prediction import Asking, Inputs
from coin.training.progress import Progress
from coin.training.students import Student, StudentData, check_training, default_trainer, train_student


@dataclass
class Parity(Code):
    """AdamW on the squared loss, BatchNorm frozen, from θ_0 or the experts' average; by default the recipe with which
    the paper fine-tunes an expert of CIFAR10. The P samples serve the decoder alone."""

    epochs: int = 3
    learning_rate: float = 1e-5
    weight_decay: float = 0.1
    batch_size: int = 128
    start: Literal["base", "average"] = "base"
    seed: int = 0
    trainer: Callable[..., L.Trainer] | None = field(default=None, compare=False)
    chosen: Mapping[str, float] = field(default_factory=dict, init=False, repr=False)  # how much it was trained

    def __post_init__(self) -> None:
        if self.start not in ("base", "average"):
            raise ValueError(f"code.start={self.start}: must be base or average")
        check_training(self.epochs, self.batch_size, self.learning_rate, self.weight_decay)

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        if coding.training_sets is None:
            raise ValueError(
                "a parity model is trained on all training images of all experts, and this problem has none; run it "
                "as python encode.py code=parity, or use a code that needs the samples alone"
            )
        data = coding.training_sets()
        self.chosen = {"images": sum(len(Batch.of(part.inputs)) for part in data), "epochs": self.epochs}
        settings = {"parity": self.recipe(), "data": [part.recipe for part in data]}
        return coding.kept("parities", range(len(coding.experts)), settings, lambda: self.trained(coding, data))

    def trained(self, coding: Coding, data: Sequence[TrainingSet]) -> Parameters:
        start = coding.base_params if self.start == "base" else weighted_sum(coding.params, coding.beta)
        sources = [Inputs(part.inputs, part.transform) for part in data]
        network = parameters.load(copy.deepcopy(coding.experts[0]), start)
        student = Student(network, self.learning_rate, self.weight_decay)
        taught = StudentData(sources, self.target(coding, sources), self.batch_size, self.seed)
        return train_student(student, taught, self.epochs, self.trainer, [Progress(coding.advance)])

    def target(self, coding: Coding, sources: Sequence[Inputs]) -> Tensor:
        """Σ β_i f_i of all images."""
        asking = Asking(self.trainer or default_trainer)

        def outputs(expert: nn.Module) -> Tensor:
            return torch.cat([asking.outputs(expert, source) for source in sources])

        return torch.stack([b * outputs(f) for b, f in zip(coding.beta, coding.experts, strict=True)]).sum(0)
