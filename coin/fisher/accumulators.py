"""One accumulator per parameter and batch: takes the gradients of its uses, direction by direction, adds squares.

A parameter with several uses (tied weights, a module called twice) has the *sum* of their gradients squared: products
and lookups of several uses are joined along their positions, element-wise uses are added up.
"""

import abc
from collections.abc import Sequence

import torch
from torch import Tensor

from coin.fisher.layout import Layout
from coin.fisher.products import Direct, Pairs, Squares, pairs_is_cheaper
from coin.fisher.rules import Elementwise, Lookup, Product, Rule


class Accumulator(abc.ABC):
    """Adds Σ_n (per-sample gradient)² of each direction to `total`, which has the parameter's shape."""

    def __init__(self, rules: Sequence, layouts: Sequence[Layout], samples: int, total: Tensor):
        self.rules, self.layouts, self.samples, self.total = rules, layouts, samples, total

    @abc.abstractmethod
    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        """The gradients at the uses' results for one of the `directions` of this batch."""

    @abc.abstractmethod
    def gradient(self, gradients: Sequence[Tensor]) -> Tensor:
        """The plain gradient of the parameter, to check the rule against autograd."""

    def bytes(self, gradients: Sequence[Tensor], directions: int) -> int:
        """About how much memory a batch needs beside the activations."""
        return sum(gradient.numel() for gradient in gradients) * self.total.element_size()

    @abc.abstractmethod
    def finish(self) -> None:
        """Called once after the last direction of a batch: adds what is still pending."""


class Products(Accumulator):
    squares: Squares | None = None

    def inputs(self) -> Tensor:
        parts = [rule.inputs(layout, self.samples) for rule, layout in zip(self.rules, self.layouts, strict=True)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).detach().to(self.total.dtype)

    def signal(self, gradients: Sequence[Tensor]) -> Tensor:
        parts = [
            rule.signal(gradient.detach(), layout, self.samples)
            for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).to(self.total.dtype)

    def in_pairs(self, signal: Tensor, directions: int) -> bool:
        _, positions, groups, outputs = signal.shape
        columns = self.total.numel() // (groups * outputs)
        return pairs_is_cheaper(positions, directions, columns, outputs)

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        signal = self.signal(gradients)
        if self.squares is None:
            self.squares = (Pairs if self.in_pairs(signal, directions) else Direct)(self.inputs)
        self.squares.add(signal)

    def finish(self) -> None:
        assert self.squares is not None, "add() comes first"
        self.total += self.rules[0].to_param(self.squares.result())
        self.squares = None

    def bytes(self, gradients: Sequence[Tensor], directions: int) -> int:
        signal = self.signal(gradients)
        kept = (
            signal.numel() * (signal.shape[1] + 1) // 2 if self.in_pairs(signal, directions) else self.inputs().numel()
        )
        return super().bytes(gradients, directions) + kept * self.total.element_size()

    def gradient(self, gradients: Sequence[Tensor]) -> Tensor:
        return self.rules[0].to_param(torch.einsum("ntgc,ntgo->gco", self.inputs(), self.signal(gradients)))


class Elementwises(Accumulator):
    def per_sample(self, gradients: Sequence[Tensor]) -> Tensor:
        """(samples, parameter)"""
        total: Tensor | int = 0
        for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True):
            product = gradient if isinstance(rule.factor, float) and rule.factor == 1 else gradient * rule.factor
            rows = layout.by_sample(
                product.detach().to(self.total.dtype), self.samples
            )  # (samples, *the result's dimensions)
            summed = [d + 1 for d, size in enumerate(rule.shape) if size == 1]
            total = total + rows.sum(summed).reshape(self.samples, -1)
        assert isinstance(total, Tensor)
        return total

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        self.total += self.per_sample(gradients).square_().sum(0).view(self.total.shape)

    def finish(self) -> None:
        pass  # nothing is pending

    def gradient(self, gradients: Sequence[Tensor]) -> Tensor:
        return self.per_sample(gradients).sum(0).view(self.total.shape)


class Lookups(Accumulator):
    slots: Tensor | None = None  # for each position, which (sample, table row) it belongs to
    rows: Tensor  # the table row of each slot

    def prepare(self) -> None:
        keys = []
        for rule, layout in zip(self.rules, self.layouts, strict=True):
            indices = layout.by_sample(rule.indices, self.samples).flatten(1)  # (samples, positions)
            offset = torch.arange(self.samples, device=indices.device).unsqueeze(1) * len(self.total)
            keys.append((indices + offset).flatten())
        unique, self.slots = torch.unique(torch.cat(keys), return_inverse=True)
        self.rows = unique % len(self.total)

    def per_slot(self, gradients: Sequence[Tensor]) -> Tensor:
        if self.slots is None:
            self.prepare()
        parts = []
        for rule, layout, gradient in zip(self.rules, self.layouts, gradients, strict=True):
            rows = layout.by_sample(gradient.detach(), self.samples).flatten(0, -2).to(self.total.dtype)
            indices = layout.by_sample(rule.indices, self.samples).flatten()
            parts.append(rows.masked_fill((indices == rule.padding).unsqueeze(1), 0))
        assert self.slots is not None
        sums = self.total.new_zeros(len(self.rows), self.total.shape[1])
        return sums.index_add_(0, self.slots, torch.cat(parts))

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        squares = self.per_slot(gradients).square_()
        self.total.index_add_(0, self.rows, squares)

    def finish(self) -> None:
        pass  # nothing is pending

    def gradient(self, gradients: Sequence[Tensor]) -> Tensor:
        sums = self.per_slot(gradients)
        return torch.zeros_like(self.total).index_add_(0, self.rows, sums)


KINDS: dict[type, type[Accumulator]] = {Product: Products, Elementwise: Elementwises, Lookup: Lookups}


def accumulator_for(rules: Sequence[Rule], layouts: Sequence[Layout], samples: int, total: Tensor) -> Accumulator:
    return KINDS[type(rules[0])](rules, layouts, samples, total)
