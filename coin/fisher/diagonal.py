"""The exact diagonal Fisher of the outputs: F[p] = (1/P) Σ_l Σ_k (∂f_k(x_l)/∂θ_p)².

One batched forward pass and one backward pass per direction to the activations only; see `products` for how their
signals become squares. Peak memory does not depend on P: batches are cut to fit `memory`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from coin.fisher.accumulators import Accumulator, accumulator_for
from coin.fisher.directions import Directions, Exact
from coin.fisher.graph import Node, Use, find_uses
from coin.fisher.plan import Plan, make_plan, outputs_of, rules_for, signature_of
from coin.fisher.signals import Signals

MOST_AT_ONCE = 100  # samples: more make nothing faster


class DiagonalFisher:
    """Accumulates the diagonal Fisher of `network` over batches of inputs.

        fisher = DiagonalFisher(network)
        for inputs in batches: fisher.update(inputs)
        fisher.compute()  # {name: tensor} for every parameter that requires gradients

    `sums` and `samples` are all its state; adding those of two processes gives what one process would have.
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
        self.samples = 0
        self.plan: Plan | None = None

    def update(self, inputs: Tensor) -> None:
        if not isinstance(inputs, Tensor):
            raise ValueError(
                f"a batch is {type(inputs).__name__}, expected a tensor of inputs; "
                "leave the labels out: diagonal_fisher(network, (x for x, _ in loader))"
            )
        if not len(inputs):
            return
        check_mode(self.network)
        # Lightning's predict runs in inference mode, whose tensors autograd cannot save
        with torch.inference_mode(False), torch.enable_grad():
            inputs = inputs.clone() if inputs.is_inference() else inputs.detach()
            if self.plan is None:
                self.plan = make_plan(self.network, self.params, inputs, self.directions)
            for part in inputs.chunk(-(-len(inputs) // self.part_size())):  # of about equal size
                self.accumulate(part)
        self.samples += len(inputs)

    def part_size(self) -> int:
        """How many samples are treated at once, so that what is kept beside their activations fits the memory."""
        assert self.plan is not None
        return max(1, min(MOST_AT_ONCE, self.memory // self.plan.bytes_per_sample))

    def accumulate(self, inputs: Tensor) -> None:
        outputs = outputs_of(self.network, inputs)
        uses = find_uses(outputs, self.params)
        if self.plan is None or signature_of(uses) != self.plan.signature:  # the computation depends on the data
            self.plan = make_plan(self.network, self.params, inputs, self.directions)
        self.accumulate_by_rules(inputs, outputs, uses, self.plan)
        if self.plan.general:
            self.accumulate_generally(inputs, self.plan.general)

    def accumulate_by_rules(self, inputs: Tensor, outputs: Tensor, uses: dict[str, list[Use]], plan: Plan) -> None:
        everything = [use for name in plan.layouts for use in uses[name]]
        if not everything:
            return
        count = self.directions.count(outputs.shape[1])
        weight = self.directions.weight(outputs.shape[1])
        totals = {name: torch.zeros_like(self.sums[name]) for name in plan.layouts} if weight != 1 else self.sums
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
                    rules = rules_for(uses[name], self.params[name], found)
                    assert rules is not None, "the plan's signature matches"
                    accumulators[name] = accumulator_for(rules, plan.layouts[name], len(inputs), totals[name])
                accumulators[name].add([found[use.node] for use in uses[name]], count)
                found.clear()

        signals = Signals(outputs, everything, receive)
        try:
            for direction in self.directions.of(inputs, outputs):
                signals.run(direction)
        finally:
            signals.close()
        while accumulators:  # frees each one's memory before the next makes its own
            accumulators.popitem()[1].finish()
        if weight != 1:
            for name, total in totals.items():
                self.sums[name].add_(total, alpha=weight)

    def accumulate_generally(self, inputs: Tensor, names: list[str]) -> None:
        """The general path: one sample at a time, any parameter of any network that autograd can treat."""
        params = [self.params[name] for name in names]
        for sample in inputs.split(1):
            outputs = outputs_of(self.network, sample)
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

    def state_dict(self) -> dict:
        return {"sums": dict(self.sums), "samples": self.samples}

    def load_state_dict(self, state: dict) -> None:
        for name, total in self.sums.items():
            total.copy_(state["sums"][name])
        self.samples = int(state["samples"])


def diagonal_fisher(
    model: nn.Module, batches: Iterable[Tensor], directions: Directions | None = None
) -> dict[str, Tensor]:
    """The diagonal Fisher of the model's outputs for every parameter with `requires_grad`, over batches of inputs,
    divided by the number of samples. Exact by default; `directions=Probes(n)` estimates it."""
    fisher = DiagonalFisher(model, directions)
    for inputs in batches:
        fisher.update(inputs)
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
