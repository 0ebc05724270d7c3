"""DARE: drop most of each task vector at random, scale up the rest (Yu et al., 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from coin.codes.task_vectors import Merge
from coin.parameters import Parameters, weighted_sum


@dataclass
class Dare(Merge):
    """Δ = Σ N β_i τ_i, where τ_i is the task vector with each element dropped with probability `drop` and otherwise
    divided by 1 − drop, so that it stays what it is on average.

    That is DARE with task arithmetic; with equal β, as published. Unequal weights scale the task vectors in proportion.
    """

    drop: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.drop, int | float) and 0 <= self.drop < 1):
            raise ValueError(f"code.drop={self.drop}: must be a probability from 0 to below 1")

    def merged(self, vectors: Sequence[Parameters], beta: Sequence[float]) -> Parameters:
        generator = torch.Generator().manual_seed(self.seed)
        for vector in vectors:
            for value in vector.values():
                dropped = torch.rand(value.shape, generator=generator) < self.drop
                value.masked_fill_(dropped.to(value.device), 0)
        return weighted_sum(vectors, [len(beta) * b / (1 - self.drop) for b in beta])
