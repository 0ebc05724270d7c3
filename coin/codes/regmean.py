"""RegMean: the least-squares merge of layers, from Gram matrices of their inputs (Jin et al., 2023)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from coin.batch import Batch, Plain
from coin.codes.code import Code, choices, values_of
from coin.codes.layers import Layer, gram_of, own_layers, watched
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding, Hyperparameters


@dataclass
class RegMean(Code):
    """W = (Σ β_i G_i)⁻¹ Σ β_i G_i W_i for every Linear layer, all else averaged; the off-diagonals of G_i are scaled by
    a `factor`, as in the official code. `convolutions` does the same for Conv2d over unfolded inputs, our extension."""

    factor: float | None = None
    grid: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    convolutions: bool = False

    def __post_init__(self) -> None:
        for value in values_of("factor", self.factor, self.grid):
            if not (isinstance(value, int | float) and 0 <= value <= 1):
                raise ValueError(f"code.factor={value}: must be from 0 to 1, or null to tune it over code.grid")

    def candidates(self) -> list[Hyperparameters]:
        return choices("factor", self.factor, self.grid)

    def grams(self, coding: Coding) -> list[Parameters]:
        settings = {"convolutions": self.convolutions}

        def grams(expert: nn.Module) -> Parameters:
            return gram_matrices(expert, coding.batches, self.convolutions)

        return [coding.kept("grams", [i], settings, partial(grams, expert)) for i, expert in enumerate(coding.experts)]

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        params, grams, beta = coding.params, self.grams(coding), coding.beta
        coded = weighted_sum(params, beta)
        for name in grams[0]:
            scaled = [
                b * scale_off_diagonal(g[name], hyperparameters["factor"]) for b, g in zip(beta, grams, strict=True)
            ]
            weights = [p[name].reshape(len(p[name]), -1).T for p in params]  # (columns, outputs)
            right = torch.stack([g @ w for g, w in zip(scaled, weights, strict=True)]).sum(0)
            start = coded[name].reshape(len(coded[name]), -1).T
            coded[name] = solve(torch.stack(scaled).sum(0), right, start).T.reshape(coded[name].shape)
        return coded


@torch.no_grad()
def gram_matrices(network: nn.Module, batches: Iterable[Plain], convolutions: bool = False) -> Parameters:
    """{weight name: G = XᵀX / n} over all n rows (samples × positions) that reach each layer."""
    sums: Parameters = {}
    counts: dict[str, int] = {}
    mask: Tensor | None = None

    def see(name: str, layer: Layer, inputs: Tensor, output: Tensor) -> None:
        gram, count = gram_of(layer, inputs, mask)
        sums[name] = sums[name].add_(gram) if name in sums else gram
        counts[name] = counts.get(name, 0) + count

    with watched(own_layers(network, convolutions), see):
        for batch in map(Batch.of, batches):
            mask = batch.mask
            batch.ask(network)
    return {name: total / counts[name] for name, total in sums.items()}


def scale_off_diagonal(gram: Tensor, factor: float) -> Tensor:
    return factor * gram + (1 - factor) * torch.diag(gram.diagonal())


def solve(left: Tensor, right: Tensor, start: Tensor) -> Tensor:
    """left⁻¹ right for a positive semidefinite matrix. Of inputs that are zero in all samples nothing is known: their
    weights stay where they start; a tiny multiple of the mean diagonal keeps the rest solvable."""
    live = left.diagonal() > 0
    solved = start.to(right.dtype, copy=True)
    left, right = left[live][:, live].double(), right[live].double()
    floor = 1e-10 * left.diagonal().mean().clamp_min(1e-300)
    damped = left + floor * torch.eye(len(left), dtype=left.dtype, device=left.device)
    factor, failed = torch.linalg.cholesky_ex(damped)
    found = torch.linalg.lstsq(damped, right).solution if failed else torch.cholesky_solve(right, factor)
    solved[live] = found.to(solved.dtype)
    return solved
