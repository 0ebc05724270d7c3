"""BatchNorm's statistics in a coded network: equal in all experts, their average, or those of the samples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from coin.batch import Batch, Plain
from coin.parameters import Parameters, load, weighted_sum

Statistics = Literal["equal", "average", "samples"]
STATISTICS = ("equal", "average", "samples")


def batch_norms(network: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def statistics_of(network: nn.Module) -> Parameters:
    """Running means and variances, by name."""
    own = {id(t) for module in batch_norms(network) for t in (module.running_mean, module.running_var) if t is not None}
    return {name: buffer for name, buffer in network.named_buffers() if id(buffer) in own}


def counts_of(network: nn.Module) -> list[str]:
    """The names of what counts batches, which no answer depends on."""
    return [name for name, _ in network.named_buffers() if name.rpartition(".")[2] == "num_batches_tracked"]


def may_differ(network: nn.Module, kind: Statistics) -> set[str]:
    """What experts may differ in though it is no part of θ."""
    return set() if kind == "equal" else {*statistics_of(network), *counts_of(network)}


@torch.no_grad()
def set_statistics(
    network: nn.Module, kind: Statistics, experts: Sequence[nn.Module], beta: Sequence[float], batches: Sequence[Plain]
) -> nn.Module:
    """The network with the statistics that a coded one shall have."""
    if kind != "equal":
        load(network, weighted_sum([statistics_of(expert) for expert in experts], beta))
    if kind == "samples":
        load(network, estimated(network, batches))
    return network


@torch.no_grad()
def estimated(network: nn.Module, batches: Sequence[Plain]) -> Parameters:
    """The statistics that each layer sees, those before it with the statistics of the batch: the mean over batches,
    each counted by its samples. One sample alone says nothing of a variance."""
    known = [batch for batch in map(Batch.of, batches) if len(batch) > 1]
    if not known:
        raise ValueError("batch_statistics=samples: there is no batch of two samples or more; use average")
    found = []
    with remembering_batches(network):
        for batch in known:
            batch.ask(network)
            found.append({name: value.clone() for name, value in statistics_of(network).items()})
    total = sum(map(len, known))
    return weighted_sum(found, [len(batch) / total for batch in known])


@contextmanager
def remembering_batches(network: nn.Module) -> Iterator[None]:
    """While it lasts, BatchNorm computes with the statistics of the batch, and its running ones are those."""
    modules = batch_norms(network)
    before = [(module.momentum, module.num_batches_tracked) for module in modules]
    try:
        for module in modules:
            module.train()
            module.momentum, module.num_batches_tracked = 1.0, None
        yield
    finally:
        for module, (momentum, count) in zip(modules, before, strict=True):
            module.eval()
            module.momentum, module.num_batches_tracked = momentum, count
