"""BatchNorm layers while experts are fine-tuned, and their statistics in a coded network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from coin.batch import Batch, Plain
from coin.parameters import Parameters

Mode = Literal["frozen", "affine", "trained"]
MODES = ("frozen", "affine", "trained")


def freeze_batch_norm(network: nn.Module, mode: Mode = "frozen") -> nn.Module:
    """Freezes BatchNorm's affine parameters unless they are trained; `batch_norms(network)` in eval mode freezes its
    statistics."""
    for module in batch_norms(network):
        module.requires_grad_(mode != "frozen").eval()
    return network


def batch_norms(network: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def statistics(network: nn.Module) -> Parameters:
    """The running means and variances, by the names of the network's tensors."""
    found: Parameters = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            prefix = f"{name}." if name else ""
            assert module.running_var is not None
            found |= {f"{prefix}running_mean": module.running_mean, f"{prefix}running_var": module.running_var}
    return found


@torch.no_grad()
def estimate_statistics(network: nn.Module, batches: Sequence[Plain]) -> Parameters:
    """Those that a network has on these samples: the mean over batches, each counted by its samples. A batch of less
    than two samples says nothing of a variance."""
    sums, total = {name: torch.zeros_like(value) for name, value in statistics(network).items()}, 0
    with counting(network):
        for batch in map(Batch.of, batches):
            if len(batch) < 2:
                continue
            batch.ask(network)
            total += len(batch)
            for name, value in statistics(network).items():
                sums[name].add_(value, alpha=len(batch))
    if not total:
        raise ValueError("statistics of BatchNorm cannot be estimated: there is no batch of two samples or more")
    return {name: value / total for name, value in sums.items()}


@contextmanager
def counting(network: nn.Module) -> Iterator[None]:
    """While it lasts, BatchNorm takes the statistics of the batch, and remembers them; then all is as it was."""
    modules = batch_norms(network)
    before = {name: value.clone() for name, value in statistics(network).items()}
    momenta, counts = [m.momentum for m in modules], [m.num_batches_tracked for m in modules]
    try:
        for module in modules:
            module.train()
            module.momentum = 1.0
            module.num_batches_tracked = None
        yield
    finally:
        for module, momentum, count in zip(modules, momenta, counts, strict=True):
            module.eval()
            module.momentum, module.num_batches_tracked = momentum, count
        for name, value in statistics(network).items():
            value.copy_(before[name])
