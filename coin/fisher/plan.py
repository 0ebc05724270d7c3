"""The plan: which parameters a rule treats, where their samples lie, and what is left to the general path.

A plan holds for one graph: the same operations, shapes and settings (`Graph.digest`), the number of samples among them.

1. Two samples, run before the batch is cut into parts, show how tensors grow with the samples (`Growth`): which
   dimension holds them, how many positions each sample has, how much memory it needs.
2. Where that leaves several layouts possible, tags (see `layout`) decide, on a few samples of the part. Where rows are
   moved by indices, or grow otherwise than in those two, they are read off the whole part instead.
3. While the part is treated, three of its samples, as different as there are, are witnesses (see `witnesses`): their
   gradients have to be autograd's own. Whatever disagrees takes the general path, for this part already.
   A parameter that is worked on before the samples meet it (see `shared`) is known by results that do not grow.
4. Later parts with the same graph lie alike as far as the graph knows. Where positions are folded into the samples'
   dimension, or a parameter has several uses, one sample of each is a witness all the same; and where a parameter had
   no gradient in its first witnesses, three are, until it has one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from coin.batch import Batch
from coin.fisher.accumulators import bytes_for
from coin.fisher.directions import Directions
from coin.fisher.graph import Graph, Node, read_graph, shapes_of
from coin.fisher.layout import PROBE_SIZES, Layout, Size, candidates, fitting, grows, make_tags
from coin.fisher.norms import FrozenBatchNorm
from coin.fisher.rules import Rule, rules_for
from coin.fisher.shared import shared_rules
from coin.fisher.signals import gradients_at
from coin.fisher.witnesses import WITNESSES, spread

Options = dict[str, list[set[Layout]]]  # for each use of each parameter, the layouts that are possible


@dataclass
class Plan:
    layouts: dict[str, list[Layout]] = field(default_factory=dict)  # of the parameters that rules treat
    shared: set[str] = field(default_factory=set)  # those of them that are worked on before the samples meet them
    general: list[str] = field(default_factory=list)
    undecided: bool = False  # whether something takes the general path for want of gradients to tell layouts by
    folded: bool = False  # whether rows of one sample are added up, so that it matters which are
    seen: dict[str, int] = field(default_factory=dict)  # how many witnesses each parameter had

    def witnesses(self, inputs: Batch, part: int) -> list[int]:
        """The samples of this part, the so many'th, to compare with autograd."""
        if not self.layouts:
            return []
        if min(self.seen.get(name, 0) for name in self.layouts) < WITNESSES:
            return spread(inputs, WITNESSES)
        return [part * 7919 % len(inputs)] if self.folded else []

    def judge(self, verdicts: Mapping[str, bool | None], witnesses: int) -> None:
        for name, agrees in verdicts.items():
            if agrees is False:
                del self.layouts[name]
                self.general.append(name)
            elif agrees:
                self.seen[name] = self.seen.get(name, 0) + witnesses


@dataclass
class Growth:
    """What a few samples tell before the batch is cut."""

    samples: int
    results: list[tuple[str, list[tuple[int, ...]]]]  # of every node, see `Graph`
    bytes_per_sample: int  # of gradients, unfolded inputs and sums over pairs, beside the activations

    def sizes(self, graph: Graph) -> dict[Node, Size]:
        """What the nodes of a graph of the same operations had here."""
        if [name for name, _ in self.results] != [node.name() for node in graph.nodes]:
            return {}
        pairs = zip(graph.nodes, self.results, strict=True)
        return {node: Size(shapes[0], self.samples) for node, (_, shapes) in pairs if shapes}

    def steady(self, graph: Graph, samples: int) -> set[Node]:
        """The nodes whose results are as large here as for so many samples, so that they are made of parameters."""
        if samples == self.samples:
            return set()
        return {node for node, size in self.sizes(graph).items() if size.shape == shapes_of(node)[0]}

    def read_made(self, graph: Graph, names: Iterable[str], samples: int) -> Graph:
        """The graph with the uses of what is made of these parameters in the place of their own."""
        steady = self.steady(graph, samples) if names else set()
        graph.uses |= {name: graph.uses_of_made(name, steady) for name in names if name in graph.leaves}
        return graph


def outputs_of(network: nn.Module, inputs: Batch) -> Tensor:
    """(samples, outputs), with the graph that leads to them."""
    with FrozenBatchNorm():
        outputs = inputs.ask(network)
    if outputs.grad_fn is None:
        raise ValueError("the network's outputs depend on no parameter that requires gradients")
    return outputs


def measure_growth(network: nn.Module, params: Mapping[str, Tensor], batch: Batch, directions: Directions) -> Growth:
    samples = some_of(batch, 2)
    outputs = outputs_of(network, samples)
    count, needed = directions.count(outputs.shape[1]), 0
    graph = read_graph(outputs, params)
    for name, uses in graph.uses.items():
        rules = rules_for(uses, params[name]) if uses else None
        if rules:
            needed += bytes_for(rules, [use.shape for use in uses], len(samples), params[name], count)
    return Growth(len(samples), graph.results, max(1, needed // len(samples)))


def some_of(batch: Batch, wanted: int) -> Batch:
    """So many samples from all over the batch, some repeatedly if it has not as many; of sentences the shortest and the
    longest among them, since networks treat a batch without padding in another way."""
    order, last = batch.by_length(), len(batch) - 1
    places = [place * last // (wanted - 1) if last >= wanted else place % (last + 1) for place in range(wanted)]
    return batch[[order[place] for place in places]]


class Planner:
    """Makes the plan of one part, of which the graph is at hand."""

    def __init__(self, network: nn.Module, params: Mapping[str, Tensor], inputs: Batch, growth: Growth):
        self.network, self.params, self.inputs, self.growth = network, params, inputs, growth

    def plan(self, outputs: Tensor, graph: Graph) -> Plan:
        plan = Plan()
        rules: dict[str, list[Rule]] = {}
        steady = self.growth.steady(graph, len(self.inputs))
        for name, uses in graph.uses.items():
            known = rules_for(uses, self.params[name]) if uses else []
            if known is None or any(use.node in steady for use in uses):
                made = graph.uses_of_made(name, steady)
                known = shared_rules(made)
                if known:
                    graph.uses[name] = made
                    plan.shared.add(name)
            if known is None:
                plan.general.append(name)
            elif known:
                rules[name] = known
        if len(self.inputs) == 1:
            options: Options = {
                name: [{Layout(0)} if use.shape else set() for use in graph.uses[name]] for name in rules
            }
        else:
            options = self.options(outputs, graph, rules, plan.shared)
        for name, sets in options.items():
            if all(len(option) == 1 for option in sets):
                plan.layouts[name] = [next(iter(option)) for option in sets]
            else:
                plan.general.append(name)  # samples mixed with something else, or not to be told apart: loop instead
                plan.undecided = plan.undecided or all(sets)
        plan.folded = any(
            len(layouts) > 1 or graph.uses[name][0].shape[layouts[0].dim] > len(self.inputs)
            for name, layouts in plan.layouts.items()
        )
        return plan

    def options(self, outputs: Tensor, graph: Graph, rules: dict[str, list[Rule]], shared: set[str]) -> Options:
        samples, whole, sizes = len(self.inputs), graph.moves, self.growth.sizes(graph)
        options: Options = {}
        for name, known in rules.items():
            uses, sets = graph.uses[name], []
            for use, rule in zip(uses, known, strict=True):
                size, other = Size(use.shape, samples), sizes.get(use.node)
                found = candidates(size, rule.dims, other)
                if other is None or (not found and other.shape != use.shape):
                    found = candidates(size, rule.dims)
                    whole = whole or bool(found)  # grows otherwise than it did: as little is known as of moved rows
                sets.append(found)
            options[name] = sets if all(sets) else [set() for _ in sets]
        if whole:
            options = narrowed(options, graph, outputs, graph)
        for probes in PROBE_SIZES:
            if all(len(option) <= 1 for sets in options.values() for option in sets):
                break
            few = outputs_of(self.network, some_of(self.inputs, probes))
            probed = self.growth.read_made(read_graph(few, self.params), shared, probes)
            options = narrowed(options, graph, few, probed, samples)
        return options


def narrowed(options: Options, graph: Graph, outputs: Tensor, probed: Graph, samples: int | None = None) -> Options:
    """What passes with and without tags from these outputs, whose graph is `probed`, leave of the options for the
    `samples` of `graph`."""
    everything = [use for name in options for use in probed.uses[name]]
    if not everything:
        return options
    direction = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(len(outputs))).to(outputs)
    tags = make_tags(len(outputs)).to(outputs)
    plain = gradients_at(outputs, everything, direction)
    tagged = gradients_at(outputs, everything, direction * tags.unsqueeze(1))
    left: Options = {}
    for name, sets in options.items():
        if len(probed.uses[name]) != len(sets):
            left[name] = [set() for _ in sets]
            continue
        left[name] = []
        for option, use, like in zip(sets, probed.uses[name], graph.uses[name], strict=True):
            size, other = Size(use.shape, len(outputs)), Size(like.shape, samples or len(outputs))
            possible = {layout for layout in option if grows(size, other, layout.dim)}
            left[name].append(fitting(possible, plain[use.node], tagged[use.node], tags))
    return left
