"""COIN with Kronecker-factored Fisher blocks instead of the diagonal."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.averaging import fisher_average, mean_of
from coin.codes.code import FisherCode
from coin.coding import Coding
from coin.kronecker import kronecker_factors
from coin.parameters import Parameters


@dataclass
class CoinKfac(FisherCode):
    """Every Linear and Conv2d weight solves Σ β_i (G_i W A_i + λ W) = Σ β_i (G_i W_i A_i + λ W_i) by conjugate
    gradients from the diagonal solution; all other parameters have that solution."""

    iterations: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1:
            raise ValueError(f"code.iterations={self.iterations}: must be at least 1")
        self.last: tuple[Coding, float, Parameters] | None = None

    def solution(self, coding: Coding, damping: float) -> Parameters:
        """One solution serves all scales."""
        if self.last is None or self.last[0] is not coding or self.last[1] != damping:
            self.last = (coding, damping, self.solved(coding, damping))
        return dict(self.last[2])

    def solved(self, coding: Coding, damping: float) -> Parameters:
        fishers = coding.fishers(self.fisher)
        factors = [
            coding.remember(
                "kronecker",
                [i],
                {"directions": repr(self.fisher)},
                lambda e=expert: kronecker_factors(e, coding.batches, self.fisher),  # type: ignore[misc]
            )
            for i, expert in enumerate(coding.experts)
        ]
        sizes = {name: f.numel() for name, f in fishers[0].items()}
        scales = self.weighing.scales([mean_of(f) for f in fishers], sizes, coding.beta)
        coded = fisher_average(coding.params, fishers, coding.beta, damping, scales)
        for key in factors[0]:
            if not key.endswith("/A"):
                continue
            name = key.removesuffix("/A")
            shape = coded[name].shape
            weights = [p[name].reshape(shape[0], -1) for p in coding.params]
            blocks = [
                (b * scale[name], f[key], f[f"{name}/G"])
                for b, scale, f in zip(coding.beta, scales, factors, strict=True)
            ]
            start = coded[name].reshape(shape[0], -1)
            solved = solve_block(blocks, weights, coding.beta, damping, start, self.iterations)
            coded[name] = solved.reshape(shape).contiguous()
        return coded


@torch.no_grad()
def solve_block(
    blocks: Sequence[tuple[float, Tensor, Tensor]],
    weights: Sequence[Tensor],
    beta: Sequence[float],
    damping: float,
    start: Tensor,
    iterations: int,
    tolerance: float = 1e-5,
) -> Tensor:
    """Σ (b_i G_i W A_i + β_i λ W) = Σ (b_i G_i W_i A_i + β_i λ W_i) for W, from (b_i, A_i, G_i), by conjugate gradients
    preconditioned with the diagonal. Columns whose input is always zero keep their start: no sample says anything."""
    live = torch.stack([a.diagonal() for _, a, _ in blocks]).sum(0) > 0
    parts = [(b, a[live][:, live], g) for b, a, g in blocks]
    weights = [w[:, live] for w in weights]

    def apply(w: Tensor) -> Tensor:
        total = damping * sum(beta) * w
        for b, a, g in parts:
            total.add_(g @ (w @ a), alpha=b)
        return total

    right = torch.zeros_like(weights[0])
    for (b, a, g), own, share in zip(parts, weights, beta, strict=True):
        right += b * (g @ (own @ a)) + share * damping * own
    diagonal = damping * sum(beta) + sum(b * torch.outer(g.diagonal(), a.diagonal()) for b, a, g in parts)
    w = start[:, live].clone()
    residual = right - apply(w)
    limit = tolerance * float(residual.norm())
    z = residual / diagonal
    direction, inner = z.clone(), (residual * z).sum()
    for _ in range(iterations):
        if float(residual.norm()) <= limit or float(inner) <= 0:
            break
        image = apply(direction)
        step = inner / (direction * image).sum()
        w += step * direction
        residual -= step * image
        z = residual / diagonal
        inner, before = (residual * z).sum(), inner
        direction = z + (inner / before) * direction
    solved = start.clone()
    solved[:, live] = w
    return solved
