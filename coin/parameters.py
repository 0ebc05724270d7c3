"""Parameter arithmetic: networks as dictionaries of named tensors. Needs torch alone.

What was trained (every parameter with `requires_grad`) is θ; all else a network holds (frozen parameters and
buffers, such as BatchNorm's statistics) must be equal in all networks that are coded together.
"""

import copy
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

Parameters = dict[str, Tensor]


def trainable(network: nn.Module) -> Parameters:
    """θ: the parameters that require gradients, detached, shared parameters once."""
    return {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}


def frozen(network: nn.Module) -> Parameters:
    """Everything that is not θ: parameters without gradients, and buffers."""
    params = {name: p.detach() for name, p in network.named_parameters() if not p.requires_grad}
    return params | {name: b.detach() for name, b in network.named_buffers()}


def single(params: Mapping[str, Tensor]) -> Parameters:
    """The same in single precision or better: what codes compute with, so that half precision is rounded to once."""
    return {name: p.to(torch.promote_types(p.dtype, torch.float32)) for name, p in params.items()}


def copy_of(network: nn.Module) -> nn.Module:
    """A copy in eval mode, which may be changed."""
    try:
        return copy.deepcopy(network).eval()
    except RuntimeError as error:
        raise ValueError(
            f"{type(network).__name__} cannot be copied ({' '.join(str(error).split())[:100]}…); where torch's old "
            "weight_norm prevents it, use torch.nn.utils.parametrizations.weight_norm"
        ) from error


@torch.no_grad()
def load(network: nn.Module, params: Mapping[str, Tensor]) -> nn.Module:
    """Copies `params`, which may be any part of the network's tensors, into the network and returns it."""
    own = dict(network.named_parameters(remove_duplicate=False)) | dict(network.named_buffers(remove_duplicate=False))
    problems = [f"{name} (unknown)" for name in params if name not in own]
    problems += [
        f"{name} {tuple(value.shape)} (the network has {tuple(own[name].shape)})"
        for name, value in params.items()
        if name in own and own[name].shape != value.shape
    ]
    if problems:
        raise ValueError(f"tensors that do not fit the network: {listing(problems)}")
    for name, value in params.items():
        own[name].copy_(value)
    return network


def weighted_sum(params: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Parameters:
    """Σ w_i θ_i, added up in single precision or better and rounded once, to the parameters' own dtype."""
    found = {}
    for name, first in params[0].items():
        total = first.to(torch.promote_types(first.dtype, torch.float32), copy=True).mul_(weights[0])
        for other, weight in zip(params[1:], weights[1:], strict=True):
            total.add_(other[name], alpha=weight)
        found[name] = total.to(first.dtype)
    return found


def check_finite(params: Mapping[str, Tensor], owner: str) -> None:
    bad = [name for name, p in params.items() if p.is_floating_point() and not torch.isfinite(p).all()]
    if bad:
        raise ValueError(
            f"{owner} has NaN or infinite weights in {listing(bad)}; "
            "all weights must be finite: train it again or choose another expert"
        )


def check_alike(
    networks: Sequence[nn.Module], names: Sequence[str] | None = None, may_differ: Collection[str] = ()
) -> None:
    """Refuses networks that cannot be coded together, naming what differs.

    They must have one architecture (the same θ, by name and shape), bit-identical frozen tensors, but for those that
    `may_differ`, and finite weights.
    """
    names = names or [f"expert {i}" for i in range(len(networks))]
    first, theta, rest = names[0], trainable(networks[0]), frozen(networks[0])
    if not theta:
        raise ValueError(f"{first} has no parameter that requires gradients, so there is nothing to code")
    for name, network in zip(names, networks, strict=True):
        other_theta, other_rest = trainable(network), frozen(network)
        if shapes(theta) != shapes(other_theta) or shapes(rest) != shapes(other_rest):
            differing = shapes(theta | rest).items() ^ shapes(other_theta | other_rest).items()
            where = sorted({key for key, _ in differing}) or sorted(theta.keys() ^ other_theta.keys())
            raise ValueError(
                f"{first} and {name} have different architectures (they differ in {listing(where)}); "
                "experts that are coded together must be of one architecture with the same tensors trained"
            )
        compared = [key for key in rest if key not in may_differ]
        unequal = [key for key in compared if not torch.equal(rest[key], other_rest[key])]
        if unequal:
            raise ValueError(
                f"{first} and {name} differ in tensors that were not trained: {listing(unequal)}; "
                "fine-tune them from one base model with BatchNorm frozen (affine and running statistics)"
            )
        check_finite(other_theta | other_rest, name)


def check_origin(base: nn.Module, expert: nn.Module, may_differ: Collection[str] = ()) -> None:
    """Refuses a base network that an expert cannot have been fine-tuned from."""
    own = dict(base.named_parameters()) | dict(base.named_buffers())
    theta, rest = trainable(expert), frozen(expert)
    misfits = [name for name, value in (theta | rest).items() if name not in own or own[name].shape != value.shape]
    if misfits:
        raise ValueError(
            f"the base network lacks {listing(misfits)}, or has it in another shape; is it of another architecture?"
        )
    compared = {name: value for name, value in rest.items() if name not in may_differ}
    unequal = [name for name, value in compared.items() if not torch.equal(own[name].to(value), value)]
    if unequal:
        raise ValueError(
            f"the base network differs from the experts in tensors that were not trained: {listing(unequal)}; "
            "give the network they were fine-tuned from, with BatchNorm frozen (affine and running statistics)"
        )


def size_of(params: Mapping[str, Tensor]) -> int:
    """In bytes."""
    return sum(p.numel() * p.element_size() for p in params.values())


def shapes(params: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in params.items()}


def listing(items: Sequence[str], most: int = 4) -> str:
    """`a, b, c, d and 7 more`: enough to find the place, short enough for one line."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
