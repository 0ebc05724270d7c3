"""Slow, obvious versions of everything fast, to compare with in float64."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def diagonal_fisher(network: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """One sample, one output, one backward pass at a time."""
    params = {name: p for name, p in network.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    samples = 0
    for batch in batches:
        for x in batch.split(1):
            samples += 1
            for output in network(x).flatten():
                gradients = torch.autograd.grad(output, list(params.values()), retain_graph=True, allow_unused=True)
                for total, gradient in zip(sums.values(), gradients, strict=True):
                    if gradient is not None:
                        total += gradient**2
    return {name: total / samples for name, total in sums.items()}


def fisher_average(params, fishers, beta, damping) -> dict[str, Tensor]:
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i, with full diagonal matrices, one tensor at a time."""
    bars = [b * sum(beta) for b in beta]
    coded = {}
    for name in params[0]:
        total = sum(
            b * (torch.diag(f[name].flatten()) + damping * torch.eye(f[name].numel(), dtype=f[name].dtype))
            for b, f in zip(bars, fishers, strict=True)
        )
        right = sum(
            b
            * (torch.diag(f[name].flatten()) + damping * torch.eye(f[name].numel(), dtype=f[name].dtype))
            @ p[name].flatten()
            for b, f, p in zip(bars, fishers, params, strict=True)
        )
        coded[name] = torch.linalg.solve(total, right).view(params[0][name].shape)
    return coded
