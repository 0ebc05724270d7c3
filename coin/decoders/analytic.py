"""The paper's decoder: f̂_i = (f_c − Σ_{j≠i} β_j f_j) / β_i, nothing fitted; least squares where more are missing."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoding import recover
from coin.generator import Generator
from coin.parameters import Parameters


@dataclass
class Analytic(Decoder):
    def fit(self, answers: Answers) -> Fitted:
        return FittedAnalytic(answers.generator, answers.classes, answers)

    def most_missing(self, experts: int, coded: int) -> int:
        return min(experts, coded)


class FittedAnalytic(Fitted):
    def __init__(self, generator: Generator, classes: int, answers: Answers | None = None):
        self.generator, self.classes, self.answers = generator, classes, answers

    def decoded(self, coded: Mapping[int, Tensor], others: Mapping[int, Tensor], missing: int) -> Tensor:
        return recover({r: f[:, : self.classes] for r, f in coded.items()}, others, self.generator, missing)

    def held_out(self, missing: int) -> Tensor:
        assert self.answers is not None, "it was read from a file, not fitted"
        return self.decode(self.answers.arrived, self.answers.others(missing), missing)

    def tensors(self) -> Parameters:
        return {}
