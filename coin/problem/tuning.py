"""Tuning: one way to choose among a code's candidates, the same for every code.

What is looked at is, on the P samples, the average NDA (the paper's way), or, with no need of labels, the coding loss
or the divergence; ties, common with few samples, go to the lowest coding loss. A candidate was made from the very
samples that judge it; with `folds`, it is judged by samples it was not made from, one fold after the other. A code that
fits the samples closely asks for folds of its own.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from coin.codes.code import Code
from coin.decoders import Fitted
from coin.parameters import Parameters
from coin.problem.coding import Coding, Hyperparameters, Score

CRITERIA = ("nda", "coding_loss", "divergence")


@dataclass
class Tuned:
    """The choice, its coded networks, and how every candidate did on the samples."""

    hyperparameters: Hyperparameters
    params: list[Parameters]  # of each coded network
    decoder: Fitted
    score: Score
    candidates: list[dict[str, float]]


@dataclass
class Tuner:
    criterion: Literal["nda", "coding_loss", "divergence"] = "nda"
    folds: int = 0

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise ValueError(f"tuning.criterion={self.criterion}: must be one of {', '.join(CRITERIA)}")
        if not isinstance(self.folds, int) or self.folds < 0 or self.folds == 1:
            raise ValueError(f"tuning.folds={self.folds}: must be at least 2, or 0 for no cross-validation")

    def folds_for(self, code: Code) -> int:
        """How many judge its candidates; 0 where there is nothing to choose."""
        return (self.folds or code.folds) if len(code.candidates()) > 1 else 0

    def judges_for(self, code: Code) -> int:
        """How many of these folds do judge: a code's own may be fewer than there are, the tuner's are all."""
        return self.folds or code.judges or self.folds_for(code)

    def check(self, code: Code, samples: int, experts: int) -> None:
        """Refuses more folds than there are samples for."""
        folds = self.folds or self.folds_for(code)  # a code with nothing to choose may tune what it starts from
        if folds > samples / experts:
            raise ValueError(
                f"{folds} folds of cross-validation: {samples} samples have too few for an expert in every fold; "
                "change tuning.folds, or code.folds"
            )

    def tune(self, code: Code, coding: Coding) -> Tuned:
        candidates = code.candidates()
        scores = self.scores(code, coding, candidates) if len(candidates) > 1 else []
        chosen = candidates[max(range(len(scores)), key=lambda k: self.rank(scores[k])) if scores else 0]
        params = coding.encoded(code, chosen)
        answers = coding.answers(coding.asked(params))
        score = coding.score(answers)
        table = [{**tried, **asdict(s)} for tried, s in zip(candidates, scores or [score], strict=True)]
        fitted = coding.fitted(coding.networks(params)) if coding.decoder.copies else coding.decoder.fit(answers)
        return Tuned(chosen, params, fitted, score, table)

    def scores(self, code: Code, coding: Coding, candidates: Sequence[Hyperparameters]) -> list[Score]:
        """Of every candidate, on all samples or, fold after fold, on those it was not made from."""
        folds = self.folds_for(code)
        if not folds:
            scores = []
            for k, candidate in enumerate(candidates):
                coding.advance(k, len(candidates))
                scores.append(coding.score(coding.answers_of(code, candidate)))
            return scores
        judged: list[list[Score]] = []
        judges, draft = self.judges_for(code), code.draft()
        for fold, part in enumerate(self.parts(code, coding)):
            judged.append([])
            for k, candidate in enumerate(candidates):
                coding.advance(fold * len(candidates) + k, judges * len(candidates))
                judged[fold].append(held_out_score(draft, *part, candidate, folds))
        return [mean_score(scores) for scores in zip(*judged, strict=True)]

    def parts(self, code: Code, coding: Coding) -> Iterator[tuple[Coding, Coding]]:
        """For every fold that judges, the problem without it and that of it alone; with all that is prepared, one at a
        time."""
        count, folds = len(coding.samples), self.folds_for(code)
        self.check(code, count, len(coding.experts))
        fold = torch.arange(count) % folds
        for k in range(self.judges_for(code)):
            yield coding.part(torch.where(fold != k)[0]), coding.part(torch.where(fold == k)[0])

    def rank(self, score: Score) -> tuple[float, ...]:
        """Larger is better; an undefined number (a candidate that diverged) is worst."""
        first = score.nda if self.criterion == "nda" else -getattr(score, self.criterion)
        ranked = (first, -score.coding_loss)
        return tuple(-math.inf if math.isnan(value) else value for value in ranked)


def held_out_score(code: Code, seen: Coding, unseen: Coding, hyperparameters: Hyperparameters, folds: int) -> Score:
    """The score of samples that neither the coded network nor the decoder was made from."""

    coded: dict[str, list[Tensor]] = {"seen": [], "unseen": []}
    settings = {"code": code.recipe(), **hyperparameters, "folds": folds}
    for mine, theirs in zip(seen.rows(), unseen.rows(), strict=True):

        def compute(mine: Coding = mine, theirs: Coding = theirs) -> Parameters:
            params = [code.encode(mine, **hyperparameters)]
            return {"seen": mine.asked(params)[0], "unseen": theirs.asked(params)[0]}

        found = mine.kept("candidates", range(len(seen.experts)), settings, compute)
        for part, tensors in coded.items():
            tensors.append(found[part])
    fitted = seen.decoder.fit(seen.answers(coded["seen"]))
    answers = unseen.answers(coded["unseen"])
    return unseen.scored(
        answers, [fitted.decode(answers.arrived, answers.others(i), i) for i in range(len(seen.experts))]
    )


def mean_score(scores: Sequence[Score]) -> Score:
    return Score(**{key: sum(getattr(score, key) for score in scores) / len(scores) for key in asdict(scores[0])})
