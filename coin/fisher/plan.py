"""The plan: which parameters a rule treats, where their samples lie, and what is left to the general path.

Made once from a handful of samples, and checked there against autograd itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from coin.fisher.accumulators import accumulator_for
from coin.fisher.graph import Use, find_uses
from coin.fisher.layout import PROBE_SIZES, Layout, candidates, fitting
from coin.fisher.rules import Rule, rule_for

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


def gradients_at(outputs: Tensor, uses: list[Use], direction: Tensor) -> dict[object, Tensor]:
    """The gradients at the results of the operations in `uses`: no weight gradient is ever formed on the way."""
    nodes = list({use.node: None for use in uses})
    edges = [GradientEdge(node, 0) for node in nodes]
    found = torch.autograd.grad(outputs, edges, direction, retain_graph=True)  # rules read its saved tensors
    return dict(zip(nodes, found, strict=True))


def rules_for(uses: list[Use], param: Tensor, gradients: dict) -> list[Rule] | None:
    """The rules of all uses of a parameter, or None unless all are of one kind."""
    rules = [rule_for(use, param, tuple(gradients[use.node].shape)) for use in uses]
    known = [rule for rule in rules if rule is not None]
    return known if len(known) == len(rules) and len({type(rule) for rule in known}) == 1 else None


def make_plan(network: nn.Module, params: Mapping[str, Tensor], batch: Tensor) -> Plan:
    options: dict[str, list[set[Layout]]] = {}
    plan = Plan({})
    for size in PROBE_SIZES:
        inputs = batch[torch.arange(size, device=batch.device) % len(batch)]
        outputs = outputs_of(network, inputs)
        if size == PROBE_SIZES[0]:
            check_independent(network, inputs, outputs)
        uses = find_uses(outputs, params)
        everything = [use for found in uses.values() for use in found]
        random = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(size)).to(outputs)
        gradients = []
        for j in range(size):
            only_j = torch.zeros_like(random)
            only_j[j] = random[j]
            gradients.append(gradients_at(outputs, everything, only_j))
        for name, found in uses.items():
            if not found or (name in plan.general):
                continue
            rules = rules_for(found, params[name], gradients[0])
            if rules is None:
                plan.general.append(name)
                continue
            fits = [
                fitting(
                    candidates(tuple(gradients[0][use.node].shape), rule.dims, size),
                    [g[use.node] for g in gradients],
                    size,
                )
                for use, rule in zip(found, rules, strict=True)
            ]
            options[name] = [a & b for a, b in zip(options.get(name, fits), fits, strict=True)]
        if size == PROBE_SIZES[0]:
            plan.signature = signature_of(uses)
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
        verify(plan, network, params, batch)
    return plan


def verify(plan: Plan, network: nn.Module, params: Mapping[str, Tensor], batch: Tensor) -> None:
    """Sends to the general path what does not reproduce autograd's own gradient of a random direction."""
    size = PROBE_SIZES[0]
    inputs = batch[torch.arange(size, device=batch.device) % len(batch)]
    outputs = outputs_of(network, inputs)
    uses = find_uses(outputs, params)
    random = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
    names = list(plan.layouts)
    gradients = gradients_at(outputs, [use for name in names for use in uses[name]], random)
    truths = torch.autograd.grad(outputs, [params[name] for name in names], random, retain_graph=True)
    tolerance = 1e-3 if outputs.dtype in (torch.float32, torch.float64) else 0.1
    for name, truth in zip(names, truths, strict=True):
        rules = rules_for(uses[name], params[name], gradients)
        assert rules is not None
        total = torch.zeros_like(params[name], dtype=torch.promote_types(params[name].dtype, torch.float32))
        accumulator = accumulator_for(rules, plan.layouts[name], size, total)
        parts = [gradients[use.node] for use in uses[name]]
        plan.bytes_per_sample += accumulator.bytes(parts) // size
        ours = accumulator.gradient(parts)
        if not (ours - truth).norm() <= tolerance * truth.norm() + 1e-30:
            del plan.layouts[name]
            plan.general.append(name)


def check_independent(network: nn.Module, inputs: Tensor, outputs: Tensor) -> None:
    again = outputs_of(network, inputs)
    if not torch.equal(again, outputs):
        raise ValueError(
            "the network answers the same inputs differently each time, so its Fisher is not defined; "
            "switch its randomness off with network.eval()"
        )
    alone = outputs_of(network, inputs[:1])
    scale = outputs.detach().abs().max()
    tolerance = 1e-3 if outputs.dtype in (torch.float32, torch.float64) else 0.1
    if not torch.allclose(alone[0], outputs[0], rtol=tolerance, atol=float(tolerance * scale)):
        raise ValueError(
            "the network's output for a sample depends on the other samples of its batch, so per-sample gradients are "
            "not defined; put layers such as BatchNorm in eval mode with network.eval()"
        )
