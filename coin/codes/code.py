"""What a code is: it makes a coded network's weights."""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from coin.averaging import Weighing
from coin.coding import Coding
from coin.fisher import Directions, Exact
from coin.parameters import Parameters, weighted_sum
from coin.recipes import fields_of


class Code(abc.ABC):
    """A dataclass whose fields are the hyperparameters. One that is None is tuned over its grid."""

    history: Sequence[dict] = ()  # a code that trains leaves a record an epoch
    folds: int = 0  # a code that fits the samples has its candidates judged by so many parts it was not made from
    chosen: Mapping[str, float] = MappingProxyType({})  # what it chose by itself, beside the candidate

    def candidates(self) -> list[dict]:
        """The hyperparameters to choose from; a single empty choice where there are none."""
        return [{}]

    def recipe(self) -> dict:
        """What determines its weights beside the problem and the candidate, as plain data."""
        return fields_of(self)

    def check(self, samples: int) -> None:
        """Refuses what these many samples are too few for, before anything is trained."""
        return

    @abc.abstractmethod
    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        """The coded parameters θ_c for one of the candidates."""


@dataclass
class FisherCode(Code):
    """What all codes that weigh by Fishers have in common: a damping λ, how Fishers are weighed, and a scale.

    With a `scale` s other than 1 (None: tuned jointly with λ) the code is θ_0 + s (θ_c − θ_0). `balance` and `relative`
    are coin.averaging.Weighing's.
    """

    damping: float | None = None
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    scale: float | None = 1.0
    scales: Sequence[float] = (1.0, 1.5, 2.0, 2.5, 3.0)
    balance: Literal["none", "network", "layer"] = "none"
    relative: bool = False
    fisher: Directions = field(default_factory=Exact)
    weighing: Weighing = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_positive("damping", self.damping, self.grid)
        check_positive("scale", self.scale, self.scales)
        self.weighing = Weighing(self.balance, self.relative)

    def candidates(self) -> list[dict]:
        damped = choices("damping", self.damping, self.grid)
        if self.scale == 1:
            return damped
        return [{**d, **s} for d in damped for s in choices("scale", self.scale, self.scales)]

    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        coded, s = self.solution(coding, hyperparameters["damping"]), hyperparameters.get("scale", 1.0)
        return coded if s == 1 else weighted_sum([coded, coding.base_params], [s, 1 - s])

    @abc.abstractmethod
    def solution(self, coding: Coding, damping: float) -> Parameters:
        """θ_c for this λ, before it is scaled."""


def choices(name: str, value: float | None, grid: Sequence[float]) -> list[dict]:
    """The one value given, or the whole grid."""
    return [{name: float(v)} for v in (grid if value is None else [value])]


def values_of(name: str, value: float | None, grid: Sequence[float]) -> list[float]:
    """All that is to be checked; refuses to tune over an empty grid."""
    if value is None and not grid:
        raise ValueError(f"code.{name} is to be tuned over an empty grid; give values, or a number for code.{name}")
    return [*grid, *([] if value is None else [value])]


def check_positive(name: str, value: float | None, grid: Sequence[float]) -> None:
    for v in values_of(name, value, grid):
        if not (isinstance(v, int | float) and v > 0 and math.isfinite(v)):
            raise ValueError(f"code.{name}={v}: must be a positive number, or null to tune it over its grid")
