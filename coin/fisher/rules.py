"""Rules: what one operation does with a parameter, from its saved tensors and the gradient of its result.

Three kinds of use cover the layers networks are made of; whatever is no such use takes the general path.

    product       Linear, convolutions, x @ W: inputs times gradients, summed over positions
    elementwise   biases, norm affines, tokens, scales: (gradient × something) summed over what was broadcast
    lookup        embeddings: gradients summed over the positions that hold the same index
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from coin.fisher.graph import Use

Split = Callable[[Tensor], Tensor]  # puts the samples first, see Layout.by_sample


@dataclass
class Product:
    """A use as a matrix product. `inputs` gives (samples, positions, groups, columns of A)."""

    inputs: Callable[[Split], Tensor]
    signal: Callable[[Tensor, Split], Tensor]  # gradient to (samples, positions, groups, outputs)
    to_param: Callable[[Tensor], Tensor]  # (groups, columns, outputs) to the parameter's shape
    groups: int
    outputs: int
    dims: Sequence[int] = range(1)  # where the samples may be


@dataclass
class Elementwise:
    """A use as a broadcast: the parameter has `shape` (padded with ones) beside the result."""

    shape: tuple[int, ...]
    factor: Tensor | float
    dims: Sequence[int]

    @property
    def summed(self) -> list[int]:
        """The dimensions of `terms` that the parameter was broadcast over."""
        return [dim + 1 for dim, size in enumerate(self.shape) if size == 1]

    def terms(self, gradient: Tensor, split: Split) -> Tensor:
        """(samples, …)"""
        plain = isinstance(self.factor, float) and self.factor == 1
        return split((gradient if plain else gradient * self.factor).detach())


@dataclass
class Lookup:
    """A use as a table: `indices` says which row each position read."""

    indices: Tensor
    padding: int
    dims: Sequence[int]


Rule = Product | Elementwise | Lookup


def rule_for(use: Use, param: Tensor) -> Rule | None:
    """The rule of this use, or None where only the general path is exact."""
    make = RULES.get(use.node.name())
    return make(use, param, use.shape) if make else None


def rules_for(uses: list[Use], param: Tensor) -> list[Rule] | None:
    """The rules of all uses of a parameter, or None unless all are of one kind."""
    rules = [rule_for(use, param) for use in uses]
    known = [rule for rule in rules if rule is not None]
    return known if len(known) == len(rules) and len({type(rule) for rule in known}) == 1 else None


def matrix_product(use: Use, param: Tensor, result: tuple[int, ...], saved: str, weight: int) -> Rule | None:
    node = use.node
    if use.slot != weight:
        return None

    def inputs(split: Split) -> Tensor:
        return split(getattr(node, saved)).unsqueeze(2)

    def signal(gradient: Tensor, split: Split) -> Tensor:
        return split(gradient).unsqueeze(2)

    def to_param(squares: Tensor) -> Tensor:
        return squares[0].T if use.transposed else squares[0]

    return Product(inputs, signal, to_param, 1, result[-1])


def addmm(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    if use.node._saved_alpha != 1 or use.node._saved_beta != 1:
        return None
    if use.slot == 0:
        return broadcast(param, result, 1.0) if not use.transposed else None
    return matrix_product(use, param, result, "_saved_mat1", weight=2)


def mm(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    return matrix_product(use, param, result, "_saved_self", weight=1)


def convolution(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    node = use.node
    if node._saved_transposed or use.transposed:
        return None
    if use.slot == 2:
        return Elementwise((1, -1) + (1,) * (len(result) - 2), 1.0, range(1))
    if use.slot != 1:
        return None
    groups, kernel = node._saved_groups, tuple(param.shape[2:])
    outputs, columns = param.shape[0] // groups, param.shape[1]

    def inputs(split: Split) -> Tensor:
        images = split(node._saved_input)  # (samples, rows of each, channels, *space)
        settings = node._saved_stride, node._saved_padding, node._saved_dilation
        patches = im2col(images.flatten(0, 1), kernel, *settings)  # (rows, positions, kernel, channels)
        grouped: Tensor = patches.unflatten(3, (groups, columns)).transpose(2, 3)
        return grouped.reshape(len(images), -1, groups, patches.shape[2] * columns)

    def signal(gradient: Tensor, split: Split) -> Tensor:
        rows = gradient.flatten(2).transpose(1, 2).unflatten(2, (groups, outputs))
        return split(rows).flatten(1, 2)

    def to_param(squares: Tensor) -> Tensor:
        shaped = squares.view(groups, *kernel, columns, outputs)  # im2col puts the kernel before the channels
        return shaped.movedim(-1, 1).movedim(-1, 2).reshape(param.shape)

    return Product(inputs, signal, to_param, groups, outputs)


def im2col(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """(rows, channels, *space) to (rows, positions, kernel positions, channels), for any number of dimensions."""
    if any(padding):
        x = F.pad(x, [p for size in reversed(padding) for p in (size, size)])
    x = x.movedim(1, -1)  # a view of contiguous memory where the input is channels_last
    space = [
        (size - d * (k - 1) - 1) // s + 1 for size, k, s, d in zip(x.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    steps = x.stride()[1:-1]
    windows = x.as_strided(
        (x.shape[0], *space, *kernel, x.shape[-1]),
        (
            x.stride(0),
            *(step * s for step, s in zip(steps, stride, strict=True)),
            *(step * d for step, d in zip(steps, dilation, strict=True)),
            x.stride(-1),
        ),
    )
    return windows.flatten(1, len(kernel)).flatten(2, 1 + len(kernel))


def broadcast(param: Tensor, result: tuple[int, ...], factor: Tensor | float) -> Rule:
    shape = (1,) * (len(result) - param.ndim) + tuple(param.shape)
    return Elementwise(shape, factor, [dim for dim, size in enumerate(shape) if size == 1])


def layer_norm(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    node = use.node
    leading = range(len(result) - len(node._saved_normalized_shape))
    if use.slot not in (1, 2) or use.transposed:
        return None
    normalised: Tensor | float = 1.0
    if use.slot == 1:
        normalised = (node._saved_input - node._saved_result1) * node._saved_result2
    shape = (1,) * len(leading) + tuple(param.shape)
    return Elementwise(shape, normalised, leading)


def batch_norm(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    node = use.node
    if use.slot not in (1, 2) or node._saved_training:
        return None
    shape = (1, -1) + (1,) * (len(result) - 2)
    normalised: Tensor | float = 1.0
    if use.slot == 1:
        scale = (node._saved_running_var + node._saved_eps).rsqrt()
        normalised = (node._saved_input - node._saved_running_mean.view(shape)) * scale.view(shape)
    return Elementwise(shape, normalised, range(1))


def group_norm(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    node = use.node
    if use.slot not in (1, 2):
        return None
    normalised: Tensor | float = 1.0
    if use.slot == 1:
        x = node._saved_input
        grouped = x.reshape(x.shape[0], node._saved_group, -1)
        mean, rstd = (s.view(x.shape[0], -1, 1) for s in (node._saved_result1, node._saved_result2))
        normalised = ((grouped - mean) * rstd).view(x.shape)
    return Elementwise((1, -1) + (1,) * (len(result) - 2), normalised, range(1))


def embedding(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    node = use.node
    if node._saved_scale_grad_by_freq or node._saved_sparse or use.transposed:
        return None
    padding = node._saved_padding_idx
    padding = -1 if padding >= len(param) else padding  # -1 comes out of the graph as 2**64 - 1
    return Lookup(node._saved_indices, padding, range(len(result) - 1))


def add(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    return None if use.transposed else broadcast(param, result, float(use.node._saved_alpha) if use.slot else 1.0)


def mul(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    other = use.node._saved_other if use.slot == 0 else use.node._saved_self
    return None if use.transposed or other is None else broadcast(param, result, other.detach())


def addcmul(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    if use.transposed:
        return None
    if use.slot == 0:
        return broadcast(param, result, 1.0)
    other = use.node._saved_tensor2 if use.slot == 1 else use.node._saved_tensor1
    return None if other is None else broadcast(param, result, other.detach() * use.node._saved_value)


def repeat(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    """One copy after the other for each sample, in the first dimension."""
    times = use.node._saved_repeats
    if use.transposed or len(times) != param.ndim or any(time != 1 for time in times[1:]):
        return None
    return Elementwise(tuple(param.shape), 1.0, range(1))


def expand(use: Use, param: Tensor, result: tuple[int, ...]) -> Rule | None:
    return None if use.transposed else broadcast(param, result, 1.0)


RULES: dict[str, Callable[[Use, Tensor, tuple[int, ...]], Rule | None]] = {
    "AddmmBackward0": addmm,
    "MmBackward0": mm,
    "ConvolutionBackward0": convolution,
    "NativeLayerNormBackward0": layer_norm,
    "NativeBatchNormBackward0": batch_norm,
    "NativeGroupNormBackward0": group_norm,
    "EmbeddingBackward0": embedding,
    "AddBackward0": add,
    "MulBackward0": mul,
    "AddcmulBackward0": addcmul,
    "ExpandBackward0": expand,
    "RepeatBackward0": repeat,
}
