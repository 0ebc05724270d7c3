"""What a decoder is: it makes a missing expert's outputs from the answers of the others."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from coin.parameters import Parameters


@dataclass
class Answers:
    """What every network answers on the P samples; a decoder may be fitted on it, without labels.

    `coded` has the K outputs and, behind them, any penultimate features that were sent. `owners` says from which
    expert's data each sample was drawn: that expert will be asked for such queries. None: any.
    """

    coded: Tensor
    experts: Sequence[Tensor]
    beta: Sequence[float]
    owners: Tensor | None = None

    @property
    def classes(self) -> int:
        return self.experts[0].shape[1]

    def others(self, missing: int) -> dict[int, Tensor]:
        return {j: f for j, f in enumerate(self.experts) if j != missing}


class Fitted(abc.ABC):
    """A decoder that knows all it will ever know."""

    @abc.abstractmethod
    def decode(self, coded: Tensor, others: Mapping[int, Tensor], missing: int) -> Tensor:
        """f̂ of expert `missing` from what the coded network and the others answered."""

    @abc.abstractmethod
    def held_out(self, missing: int) -> Tensor:
        """f̂ of expert `missing` on the samples, each decoded as if it had not been fitted on."""

    @abc.abstractmethod
    def tensors(self) -> Parameters:
        """All it needs: part of the coded artifact. `coin.decoders.from_tensors` makes it again."""


class Decoder(abc.ABC):
    """A dataclass whose fields are its options."""

    features: bool = False  # whether the coded network has to send its penultimate layer too
    alone: bool = False  # whether it asks the coded network alone, and none of the other experts

    def calls(self, experts: int) -> int:
        """How many answers it asks for to decode one, beside the missing expert's own."""
        return 1 if self.alone else experts

    @abc.abstractmethod
    def fit(self, answers: Answers) -> Fitted: ...
