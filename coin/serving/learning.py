"""The decoder learns from traffic: pairs of (coded answer, expert's answer), without labels, by accumulated sums.

A copy of the decoder takes three of four pairs into its sums; the fourth is held out. Every so often the copy's map
of an expert is compared with the one in use on the pairs held out of late, and takes its place only where it
decodes them better.
"""

import copy
from collections import Counter, deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coin.decoders import Answers
from coin.decoders.maps import FittedLinear
from coin.lab.coded import Coded
from coin.serving.policies import EXACT
from coin.serving.router import Answer

EVERY = 40  # pairs between two comparisons
HELD_OUT = 200  # pairs of an expert that maps are judged by


class Learner:
    """For decoders that look at the coded answer alone; with others it wants nothing.

    `decoders` are those in use, one an expert: each expert's map changes by itself.
    """

    def __init__(self, coded: Coded, share: float):
        self.coded, self.share, self.debt = coded, share, 0.0
        fitted = coded.decoder
        self.growing = copy.deepcopy(fitted) if isinstance(fitted, FittedLinear) and fitted.alone and share else None
        self.pairs: Counter[str] = Counter()
        self.swaps: Counter[str] = Counter()
        self.decoders = {name: fitted for name in coded.experts}
        self.held_out: dict[str, deque[tuple[Tensor, Tensor]]] = {n: deque(maxlen=HELD_OUT) for n in coded.experts}

    def wants(self, answer: Answer) -> bool:
        """Whether the coded network is to be shown this query too: a share of those that experts answered."""
        if self.growing is None or EXACT not in answer.sources.values():
            return False
        self.debt += self.share
        if self.debt < 1:
            return False
        self.debt -= 1
        return True

    def saw(self, coded: np.ndarray, answer: Answer) -> None:
        for name, source in answer.sources.items():
            if source == EXACT:
                rows = (torch.from_numpy(part.copy()) for part in (coded, answer.outputs[name]))
                for pair in zip(*(part.split(1) for part in rows), strict=True):
                    self.take(name, *pair)

    def take(self, name: str, coded: Tensor, outputs: Tensor) -> None:
        assert self.growing is not None
        number = self.coded.experts.index(name)
        self.pairs[name] += 1
        if self.pairs[name] % 4 == 0:
            self.held_out[name].append((coded, outputs))
        else:
            owner = torch.tensor([number])
            self.growing.update(Answers([coded], {number: outputs}, self.coded.generator, owner))
        if self.pairs[name] % EVERY == 0 and self.error(self.growing, name) < self.error(self.decoders[name], name):
            self.decoders[name] = copy.deepcopy(self.growing)
            self.swaps[name] += 1

    def error(self, decoder: Any, name: str) -> float:
        """Mean squared, on the pairs held out of late."""
        coded, outputs = (torch.cat(part) for part in zip(*self.held_out[name], strict=True))
        decoded = decoder.decode(coded, {}, self.coded.experts.index(name))
        return float((decoded - outputs).square().sum(1).mean())

    def decode(self, answers: dict[str, Tensor], missing: str) -> Tensor:
        """By the map in use."""
        self.coded.decoder = self.decoders[missing]
        return self.coded.decode(answers, missing)

    def told(self) -> dict[str, Any]:
        names = self.coded.experts if self.growing is not None else []
        return {name: {"pairs": self.pairs[name], "swaps": self.swaps[name]} for name in names}
