"""What a code is: it makes a coded network's weights."""

import abc
import math
from collections.abc import Sequence

from coin.coding import Coding
from coin.parameters import Parameters


class Code(abc.ABC):
    """A dataclass whose fields are the hyperparameters. One that is None is tuned over its grid."""

    history: Sequence[dict] = ()  # a code that trains leaves a record an epoch

    def candidates(self) -> list[dict]:
        """The hyperparameters to choose from; a single empty choice where there are none."""
        return [{}]

    def recipe(self) -> dict:
        """What determines its weights beside the problem and the candidate, as plain data."""
        return {"code": repr(self)}

    @abc.abstractmethod
    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        """The coded parameters θ_c for one of the candidates."""


def choices(name: str, value: float | None, grid: Sequence[float]) -> list[dict]:
    """The one value given, or the whole grid."""
    if value is None and not grid:
        raise ValueError(f"code.{name} is to be tuned over an empty grid; give values, or a number for code.{name}")
    return [{name: float(v)} for v in (grid if value is None else [value])]


def check_positive(name: str, value: float | None, grid: Sequence[float]) -> None:
    for v in [*grid, *([] if value is None else [value])]:
        if not (isinstance(v, int | float) and v > 0 and math.isfinite(v)):
            raise ValueError(f"code.{name}={v}: must be a positive number, or null to tune it over code.grid")
