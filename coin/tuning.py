"""Tuning: one way to choose among a code's candidates, the same for every code.

The average NDA on the P samples decides; ties, common with few samples, go to the lowest coding loss. Without labels
the coding loss decides alone.
"""

import math
from dataclasses import dataclass

from coin.codes.code import Code
from coin.coding import Coding
from coin.parameters import Parameters


@dataclass
class Tuned:
    """The choice, its coded parameters, and how every candidate did on the samples."""

    hyperparameters: dict
    params: Parameters
    nda: float
    coding_loss: float
    candidates: list[dict]


def tune(code: Code, coding: Coding) -> Tuned:
    outputs = coding.outputs()
    best: Tuned | None = None
    table = []
    for hyperparameters in code.candidates():
        params = code.encode(coding, **hyperparameters)
        nda, loss = coding.score(params, outputs)
        table.append({**hyperparameters, "nda": nda, "coding_loss": loss})
        if best is None or rank(nda, loss) > rank(best.nda, best.coding_loss):
            best = Tuned(hyperparameters, params, nda, loss, table)
    assert best is not None, "a code has at least one candidate"
    return best


def rank(nda: float, loss: float) -> tuple[float, float]:
    """Larger is better; an undefined NDA or loss (a candidate that diverged) is worst."""
    return (-math.inf if math.isnan(nda) else nda, -math.inf if math.isnan(loss) else -loss)
