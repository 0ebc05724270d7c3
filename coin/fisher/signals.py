"""Signals: the gradients at the results of the operations that use parameters, one backward pass a direction.

No weight gradient is ever formed: autograd is asked for gradients of results only. During accumulation each gradient
is handed over the moment it is formed, still warm in the cache, and freed before the next one needs memory.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from coin.fisher.graph import Node, Use


def gradients_at(outputs: Tensor, uses: Sequence[Use], direction: Tensor) -> dict[Node, Tensor]:
    """All of them at once, for the few samples of a probe."""
    nodes = list({use.node: None for use in uses})
    found = torch.autograd.grad(outputs, [GradientEdge(node, 0) for node in nodes], direction, retain_graph=True)
    return dict(zip(nodes, found, strict=True))


class Signals:
    """Runs backward passes and calls `receive(node, gradient)` for every operation, each once a pass."""

    def __init__(self, outputs: Tensor, uses: Sequence[Use], receive: Callable[[Node, Tensor], None]):
        self.outputs, self.receive = outputs, receive
        nodes = list({use.node: None for use in uses})
        self.last = last_of(nodes)  # autograd need not go beyond these, and passes all others on its way to them
        last = set(self.last)
        self.handles = [node.register_prehook(self.hook(node)) for node in nodes if node not in last]

    def hook(self, node: Node) -> Callable[[tuple[Tensor, ...]], None]:
        def hand_over(gradients: tuple[Tensor, ...]) -> None:
            self.receive(node, gradients[0])

        return hand_over

    def run(self, direction: Tensor) -> None:
        edges = [GradientEdge(node, 0) for node in self.last]
        found = torch.autograd.grad(self.outputs, edges, direction, retain_graph=True)  # rules read saved tensors
        for node, gradient in zip(self.last, found, strict=True):
            self.receive(node, gradient)

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


def last_of(nodes: Sequence[Node]) -> list[Node]:
    """The nodes from which no other of them can be reached: where a backward pass may end."""
    wanted = set(nodes)
    leads: dict[Node, bool] = {}  # whether a node, or something behind it, is wanted
    for start in nodes:
        pending = [(start, False)]
        while pending:
            node, expanded = pending.pop()
            sources = [source for source, _ in node.next_functions if source is not None]
            if expanded:
                leads[node] = node in wanted or any(leads[source] for source in sources)
            elif node not in leads:
                pending.append((node, True))
                pending += [(source, False) for source in sources if source not in leads]
    behind = {node: any(leads[s] for s, _ in node.next_functions if s is not None) for node in nodes}
    return [node for node in nodes if not behind[node]]
