"""Which rows of a layer's tensors belong to which sample.

Layers fold samples and positions into one dimension: sample by sample (tokens of a Linear), position by position
(nn.MultiheadAttention transposes first), or in between (frames, samples, tokens). Shapes at two numbers of samples tell
which dimension it is, and tags tell the rest. A backward pass treats each sample by itself and is linear, so where the
gradient that starts at sample n's outputs is multiplied with tags[n], every row of sample n's is, however it was
folded, permuted or gathered. One pass without tags and one with them show the owner of every row that has a gradient.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

PROBE_SIZES = (3, 5, 7, 11)  # primes: where one leaves two layouts possible, hardly all do


@dataclass(frozen=True)
class Layout:
    """Dimension `dim` holds (outer, samples, inner): outer = 1 is sample by sample, inner = 1 position by position."""

    dim: int
    outer: int = 1

    def by_sample(self, tensor: Tensor, samples: int) -> Tensor:
        """(…, outer·samples·inner, …) to (samples, …, outer·inner, …): the positions stay where they were."""
        inner = tensor.shape[self.dim] // (self.outer * samples)
        unfolded: Tensor = tensor.unflatten(self.dim, (self.outer, samples, inner)).movedim(self.dim + 1, 0)
        return unfolded.flatten(self.dim + 1, self.dim + 2)


@dataclass(frozen=True)
class Size:
    """The shape of a tensor that was computed from so many samples."""

    shape: tuple[int, ...]
    samples: int

    def positions(self, dim: int) -> int:
        """How many each sample has in this dimension, 0 if they do not share it evenly."""
        return 0 if self.shape[dim] % self.samples else self.shape[dim] // self.samples


def candidates(size: Size, dims: Iterable[int], other: Size | None = None) -> set[Layout]:
    """All layouts that the shape allows, and, if given, the shape of the same tensor for another number of samples."""
    found = set()
    for dim in dims:
        positions = size.positions(dim)
        if not positions or (other and not grows(size, other, dim)):
            continue
        found |= {Layout(dim, outer) for outer in range(1, positions + 1) if positions % outer == 0}
    return found


def grows(size: Size, other: Size, dim: int) -> bool:
    """Whether both are of one tensor whose dimension `dim` is proportional to the samples, all else equal."""
    if len(size.shape) != len(other.shape) or size.positions(dim) != other.positions(dim):
        return False
    return all(a == b for d, (a, b) in enumerate(zip(size.shape, other.shape, strict=True)) if d != dim)


def make_tags(samples: int) -> Tensor:
    """Powers of two, which scale without rounding; all different for up to nine samples, random beyond."""
    shuffled = torch.randperm(max(9, samples), generator=torch.Generator().manual_seed(samples))[:samples]
    return 2.0 ** (shuffled % 9 - 4)


def fitting(layouts: set[Layout], plain: Tensor, tagged: Tensor, tags: Tensor) -> set[Layout]:
    """The layouts under which every row of `tagged` is that of `plain` times the tag of its sample."""
    samples = len(tags)
    noise = 16 * torch.finfo(plain.dtype).eps * tagged.abs().max() if tagged.numel() else 0.0
    found = set()
    for layout in layouts:
        rows = layout.by_sample(plain, samples)
        expected = rows * tags.to(plain).view(-1, *[1] * (rows.ndim - 1))
        # a wrong tag is off by a factor of two at least
        if not ((layout.by_sample(tagged, samples) - expected).abs() > expected.abs() / 4 + noise).any():
            found.add(layout)
    return found
