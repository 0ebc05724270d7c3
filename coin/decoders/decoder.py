"""What a decoder is: it makes a missing expert's outputs from whatever answers have arrived."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from coin.generator import Generator
from coin.parameters import Parameters


@dataclass
class Answers:
    """What the networks answer to some queries; a decoder may be fitted on it, without labels.

    `coded`, one tensor a coded network, have the K outputs and, behind them, any penultimate features that were sent.
    `experts` are those that answered, by number. `owners` says from which expert's data each query was drawn: that
    expert will be asked for such queries. None: any. With `copies` every sample is there so many times, first all of
    them as they are, then all of them moved: who predicts one of them must not have seen the others.
    """

    coded: Sequence[Tensor]
    experts: Mapping[int, Tensor]
    generator: Generator
    owners: Tensor | None = None
    copies: int = 1

    @property
    def classes(self) -> int:
        return next(iter(self.experts.values())).shape[1]

    @property
    def arrived(self) -> dict[int, Tensor]:
        """The coded networks' answers, by number."""
        return dict(enumerate(self.coded))

    def others(self, *missing: int) -> dict[int, Tensor]:
        return {j: f for j, f in self.experts.items() if j not in missing}


class Fitted(abc.ABC):
    """A decoder that is fitted to a coded network."""

    generator: Generator

    def decode(self, coded: Tensor | Mapping[int, Tensor], others: Mapping[int, Tensor], missing: int) -> Tensor:
        """f̂ of expert `missing` from what has arrived: the answer of the coded network (of several: by number), and
        those of other experts, by number."""
        if not 0 <= missing < len(self.generator[0]):
            raise ValueError(f"missing={missing}: there are experts 0 to {len(self.generator[0]) - 1}")
        arrived = {0: coded} if isinstance(coded, Tensor) else dict(coded)
        unknown = [r for r in arrived if not 0 <= r < len(self.generator)]
        if unknown or not arrived:
            raise ValueError(
                f"coded networks {sorted(arrived)} answered; there are 0 to {len(self.generator) - 1}, and one has to"
            )
        return self.decoded(arrived, {j: f for j, f in others.items() if j != missing}, missing)

    @abc.abstractmethod
    def decoded(self, coded: Mapping[int, Tensor], others: Mapping[int, Tensor], missing: int) -> Tensor:
        """The same, of answers by number."""

    @abc.abstractmethod
    def held_out(self, missing: int) -> Tensor:
        """f̂ of expert `missing` on the samples, all others having answered, each as if it had not been fitted on."""

    @abc.abstractmethod
    def tensors(self) -> Parameters:
        """All it needs: part of the coded artifact. `coin.decoders.from_tensors` makes it again."""


class Decoder(abc.ABC):
    """A dataclass whose fields are its options."""

    features: bool = False  # whether a coded network has to send its penultimate layer too
    alone: bool = False  # whether it asks coded networks alone, and none of the other experts
    copies: int = 0  # of each sample, moved, that it is fitted on too

    def calls(self, experts: int, coded: int = 1) -> int:
        """How many answers it asks for to decode one, beside the missing expert's own."""
        return coded if self.alone else experts - 1 + coded

    def most_missing(self, experts: int, coded: int) -> int:
        """How many experts may be missing at a time."""
        return experts

    @abc.abstractmethod
    def fit(self, answers: Answers) -> Fitted: ...
