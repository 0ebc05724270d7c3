"""Layers that multiply their input by a weight of their own: what RegMean, K-FAC and matched layers look at.

rows      (positions of all samples, columns): the inputs of a layer as the matrix its weight multiplies
made      (positions of all samples, outputs): what it makes of them
mask      (samples, tokens): which of them are no padding; rows of the others are left out
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from coin.codes.attention import opened, projection_of
from coin.fisher.rules import im2col

Layer = nn.Linear | nn.Conv2d | nn.LayerNorm
Hook = Callable[[str, Layer, Tensor, Tensor], Tensor | None]  # a layer's name, itself, its input and its output

UNFOLDED = 1 << 26  # bytes of unfolded inputs at a time


def own_layers(network: nn.Module, convolutions: bool = True, norms: bool = False) -> dict[str, Layer]:
    """{name of the weight: layer} of Linear layers, packed projections of attention, and, if asked for, ungrouped
    Conv2d and LayerNorms over the last dimension, whose weight is theirs alone.

    A weight that is shared (tied), computed from others (weight_norm, any parametrisation) or frozen is not: no single
    layer's inputs say what it should be. A subclass with a forward of its own may do anything with it.
    """
    holders = Counter(id(p) for _, p in network.named_parameters(remove_duplicate=False))
    found: dict[str, Layer] = {}
    for name, module in network.named_modules():
        linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
        conv = isinstance(module, nn.Conv2d) and type(module).forward is nn.Conv2d.forward
        if conv and (module.groups != 1 or module.padding_mode != "zeros" or uneven(module)):
            continue
        norm = norms and type(module) is nn.LayerNorm and len(module.normalized_shape) == 1
        projection = projection_of(module)
        layer, own = (projection, "in_proj_weight") if projection else (module, "weight")
        weight = module._parameters.get(own) if linear or norm or projection or (conv and convolutions) else None
        if weight is not None and weight.requires_grad and holders[id(weight)] == 1:
            found[f"{name}.{own}" if name else own] = layer
    return found


@contextmanager
def watched(layers: Mapping[str, Layer], see: Hook) -> Iterator[None]:
    """While it lasts, `see` is called with the input and output of each layer that runs, by position or keyword; what
    it returns, unless None, takes the output's place."""

    def hook(name: str) -> Callable[..., Tensor | None]:
        def call(module: Layer, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor | None:
            return see(name, module, args[0] if args else kwargs["input"], output)

        return call

    with ExitStack() as stack:
        stack.enter_context(opened(layers.values()))
        for name, layer in layers.items():
            stack.callback(layer.register_forward_hook(hook(name), with_kwargs=True).remove)
        yield


def rows_of(layer: Layer, inputs: Tensor) -> Tensor:
    """A layer's inputs as rows of what its weight multiplies, in single precision or better."""
    inputs = single(inputs)
    if isinstance(layer, nn.LayerNorm):
        inputs = nn.functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    if not isinstance(layer, nn.Conv2d):
        return inputs.reshape(-1, inputs.shape[-1])
    inputs = inputs if inputs.ndim == 4 else inputs.unsqueeze(0)
    patches = im2col(inputs, layer.kernel_size, layer.stride, padding_of(layer), layer.dilation)
    # (samples, positions, kernel, channels) to the weight's own order, channels before kernel
    return patches.transpose(2, 3).reshape(-1, patches.shape[2] * patches.shape[3])


def made_of(layer: Layer, made: Tensor) -> Tensor:
    """A layer's outputs, or gradients by them, as rows, in single precision or better."""
    made = single(made)
    if isinstance(layer, nn.Conv2d):
        made = (made if made.ndim == 4 else made.unsqueeze(0)).movedim(1, -1)
    return made.reshape(-1, made.shape[-1])


def parts_of(layer: Layer, inputs: Tensor) -> Iterator[Tensor]:
    """The rows of a layer's inputs, as many at a time as are worth unfolding at once."""
    if not isinstance(layer, nn.Conv2d) or inputs.ndim < 4:
        yield rows_of(layer, inputs)
        return
    space = [s // t + 1 for s, t in zip(inputs.shape[2:], layer.stride, strict=True)]
    size = 4 * layer.weight[0].numel() * space[0] * space[1]  # bytes a sample, about
    for part in inputs.split(max(1, UNFOLDED // size)):
        yield rows_of(layer, part)


def in_use(layer: Layer, tensor: Tensor, mask: Tensor | None) -> Tensor | slice:
    """Which rows of a layer's inputs or outputs are no padding, whether samples come first, tokens, or both as one."""
    if mask is None or isinstance(layer, nn.Conv2d):
        return slice(None)
    if tensor.ndim > 2 and tensor.shape[:2] in (mask.shape, mask.T.shape):
        mask = mask if tensor.shape[:2] == mask.shape else mask.T
        more = tensor.shape[2:-1].numel()
        return mask.flatten().repeat_interleave(more)
    return mask.flatten() if tensor.ndim == 2 and len(tensor) == mask.numel() else slice(None)


def gram_of(layer: Layer, inputs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, int]:
    """XᵀX over the rows X of these inputs, and how many there are."""
    total, count, use = None, 0, in_use(layer, inputs, mask)
    for x in parts_of(layer, inputs.detach()):
        x = x if isinstance(use, slice) else x[use]  # a Linear layer has one part
        total = x.T @ x if total is None else total.addmm_(x.T, x)
        count += len(x)
    assert total is not None, "a layer that runs has inputs"
    return total, count


def single(tensor: Tensor) -> Tensor:
    """In single precision or better: sums and solutions in half of it would be off by percents."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def padding_of(layer: nn.Conv2d) -> tuple[int, ...]:
    if layer.padding == "valid":
        return (0,) * len(layer.kernel_size)
    if layer.padding == "same":
        return tuple(d * (k - 1) // 2 for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    assert not isinstance(layer.padding, str)
    return layer.padding


def uneven(layer: nn.Conv2d) -> bool:
    """Whether it pads one side more than the other, which unfolding does not."""
    return layer.padding == "same" and any(
        d * (k - 1) % 2 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)
    )
