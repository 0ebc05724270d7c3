"""Attention as the layers it is made of: torch's own module hides them, and codes want to see and fit each."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class Projection(nn.Linear):
    """The packed projection of self-attention as the Linear layer that it is; its tensors are the attention's own."""

    def __init__(self, attention: nn.MultiheadAttention):
        super().__init__(attention.embed_dim, 3 * attention.embed_dim, bias=False, device="meta")
        assert attention.in_proj_weight is not None
        self.weight, self.bias = attention.in_proj_weight, attention.in_proj_bias
        self.of = (attention,)  # no part of this layer


def projection_of(module: nn.Module) -> Projection | None:
    """That of torch's attention, unless it has settings which make it more than two Linear layers and a softmax."""
    if not isinstance(module, nn.MultiheadAttention) or type(module).forward is not nn.MultiheadAttention.forward:
        return None
    plain = module._qkv_same_embed_dim and module.bias_k is None and module.bias_v is None and not module.add_zero_attn
    return Projection(module) if plain else None


@contextmanager
def opened(layers: Iterable[nn.Module]) -> Iterator[None]:
    """While it lasts, attention whose projection is among the layers calls its projections as layers."""
    projections = [layer for layer in layers if isinstance(layer, Projection)]
    for projection in projections:
        projection.of[0].forward = partial(attend, projection)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for projection in projections:
            del projection.of[0].forward


def attend(
    projection: Projection,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What torch's attention computes, in eval mode; where it does not look at itself, by torch's own code."""
    attention = projection.of[0]
    if query is not key or key is not value or query.ndim != 3:
        given: dict[str, Any] = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "is_causal": is_causal}
        given |= {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
        return nn.MultiheadAttention.forward(attention, query, key, value, **given)
    made = projection(query)
    made = made if attention.batch_first else made.transpose(0, 1)  # (samples, tokens, 3 · width)
    samples, tokens = made.shape[:2]
    heads = made.view(samples, tokens, 3, attention.num_heads, attention.head_dim).permute(2, 0, 3, 1, 4)
    scores = heads[0] @ heads[1].transpose(-1, -2) / attention.head_dim**0.5  # (samples, heads, tokens, tokens)
    if attn_mask is not None:
        shared = attn_mask if attn_mask.ndim == 2 else attn_mask.view(samples, -1, tokens, tokens)
        scores = scores + additive(shared, scores)
    if key_padding_mask is not None:
        scores = scores + additive(key_padding_mask, scores)[:, None, None]
    weights = scores.softmax(-1)
    mixed = (weights @ heads[2]).transpose(1, 2).reshape(samples, tokens, -1)
    outputs = attention.out_proj(mixed if attention.batch_first else mixed.transpose(0, 1))
    if not need_weights:
        return outputs, None
    return outputs, weights.mean(1) if average_attn_weights else weights


def additive(mask: Tensor, scores: Tensor) -> Tensor:
    """A mask as numbers to add: what must not be looked at is minus infinity."""
    if mask.dtype != torch.bool:
        return mask.to(scores.dtype)
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(mask, -torch.inf)
