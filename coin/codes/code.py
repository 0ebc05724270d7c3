"""What a code is: it makes a coded network's weights."""

import abc
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from coin.parameters import Parameters
from coin.problem.coding import Coding, Hyperparameters
from coin.problem.recipes import Recipe, fields_of


class Code(abc.ABC):
    """A dataclass whose fields are the hyperparameters. One that is None is tuned over its grid."""

    history: Sequence[dict[str, float]] = ()  # a code that trains leaves a record an epoch
    folds: int = 0  # a code that fits the samples has its candidates judged by so many parts it was not made from
    judges: int = 0  # how many of these parts, the first ones, do judge; 0: all
    chosen: Mapping[str, float] = MappingProxyType({})  # what it chose by itself, beside the candidate

    def candidates(self) -> list[Hyperparameters]:
        """The hyperparameters to choose from; a single empty choice where there are none."""
        return [{}]

    def draft(self) -> "Code":
        """What its candidates are compared by where folds judge them: itself, or one that costs less."""
        return self

    def recipe(self) -> Recipe:
        """What determines its weights beside the problem and the candidate, as plain data."""
        return fields_of(self)

    def check(self, samples: int) -> None:
        """Refuses what these many samples are too few for, before anything is trained."""
        return

    @abc.abstractmethod
    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        """The coded parameters θ_c for one of the candidates."""


def choices(name: str, value: float | None, grid: Sequence[float]) -> list[Hyperparameters]:
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
