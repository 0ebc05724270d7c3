"""Linear decoders: what there is without fitting, plus a linear correction fitted without labels.

f̂_i = plain_i + W_i [x; 1] with W_i by ridge regression towards zero, x all that has arrived. How strong the ridge is,
and how much the other experts' samples weigh, is chosen by the closed-form leave-one-out error on the samples of expert
i; no correction at all is among the choices. With `features` a coded network sends its penultimate features φ_c too.

    ridge    plain_i = the paper's formula      x = [f_c; f_j, j ≠ i; φ_c]    who of the others has answered
    alone    plain_i = f_c                      x = [f_c; φ_c]                one call, whoever is missing

A map is fitted for each pattern of answers, when it is first needed, from the accumulated sums of what has been seen
(`moments`), so that fitting goes on while queries arrive (`update`). Where more experts are missing than the paper's
formula recovers, plain_i is f_c.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoders.maps import Choice, FittedLinear, Problem
from coin.decoders.regression import squared

MOST_JUDGES = 1000  # samples that choose: more make nothing surer, and leaving one out takes their number cubed


@dataclass
class Linear(Decoder):
    """What linear decoders have in common; whether they look at the others is the class's."""

    features: bool = False
    strengths: Sequence[float] = (
        *(1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
        *(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    )
    foreign: Sequence[float] = (0.0, 0.1, 0.3, 1.0)
    shares: Sequence[float] = (0.1, 0.3, 1.0)
    copies: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.features, bool):
            raise ValueError(f"decoder.features={self.features}: must be true or false")
        if not self.strengths or any(not s > 0 for s in self.strengths):
            raise ValueError(f"decoder.strengths={list(self.strengths)}: give at least one, all positive")
        if not self.foreign or any(not 0 <= w <= 1 for w in self.foreign):
            raise ValueError(f"decoder.foreign={list(self.foreign)}: give at least one weight from 0 to 1")
        if not self.shares or any(not s > 0 for s in self.shares):
            raise ValueError(f"decoder.shares={list(self.shares)}: give at least one, all positive")
        if not isinstance(self.copies, int) or isinstance(self.copies, bool) or self.copies < 0:
            raise ValueError(f"decoder.copies={self.copies}: must be a whole number of moved copies, 0 for none")

    def fit(self, answers: Answers) -> Fitted:
        if self.features and answers.coded[0].shape[1] == answers.classes:
            raise ValueError("features need a network that ends in a Linear layer; use decoder.features=false")
        columns = answers.coded[0].shape[1] if self.features else answers.classes
        fitted = FittedLinear(answers.generator, answers.classes, columns, self.alone)
        fitted.update(answers)
        fitted.decoder, fitted.answers = self, answers
        return fitted

    def choose(self, fitted: "FittedLinear", answers: Answers, missing: int, others: Sequence[int]) -> Choice | None:
        """What has the lowest leave-one-out error on the samples of the missing expert; None: no correction."""
        problem = Problem(fitted, some_of(answers, MOST_JUDGES), missing, others)
        best, least = None, squared(problem.wanted[: len(problem.own)][problem.own])
        for share in self.shares if self.features else [1.0]:
            for foreign in self.foreign if not problem.own.all() else [1.0]:
                fit = problem.regression(share, foreign)
                strength = min(self.strengths, key=partial(fit.error, own=problem.own))
                error = fit.error(strength, problem.own)
                if error < least:
                    best, least = Choice(share, foreign, strength), error
        return best


def some_of(answers: Answers, most: int) -> Answers:
    """No more samples than that, from all over them, with their copies."""
    rows, copies = len(answers.coded[0]), answers.copies
    if rows <= most * copies:
        return answers
    chosen = torch.arange(most) * (rows // copies) // most
    every = torch.cat([chosen + copy * (rows // copies) for copy in range(copies)]).to(answers.coded[0].device)
    return replace(
        answers,
        coded=[answer[every] for answer in answers.coded],
        experts={j: f[every] for j, f in answers.experts.items()},
        owners=None if answers.owners is None else answers.owners[chosen.to(answers.owners.device)],
    )
