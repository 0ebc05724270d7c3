"""The coding problem: what a code is given to make a coded network's weights from."""

import copy
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from coin import parameters
from coin.batch import Batch, Plain
from coin.decoders import Analytic, Answers, Decoder, Fitted
from coin.fisher import Directions, Exact, diagonal_fisher
from coin.generator import Generator, check_generator
from coin.metrics import coding_loss, divergence, nda_compute, nda_update
from coin.parameters import Parameters
from coin.problem.features import WithFeatures
from coin.problem.memory import Memory
from coin.problem.moved import Moved, is_images
from coin.problem.recipes import Recipe, recipe_of
from coin.problem.statistics import Statistics, may_differ, set_statistics
from coin.problem.training_set import TrainingSet

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

    β is the coded network's that is made; with a `generator` there are several, and `rows` is the problem of each.
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
    generator: Sequence[Sequence[float]] | None = None  # of several coded networks, instead of β
    coded: Generator = field(init=False)  # the rows of weights
    training_sets: Callable[[], Sequence[TrainingSet]] | None = None  # all of them, of each expert
    scratch: nn.Module = field(init=False)
    prepared: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.coded = check_generator(self.generator, None, None if self.generator else self.beta, len(self.experts))
        self.beta = self.coded[0]
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
        """What is remembered of some of the experts, on their device; of several, with their coding weights."""
        if len(experts) > 1:
            settings = {**settings, "beta": list(self.beta)}
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

    def outputs(self, copies: int = 0) -> list[Tensor]:
        """f_1 … f_N on the P samples, each (samples, outputs); behind them, with copies, on those that are moved."""
        settings: Recipe = {"copies": copies} if copies else {}

        def ask(expert: nn.Module) -> Parameters:
            return {"outputs": self.run(expert, self.with_copies(copies))}

        found = (self.kept("outputs", [i], settings, partial(ask, e)) for i, e in enumerate(self.experts))
        return [kept["outputs"] for kept in found]

    def with_copies(self, copies: int) -> Sequence[Plain]:
        """The batches, and after all of them so many copies of the images, moved."""
        if not copies:
            return self.batches
        moved = Moved.copies_of(self.batches, copies)
        return [moved[rows] for rows in torch.arange(len(moved)).split(len(Batch.of(self.batches[0])))]

    @torch.no_grad()  # not inference mode: what a Trainer moves meanwhile would be of no use to autograd any more
    def run(self, network: nn.Module, batches: Sequence[Plain] | None = None) -> Tensor:
        batches = self.batches if batches is None else batches
        if self.compute_outputs:
            return self.compute_outputs(network, batches).to(self.device)
        return torch.cat([Batch.of(batch).ask(network) for batch in batches])

    def network(self, params: Parameters) -> nn.Module:
        """The network with these parameters; valid until the next call, for it is one scratch network."""
        network = parameters.load(self.scratch, params)
        return set_statistics(network, self.batch_statistics, self.experts, self.beta, self.batches)

    def rows(self) -> list["Coding"]:
        """The problem of each coded network by itself."""
        return [self.row(beta) for beta in self.coded]

    def row(self, beta: tuple[float, ...]) -> "Coding":
        if len(self.coded) == 1:
            return self
        own = copy.copy(self)  # all but what a code has prepared for other weights is shared
        own.beta, own.coded, own.generator, own.prepared = beta, (beta,), None, {}
        return own

    def encoded(self, code: "Encoder", hyperparameters: Hyperparameters) -> list[Parameters]:
        """The coded networks that a candidate makes, one a row."""
        return [code.encode(row, **hyperparameters) for row in self.rows()]

    def networks(self, params: Sequence[Parameters]) -> Iterator[nn.Module]:
        """The coded networks with these parameters, one after the other: each is valid until the next."""
        return (row.network(p) for row, p in zip(self.rows(), params, strict=True))

    def asked(self, params: Sequence[Parameters]) -> list[Tensor]:
        """What coded networks with these parameters say of the samples, features and all."""
        return [self.run(WithFeatures(n, required=self.decoder.features)) for n in self.networks(params)]

    def answers(self, coded: Sequence[Tensor]) -> Answers:
        """What coded networks have said of the samples, beside the experts."""
        return Answers(coded, dict(enumerate(self.outputs())), self.coded, self.owners)

    def answers_of(self, code: "Encoder", hyperparameters: Hyperparameters) -> Answers:
        """Those of a candidate of a code; remembered, since any decoder may ask."""
        settings, everyone = {"code": code.recipe(), **hyperparameters}, range(len(self.experts))
        found = []
        for row in self.rows():

            def compute(row: "Coding" = row) -> Parameters:
                return {"coded": row.asked([code.encode(row, **hyperparameters)])[0]}

            found.append(row.kept("candidates", everyone, settings, compute)["coded"])
        return self.answers(found)

    def fitted(self, networks: Iterable[nn.Module]) -> Fitted:
        """The decoder, fitted on what these coded networks and the experts say of the samples, and of moved copies if
        it wants them and they are images."""
        copies = self.decoder.copies if is_images(self.batches[0]) else 0
        batches = self.with_copies(copies)
        coded = [self.run(WithFeatures(n, required=self.decoder.features), batches) for n in networks]
        experts = dict(enumerate(self.outputs(copies)))
        return self.decoder.fit(Answers(coded, experts, self.coded, self.owners, 1 + copies))

    def score(self, answers: Answers) -> Score:
        """On the samples; what the decoder is fitted on is decoded as if it had not been."""
        fitted = self.decoder.fit(answers)
        return self.scored(answers, [fitted.held_out(i) for i in range(len(self.experts))])

    def loss(self, params: Parameters) -> float:
        """The coding loss of these parameters on the samples."""
        return coding_loss(self.run(self.network(params)), self.outputs(), self.beta)

    def scored(self, answers: Answers, decoded: Sequence[Tensor]) -> Score:
        """The score of decoded outputs, of each expert on the samples drawn for it."""
        outputs = [coded[:, : answers.classes] for coded in answers.coded]
        losses = [
            coding_loss(f, list(answers.experts.values()), beta) for f, beta in zip(outputs, self.coded, strict=True)
        ]
        ndas, divergences = [], []
        for i, own_outputs in answers.experts.items():
            own = slice(None) if self.owners is None else self.owners == i
            divergences.append(divergence(decoded[i][own], own_outputs[own]))
            if self.labels is not None and self.owners is not None:
                counts = nda_update(decoded[i][own], own_outputs[own], self.labels[own])
                ndas.append(float(nda_compute(*counts)))
        nda = sum(ndas) / len(ndas) if ndas else math.nan
        return Score(nda, sum(losses) / len(losses), sum(divergences) / len(divergences))

    def part(self, rows: Tensor) -> "Coding":
        """The same problem with these samples only."""
        settings = {"rows": hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]}

        def remember(kind: str, experts: Sequence[int], own: Recipe, compute: Callable[[], Parameters]) -> Parameters:
            if kind == "outputs" and not own:
                return {"outputs": self.outputs()[experts[0]][rows]}
            return self.remember(kind, experts, {**own, **settings}, compute)

        return replace(
            self,
            batches=[part.plain for part in self.samples[rows].split(100)],
            labels=None if self.labels is None else self.labels[rows],
            owners=None if self.owners is None else self.owners[rows],
            remember=remember,
        )


def as_batches(batches: Iterable[Any]) -> list[Plain]:
    found = [Batch.of(batch).plain for batch in batches]
    if not found:
        raise ValueError("there are no batches of samples to code with; pass at least one batch of inputs")
    return found
