"""Kronecker factors of the Fisher of the outputs: for a layer's weight, F ≈ A ⊗ G.

A is the second moment of what the weight multiplies, summed over positions, and G that of the gradients of each of the
K outputs by what it makes, averaged over positions: K-FAC's `expand`, exact over the outputs (or, with other directions
than the K one-hot ones, as these are).
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from coin.fisher import Directions, Exact
from coin.grams import columns, gram_layers, rows
from coin.parameters import Parameters


def kronecker_factors(
    network: nn.Module, batches: Iterable[Tensor], directions: Directions | None = None
) -> Parameters:
    """{weight name/A: (columns, columns), weight name/G: (outputs, outputs)} of every Linear and ungrouped Conv2d."""
    directions = directions or Exact()
    layers = gram_layers(network, convolutions=True)
    sums: Parameters = {}
    seen: list[tuple[str, nn.Module, GradientEdge]] = []  # where layer outputs of one batch are in the graph
    positions: dict[str, int] = {}
    samples = 0

    def add(key: str, value: Tensor) -> None:
        sums[key] = sums[key].add_(value) if key in sums else value

    def hook(name: str) -> Callable:
        def keep(module: nn.Module, inputs: tuple, output: Tensor) -> None:
            x = columns(module, inputs[0].detach().to(torch.promote_types(inputs[0].dtype, torch.float32)))
            add(f"{name}/A", x.T @ x)
            positions[name] = positions.get(name, 0) + len(x)
            # the edge, not the tensor: an in-place activation would take the tensor's place in the graph
            seen.append((name, module, get_gradient_edge(output)))

        return keep

    handles = [
        module.register_forward_hook(hook(f"{name}.weight" if name else "weight")) for name, module in layers.items()
    ]
    try:
        with torch.enable_grad():
            for batch in batches:
                seen.clear()
                outputs = network(batch)
                samples += len(batch)
                made = [output for _, _, output in seen]
                weight = directions.weight(outputs.shape[1])
                for direction in directions.of(batch, outputs):
                    grads = torch.autograd.grad(outputs, made, direction, retain_graph=True, allow_unused=True)
                    for (name, module, _), grad in zip(seen, grads, strict=True):
                        if grad is not None:
                            g = rows(module, grad.to(torch.promote_types(grad.dtype, torch.float32)))
                            add(f"{name}/G", weight * (g.T @ g))
    finally:
        seen.clear()
        for handle in handles:
            handle.remove()
    return {
        key: total / (samples if key.endswith("/A") else positions[key.removesuffix("/G")])
        for key, total in sums.items()
        if f"{key[:-2]}/G" in sums
    }
