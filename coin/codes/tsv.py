"""TSV-M: merges the leading singular vectors of each layer's task matrices (Gargiulo et al., 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.codes.task_vectors import Merge, as_matrix, is_matrix, nearest_isometry
from coin.parameters import Parameters, weighted_sum


@dataclass
class TaskSingularVectors(Merge):
    """Every expert gets an Nth of a layer's rank: the leading singular vectors U_i, V_i of its task matrix. Side by
    side they are not orthogonal where experts are in one another's way; Δ = Û diag(N β_i Σ_i) V̂ᵀ with the nearest
    ones that are, Û and V̂. What is no matrix is averaged, with weights β.

    With equal β this is as published; unequal weights scale the singular values in proportion, not the ranks.
    """

    def merged(self, vectors: Sequence[Parameters], beta: Sequence[float]) -> Parameters:
        delta = weighted_sum(vectors, beta)
        for name, value in delta.items():
            if is_matrix(value):
                delta[name] = merge_matrices([as_matrix(v[name]) for v in vectors], beta).reshape(value.shape)
        return delta


def merge_matrices(matrices: Sequence[Tensor], beta: Sequence[float]) -> Tensor:
    rank = max(1, min(matrices[0].shape) // len(matrices))
    left, values, right = [], [], []
    for matrix, weight in zip(matrices, beta, strict=True):
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        left.append(u[:, :rank])
        values.append(len(matrices) * weight * s[:rank])
        right.append(vh[:rank])
    return whitened(torch.cat(left, 1)) * torch.cat(values) @ whitened(torch.cat(right))


def whitened(vectors: Tensor) -> Tensor:
    return nearest_isometry(*torch.linalg.svd(vectors, full_matrices=False))
