"""The paper's decoder: f̂_i = (f_c − Σ_{j≠i} β_j f_j) / β_i, nothing fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoding import decode
from coin.parameters import Parameters


@dataclass
class Analytic(Decoder):
    def fit(self, answers: Answers) -> Fitted:
        return FittedAnalytic(answers.beta, answers.classes, answers)


class FittedAnalytic(Fitted):
    def __init__(self, beta: Sequence[float], classes: int, answers: Answers | None = None):
        self.beta, self.classes, self.answers = beta, classes, answers

    def decode(self, coded: Tensor, others: Mapping[int, Tensor], missing: int) -> Tensor:
        return decode(coded[:, : self.classes], others, self.beta, missing)

    def held_out(self, missing: int) -> Tensor:
        assert self.answers is not None, "it was read from a file, not fitted"
        return self.decode(self.answers.coded, self.answers.others(missing), missing)

    def tensors(self) -> Parameters:
        return {}
