"""Gram matrices of layer inputs: G = XᵀX / n, what RegMean weights its averages with."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from coin.fisher.rules import im2col
from coin.parameters import Parameters

Layer = nn.Linear | nn.Conv2d


def gram_layers(network: nn.Module, convolutions: bool) -> dict[str, Layer]:
    """The layers whose trained weight multiplies their input: Linear, and ungrouped Conv2d if asked for."""
    found: dict[str, Layer] = {}
    for name, module in network.named_modules():
        conv = isinstance(module, nn.Conv2d) and module.groups == 1 and module.padding_mode == "zeros"
        if (isinstance(module, nn.Linear) or (convolutions and conv)) and module.weight.requires_grad:
            found[name] = module
    return found


def columns(module: nn.Module, inputs: Tensor) -> Tensor:
    """A layer's inputs as rows of the matrix its weight multiplies: (positions, columns)."""
    if isinstance(module, nn.Linear):
        return inputs.reshape(-1, inputs.shape[-1])
    assert isinstance(module, nn.Conv2d)
    padding = padding_of(module)
    patches = im2col(inputs, module.kernel_size, module.stride, padding, module.dilation)
    # (samples, positions, kernel, channels) to the weight's own order, channels before kernel
    return patches.transpose(2, 3).reshape(-1, patches.shape[2] * patches.shape[3])


def rows(module: nn.Module, made: Tensor) -> Tensor:
    """A layer's outputs, or gradients by them, as rows: (positions, outputs)."""
    made = made.movedim(1, -1) if isinstance(module, nn.Conv2d) else made
    return made.reshape(-1, made.shape[-1])


def padding_of(module: nn.Conv2d) -> tuple[int, ...]:
    if isinstance(module.padding, str):
        if module.padding == "valid":
            return (0,) * len(module.kernel_size)
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if any(size % 2 for size in total):
            raise ValueError(
                "convolutions can be unfolded with symmetric padding only; padding='same' needs odd kernels"
            )
        return tuple(size // 2 for size in total)
    return module.padding


@torch.no_grad()
def gram_matrices(network: nn.Module, batches: Iterable[Tensor], convolutions: bool = False) -> Parameters:
    """{weight name: G} over all rows (samples × positions) that reach each layer."""
    layers = gram_layers(network, convolutions)
    sums: Parameters = {}
    counts: dict[str, int] = {}

    def hook(name: str):
        def add(module: nn.Module, inputs: tuple) -> None:
            x = columns(module, inputs[0].detach().to(torch.promote_types(inputs[0].dtype, torch.float32)))
            gram = x.T @ x
            key = f"{name}.weight" if name else "weight"
            sums[key] = sums[key].add_(gram) if key in sums else gram
            counts[key] = counts.get(key, 0) + len(x)

        return add

    handles = [module.register_forward_pre_hook(hook(name)) for name, module in layers.items()]
    try:
        for batch in batches:
            network(batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: total / counts[name] for name, total in sums.items()}
