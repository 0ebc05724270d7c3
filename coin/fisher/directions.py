"""Directions in output space: what the backward passes start from.

F = (1/P) Σ_l Σ_k (∂f_k/∂θ)² is a sum over the K one-hot directions. A random ±1 vector v has E[(vᵀJ)²] = Σ_k J_k², so
the mean over a few such probes estimates it without bias, which makes many outputs affordable.
"""

import abc
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.batch import Batch


@dataclass(frozen=True)
class Directions(abc.ABC):
    @abc.abstractmethod
    def count(self, outputs: int) -> int:
        """How many backward passes there are for `outputs` outputs."""

    @abc.abstractmethod
    def of(self, inputs: Batch, outputs: Tensor) -> Iterator[Tensor]:
        """The gradients (samples, outputs) to start from."""

    def weight(self, outputs: int) -> float:
        """What a direction's squares count."""
        return 1.0


@dataclass(frozen=True)
class Exact(Directions):
    """The K one-hot directions."""

    def count(self, outputs: int) -> int:
        return outputs

    def of(self, inputs: Batch, outputs: Tensor) -> Iterator[Tensor]:
        for k in range(outputs.shape[1]):
            direction = torch.zeros_like(outputs)
            direction[:, k] = 1
            yield direction


@dataclass(frozen=True)
class Likelihood(Directions):
    """√p_k (e_k − p) for the class probabilities p, the softmax of the outputs.

    The squares then sum to Σ_k p_k (∂ log p_k/∂θ)²: the Fisher of a classifier's likelihood, which Fisher merging
    weighs by, exact as well. COIN's own is that of the outputs.
    """

    def count(self, outputs: int) -> int:
        return outputs

    def of(self, inputs: Batch, outputs: Tensor) -> Iterator[Tensor]:
        probabilities = outputs.detach().softmax(1)
        for k in range(outputs.shape[1]):
            root = probabilities[:, k].sqrt()
            direction = -root[:, None] * probabilities
            direction[:, k] += root
            yield direction


@dataclass(frozen=True)
class Probes(Directions):
    """`probes` random ±1 directions a sample. They depend on the sample's contents and the seed alone, so that the
    estimate depends neither on the batch size nor on the number of devices."""

    probes: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.probes < 1:
            raise ValueError(f"fisher.probes={self.probes}: must be at least 1")

    def count(self, outputs: int) -> int:
        return self.probes

    def weight(self, outputs: int) -> float:
        return 1 / self.probes

    def of(self, inputs: Batch, outputs: Tensor) -> Iterator[Tensor]:
        shape = (self.probes, outputs.shape[1])
        seeds = [self.generator(inputs.contents(sample)) for sample in range(len(inputs))]
        signs = [torch.randint(0, 2, shape, generator=seed) for seed in seeds]
        yield from torch.stack(signs, 1).to(outputs).mul_(2).sub_(1)  # (probes, samples, outputs)

    def generator(self, sample: list[Tensor]) -> torch.Generator:
        contents = 0
        for tensor in sample:
            numbers = tensor.detach().reshape(-1).clone(memory_format=torch.contiguous_format)  # whatever its strides
            contents = zlib.crc32(numbers.cpu().view(torch.uint8).numpy().tobytes(), contents)
        return torch.Generator().manual_seed(contents + (self.seed << 32))
