"""The coding problem: what a code is given to make a coded network's weights from."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from coin import parameters
from coin.decoding import decode
from coin.fisher import Directions, Exact, diagonal_fisher
from coin.metrics import coding_loss, nda_compute, nda_update
from coin.parameters import Parameters

Remember = Callable[[str, int, dict, Callable[[], Parameters]], Parameters]


@dataclass
class Coding:
    """Experts of one architecture, the coding weights β and the P samples, as batches of inputs.

    `labels` and `owners` (the expert from whose training set each sample was drawn) serve the tuning of
    hyperparameters; `base` is θ_0, for codes that ask for it. `remember(kind, expert, settings, compute)` may keep
    statistics of an expert, such as its Fisher, for other codes and other runs; by default they are computed anew.
    """

    experts: Sequence[nn.Module]
    beta: Sequence[float]
    batches: Sequence[Tensor]
    base: nn.Module | None = None
    labels: Tensor | None = None
    owners: Tensor | None = None
    remember: Remember = lambda kind, expert, settings, compute: compute()
    compute_fisher: Callable[[nn.Module, Directions], Parameters] | None = None
    test_score: Callable[[nn.Module, int], float] | None = None  # average NDA on so many test samples an expert
    scratch: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.beta = check_beta(self.beta, len(self.experts))
        parameters.check_alike(self.experts)
        self.scratch = copy.deepcopy(self.experts[0]).eval()

    @property
    def params(self) -> list[Parameters]:
        """θ_1 … θ_N"""
        return [parameters.trainable(expert) for expert in self.experts]

    @property
    def base_params(self) -> Parameters:
        """θ_0, restricted to what was trained."""
        if self.base is None:
            raise ValueError("this code needs the base network θ_0 that the experts were fine-tuned from: pass base=…")
        own = dict(self.base.named_parameters())
        missing = [name for name in self.params[0] if name not in own]
        if missing:
            raise ValueError(f"the base network lacks {parameters.listing(missing)}; is it of another architecture?")
        return {name: own[name].detach() for name in self.params[0]}

    def fishers(self, directions: Directions | None = None) -> list[Parameters]:
        """diag F_1 … diag F_N over all P samples."""
        directions = directions or Exact()
        compute = self.compute_fisher or (lambda expert, directions: diagonal_fisher(expert, self.batches, directions))
        settings = {"directions": repr(directions)}
        return [
            self.remember("fishers", i, settings, lambda expert=expert: compute(expert, directions))  # type: ignore[misc]
            for i, expert in enumerate(self.experts)
        ]

    def outputs(self) -> list[Tensor]:
        """f_1 … f_N on the P samples, each (samples, outputs)."""
        return [
            self.remember("outputs", i, {}, lambda expert=expert: {"outputs": self.run(expert)})["outputs"]  # type: ignore[misc]
            for i, expert in enumerate(self.experts)
        ]

    @torch.inference_mode()
    def run(self, network: nn.Module) -> Tensor:
        return torch.cat([network(batch) for batch in self.batches]).clone()

    def network(self, params: Parameters) -> nn.Module:
        """The network with these parameters; valid until the next call, for it is one scratch network."""
        return parameters.load(self.scratch, params)

    def score(self, params: Parameters, outputs: Sequence[Tensor]) -> tuple[float, float]:
        """Average NDA on the samples (NaN without labels) and the coding loss, of a coded network's parameters."""
        coded = self.run(self.network(params))
        loss = coding_loss(coded, outputs, self.beta)
        if self.labels is None or self.owners is None:
            return math.nan, loss
        ndas = []
        for i in range(len(self.experts)):
            own = self.owners == i
            others = {j: f[own] for j, f in enumerate(outputs) if j != i}
            decoded = decode(coded[own], others, self.beta, i)
            ndas.append(float(nda_compute(*nda_update(decoded, outputs[i][own], self.labels[own]))))
        return sum(ndas) / len(ndas), loss


def check_beta(beta: Sequence[float] | None, experts: int) -> tuple[float, ...]:
    """β, equal weights by default; positive, finite, summing to one."""
    if beta is None:
        return (1 / experts,) * experts
    values = tuple(float(b) for b in beta)
    if len(values) != experts:
        raise ValueError(f"beta={list(values)}: {len(values)} weights for {experts} experts; give one weight an expert")
    if not all(b > 0 and math.isfinite(b) for b in values):
        raise ValueError(
            f"beta={list(values)}: every weight must be positive; equal weights are {[1 / experts] * experts}"
        )
    if abs(sum(values) - 1) > 1e-6:
        raise ValueError(f"beta={list(values)}: the weights sum to {sum(values):g}, they must sum to 1")
    return values


def as_batches(batches: Iterable[Tensor]) -> list[Tensor]:
    found = list(batches)
    if not found:
        raise ValueError("there are no batches of samples to code with; pass at least one batch of inputs")
    for batch in found:
        if not isinstance(batch, Tensor):
            raise ValueError(
                f"a batch is {type(batch).__name__}, expected a tensor of inputs; "
                "leave the labels out: (x for x, _ in loader)"
            )
    return found
