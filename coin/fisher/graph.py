"""Where each parameter enters the computation, read off the autograd graph.

The graph is the only complete witness: it knows functional calls, attention projections passed as raw tensors, tied
weights and modules called twice, which hooks on modules do not. A parameter none of whose uses is known to a rule in
`coin.fisher.rules` goes to the general path, so nothing is ever guessed.

Which rows belong to which sample follows from the graph as well: from its operations, their shapes and settings, and
the indices they move rows by. `Graph.digest` is of all these, so that batches with equal digests are laid out alike.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

Node = Any  # torch.autograd.graph.Node; its `_saved_*` attributes are not typed

CASTS = {"ToCopyBackward0"}  # autocast's weights in another precision
TRANSPOSES = {"TBackward0"}  # F.linear multiplies with the transposed weight
OPAQUE = {"CheckpointFunctionBackward": "re-entrant activation checkpointing (use use_reentrant=False)"}
# Operations that take rows from, or put them to, places that the data may decide.
MOVES = ("Index", "Gather", "Scatter", "MaskedSelect", "MaskedScatter", "Take", "Put", "Sort", "Topk", "Embedding",
         "RepeatInterleave", "PackPaddedSequence", "Unique")  # fmt: skip


@dataclass
class Use:
    """One operation that reads a parameter: its autograd node and which of its inputs the parameter is.

    Where the parameter is worked on once for all samples before (see `shared`), the input is what was `made` of it.
    """

    node: Node
    slot: int
    transposed: bool = False
    made: GradientEdge | None = None
    leaf: Node = None  # the parameter's, and the only operation that reads it, if there is only one: else the leaf too
    first: Node = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the operation's result, and so of the gradient there."""
        return tuple(self.node._input_metadata[0].shape)

    @property
    def made_shape(self) -> tuple[int, ...]:
        assert self.made is not None
        return tuple(self.made.node._input_metadata[self.made.output_nr].shape)


@dataclass
class Graph:
    uses: dict[str, list[Use]]
    digest: str
    moves: bool  # whether rows are moved by indices, so that other data may lie otherwise
    nodes: list[Node]  # in the order they were found
    readers: dict[Node, list[tuple[Node, int, int]]]  # what reads which result of a node, as which of its inputs
    leaves: dict[str, Node]

    @property
    def results(self) -> list[tuple[str, list[tuple[int, ...]]]]:
        """Of every node its name and the shapes of its results."""
        return [(node.name(), shapes_of(node)) for node in self.nodes]

    def uses_of_made(self, name: str, steady: set[Node]) -> list[Use]:
        """Where samples meet what is made of a parameter, by nodes that are `steady`: none knows the samples."""
        leaf = self.leaves[name]
        direct = self.readers[leaf]
        first = direct[0][0] if len(direct) == 1 and direct[0][0] in steady else leaf
        found, pending, seen = [], [leaf], {leaf}
        while pending:
            node = pending.pop()
            for reader, slot, number in self.readers[node]:
                if reader not in steady:
                    found.append(Use(reader, slot, made=GradientEdge(node, number), leaf=leaf, first=first))
                elif reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return found


def read_graph(outputs: Tensor, params: Mapping[str, Tensor]) -> Graph:
    """Every use of every parameter in the computation of `outputs`, in a deterministic order."""
    readers: dict[Node, list[tuple[Node, int, int]]] = {}
    leaves: dict[int, Node] = {}
    pending: list[Node] = [outputs.grad_fn]
    visited = {outputs.grad_fn: 0}
    names = {id(p): name for name, p in params.items()}
    described: list[tuple[Any, ...]] = []
    moves = False
    while pending:
        node = pending.pop()
        if node.name() in OPAQUE:
            raise ValueError(f"the Fisher cannot look into {OPAQUE[node.name()]}; switch it off")
        edges: list[tuple[int, int] | None] = []
        for slot, (source, number) in enumerate(node.next_functions):
            if source is None:
                edges.append(None)
                continue
            readers.setdefault(source, []).append((node, slot, number))
            if source not in visited:
                visited[source] = len(visited)
                pending.append(source)
                if hasattr(source, "variable"):
                    leaves[id(source.variable)] = source
            edges.append((visited[source], number))
        leaf = names.get(id(node.variable)) if hasattr(node, "variable") else None
        indices = moved_by(node)
        moves = moves or indices is not None
        described.append((node.name(), edges, shapes_of(node), leaf, settings_of(node), indices))

    def uses_of(node: Node, transposed: bool) -> list[Use]:
        found = []
        for reader, slot, _ in readers.get(node, []):
            if reader.name() in CASTS:
                found += uses_of(reader, transposed)
            elif reader.name() in TRANSPOSES:
                found += uses_of(reader, not transposed)
            else:
                found.append(Use(reader, slot, transposed))
        return found

    used = {name: leaves[id(p)] for name, p in params.items() if id(p) in leaves}
    uses = {name: uses_of(used[name], False) if name in used else [] for name in params}
    digest = hashlib.sha256(repr(described).encode()).hexdigest()
    return Graph(uses, digest, moves, nodes=list(visited), readers=readers, leaves=used)


def shapes_of(node: Node) -> list[tuple[int, ...]]:
    return [tuple(result.shape) for result in node._input_metadata]


SETTINGS: dict[type, list[str]] = {}  # the attributes below, of each type of node


def settings_of(node: Node) -> list[Any]:
    """The whole numbers an operation was called with: dimensions, sizes, shifts. Tensors are left packed."""
    if type(node) not in SETTINGS:
        saved = [name for name in dir(node) if name.startswith("_saved_")]
        SETTINGS[type(node)] = [name for name in saved if not hasattr(type(node), "_raw" + name)]
    values = [getattr(node, name) for name in SETTINGS[type(node)]]
    return [value for value in values if not isinstance(value, float | complex | Tensor)]


def moved_by(node: Node) -> str | None:
    """A digest of the indices by which this operation moves rows, None if it moves none."""
    if not node.name().startswith(MOVES):
        return None
    if node.name().startswith("Embedding") and hasattr(node.next_functions[0][0], "variable"):
        return None  # a table of parameters: the result lies as its indices do
    digest = hashlib.sha256()
    for name in dir(node):
        if name.startswith("_saved_") and hasattr(node, "_raw" + name):
            found = getattr(node, name)
            for tensor in found if isinstance(found, tuple | list) else [found]:
                if isinstance(tensor, Tensor) and not tensor.is_floating_point():
                    digest.update(tensor.detach().to(torch.int64).cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
