"""Vanilla averaging: Σ β_i θ_i."""

from dataclasses import dataclass

from coin.codes.code import Code
from coin.coding import Coding
from coin.parameters import Parameters, weighted_sum


@dataclass
class Average(Code):
    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        return weighted_sum(coding.params, coding.beta)
