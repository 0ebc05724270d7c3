"""θ_0 itself, nothing coded: the control that belongs in every table."""

from dataclasses import dataclass

from coin.codes.code import Code
from coin.parameters import Parameters
from coin.problem.coding import Coding


@dataclass
class Base(Code):
    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        return coding.base_params
