"""Σ over samples and directions of squared per-sample gradients of a product layer, never stored all at once.

    n samples   t, u positions (pixels, tokens)   g groups   c inputs   o outputs of the layer

The gradient of a weight in one direction is ∂f(x_n)/∂W[g,c,o] = Σ_t A[n,t,g,c] G[n,t,g,o]; wanted is Σ_n of its square,
summed over the K directions, which arrive one after the other.

    direct   form the gradients of a few samples that fit the cache, square, add up
    pairs    Σ_{t≤u} w_tu (Σ_k G_k[n,t] G_k[n,u]) (A[n,t] A[n,u]), w = 1 on the diagonal and 2 off it: the sum over the
             directions comes first, then one matrix product over (sample, pair) for the whole batch

With one position, pairs is just (Σ_k G²)ᵀ A². Its work grows with t², that of direct with K·t, but direct also writes
and reads K·c·o numbers a sample.
"""

import abc
from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 1 << 20  # floats of a block that is formed and used up at a time: 4 MiB, about what the caches hold

# The cost model, in units of one multiply-add inside a matrix product (two cores, AVX-512: 0.013 ns). Squaring and
# adding up a gradient, and adding a product to the sums over pairs, are passes over memory and cost this much more an
# element. `python -m benchmarks.fisher_rules` measures both ways over a table of layers.
SQUARE, PAIR = 12, 25


def pairs_is_cheaper(positions: int, directions: int, columns: int, outputs: int) -> bool:
    """The documented choice, per sample and group."""
    weights = columns * outputs
    direct = directions * weights * (positions + SQUARE)
    count = positions * (positions + 1) // 2
    pairs = count * weights + PAIR * count * (columns + directions * outputs)
    return pairs < direct


class Squares(abc.ABC):
    """Takes the gradients (n, t, g, o) of one direction after the other; `result` is (g, c, o).

    `inputs` makes the layer's inputs (n, t, g, c) when they are first needed.
    """

    def __init__(self, inputs: Callable[[], Tensor]):
        self.make_inputs = inputs

    @abc.abstractmethod
    def add(self, gradients: Tensor) -> None: ...

    @abc.abstractmethod
    def result(self) -> Tensor: ...


class Direct(Squares):
    inputs: Tensor | None = None  # (n, g, c, t)
    total: Tensor
    block: Tensor  # (a few samples, g, c, o), used again and again: fresh memory would cost as much as the product

    def add(self, gradients: Tensor) -> None:
        n, t, g, o = gradients.shape
        if self.inputs is None:
            self.inputs = self.make_inputs().permute(0, 2, 3, 1)
            c = self.inputs.shape[2]
            self.total = gradients.new_zeros(g, c, o)
            self.block = gradients.new_empty(min(n, max(1, BLOCK // (g * c * o))), g, c, o)
        c, step = self.inputs.shape[2], len(self.block)
        signal = gradients.transpose(1, 2)  # (n, g, t, o)
        for start in range(0, n, step):
            left = self.inputs[start : start + step].reshape(-1, c, t)
            right = signal[start : start + step].reshape(-1, t, o)
            block = self.block[: min(step, n - start)]
            if len(left) == 1:
                torch.mm(left[0], right[0], out=block[0, 0])  # faster than a batch of one
            else:
                torch.bmm(left, right, out=block.view(-1, c, o))
            if len(block) == 1:
                self.total.addcmul_(block[0], block[0])
            else:
                self.total += block.square_().sum(0)

    def result(self) -> Tensor:
        return self.total


class Pairs(Squares):
    signal: Tensor | None = None  # (pair, n, g, o): Σ_k G_k[n,t] G_k[n,u]

    def add(self, gradients: Tensor) -> None:
        n, t, g, o = gradients.shape
        if self.signal is None:
            self.signal = gradients.new_zeros(t * (t + 1) // 2, n, g, o)
        rows, start = gradients.transpose(0, 1), 0
        for u in range(t):
            self.signal[start : start + t - u].addcmul_(rows[u:], rows[u : u + 1])
            start += t - u

    def result(self) -> Tensor:
        assert self.signal is not None, "add() comes first"
        inputs = self.make_inputs()
        n, t, g, c = inputs.shape
        count, o = len(self.signal), self.signal.shape[3]
        start = 0
        for u in range(t):
            self.signal[start + 1 : start + t - u] *= 2  # off the diagonal
            start += t - u
        total = inputs.new_zeros(g, c, o)
        step = max(1, BLOCK // (count * g * c))
        for first in range(0, n, step):
            rows = inputs[first : first + step].transpose(0, 1)  # (t, n, g, c)
            gram = rows.new_empty(count, rows.shape[1], g, c)
            start = 0
            for u in range(t):
                torch.mul(rows[u:], rows[u : u + 1], out=gram[start : start + t - u])
                start += t - u
            left, right = gram.view(-1, g, c), self.signal[:, first : first + step].reshape(-1, g, o)
            if g == 1:
                total[0].addmm_(left[:, 0].T, right[:, 0])  # a sixth faster than as a batch of one
            else:
                total.baddbmm_(left.permute(1, 2, 0), right.transpose(0, 1))
        return total
