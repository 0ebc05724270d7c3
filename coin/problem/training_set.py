"""All that an expert was trained on, for codes that train on it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from coin.batch import Plain
from coin.problem.recipes import Recipe


@dataclass(frozen=True)
class TrainingSet:
    """Inputs as they lie in memory, what prepares a batch of them on its device, and what determines both."""

    inputs: Plain
    transform: Callable[[Tensor], Plain]
    recipe: Recipe
