"""COIN: the Fisher-weighted average (Algorithm 1), and what can be added to it without training."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from coin.averaging import Weighing, fisher_average, mean_of
from coin.codes.code import Code, check_positive, choices
from coin.coding import Coding
from coin.fisher import Directions, Exact
from coin.parameters import Parameters, weighted_sum


@dataclass
class Coin(Code):
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i with the diagonal Fishers F_i; λ is the `damping`.

    With a `scale` s other than 1 (None: tuned jointly with λ) the code is θ_0 + s (θ_c − θ_0), `coin_scaled`. `balance`
    and `relative` are coin.averaging.Weighing's.
    """

    damping: float | None = None
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    scale: float | None = 1.0
    scales: Sequence[float] = (1.0, 1.5, 2.0, 2.5, 3.0)
    balance: Literal["none", "network", "layer"] = "none"
    relative: bool = False
    fisher: Directions = field(default_factory=Exact)

    def __post_init__(self) -> None:
        check_positive("damping", self.damping, self.grid)
        check_positive("scale", self.scale, self.scales)
        self.weighing = Weighing(self.balance, self.relative)

    def candidates(self) -> list[dict]:
        damped = choices("damping", self.damping, self.grid)
        if self.scale == 1:
            return damped
        return [{**d, **s} for d in damped for s in choices("scale", self.scale, self.scales)]

    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        fishers = coding.fishers(self.fisher)
        scales = None
        if self.weighing != Weighing():
            sizes = {name: f.numel() for name, f in fishers[0].items()}
            scales = self.weighing.scales([mean_of(f) for f in fishers], sizes, coding.beta)
        coded = fisher_average(coding.params, fishers, coding.beta, hyperparameters["damping"], scales)
        s = hyperparameters.get("scale", 1.0)
        return coded if s == 1 else weighted_sum([coded, coding.base_params], [s, 1 - s])
