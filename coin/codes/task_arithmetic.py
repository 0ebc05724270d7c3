"""Task arithmetic: θ_0 plus scaled task vectors (Ilharco et al., 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

from coin.codes.code import Code, check_positive, choices
from coin.parameters import Parameters, weighted_sum
from coin.problem.coding import Coding, Hyperparameters


@dataclass
class TaskArithmetic(Code):
    """θ_c = θ_0 + α Σ N β_i (θ_i − θ_0); α is the `scale`.

    With equal β this is the paper's α Σ (θ_i − θ_0); unequal weights scale the task vectors in proportion.
    """

    scale: float | None = None
    grid: Sequence[float] = tuple(round(0.05 * i, 2) for i in range(1, 21))

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, self.grid)

    def candidates(self) -> list[Hyperparameters]:
        return choices("scale", self.scale, self.grid)

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        base, alpha = coding.base_params, hyperparameters["scale"]
        weights = [alpha * len(coding.beta) * b for b in coding.beta]
        return weighted_sum([base, *coding.params], [1 - sum(weights), *weights])
