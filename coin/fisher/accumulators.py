"""One accumulator per parameter and batch: takes the gradients of its uses, direction by direction, adds squares.

A parameter with several uses (tied weights, a module called twice) has the *sum* of their gradients squared: products
and lookups of several uses are joined along their positions, element-wise uses are added up. Nothing is added to
`total` before `finish`, so that a parameter whose witnesses disagree (see `witnesses`) can still be left out.
"""

import abc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coin.fisher.graph import Use
from coin.fisher.layout import Layout
from coin.fisher.products import Direct, Pairs, Squares, pairs_is_cheaper
from coin.fisher.rules import Elementwise, Lookup, Product, Rule, Split, rules_for


@dataclass
class Watch:
    """The witnesses of a batch, as `samples`; what comes of their directions is added up with these `coefficients`."""

    samples: list[int]
    coefficients: Tensor = field(default_factory=lambda: torch.zeros(0))  # of the present direction, one a witness
    seconds: float = 0.0

    def weighed(self, rows: Tensor) -> Tensor:
        """(witnesses, …), from the rows of all samples."""
        start = time.perf_counter()
        weighed = self.weigh(rows[self.samples])
        self.seconds += time.perf_counter() - start
        return weighed

    def weigh(self, own: Tensor) -> Tensor:
        return own * self.coefficients.to(own).view(-1, *[1] * (own.ndim - 1))


class Accumulator(abc.ABC):
    """Adds Σ_n (per-sample gradient)² of all directions to `total`, which has the parameter's shape."""

    def __init__(self, rules: Sequence[Any], layouts: Sequence[Layout], samples: int, total: Tensor):
        self.rules, self.layouts, self.samples, self.total = rules, layouts, samples, total
        self.watch: Watch | None = None
        self.watched: Tensor | None = None  # what the witnesses' gradients will be made of

    @abc.abstractmethod
    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        """The gradients at the uses' results for one of the `directions` of this batch."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Called once after the last direction of a batch: adds what is pending to `total`."""

    @abc.abstractmethod
    def witnessed(self, witness: int) -> tuple[Tensor, float]:
        """The gradient of this witness, the so many'th, and what its norm could be at most if nothing cancelled."""

    def keep(self, weighed: Tensor) -> None:
        self.watched = weighed if self.watched is None else self.watched.add_(weighed)

    def split(self, layout: Layout, chosen: slice = slice(None)) -> Split:
        return lambda tensor: layout.by_sample(tensor, self.samples)[chosen]


class Products(Accumulator):
    squares: Squares | None = None

    def inputs(self, chosen: slice = slice(None)) -> Tensor:
        parts = [rule.inputs(self.split(layout, chosen)) for rule, layout in zip(self.rules, self.layouts, strict=True)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).detach().to(self.total.dtype)

    def signal(self, gradients: Sequence[Tensor]) -> Tensor:
        parts = [
            rule.signal(gradient.detach(), self.split(layout))
            for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).to(self.total.dtype)

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        signal = self.signal(gradients)
        if self.squares is None:
            in_pairs = product_in_pairs(self.rules, self.total, signal.shape[1], directions)
            self.squares = (Pairs if in_pairs else Direct)(self.inputs)
        self.squares.add(signal)
        if self.watch is not None:
            self.keep(self.watch.weighed(signal))

    def finish(self) -> None:
        assert self.squares is not None, "add() comes first"
        self.total += self.rules[0].to_param(self.squares.result())
        self.squares = None

    def witnessed(self, witness: int) -> tuple[Tensor, float]:
        assert self.watched is not None and self.watch is not None, "add() comes first"
        sample, signal = self.watch.samples[witness], self.watched[witness]
        inputs = self.inputs(slice(sample, sample + 1))[0]
        # outputs first, so that the result lies in memory as autograd's gradient does
        left, right = signal.permute(1, 2, 0), inputs.transpose(0, 1)
        gradient = left @ right if len(left) > 1 else (left[0] @ right[0]).unsqueeze(0)  # faster than a batch of one
        return self.rules[0].to_param(gradient.transpose(1, 2)), float(inputs.norm() * signal.norm())


class Elementwises(Accumulator):
    squares: Tensor | None = None  # (parameter,)

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        total: Tensor | int = 0  # (samples, parameter)
        parts = []
        for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True):
            rows = rule.terms(gradient, self.split(layout)).to(self.total.dtype)
            total = total + rows.sum(rule.summed).reshape(self.samples, -1)
            if self.watch is not None:
                left = [d for d in range(1, rows.ndim) if d not in rule.summed]
                chosen = self.watch.weighed(rows).permute(0, *rule.summed, *left)
                parts.append(chosen.reshape(len(chosen), -1, self.total.numel()))  # (witnesses, positions, parameter)
        assert isinstance(total, Tensor)
        squares = total.square_().sum(0)
        self.squares = squares if self.squares is None else self.squares.add_(squares)
        if parts:
            self.keep(torch.cat(parts, 1))

    def finish(self) -> None:
        assert self.squares is not None, "add() comes first"
        self.total += self.squares.view(self.total.shape)

    def witnessed(self, witness: int) -> tuple[Tensor, float]:
        assert self.watched is not None, "add() comes first"
        terms = self.watched[witness]  # (positions, parameter)
        return terms.sum(0).view(self.total.shape), float(terms.norm()) * len(terms) ** 0.5


class Lookups(Accumulator):
    slots: Tensor | None = None  # for each position, which (sample, table row) it belongs to
    owners: Tensor  # the sample of each slot
    rows: Tensor  # its table row
    squares: Tensor  # (slots, columns)

    def prepare(self) -> None:
        keys = []
        for rule, layout in zip(self.rules, self.layouts, strict=True):
            indices = layout.by_sample(rule.indices, self.samples).flatten(1)  # (samples, positions)
            offset = torch.arange(self.samples, device=indices.device).unsqueeze(1) * len(self.total)
            keys.append((indices + offset).flatten())
        unique, self.slots = torch.unique(torch.cat(keys), return_inverse=True)
        self.owners, self.rows = unique // len(self.total), unique % len(self.total)
        self.squares = self.total.new_zeros(len(unique), self.total.shape[1])

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        if self.slots is None:
            self.prepare()
        parts = []
        for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True):
            rows = layout.by_sample(gradient.detach(), self.samples).flatten(0, -2).to(self.total.dtype)
            indices = layout.by_sample(rule.indices, self.samples).flatten()
            parts.append(rows.masked_fill((indices == rule.padding).unsqueeze(1), 0))
        assert self.slots is not None
        sums = torch.zeros_like(self.squares).index_add_(0, self.slots, torch.cat(parts))
        self.squares.addcmul_(sums, sums)
        if self.watch is not None:
            weights = sums.new_zeros(self.samples)
            weights[self.watch.samples] = self.watch.coefficients.to(sums)
            self.keep(sums * weights[self.owners].unsqueeze(1))

    def finish(self) -> None:
        self.total.index_add_(0, self.rows, self.squares)

    def witnessed(self, witness: int) -> tuple[Tensor, float]:
        assert self.watched is not None and self.watch is not None, "add() comes first"
        own = self.owners == self.watch.samples[witness]
        gradient = torch.zeros_like(self.total).index_add_(0, self.rows[own], self.watched[own])
        return gradient, float(gradient.norm())


KINDS: dict[type, type[Accumulator]] = {Product: Products, Elementwise: Elementwises, Lookup: Lookups}


def accumulator_for(uses: list[Use], layouts: Sequence[Layout], samples: int, total: Tensor) -> Accumulator:
    rules = rules_for(uses, total)
    assert rules is not None, "the plan is for this graph"
    return KINDS[type(rules[0])](rules, layouts, samples, total)


def product_in_pairs(rules: Sequence[Product], param: Tensor, positions: int, directions: int) -> bool:
    columns = param.numel() // (rules[0].groups * rules[0].outputs)
    return pairs_is_cheaper(positions, directions, columns, rules[0].outputs)


def bytes_for(rules: Sequence[Rule], shapes: Sequence[tuple[int, ...]], samples: int, param: Tensor, count: int) -> int:
    """About how much memory a batch with these results needs beside the activations, for so many directions."""
    numbers = sum(math.prod(shape) for shape in shapes)  # the gradients
    products = [rule for rule in rules if isinstance(rule, Product)]
    if products:
        outputs = products[0].groups * products[0].outputs
        positions = numbers // (samples * outputs)
        if product_in_pairs(products, param, positions, count):
            numbers += numbers * (positions + 1) // 2  # the sums over pairs
        else:
            numbers += samples * positions * param.numel() // products[0].outputs  # the unfolded inputs
    return numbers * max(param.element_size(), 4)
