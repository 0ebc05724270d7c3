"""Codes that merge task vectors θ_i − θ_0 and need no data: what they share."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.codes.code import Code, check_positive, choices
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding, Hyperparameters
from coin.problem.recipes import recipe_of


@dataclass
class Merge(Code):
    """θ_c = θ_0 + α Δ; Δ is what a subclass makes of the task vectors, once for all α, the `scale`."""

    scale: float | None = None
    grid: Sequence[float] = tuple(round(0.1 * i, 1) for i in (*range(1, 11), *range(12, 31, 2)))

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, self.grid)

    def candidates(self) -> list[Hyperparameters]:
        return choices("scale", self.scale, self.grid)

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        base = coding.base_params

        def delta() -> Parameters:
            return self.merged([weighted_sum([params, base], [1, -1]) for params in coding.params], coding.beta)

        found = coding.kept("merges", range(len(coding.experts)), {"code": recipe_of(self)}, delta)
        return weighted_sum([base, found], [1, hyperparameters["scale"]])

    @abc.abstractmethod
    def merged(self, vectors: Sequence[Parameters], beta: Sequence[float]) -> Parameters:
        """Δ of the task vectors, which it may change."""


def is_matrix(tensor: Tensor) -> bool:
    """Weights of Linear layers and convolutions; what has one row or one dimension has no singular vectors to merge."""
    return tensor.ndim > 1 and len(tensor) > 1


def as_matrix(tensor: Tensor) -> Tensor:
    """(outputs, all else): a convolution's as (outputs, inputs · kernel)."""
    return tensor.reshape(len(tensor), -1)


def nearest_isometry(u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    """Of the matrix u diag(s) vh: all its singular values become one (orthogonal Procrustes), but for those that are
    zero, whose singular vectors are anybody's choice: these stay zero."""
    there = s > s.max() * max(len(u), vh.shape[1]) * torch.finfo(s.dtype).eps
    return u[:, there] @ vh[there]
