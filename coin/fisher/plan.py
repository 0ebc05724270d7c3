"""The plan: which parameters a rule treats, where their samples lie, and what is left to the general path.

Made once from a handful of samples, and checked there against autograd itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from coin.fisher.accumulators import accumulator_for
from coin.fisher.directions import Directions
from coin.fisher.graph import Use, find_uses
from coin.fisher.layout import PROBE_SIZES, Layout, candidates, fitting
from coin.fisher.norms import FrozenBatchNorm
from coin.fisher.rules import Rule, rule_for
from coin.fisher.signals import gradients_at

Uses = dict[str, list[Use]]


@dataclass
class Plan:
    signature: dict[str, tuple]
    layouts: dict[str, list[Layout]] = field(default_factory=dict)  # of the parameters that rules treat
    general: list[str] = field(default_factory=list)
    bytes_per_sample: int = 1  # of gradients, unfolded inputs and sums over pairs, beside the activations


def signature_of(uses: Uses) -> dict[str, tuple]:
    return {name: tuple(use.signature for use in found) for name, found in uses.items()}


def outputs_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """(samples, outputs), and a clear word for what is not."""
    with FrozenBatchNorm():
        outputs = network(inputs)
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the network returns {type(outputs).__name__}, the Fisher needs one tensor of outputs; "
            "wrap the network in a module that returns its logits"
        )
    if outputs.ndim < 2 or len(outputs) != len(inputs):
        raise ValueError(
            f"the network returns {tuple(outputs.shape)} for {len(inputs)} samples; expected (samples, outputs)"
        )
    if outputs.grad_fn is None:
        raise ValueError("the network's outputs depend on no parameter that requires gradients")
    return outputs.flatten(1)


def rules_for(uses: list[Use], param: Tensor, gradients: dict) -> list[Rule] | None:
    """The rules of all uses of a parameter, or None unless all are of one kind."""
    rules = [rule_for(use, param, tuple(gradients[use.node].shape)) for use in uses]
    known = [rule for rule in rules if rule is not None]
    return known if len(known) == len(rules) and len({type(rule) for rule in known}) == 1 else None


def make_plan(network: nn.Module, params: Mapping[str, Tensor], batch: Tensor, directions: Directions) -> Plan:
    plan = Plan({})
    options: dict[str, list[set[Layout]]] = {}
    for size in PROBE_SIZES:
        probe = Probe(network, params, batch, size)
        for name, found in probe.uses.items():
            if not found or name in plan.general:
                continue
            rules = rules_for(found, params[name], probe.gradients[0])
            if rules is None:
                plan.general.append(name)
                continue
            fits = [probe.layouts(use, rule) for use, rule in zip(found, rules, strict=True)]
            options[name] = [a & b for a, b in zip(options.get(name, fits), fits, strict=True)]
        if size == PROBE_SIZES[0]:
            first = probe
            plan.signature = signature_of(probe.uses)
        if all(len(option) == 1 for name, sets in options.items() if name not in plan.general for option in sets):
            break
    for name, sets in options.items():
        if name in plan.general:
            continue
        if all(len(option) == 1 for option in sets):
            plan.layouts[name] = [next(iter(option)) for option in sets]
        else:
            plan.general.append(name)  # not to be told apart, or samples mixed with something else: loop instead
    if plan.layouts:
        first.verify(plan, directions)
    return plan


class Probe:
    """A few samples and, for each, the gradients at every use of a random direction of its own outputs alone."""

    def __init__(self, network: nn.Module, params: Mapping[str, Tensor], batch: Tensor, size: int):
        self.params, self.size = params, size
        inputs = batch[torch.arange(size, device=batch.device) % len(batch)]
        self.outputs = outputs_of(network, inputs)
        if size == PROBE_SIZES[0]:
            check_independent(network, inputs, self.outputs)
        self.uses = find_uses(self.outputs, params)
        everything = [use for found in self.uses.values() for use in found]
        generator = torch.Generator().manual_seed(size)
        self.direction = torch.randn(self.outputs.shape, generator=generator).to(self.outputs)
        self.direction[-1] = 0
        self.gradients = []
        for j in range(size - 1):  # the last sample's rows must be left alone by all
            only_j = torch.zeros_like(self.direction)
            only_j[j] = self.direction[j]
            self.gradients.append(gradients_at(self.outputs, everything, only_j))

    def layouts(self, use: Use, rule: Rule) -> set[Layout]:
        gradients = [found[use.node] for found in self.gradients]
        return fitting(candidates(tuple(gradients[0].shape), rule.dims, self.size), gradients, self.size)

    def verify(self, plan: Plan, directions: Directions) -> None:
        """Sends to the general path what does not reproduce autograd's own gradient of the random direction, and adds
        up what the rest needs of memory."""
        names = list(plan.layouts)
        truths = torch.autograd.grad(
            self.outputs, [self.params[name] for name in names], self.direction, retain_graph=True
        )
        tolerance = tolerance_for(self.outputs)
        count = directions.count(self.outputs.shape[1])
        for name, truth in zip(names, truths, strict=True):
            uses = self.uses[name]
            rules = rules_for(uses, self.params[name], self.gradients[0])
            assert rules is not None
            # backward passes are linear: the gradients of all samples' directions are the sum of each one's
            parts = [torch.stack([found[use.node] for found in self.gradients]).sum(0) for use in uses]
            total = torch.zeros_like(truth, dtype=torch.promote_types(truth.dtype, torch.float32))
            accumulator = accumulator_for(rules, plan.layouts[name], self.size, total)
            plan.bytes_per_sample += accumulator.bytes(parts, count) // self.size
            if not (accumulator.gradient(parts) - truth).norm() <= tolerance * truth.norm() + 1e-30:
                del plan.layouts[name]
                plan.general.append(name)


def tolerance_for(outputs: Tensor) -> float:
    return 1e-3 if outputs.dtype in (torch.float32, torch.float64) else 0.1


def check_independent(network: nn.Module, inputs: Tensor, outputs: Tensor) -> None:
    """The answer to a sample must be the same alone as in a batch."""
    alone = outputs_of(network, inputs[:1])
    tolerance = tolerance_for(outputs)
    scale = float(outputs.detach().abs().max())
    if not torch.allclose(alone[0], outputs[0], rtol=tolerance, atol=tolerance * scale):
        raise ValueError(
            "the network answers a sample differently alone than in a batch, so per-sample gradients are not defined: "
            "it mixes samples (BatchNorm in train mode) or draws random numbers (dropout); call network.eval()"
        )
