"""All training images of an expert, for codes that train on them."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from coin.problem.recipes import Recipe


@dataclass(frozen=True)
class TrainingImages:
    """Images as they lie in memory, what prepares a batch of them on its device, and what determines both."""

    images: Tensor
    transform: Callable[[Tensor], Tensor]
    recipe: Recipe
