"""The exact diagonal Fisher of the outputs: F[p] = (1/P) Σ_l Σ_k (∂f_k(x_l)/∂θ_p)².

One batched forward pass and one backward pass per direction to the activations only; see `products` for how their
signals become squares. Peak memory does not depend on P: batches are cut to fit `memory`.
"""

import time
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from coin.batch import Batch
from coin.fisher.accumulators import Accumulator, accumulator_for
from coin.fisher.directions import Directions, Exact
from coin.fisher.graph import Graph, Node, read_graph
from coin.fisher.plan import Growth, Plan, Planner, measure_growth, outputs_of
from coin.fisher.shared import Shared
from coin.fisher.signals import Signals
from coin.fisher.witnesses import Witnesses, check_independent

MOST_AT_ONCE = 100  # samples: more make nothing faster


class DiagonalFisher:
    """Accumulates the diagonal Fisher of `network` over batches, which are whatever `coin.batch` says.

        fisher = DiagonalFisher(network)
        for batch in batches: fisher.update(batch)
        fisher.compute()  # {name: tensor} for every parameter that requires gradients

    `sums` and `samples` are all its state; adding those of two processes gives what one process would have.
    `planning` is how many seconds its plans and their checks took.
    """

    def __init__(self, network: nn.Module, directions: Directions | None = None, memory: int = 512 << 20):
        self.network, self.directions, self.memory = network, directions or Exact(), memory
        self.params = {name: p for name, p in network.named_parameters() if p.requires_grad}
        if not self.params:
            raise ValueError("no parameter of the network requires gradients, so there is no Fisher to compute")
        with torch.inference_mode(False):
            self.sums = {
                name: torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32), requires_grad=False)
                for name, p in self.params.items()
            }
        self.samples, self.parts, self.planning = 0, 0, 0.0
        self.growths: dict[Hashable, Growth] = {}  # of each kind of batch
        self.plans: dict[str, Plan] = {}  # of each graph
        self.plan: Plan | None = None  # the present one

    def update(self, batch: Any) -> None:
        inputs = Batch.of(batch)
        if not len(inputs):
            return
        check_mode(self.network)
        # Lightning's predict runs in inference mode, whose tensors autograd cannot save
        with torch.inference_mode(False), torch.enable_grad():
            inputs = inputs.map(lambda tensor: tensor.clone() if tensor.is_inference() else tensor.detach())
            growth = self.growth_of(inputs)
            size = max(1, min(MOST_AT_ONCE, self.memory // growth.bytes_per_sample))
            for part in inputs.parts(size):
                self.accumulate(part, growth)
        self.samples += len(inputs)

    def growth_of(self, inputs: Batch) -> Growth:
        if inputs.kind not in self.growths:
            start = time.perf_counter()
            self.growths[inputs.kind] = measure_growth(self.network, self.params, inputs, self.directions)
            self.planning += time.perf_counter() - start
        return self.growths[inputs.kind]

    def accumulate(self, inputs: Batch, growth: Growth) -> None:
        outputs = outputs_of(self.network, inputs)
        start = time.perf_counter()
        graph = read_graph(outputs, self.params)
        self.plan = self.plans.get(graph.digest)
        if self.plan is None or self.plan.undecided:
            self.plan = Planner(self.network, self.params, inputs, growth).plan(outputs, graph)
            self.plans[graph.digest] = self.plan
        growth.read_made(graph, self.plan.shared, len(inputs))
        self.planning += time.perf_counter() - start
        self.accumulate_by_rules(inputs, outputs, graph, self.plan)
        if self.plan.general:
            self.accumulate_generally(inputs, outputs, self.plan.general)
        self.parts += 1

    def accumulate_by_rules(self, inputs: Batch, outputs: Tensor, graph: Graph, plan: Plan) -> None:
        uses = graph.uses
        everything = [use for name in plan.layouts for use in uses[name]]
        if not everything:
            return
        count = self.directions.count(outputs.shape[1])
        weight = self.directions.weight(outputs.shape[1])
        totals = {name: torch.zeros_like(self.sums[name]) for name in plan.layouts} if weight != 1 else self.sums
        chosen = plan.witnesses(inputs, self.parts)
        witnesses = Witnesses(chosen, outputs, count, seed=self.parts) if chosen else None
        readers: dict[Node, list[str]] = {}  # which parameters an operation uses
        for name in plan.layouts:
            for use in uses[name]:
                readers.setdefault(use.node, []).append(name)
        arrived: dict[str, dict[Node, Tensor]] = {name: {} for name in plan.layouts}
        accumulators: dict[str, Accumulator] = {}

        def receive(node: Node, gradient: Tensor) -> None:
            for name in dict.fromkeys(readers[node]):
                found = arrived[name]
                found[node] = gradient
                if len(found) < len({use.node for use in uses[name]}):
                    continue  # several uses: their gradients are added up before they are squared
                if name not in accumulators:
                    make = Shared if name in plan.shared else accumulator_for
                    accumulators[name] = make(uses[name], plan.layouts[name], len(inputs), totals[name])
                    accumulators[name].watch = witnesses.watch if witnesses else None
                accumulators[name].add([found[use.node] for use in uses[name]], count)
                found.clear()

        signals = Signals(outputs, everything, receive)
        try:
            for direction in self.directions.of(inputs, outputs):
                if witnesses:
                    witnesses.begin(direction)
                signals.run(direction)
        finally:
            signals.close()
        if witnesses:
            start = time.perf_counter()
            plan.judge(witnesses.compare(accumulators, self.network, inputs), len(chosen))
            accumulators = {name: kept for name, kept in accumulators.items() if name in plan.layouts}
            self.planning += time.perf_counter() - start + witnesses.watch.seconds
        while accumulators:  # frees each one's memory before the next makes its own
            accumulators.popitem()[1].finish()
        if weight != 1:
            for name in plan.layouts:
                self.sums[name].add_(totals[name], alpha=weight)

    def accumulate_generally(self, inputs: Batch, batched: Tensor, names: list[str]) -> None:
        """The general path: one sample at a time, any parameter of any network that autograd can treat."""
        params = [self.params[name] for name in names]
        scale = float(batched.detach().abs().max())
        for sample, answer in zip(inputs.parts(1), batched.detach().split(1), strict=True):
            outputs = outputs_of(self.network, sample)
            check_independent(outputs.detach(), answer, scale)
            weight = self.directions.weight(outputs.shape[1])
            for direction in self.directions.of(sample, outputs):
                found = torch.autograd.grad(outputs, params, direction, retain_graph=True, allow_unused=True)
                for name, gradient in zip(names, found, strict=True):
                    if gradient is not None:
                        self.sums[name].add_(gradient.to(self.sums[name].dtype).square(), alpha=weight)

    def reduce(self) -> None:
        """Adds up the sums of all processes of the default torch.distributed group: one reduction a parameter."""
        count = torch.tensor([float(self.samples)], dtype=torch.float64, device=next(iter(self.sums.values())).device)
        torch.distributed.all_reduce(count)
        for total in self.sums.values():
            torch.distributed.all_reduce(total)
        self.samples = int(count.item())

    def compute(self) -> dict[str, Tensor]:
        if not self.samples:
            raise ValueError("the Fisher needs at least one batch of samples, got none")
        with torch.inference_mode(False):
            return {name: total / self.samples for name, total in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, total in self.sums.items():
            total.copy_(state["sums"][name])
        self.samples = int(state["samples"])


def diagonal_fisher(
    model: nn.Module, batches: Iterable[Any], directions: Directions | None = None
) -> dict[str, Tensor]:
    """The diagonal Fisher of the model's outputs for every parameter with `requires_grad`, over batches (tensors,
    tuples or mappings: see `coin.batch`), divided by the number of samples. Exact by default;
    `directions=Probes(n)` estimates it."""
    fisher = DiagonalFisher(model, directions)
    for batch in batches:
        fisher.update(batch)
    return fisher.compute()


def check_mode(network: nn.Module) -> None:
    """Refuses layers in a mode that mixes samples or draws random numbers, by name, with the fix."""
    for name, module in network.named_modules():
        if not module.training:
            continue
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{name or 'the network'} is BatchNorm in train mode, which mixes samples; call .eval()")
        rate = getattr(module, "p", 0) if isinstance(module, nn.modules.dropout._DropoutNd) else 0
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            rate = module.dropout
        if rate > 0:
            raise ValueError(f"{name or 'the network'} has active dropout ({rate}); call .eval() on the network")
