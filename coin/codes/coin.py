"""COIN: the Fisher-weighted average (Algorithm 1)."""

from dataclasses import dataclass

from coin.codes.weighted import FisherCode, Weighing, fisher_average, mean_of
from coin.parameters import Parameters
from coin.problem.coding import Coding


@dataclass
class Coin(FisherCode):
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i with the diagonal Fishers F_i; λ is the `damping`."""

    def solution(self, coding: Coding, damping: float) -> Parameters:
        fishers, scales = coding.fishers(self.fisher), None
        if self.weighing != Weighing():
            sizes = {name: f.numel() for name, f in fishers[0].items()}
            scales = self.weighing.scales([mean_of(f) for f in fishers], sizes, coding.beta)
        return fisher_average(coding.params, fishers, coding.beta, damping, scales)
