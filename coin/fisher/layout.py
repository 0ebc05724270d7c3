"""Which rows of a layer's tensors belong to which sample.

Layers fold samples and positions into one dimension, sample by sample (tokens of a Linear) or position by position
(nn.MultiheadAttention transposes first). Neither the graph nor the shapes tell which, so it is observed: a gradient
that starts at one sample's outputs must be zero in every row of the others.
"""

from dataclasses import dataclass

from torch import Tensor

PROBE_SIZES = (2, 3, 5, 7)  # primes: hardly anything fits all of them by accident


@dataclass(frozen=True)
class Layout:
    """Dimension `dim` holds the samples: sample by sample (`major`), or position by position (minor)."""

    dim: int
    major: bool = True

    def by_sample(self, tensor: Tensor, samples: int) -> Tensor:
        """(…, samples·m, …) to (samples, …, m, …): the samples first, the positions where they were."""
        size = tensor.shape[self.dim] // samples
        folded = (samples, size) if self.major else (size, samples)
        unfolded = tensor.unflatten(self.dim, folded)
        return unfolded.movedim(self.dim if self.major else self.dim + 1, 0)


def candidates(shape: tuple[int, ...], dims: range, samples: int) -> set[Layout]:
    found = set()
    for dim in dims:
        if shape[dim] % samples == 0:
            found.add(Layout(dim))
            if shape[dim] > samples:
                found.add(Layout(dim, major=False))
    return found


def fitting(layouts: set[Layout], gradients: list[Tensor], samples: int) -> set[Layout]:
    """The layouts under which the gradient of sample j's outputs touches sample j alone, for every j."""
    return {
        layout
        for layout in layouts
        if all(
            not part.any()
            for j, gradient in enumerate(gradients)
            for i, part in enumerate(layout.by_sample(gradient, samples))
            if i != j
        )
    }
