"""The decoder learns from traffic: pairs of (coded answer, expert's answer), without labels, by accumulated sums.

Of an expert, f_i − f_c = W [f_c; φ_c; 1] is fitted by least squares with a pull towards the map in use; the sums XᵀX,
XᵀY are all that is kept of the pairs. Every fourth pair is held out, and a new map is put in place only where it
decodes the pairs held out of late better than the one in use.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coin.decoders.linear import Correction, FittedLinear
from coin.lab.coded import Coded
from coin.serving.policies import EXACT
from coin.serving.router import Answer

PULLS = (0.01, 0.1, 1.0, 10.0)  # towards the map in use, in units of the mean squared regressor of a pair
EVERY = 40  # pairs between two attempts
HELD_OUT = 200  # pairs that maps are judged by


@dataclass
class Sums:
    """Of one expert: what it takes to fit again, and what to judge the fit by."""

    weight: Tensor  # of the map in use, (regressors with the 1, outputs)
    gram: Tensor = field(init=False)
    cross: Tensor = field(init=False)
    pairs: int = 0
    swaps: int = 0
    held_out: deque[tuple[Tensor, Tensor]] = field(default_factory=lambda: deque(maxlen=HELD_OUT))

    def __post_init__(self) -> None:
        self.gram = self.weight.new_zeros(len(self.weight), len(self.weight))
        self.cross = torch.zeros_like(self.weight)

    def add(self, x: Tensor, wanted: Tensor) -> None:
        for row, target in zip(x, wanted, strict=True):
            self.pairs += 1
            if self.pairs % 4 == 0:
                self.held_out.append((row, target))
            else:
                self.gram += row[:, None] * row
                self.cross += row[:, None] * target

    def error(self, weight: Tensor) -> float:
        x, wanted = (torch.stack(part) for part in zip(*self.held_out, strict=True))
        return float((wanted - x @ weight).square().sum(1).mean())

    def improve(self) -> bool:
        """Whether a map was found that is better on what was held out; it is in use from then on."""
        if len(self.held_out) < EVERY // 4:
            return False
        unit = self.gram.diagonal().mean() / max(1, self.pairs)
        eye = torch.eye(len(self.gram), dtype=self.gram.dtype)
        fits = [
            torch.linalg.solve(self.gram + pull * unit * eye, self.cross + pull * unit * self.weight) for pull in PULLS
        ]
        best = min(fits, key=self.error)
        if not self.error(best) < self.error(self.weight):
            return False
        self.weight = best
        self.swaps += 1
        return True


class Learner:
    """For decoders that look at the coded answer alone; with others it wants nothing."""

    def __init__(self, coded: Coded, share: float):
        self.coded, self.share, self.debt = coded, share, 0.0
        decoder = coded.decoder
        able = isinstance(decoder, FittedLinear) and decoder.alone and share > 0
        self.decoder = decoder if able and isinstance(decoder, FittedLinear) else None
        found = self.decoder.corrections if self.decoder else []
        maps = [torch.cat([c.weight, c.bias[None]]).double() for c in found]
        self.sums = dict(zip(coded.experts, map(Sums, maps), strict=True)) if self.decoder else {}

    def wants(self, answer: Answer) -> bool:
        """Whether the coded network is to be shown this query too: a share of those that experts answered."""
        if self.decoder is None or EXACT not in answer.sources.values():
            return False
        self.debt += self.share
        if self.debt < 1:
            return False
        self.debt -= 1
        return True

    def saw(self, coded: np.ndarray, answer: Answer) -> None:
        assert self.decoder is not None
        rows = torch.from_numpy(coded.copy()).double()
        for name, source in answer.sources.items():
            if source == EXACT:
                self.learn(name, rows, torch.from_numpy(answer.outputs[name].copy()).double())

    def learn(self, name: str, coded: Tensor, outputs: Tensor) -> None:
        assert self.decoder is not None
        sums, number = self.sums[name], self.coded.experts.index(name)
        x = torch.cat([coded[:, : self.decoder.columns], coded.new_ones(len(coded), 1)], 1)
        before = sums.pairs // EVERY
        sums.add(x, outputs - coded[:, : outputs.shape[1]])
        if sums.pairs // EVERY > before and sums.improve():
            weight, bias = sums.weight[:-1], sums.weight[-1]
            corrections = [*self.decoder.corrections]
            corrections[number] = Correction(weight, bias, torch.empty(0, len(bias)), float("nan"))
            self.decoder.corrections = corrections

    def told(self) -> dict[str, Any]:
        return {name: {"pairs": sums.pairs, "swaps": sums.swaps} for name, sums in self.sums.items()}
