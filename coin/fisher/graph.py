"""Where each parameter enters the computation, read off the autograd graph.

The graph is the only complete witness: it knows functional calls, attention projections passed as raw tensors, tied
weights and modules called twice, which hooks on modules do not. A parameter none of whose uses is known to a rule in
`coin.fisher.rules` goes to the general path, so nothing is ever guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Node = Any  # torch.autograd.graph.Node; its `_saved_*` attributes are not typed

CASTS = {"ToCopyBackward0"}  # autocast's weights in another precision
TRANSPOSES = {"TBackward0"}  # F.linear multiplies with the transposed weight
OPAQUE = {"CheckpointFunctionBackward": "re-entrant activation checkpointing (use use_reentrant=False)"}


@dataclass
class Use:
    """One operation that reads a parameter: its autograd node and which of its inputs the parameter is."""

    node: Node
    slot: int
    transposed: bool = False

    @property
    def signature(self) -> tuple:
        return (self.node.name(), self.slot, self.transposed)


def find_uses(outputs: Tensor, params: Mapping[str, Tensor]) -> dict[str, list[Use]]:
    """Every use of every parameter in the computation of `outputs`, in a deterministic order."""
    readers: dict[Node, list[tuple[Node, int]]] = {}  # node -> the nodes that read its result
    leaves: dict[int, Node] = {}
    pending: list[Node] = [outputs.grad_fn]
    visited = set(pending)
    while pending:
        node = pending.pop()
        if node.name() in OPAQUE:
            raise ValueError(f"the Fisher cannot look into {OPAQUE[node.name()]}; switch it off")
        for slot, (source, _) in enumerate(node.next_functions):
            if source is None:
                continue
            readers.setdefault(source, []).append((node, slot))
            if source not in visited:
                visited.add(source)
                pending.append(source)
                if hasattr(source, "variable"):
                    leaves[id(source.variable)] = source

    def uses_of(node: Node, transposed: bool) -> list[Use]:
        found = []
        for reader, slot in readers.get(node, []):
            if reader.name() in CASTS:
                found += uses_of(reader, transposed)
            elif reader.name() in TRANSPOSES:
                found += uses_of(reader, not transposed)
            else:
                found.append(Use(reader, slot, transposed))
        return found

    return {name: uses_of(leaves[id(p)], False) if id(p) in leaves else [] for name, p in params.items()}
