"""Codes that weigh by Fishers: the closed form, how Fishers of different sizes are weighed, and what is tuned."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from coin.codes.code import Code, check_positive, choices
from coin.fisher import Directions, Exact
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding, Hyperparameters

CHUNK = 1 << 16  # floats: two buffers and a slice of each operand stay in a core's cache


def fisher_average(
    params: Sequence[Parameters],
    fishers: Sequence[Parameters],
    beta: Sequence[float],
    damping: float,
    scales: Sequence[Mapping[str, float]] | None = None,
) -> Parameters:
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i, with each tensor of F_i times `scales[i]` where given.

    A cache-sized piece at a time, so that it costs about as much as reading the operands once; in single precision or
    better, rounded once to the parameters' own.
    """
    if not 0 < damping < float("inf"):
        raise ValueError(f"damping={damping}: must be a positive number")
    beta_bar = [b * sum(beta) for b in beta]
    coded = {}
    for name, first in params[0].items():
        # any layout will do as long as all operands share it: the arithmetic is element by element
        result = torch.empty_like(first, dtype=torch.promote_types(first.dtype, torch.float32))
        factors = [1.0 if scales is None else scales[i][name] for i in range(len(fishers))]
        operands = [flat(result), *(flat(f[name], result) for f in fishers), *(flat(p[name], result) for p in params)]
        weight, total = (result.new_empty(min(CHUNK, first.numel())) for _ in "wt")
        for pieces in zip(*(operand.split(CHUNK) for operand in operands), strict=True):
            average, fs, thetas = pieces[0], pieces[1 : 1 + len(fishers)], pieces[1 + len(fishers) :]
            w, t = weight[: len(average)], total[: len(average)]
            average.zero_()
            t.fill_(damping * sum(beta_bar))
            for b, s, f, theta in zip(beta_bar, factors, fs, thetas, strict=True):
                torch.mul(f, b * s, out=w).add_(b * damping)
                average.addcmul_(w, theta)
                t.add_(f, alpha=b * s)
            average.div_(t)
        coded[name] = result.to(first.dtype)
    return coded


def flat(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """All elements in memory order, copying only where the layout differs from that of `like`."""
    like = tensor if like is None else like
    if tensor.stride() != like.stride() or tensor.dtype != like.dtype:
        tensor = torch.empty_like(like).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


@dataclass
class Weighing:
    """How large a Fisher counts as, beside the other experts' and beside λ.

    `balance` gives every expert's Fisher the same mean, over the whole network or in every tensor by itself; else the
    expert with the larger outputs wins. `relative` takes λ as a multiple of each tensor's own mean Fisher.
    """

    balance: Literal["none", "network", "layer"] = "none"
    relative: bool = False

    def __post_init__(self) -> None:
        if self.balance not in ("none", "network", "layer"):
            raise ValueError(f"code.balance={self.balance}: must be none, network or layer")
        if not isinstance(self.relative, bool):
            raise ValueError(f"code.relative={self.relative}: must be true or false")

    def scales(
        self, means: Sequence[Mapping[str, float]], sizes: Mapping[str, int], beta: Sequence[float]
    ) -> list[dict[str, float]]:
        """Factors for every expert and tensor, from the mean Fisher of each tensor and its number of elements."""
        whole = [sum(mean[name] * n for name, n in sizes.items()) / sum(sizes.values()) for mean in means]
        found: list[dict[str, float]] = [{} for _ in means]
        for name in sizes:
            own = [mean[name] for mean in means]
            factors = [1.0] * len(means)
            if self.balance != "none":
                of = whole if self.balance == "network" else own
                target = sum(b * m for b, m in zip(beta, of, strict=True))
                factors = [target / m if m > 0 else 1.0 for m in of]
            if self.relative:
                level = sum(b * s * m for b, s, m in zip(beta, factors, own, strict=True))
                factors = [s / level if level > 0 else s for s in factors]
            for scale, factor in zip(found, factors, strict=True):
                scale[name] = factor
        return found


def mean_of(fisher: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean of each tensor; double, since float32 sums of millions of tiny numbers drift."""
    return {name: float(f.double().mean()) for name, f in fisher.items()}


@dataclass
class FisherCode(Code):
    """What all codes that weigh by Fishers have in common: a damping λ, how Fishers are weighed, and a scale.

    With a `scale` s other than 1 (None: tuned jointly with λ) the code is θ_0 + s (θ_c − θ_0). `balance` and `relative`
    are Weighing's.
    """

    damping: float | None = None
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    scale: float | None = 1.0
    scales: Sequence[float] = (1.0, 1.5, 2.0, 2.5, 3.0)
    balance: Literal["none", "network", "layer"] = "none"
    relative: bool = False
    fisher: Directions = field(default_factory=Exact)
    weighing: Weighing = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_positive("damping", self.damping, self.grid)
        check_positive("scale", self.scale, self.scales)
        self.weighing = Weighing(self.balance, self.relative)

    def candidates(self) -> list[Hyperparameters]:
        damped = choices("damping", self.damping, self.grid)
        if self.scale == 1:
            return damped
        return [{**d, **s} for d in damped for s in choices("scale", self.scale, self.scales)]

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        coded, s = self.solution(coding, hyperparameters["damping"]), hyperparameters.get("scale", 1.0)
        return coded if s == 1 else weighted_sum([coded, coding.base_params], [s, 1 - s])

    @abc.abstractmethod
    def solution(self, coding: Coding, damping: float) -> Parameters:
        """θ_c for this λ, before it is scaled."""
