"""TIES: trim, elect signs, merge what agrees (Yadav et al., 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.codes.task_vectors import Merge
from coin.parameters import Parameters, weighted_sum


@dataclass
class Ties(Merge):
    """Of each task vector the share `keep` of largest magnitude is kept, over the whole network; each element's sign is
    that of the larger sum; Δ is the mean of those, and only those, that have it.

    Sums and means are weighted by β, so that an expert with more weight has more to say about sign and size; with
    equal β all is as published.
    """

    keep: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.keep, int | float) and 0 < self.keep <= 1):
            raise ValueError(f"code.keep={self.keep}: must be a share above 0, at most 1 (all of a task vector)")

    def merged(self, vectors: Sequence[Parameters], beta: Sequence[float]) -> Parameters:
        for vector in vectors:
            least = smallest_kept(vector, self.keep)
            for value in vector.values():
                value[value.abs() < least] = 0
        sums = weighted_sum(vectors, beta)
        majority = torch.stack([total.sign().sum() for total in sums.values()]).sum().sign()
        return {name: agreed([v[name] for v in vectors], beta, total, majority) for name, total in sums.items()}


def smallest_kept(vector: Parameters, keep: float) -> Tensor:
    magnitudes = torch.cat([value.abs().flatten() for value in vector.values()])
    count = max(1, round(keep * len(magnitudes)))
    return magnitudes.kthvalue(len(magnitudes) - count + 1).values


def agreed(values: Sequence[Tensor], beta: Sequence[float], total: Tensor, majority: Tensor) -> Tensor:
    """The weighted mean, in each place, of the values with the sign of the total, or, at zero, of most totals."""
    signs = torch.where(total == 0, majority, total.sign())
    mean, weight = torch.zeros_like(total), torch.zeros_like(total)
    for b, value in zip(beta, values, strict=True):
        same = value * signs > 0
        mean += b * value * same
        weight += b * same
    return mean.div_(weight.masked_fill_(weight == 0, 1))
