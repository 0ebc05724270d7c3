"""The coding problem: what a code is given to make a coded network's weights from."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from coin import parameters
from coin.batch import Batch, Plain
from coin.decoders import Analytic, Answers, Decoder
from coin.fisher import Directions, Exact, diagonal_fisher
from coin.metrics import coding_loss, divergence, nda_compute, nda_update
from coin.parameters import Parameters
from coin.problem.features import WithFeatures
from coin.problem.memory import Memory
from coin.problem.recipes import Recipe, recipe_of
from coin.problem.statistics import Statistics, may_differ, set_statistics

T = TypeVar("T")
Hyperparameters = dict[str, float]  # one of a code's candidates
Remember = Callable[[str, Sequence[int], Recipe, Callable[[], Parameters]], Parameters]


def remembering() -> Remember:
    """Computes the same thing once."""
    memory = Memory(limit=sys.maxsize)  # all candidates of one problem ask for the same

    def remember(kind: str, experts: Sequence[int], settings: Recipe, compute: Callable[[], Parameters]) -> Parameters:
        return memory.recall(json.dumps([kind, list(experts), settings], sort_keys=True), lambda: (compute(), 0.0))[0]

    return remember


@dataclass(frozen=True)
class Score:
    """How a coded network does on the samples: average NDA in percent (NaN without labels), the coding loss, and the
    divergence of decoded from experts' class probabilities, which needs no labels either."""

    nda: float
    coding_loss: float
    divergence: float


class Encoder(Protocol):
    """What the problem needs to know of a code."""

    def recipe(self) -> Recipe: ...

    def encode(self, coding: "Coding", **hyperparameters: float) -> Parameters: ...


@dataclass
class Coding:
    """Experts of one architecture, the coding weights β and the P samples, as batches of inputs.

    `labels` and `owners` (the expert from whose training set each sample was drawn) serve the tuning of
    hyperparameters; `base` is θ_0, for codes that ask for it. `remember(kind, experts, settings, compute)` keeps
    statistics of some of the experts, such as a Fisher: by default for this problem, all candidates of a code.
    All of it is computed where the experts are, on their device.
    """

    experts: Sequence[nn.Module]
    beta: Sequence[float]
    batches: Sequence[Plain]
    base: nn.Module | None = None
    labels: Tensor | None = None
    owners: Tensor | None = None
    decoder: Decoder = field(default_factory=Analytic)
    batch_statistics: Statistics = "equal"  # BatchNorm's, of a coded network
    remember: Remember = field(default_factory=remembering)
    compute_fisher: Callable[[nn.Module, Sequence[Plain], Directions], Parameters] = diagonal_fisher
    compute_outputs: Callable[[nn.Module, Sequence[Plain]], Tensor] | None = None
    advance: Callable[[float, float], None] = lambda done, of: None  # candidates done, and of how many
    test_score: Callable[[nn.Module, int], float] | None = None  # average NDA on so many test samples an expert
    scratch: nn.Module = field(init=False)
    prepared: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.beta = check_beta(self.beta, len(self.experts))
        free = may_differ(self.experts[0], self.batch_statistics)
        parameters.check_alike(self.experts, may_differ=free)
        if self.base is not None:
            parameters.check_origin(self.base, self.experts[0], free)
        self.batches = [Batch.of(batch).map(lambda tensor: tensor.to(self.device)).plain for batch in self.batches]
        self.labels = None if self.labels is None else self.labels.to(self.device)
        self.owners = None if self.owners is None else self.owners.to(self.device)
        self.scratch = parameters.copy_of(self.experts[0])
        self.network({})

    @property
    def device(self) -> torch.device:
        return next(self.experts[0].parameters()).device

    @property
    def samples(self) -> Batch:
        """All P of them."""
        return Batch.joined(self.batches)

    def kept(
        self, kind: str, experts: Sequence[int], settings: Recipe, compute: Callable[[], Parameters]
    ) -> Parameters:
        """What is remembered of some of the experts, on their device."""
        found = self.remember(kind, experts, settings, compute)
        return {name: value.to(self.device) for name, value in found.items()}

    def prepare(self, settings: Recipe, make: Callable[[], T]) -> T:
        """What a code makes once for all its candidates and is too large to be kept longer: the last one alone."""
        key = json.dumps(settings, sort_keys=True)
        if key not in self.prepared:
            self.prepared.clear()  # before the next is made
            self.prepared[key] = make()
        made: T = self.prepared[key]
        return made

    @property
    def params(self) -> list[Parameters]:
        """θ_1 … θ_N, in single precision or better: a coded network rounds what is computed from them once."""
        return [parameters.single(parameters.trainable(expert)) for expert in self.experts]

    @property
    def base_params(self) -> Parameters:
        """θ_0, restricted to what was trained."""
        if self.base is None:
            raise ValueError("this code needs the base network θ_0 that the experts were fine-tuned from: pass base=…")
        own = dict(self.base.named_parameters())
        names = parameters.trainable(self.experts[0])
        return parameters.single({name: own[name].detach().to(self.device) for name in names})

    def fishers(self, directions: Directions | None = None) -> list[Parameters]:
        """diag F_1 … diag F_N over all P samples."""
        directions = directions or Exact()
        settings = {"directions": recipe_of(directions)}

        def fisher(expert: nn.Module) -> Parameters:
            return self.compute_fisher(expert, self.batches, directions)

        return [self.kept("fishers", [i], settings, partial(fisher, expert)) for i, expert in enumerate(self.experts)]

    def outputs(self) -> list[Tensor]:
        """f_1 … f_N on the P samples, each (samples, outputs)."""
        return [
            self.kept("outputs", [i], {}, lambda expert=expert: {"outputs": self.run(expert)})["outputs"]  # type: ignore[misc]
            for i, expert in enumerate(self.experts)
        ]

    @torch.no_grad()  # not inference mode: what a Trainer moves meanwhile would be of no use to autograd any more
    def run(self, network: nn.Module) -> Tensor:
        if self.compute_outputs:
            return self.compute_outputs(network, self.batches).to(self.device)
        return torch.cat([Batch.of(batch).ask(network) for batch in self.batches])

    def network(self, params: Parameters) -> nn.Module:
        """The network with these parameters; valid until the next call, for it is one scratch network."""
        network = parameters.load(self.scratch, params)
        return set_statistics(network, self.batch_statistics, self.experts, self.beta, self.batches)

    def answers(self, params: Parameters) -> Answers:
        """What a coded network with these parameters, and the experts, say of the samples."""
        coded = self.run(WithFeatures(self.network(params), required=self.decoder.features))
        return Answers(coded, self.outputs(), self.beta, self.owners)

    def answers_of(self, code: "Encoder", hyperparameters: Hyperparameters) -> Answers:
        """The same for a candidate of a code; remembered, since any decoder may ask."""
        settings = {"code": code.recipe(), **hyperparameters, "beta": list(self.beta)}
        everyone = range(len(self.experts))

        def compute() -> Parameters:
            return {"coded": self.answers(code.encode(self, **hyperparameters)).coded}

        coded = self.kept("candidates", everyone, settings, compute)["coded"]
        return Answers(coded, self.outputs(), self.beta, self.owners)

    def score(self, answers: Answers) -> Score:
        """On the samples; what the decoder is fitted on is decoded as if it had not been."""
        fitted = self.decoder.fit(answers)
        return self.scored(answers, [fitted.held_out(i) for i in range(len(self.experts))])

    def loss(self, params: Parameters) -> float:
        """The coding loss of these parameters on the samples."""
        return coding_loss(self.run(self.network(params)), self.outputs(), self.beta)

    def scored(self, answers: Answers, decoded: Sequence[Tensor]) -> Score:
        """The score of decoded outputs, of each expert on the samples drawn for it."""
        coded = answers.coded[:, : answers.classes]
        loss = coding_loss(coded, answers.experts, self.beta)
        ndas, divergences = [], []
        for i, own_outputs in enumerate(answers.experts):
            own = slice(None) if self.owners is None else self.owners == i
            divergences.append(divergence(decoded[i][own], own_outputs[own]))
            if self.labels is not None and self.owners is not None:
                counts = nda_update(decoded[i][own], own_outputs[own], self.labels[own])
                ndas.append(float(nda_compute(*counts)))
        nda = sum(ndas) / len(ndas) if ndas else math.nan
        return Score(nda, loss, sum(divergences) / len(divergences))

    def part(self, rows: Tensor) -> "Coding":
        """The same problem with these samples only."""
        settings = {"rows": hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]}

        def remember(kind: str, experts: Sequence[int], own: Recipe, compute: Callable[[], Parameters]) -> Parameters:
            if kind == "outputs":
                return {"outputs": self.outputs()[experts[0]][rows]}
            return self.remember(kind, experts, {**own, **settings}, compute)

        return replace(
            self,
            batches=[part.plain for part in self.samples[rows].split(100)],
            labels=None if self.labels is None else self.labels[rows],
            owners=None if self.owners is None else self.owners[rows],
            remember=remember,
        )


def check_beta(beta: Sequence[float] | None, experts: int) -> tuple[float, ...]:
    """β, equal weights by default; positive, finite, summing to one."""
    if beta is None:
        return (1 / experts,) * experts
    if isinstance(beta, str) or not isinstance(beta, Iterable):
        raise ValueError(
            f"beta={beta}: must be a list, one weight an expert; equal weights are {[1 / experts] * experts}"
        )
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


def as_batches(batches: Iterable[Any]) -> list[Plain]:
    found = [Batch.of(batch).plain for batch in batches]
    if not found:
        raise ValueError("there are no batches of samples to code with; pass at least one batch of inputs")
    return found
