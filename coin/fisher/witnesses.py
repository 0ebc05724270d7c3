"""Witnesses: a few samples of a batch whose squares are compared with autograd's own, one sample at a time.

Every assignment of rows to samples has the same total gradient, so that sums prove nothing; squares do. What is checked
is what is claimed: the batch itself, its size, its backward passes. Passes are linear, so the signals of a witness,
added up over all of them with random coefficients, are those of a random direction of its own, for no pass more. The
squares that the plan makes of these have to be autograd's for the same direction, from a forward pass of the witness
alone, through the network as it is.
"""

from collections.abc import Mapping

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

    def squares(self, network: nn.Module, params: Mapping[str, Tensor], inputs: Batch) -> dict[str, Tensor]:
        """Autograd's, added up over the witnesses."""
        totals: dict[str, Tensor] = {}
        for at, sample in enumerate(self.watch.samples):
            alone = inputs[sample : sample + 1].ask(network)
            check_independent(alone.detach(), self.outputs[at : at + 1], self.scale)
            wanted, direction = list(params.values()), self.direction[at : at + 1].to(alone)
            gradients = list(torch.autograd.grad(alone, wanted, direction, allow_unused=True))
            for name, param in reversed(list(params.items())):
                gradient = gradients.pop()  # frees its memory for the next
                gradient = torch.zeros_like(param) if gradient is None else gradient  # two may share one memory
                gradient = gradient.to(torch.promote_types(param.dtype, torch.float32))
                totals[name] = totals[name].addcmul_(gradient, gradient) if name in totals else gradient.square()
        return totals

    def compare(self, accumulators: Mapping[str, Accumulator], truths: dict[str, Tensor]) -> dict[str, bool | None]:
        """Whether each parameter's agree; None where there is nothing but zeros to compare."""
        verdicts: dict[str, bool | None] = {}
        tolerance, eps = tolerance_for(self.outputs), torch.finfo(self.outputs.dtype).eps
        for name, accumulator in accumulators.items():
            ours, bound = accumulator.witnessed()
            truth = truths.pop(name)
            size, error = truth.norm(), ours.sub_(truth).norm()
            # where everything cancels, as in the bias of a softmax's inputs, all that is left is rounding
            agrees = bool(error <= 2 * tolerance * size + (16 * eps) ** 2 * bound)
            verdicts[name] = None if agrees and not size else agrees
        return verdicts


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
