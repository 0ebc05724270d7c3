"""How well experts are decoded on their own test sets, one of them missing, or several."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from coin import metrics
from coin.decoders import Decoder, Fitted
from coin.generator import Generator

MOST_PATTERNS = 20  # of each number of missing experts, for each expert: more are drawn from, by a fixed seed

Scores = dict[str, Any]  # of one expert


@dataclass(kw_only=True)
class TestSet:
    """What all networks answer to an expert's own test queries, and the classes these are of."""

    __test__ = False  # pytest would take it for a class of tests

    coded: Mapping[int, Tensor]  # outputs, and any features behind them
    experts: Sequence[Tensor]
    target: Tensor

    def others(self, missing: Sequence[int]) -> dict[int, Tensor]:
        return {j: outputs for j, outputs in enumerate(self.experts) if j not in missing}


@dataclass(kw_only=True)
class Evaluation:
    """Every expert's queries, decoded without it."""

    tests: Sequence[TestSet]  # one an expert
    decoder: Decoder
    fitted: Fitted
    generator: Generator

    def decoded(self, expert: int) -> Tensor:
        """Its answers where it alone is missing."""
        test = self.tests[expert]
        return self.fitted.decode(test.coded, test.others([expert]), expert)

    def scores(self, expert: int, decoded: Tensor) -> Scores:
        test, own = self.tests[expert], self.tests[expert].experts[expert]
        losses = [
            metrics.coding_loss(test.coded[r][:, : own.shape[1]], test.experts, beta)
            for r, beta in enumerate(self.generator)
        ]
        return {
            "accuracy": metrics.accuracy(own, test.target),
            "decoded_accuracy": metrics.accuracy(decoded, test.target),
            "nda": nda(decoded, own, test.target),
            "own_classes_nda": metrics.nda_among(test.target.unique(), decoded, own, test.target),
            "agreement": metrics.agreement(decoded, own),
            "coding_loss": sum(losses) / len(losses),
            "logit_sd": metrics.spread(own),
            "margin": metrics.margin(own),
            "decoding_error": metrics.spread(decoded - own),
        }

    def missing(self, alone: float) -> tuple[dict[str, float], dict[str, int]]:
        """Average NDA for each number of missing experts, given that of one; and over how many patterns it is averaged.

        All patterns of who else is missing, or, where there are many, as many for each expert that are drawn.
        """
        experts, most = len(self.tests), self.decoder.most_missing(len(self.tests), len(self.generator))
        ndas, counts = {"1": alone}, {"1": experts}
        for number in range(2, most + 1):
            if self.decoder.alone:  # who asks nobody else does not miss anybody else
                ndas[str(number)], counts[str(number)] = alone, math.comb(experts, number)
                continue
            found = []
            for i, test in enumerate(self.tests):
                own = test.experts[i]
                for others in absent_with(i, experts, number):
                    decoded = self.fitted.decode(test.coded, test.others([i, *others]), i)
                    found.append(nda(decoded, own, test.target))
            ndas[str(number)], counts[str(number)] = sum(found) / len(found), len(found)
        return ndas, counts


def absent_with(expert: int, experts: int, number: int) -> list[tuple[int, ...]]:
    """Who is missing beside this one, `number` in all."""
    others = [j for j in range(experts) if j != expert]
    count = math.comb(len(others), number - 1)
    if count <= MOST_PATTERNS:
        return list(itertools.combinations(others, number - 1))
    draw = random.Random(f"{expert}/{experts}/{number}")
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < MOST_PATTERNS:
        drawn.add(tuple(sorted(draw.sample(others, number - 1))))
    return sorted(drawn)


def nda(decoded: Tensor, own: Tensor, target: Tensor) -> float:
    return float(metrics.nda_compute(*metrics.nda_update(decoded, own, target)))
