"""COIN: the Fisher-weighted average (Algorithm 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from coin.codes.code import Code, check_positive, choices
from coin.coding import Coding
from coin.fisher import Directions, Exact
from coin.parameters import Parameters


@dataclass
class Coin(Code):
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i with the diagonal Fishers F_i; λ is the `damping`."""

    damping: float | None = None
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    fisher: Directions = field(default_factory=Exact)

    def __post_init__(self) -> None:
        check_positive("damping", self.damping, self.grid)

    def candidates(self) -> list[dict]:
        return choices("damping", self.damping, self.grid)

    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        fishers = coding.fishers(self.fisher)
        return fisher_average(coding.params, fishers, coding.beta, hyperparameters["damping"])


CHUNK = 1 << 16  # floats: two buffers and a slice of each operand stay in a core's cache


def fisher_average(
    params: Sequence[Parameters], fishers: Sequence[Parameters], beta: Sequence[float], damping: float
) -> Parameters:
    """The closed form, computed a cache-sized piece at a time: about the cost of reading the operands once."""
    check_positive("damping", damping, ())
    beta_bar = [b * sum(beta) for b in beta]
    coded = {}
    for name, first in params[0].items():
        # any layout will do as long as all operands share it: the arithmetic is element by element
        result = torch.empty_like(first)
        operands = [flat(result), *(flat(f[name], result) for f in fishers), *(flat(p[name], result) for p in params)]
        weight, total = (torch.empty(min(CHUNK, first.numel()), dtype=first.dtype, device=first.device) for _ in "wt")
        for pieces in zip(*(operand.split(CHUNK) for operand in operands), strict=True):
            average, fs, thetas = pieces[0], pieces[1 : 1 + len(fishers)], pieces[1 + len(fishers) :]
            w, t = weight[: len(average)], total[: len(average)]
            average.zero_()
            t.fill_(damping * sum(beta_bar))
            for b, f, theta in zip(beta_bar, fs, thetas, strict=True):
                torch.add(f, damping, out=w).mul_(b)
                average.addcmul_(w, theta)
                t.add_(f, alpha=b)
            average.div_(t)
        coded[name] = result
    return coded


def flat(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """All elements in memory order, copying only where the layout differs from that of `like`."""
    like = tensor if like is None else like
    if tensor.stride() != like.stride() or tensor.dtype != like.dtype:
        tensor = torch.empty_like(like).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))
