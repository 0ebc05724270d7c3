"""Fitted maps: for each pattern of answers a linear correction of what there is without one, made when it is needed."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from coin.decoders.decoder import Answers, Fitted
from coin.decoders.moments import Moments, solve, variances
from coin.decoders.regression import Regression
from coin.decoding import Weights, weighed, weights_for
from coin.generator import LIMIT, Generator, amplification
from coin.parameters import Parameters

MOST_MAPS = 256  # that are kept; another pattern's is fitted again


@dataclass(frozen=True)
class Choice:
    """How a correction is fitted."""

    share: float  # how large the features are beside the outputs
    foreign: float  # the weight of samples of other experts
    strength: float  # of the ridge, in units of the mean squared regressor


class Chooser(Protocol):
    def choose(self, fitted: "FittedLinear", answers: Answers, missing: int, others: Sequence[int]) -> Choice | None:
        """How the correction of an expert is to be fitted where these others have answered; None: not at all."""


@dataclass
class FittedLinear(Fitted):
    """`columns` is how much of a coded network's answer it looks at: outputs, or outputs and features."""

    generator: Generator
    classes: int
    columns: int
    alone: bool  # whether it looks at nothing else
    choices: dict[tuple[int, bool], Choice | None] = field(default_factory=dict)  # of an expert, by formula or without
    groups: dict[tuple[int, tuple[int, ...]], Moments] = field(
        default_factory=dict
    )  # by owner (-1: any) and who answered
    maps: OrderedDict[tuple[tuple[int, ...], ...], tuple[Tensor, Tensor]] = field(default_factory=OrderedDict)
    decoder: Chooser | None = None  # that fitted it,
    answers: Answers | None = None  # on these

    def decoded(self, coded: Mapping[int, Tensor], others: Mapping[int, Tensor], missing: int) -> Tensor:
        others = {} if self.alone else others
        dtype = next(iter(coded.values())).dtype
        precise = torch.promote_types(dtype, torch.float32)
        coded = {r: coded[r][:, : self.columns].to(precise) for r in sorted(coded)}
        others = {j: others[j].to(precise) for j in sorted(others)}
        plain = self.plain(coded, others, missing)
        found = self.map(tuple(coded), tuple(others), missing)
        if found is None:
            return plain.to(dtype)
        x = torch.cat([part for _, part in self.parts(coded, others)], 1)
        return (plain + x @ found[0].to(x) + found[1].to(x)).to(dtype)

    def plain(self, coded: Mapping[int, Tensor], others: Mapping[int, Tensor], missing: int) -> Tensor:
        """What there is to be corrected."""
        outputs = {r: answer[:, : self.classes] for r, answer in coded.items()}
        return weighed(outputs, others, self.weights(tuple(coded), tuple(others), missing))

    def by_formula(self, coded: Sequence[int], others: Sequence[int]) -> bool:
        """Whether the paper's formula recovers who is missing."""
        absent = [i for i in range(len(self.generator[0])) if i not in others]
        return not self.alone and amplification(self.generator, coded, absent) <= LIMIT

    def weights(self, coded: Sequence[int], others: Sequence[int], missing: int) -> Weights:
        if self.by_formula(coded, others):
            return weights_for(self.generator, coded, others, missing)
        return {r: 1 / len(coded) for r in coded}, {}

    def parts(self, coded: Mapping[int, Tensor], others: Mapping[int, Tensor]) -> list[tuple[bool, Tensor]]:
        """The regressors, block by block, and whether it is features: outputs first."""
        outputs = [*(answer[:, : self.classes] for answer in coded.values()), *others.values()]
        features = [answer[:, self.classes : self.columns] for answer in coded.values()]
        return [*((False, part) for part in outputs), *((True, part) for part in features)]

    def choice(self, missing: int, by_formula: bool) -> Choice | None:
        """Made once an expert, all others or none of them having answered; patterns in between go by it."""
        key = (missing, by_formula)
        if key not in self.choices:
            assert self.decoder is not None and self.answers is not None, (
                "choices are kept with what is read from a file"
            )
            others = sorted(self.answers.others(missing)) if by_formula else []
            self.choices[key] = self.decoder.choose(self, self.answers, missing, others)
        return self.choices[key]

    def map(self, coded: tuple[int, ...], others: tuple[int, ...], missing: int) -> tuple[Tensor, Tensor] | None:
        """The correction for this pattern of answers, from all that has been seen."""
        choice = self.choice(missing, self.by_formula(coded, others))
        if choice is None:
            return None
        key = (coded, others, (missing,))
        if key not in self.maps:
            self.maps[key] = self.fitted(choice, coded, others, missing)
        self.maps.move_to_end(key)
        while len(self.maps) > MOST_MAPS:
            self.maps.popitem(last=False)
        return self.maps[key]

    def fitted(
        self, choice: Choice, coded: tuple[int, ...], others: tuple[int, ...], missing: int
    ) -> tuple[Tensor, Tensor]:
        usable = {who: seen for who, seen in self.groups.items() if {*others, missing} <= {*who[1]}}
        owned = any(owner == missing for owner, _ in usable)
        parts = []
        for (owner, answered), seen in usable.items():
            numbers = torch.arange(seen.columns)[None]
            blocks = numbers.split([self.columns] * len(self.generator) + [self.classes] * len(answered), 1)
            experts = dict(zip(answered, blocks[len(self.generator) :], strict=True))
            regressors = self.parts({r: blocks[r] for r in coded}, {j: experts[j] for j in others})
            chosen = torch.cat([*(part for _, part in regressors), experts[missing]], 1)[0]
            own = owner in (-1, missing) or not owned
            parts.append((seen.only(chosen), 1.0 if own else choice.foreign))
        sizes = [(is_features, part.shape[1]) for is_features, part in regressors]
        outputs = sum(size for is_features, size in sizes if not is_features)
        scale = block_scales(
            variances([part for part, _ in parts])[: sum(size for _, size in sizes)], outputs, choice.share
        )
        return solve(parts, self.targets(coded, others, missing, len(scale)).to(scale), scale, choice.strength)

    def targets(self, coded: Sequence[int], others: Sequence[int], missing: int, inputs: int) -> Tensor:
        """(inputs + classes, classes): makes f_i − plain_i of a row of regressors and f_i."""
        one = torch.eye(self.classes, dtype=torch.float64)
        of_coded, of_others = self.weights(coded, others, missing)
        outputs = [*(-of_coded.get(r, 0.0) * one for r in coded), *(-of_others.get(j, 0.0) * one for j in others)]
        rest = torch.zeros(inputs - len(outputs) * self.classes, self.classes, dtype=torch.float64)
        return torch.cat([*outputs, rest, one])

    def update(self, answers: Answers) -> None:
        """Takes more queries into account: those that all coded networks and some of the experts answered."""
        if len(answers.coded) != len(self.generator):
            raise ValueError(f"{len(answers.coded)} coded networks answered, expected all {len(self.generator)}")
        answered = tuple(sorted(answers.experts))
        coded = [answer[:, : self.columns] for answer in answers.coded]
        rows = torch.cat([*coded, *(answers.experts[j].to(coded[0]) for j in answered)], 1)
        owners = torch.full((len(rows),), -1) if answers.owners is None else answers.owners.repeat(answers.copies)
        for owner in owners.unique().tolist():
            group = self.groups.setdefault((int(owner), answered), Moments(rows.shape[1]))
            group.add(rows[(owners == owner).to(rows.device)])
        self.maps.clear()

    def held_out(self, missing: int) -> Tensor:
        assert self.answers is not None, "it was read from a file, not fitted"
        others = [] if self.alone else sorted(self.answers.others(missing))
        by_formula = self.by_formula(range(len(self.generator)), others)
        problem = Problem(self, self.answers, missing, others)
        choice = self.choice(missing, by_formula)
        if choice is None:
            return problem.plain
        return problem.plain + problem.regression(choice.share, choice.foreign).held_out(choice.strength).to(
            problem.plain
        )

    def tensors(self) -> Parameters:
        number = torch.tensor
        found = {"generator": number(self.generator, dtype=torch.float64), "alone": number(self.alone)}
        found |= {"classes": number(self.classes), "columns": number(self.columns)}
        for i in range(len(self.generator[0])):
            for by_formula in (False,) if self.alone else (False, True):
                choice = self.choice(i, by_formula)
                told = (choice.share, choice.foreign, choice.strength) if choice else ()
                found[f"choice.{i}.{by_formula:d}"] = torch.tensor(told, dtype=torch.float64)
        for (owner, answered), seen in self.groups.items():
            name = ".".join(map(str, ("group", owner, *answered)))
            found |= {f"{name}/{key}": value.cpu() for key, value in seen.tensors().items()}
        return found


class Problem:
    """The regression of what is wanted beyond the plain answer of one expert, with everything at hand in rows."""

    def __init__(self, fitted: FittedLinear, answers: Answers, missing: int, others: Sequence[int]):
        coded = {r: answer[:, : fitted.columns].double() for r, answer in answers.arrived.items()}
        experts = {j: answers.experts[j].double() for j in others}
        plain = fitted.plain(coded, experts, missing)
        parts = fitted.parts(coded, experts)
        self.copies, samples = answers.copies, len(plain) // answers.copies
        self.plain, self.wanted = plain[:samples], answers.experts[missing].double() - plain
        self.x = torch.cat([part for _, part in parts], 1)
        self.outputs = sum(part.shape[1] for is_features, part in parts if not is_features)
        self.own = torch.ones(samples, dtype=torch.bool, device=plain.device)
        if answers.owners is not None and (answers.owners == missing).any():
            self.own = (answers.owners == missing).to(plain.device)

    def regression(self, share: float, foreign: float) -> Regression:
        scale = block_scales(self.x.var(0, correction=0), self.outputs, share)
        weights = self.own.double().mul(1 - foreign).add(foreign).repeat(self.copies)
        return Regression(self.x * scale, self.wanted, weights, self.copies)


def block_scales(variance: Tensor, outputs: int, share: float) -> Tensor:
    """One factor a column: the outputs' block and the features' block get unit mean square, times `share`."""
    scale = torch.ones_like(variance)
    for block, factor in ((slice(0, outputs), 1.0), (slice(outputs, None), share)):
        scale[block] = factor / variance[block].sum().sqrt().clamp_min(1e-12)
    return scale


def from_tensors(tensors: Mapping[str, Tensor]) -> FittedLinear:
    """The decoder that `tensors` are of, such as a run's decoder.safetensors."""
    try:
        generator = tuple(tuple(row) for row in tensors["generator"].tolist())
        fitted = FittedLinear(generator, int(tensors["classes"]), int(tensors["columns"]), bool(tensors["alone"]))
    except KeyError as error:
        raise ValueError(
            f"these are not the tensors of a decoder, or of an older version: {error} is missing"
        ) from error
    groups: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("choice."):
            _, expert, by_formula = name.split(".")
            fitted.choices[int(expert), by_formula == "1"] = Choice(*value.tolist()) if len(value) else None
        elif name.startswith("group."):
            who, _, key = name.partition("/")
            groups.setdefault(who, {})[key] = value
    for who, found in groups.items():
        owner, *answered = map(int, who.split(".")[1:])
        fitted.groups[owner, tuple(answered)] = Moments.of(found)
    return fitted
