"""Witnesses: a few samples of a batch whose gradients are compared with autograd's own, one sample at a time.

Every assignment of rows to samples has the same total gradient, so that sums prove nothing; single samples do. What is
checked is what is claimed: the batch itself, its size, its backward passes. Passes are linear, so the signals of a
witness, added up over all of them with random coefficients, are those of a random direction of its own, for no pass
more. The gradient that the plan makes of these has to be autograd's for the same direction, from a forward pass of the
witness alone, through the network as it is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from coin.batch import Batch
from coin.fisher.accumulators import Accumulator, Watch

WITNESSES = 3


class Witnesses:
    def __init__(self, samples: list[int], outputs: Tensor, directions: int, seed: int):
        self.watch, self.outputs = Watch(samples), outputs.detach()[samples]
        self.scale = float(outputs.detach().abs().max())
        generator = torch.Generator().manual_seed(seed)
        self.coefficients = list(torch.randn(directions, len(samples), generator=generator))
        self.direction = torch.zeros_like(self.outputs)

    def begin(self, direction: Tensor) -> None:
        """Before the next pass, which starts from this direction."""
        self.watch.coefficients = self.coefficients.pop(0)
        self.direction += self.watch.weighed(direction)

    def compare(
        self, accumulators: Mapping[str, Accumulator], network: nn.Module, inputs: Batch
    ) -> dict[str, bool | None]:
        """Whether each parameter's gradients are autograd's; None where there is nothing but zeros to compare."""
        params = {name: param for name, param in network.named_parameters() if name in accumulators}
        differences = {name: Difference() for name in params}
        for at, sample in enumerate(self.watch.samples):

            def take(name: str, gradient: Tensor, at: int = at) -> Tensor:
                differences[name].add(*accumulators[name].witnessed(at), gradient)
                return gradient.new_zeros(()).expand_as(gradient)  # in its place, so that its memory serves the next

            alone = inputs[sample : sample + 1].ask(network)
            check_independent(alone.detach(), self.outputs[at : at + 1], self.scale)
            handles = [param.register_hook(partial(take, name)) for name, param in params.items()]
            try:
                direction = self.direction[at : at + 1].to(alone)
                gradients = torch.autograd.grad(alone, list(params.values()), direction, allow_unused=True)
            finally:
                for handle in handles:
                    handle.remove()
            for (name, param), gradient in zip(params.items(), gradients, strict=True):
                if gradient is None:
                    take(name, torch.zeros_like(param))
        return {name: difference.verdict(self.outputs) for name, difference in differences.items()}


@dataclass
class Difference:
    """Sums, over the witnesses, of squared norms of gradients of one parameter."""

    error: float = 0.0
    size: float = 0.0
    bound: float = 0.0  # what could be there at most if nothing cancelled: rounding errors are in proportion to that

    def add(self, ours: Tensor, bound: float, truth: Tensor) -> None:
        self.size += float(truth.norm()) ** 2
        self.error += float(ours.sub_(truth).norm()) ** 2
        self.bound += bound**2

    def verdict(self, outputs: Tensor) -> bool | None:
        # where everything cancels, as in the bias of a softmax's inputs, all that is left is rounding
        tolerance, noise = tolerance_for(outputs), 16 * torch.finfo(outputs.dtype).eps
        agrees = self.error <= tolerance**2 * self.size + noise**2 * self.bound and math.isfinite(self.error)
        return None if agrees and not self.size else agrees


def spread(inputs: Batch, wanted: int) -> list[int]:
    """Up to so many samples of different contents: the ends, the middle, then all others in turn."""
    found: dict[int, list[Tensor]] = {}
    last = len(inputs) - 1
    for sample in dict.fromkeys([0, last, last // 2, *range(len(inputs))]):
        if len(found) == wanted:
            break
        contents = inputs.contents(sample)
        if not any(all(map(torch.equal, contents, other)) for other in found.values()):
            found[sample] = contents
    return list(found)


def tolerance_for(outputs: Tensor) -> float:
    return {torch.float64: 1e-6, torch.float32: 1e-3}.get(outputs.dtype, 0.1)


def check_independent(alone: Tensor, batched: Tensor, scale: float) -> None:
    """The answer to a sample must be the same alone as in a batch, whose outputs are as large as `scale`."""
    tolerance = tolerance_for(batched)
    if alone.shape != batched.shape or not torch.allclose(
        alone.to(batched), batched, rtol=tolerance, atol=tolerance * scale, equal_nan=True
    ):
        raise ValueError(
            "the network answers a sample differently alone than in a batch, so per-sample gradients are not defined: "
            "it mixes samples (BatchNorm in train mode) or draws random numbers (dropout); call network.eval()"
        )
