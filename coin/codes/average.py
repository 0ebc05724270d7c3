"""Vanilla averaging: Σ β_i θ_i."""

from dataclasses import dataclass

from coin.codes.code import Code
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding


@dataclass
class Average(Code):
    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        return weighted_sum(coding.params, coding.beta)
