"""Iso-C: the sum of the task vectors with one size in all its directions (Marczak et al., 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from coin.codes.task_vectors import Merge, as_matrix, is_matrix, nearest_isometry
from coin.parameters import Parameters, weighted_sum


@dataclass
class Isotropic(Merge):
    """Of each layer's Σ N β_i (W_i − W_0) all singular values become their mean, so that what few experts share counts
    as much as what many do. What is no matrix is averaged, with weights β.

    With equal β this is as published; unequal weights scale the task vectors in proportion.
    """

    def merged(self, vectors: Sequence[Parameters], beta: Sequence[float]) -> Parameters:
        delta = weighted_sum(vectors, beta)
        for name, value in delta.items():
            if is_matrix(value):
                u, s, vh = torch.linalg.svd(len(beta) * as_matrix(value), full_matrices=False)
                delta[name] = (s.mean() * nearest_isometry(u, s, vh)).reshape(value.shape)
        return delta
