"""Layers matched by least squares: each fitted to outputs that are wanted of it, in the order they run."""

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from coin.grams import Layer, columns, gram_layers, rows
from coin.parameters import Parameters


@torch.no_grad()
def layer_outputs(network: nn.Module, inputs: Tensor) -> Parameters:
    """{layer: what it makes, a row a position} of each layer that can be matched: it runs once, with its own weight."""
    layers = gram_layers(network, convolutions=True)
    holders = Counter(id(p) for _, p in network.named_parameters(remove_duplicate=False))
    runs: Counter[str] = Counter()
    made: Parameters = {}

    def hook(name: str) -> Callable:
        def keep(module: Layer, inputs: tuple, output: Tensor) -> None:
            runs[name] += 1 if inputs else 2  # called by keyword: as if it ran twice
            made[name] = single(rows(module, output)).clone()

        return keep

    hooked(network, {name: layer.register_forward_hook(hook(name)) for name, layer in layers.items()}, inputs)
    return {name: made[name] for name in made if runs[name] == 1 and holders[id(layers[name].weight)] == 1}


@torch.no_grad()
def match_layers(network: nn.Module, inputs: Tensor, wanted: Mapping[str, Tensor], strength: float) -> None:
    """Moves weights, and biases, so that each layer makes what is `wanted` of what the layers before, moved already,
    send it. A single pass: a layer is fitted when its inputs arrive."""
    layers = gram_layers(network, convolutions=True)

    def hook(name: str) -> Callable:
        def fit(module: Layer, layer_inputs: tuple, output: Tensor) -> Tensor:
            x, missing = columns(module, single(layer_inputs[0])), wanted[name] - rows(module, single(output))
            bias = module.bias if module.bias is not None and module.bias.requires_grad else None
            move, shift = least_move(x, missing, strength * len(x) / len(inputs), bias is not None)
            module.weight += move.T.reshape(module.weight.shape)
            if bias is not None:
                bias += shift
            return module.forward(*layer_inputs)

        return fit

    hooked(network, {name: layers[name].register_forward_hook(hook(name)) for name in wanted}, inputs)


def hooked(network: nn.Module, handles: Mapping[str, torch.utils.hooks.RemovableHandle], inputs: Tensor) -> None:
    """Runs a network, then removes its hooks."""
    try:
        network(inputs)
    finally:
        for handle in handles.values():
            handle.remove()


def single(tensor: Tensor) -> Tensor:
    """At least single precision: half of it cannot be solved in."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def least_move(x: Tensor, missing: Tensor, strength: float, offset: bool) -> tuple[Tensor, Tensor]:
    """D, b with the least ‖x D + b − missing‖² + ridge ‖D‖², the ridge `strength` times the mean square of a row of x,
    less its mean if there is an `offset` b.

    From the smaller of the two Gram matrices. The ridge bounds their condition by the rows over the strength, which is
    within reach of single precision.
    """
    zeros = x.new_zeros(x.shape[1]), missing.new_zeros(missing.shape[1])
    mean, level = (x.mean(0), missing.mean(0)) if offset else zeros
    x, y = x - mean if offset else x, missing - level
    few = len(x) < x.shape[1]
    gram = x @ x.T if few else x.T @ x
    ridge = strength * gram.diagonal().sum() / len(x)
    if ridge == 0:  # nothing reaches the layer
        return x.new_zeros(x.shape[1], y.shape[1]), level
    gram.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        raise ValueError(f"a ridge of strength {strength:g} is too weak, or a network's outputs are not finite")
    move = x.T @ torch.cholesky_solve(y, factor) if few else torch.cholesky_solve(x.T @ y, factor)
    return move, level - mean @ move
