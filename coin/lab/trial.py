"""A trial of a code: experts in, a coded network and how well each expert is decoded from it out."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coin import metrics
from coin.batch import Batch, Plain
from coin.codes.code import Code
from coin.decoders import Decoder, Fitted
from coin.decoding import decode
from coin.fisher import Directions
from coin.lab.artifacts import Expert
from coin.lab.display import Advance, ignore
from coin.lab.journal import Journal, Kept
from coin.lab.store import Made, Store
from coin.parameters import Parameters, check_alike, size_of, trainable
from coin.problem.coding import Coding
from coin.problem.digests import digest_of
from coin.problem.features import WithFeatures
from coin.problem.memory import Memory
from coin.problem.recipes import Recipe, lasts
from coin.problem.statistics import Statistics, may_differ
from coin.problem.tuning import Tuned, Tuner
from coin.training.data.sets import Data
from coin.training.prediction import Asking, Inputs
from coin.training.samples import Samples
from coin.training.trainers import MakeTrainer

# What is kept in the store, for other runs: it is dearer to compute than to read. Whoever mends how one of these is
# computed gives it the next version, so that what the old way made is not taken for what the new one makes.
KEPT = {"fishers": 2, "outputs": 2, "students": 2}

Results = dict[str, Any]  # what results.json says, of a run or of one of its experts


@dataclass(kw_only=True)
class Trial:
    """Codes `experts` with `code` and scores every decoded expert on its own test set.

    Networks and samples go to the Trainer's device once, at the start, and all is computed there.
    """

    store: Store
    experts: Sequence[Expert]
    base: nn.Module
    code: Code
    decoder: Decoder
    tuner: Tuner
    beta: Sequence[float]
    samples: Samples
    seed: int
    make_trainer: MakeTrainer
    setting: Recipe  # what else an expert's outputs depend on: the architecture, the Trainer's precision
    batch_statistics: Statistics = "equal"  # BatchNorm's, of the coded network
    memory: Memory = field(default_factory=Memory)
    journal: Journal = field(default_factory=Journal)
    seconds: dict[str, float] = field(default_factory=dict)
    computing: float = 0.0  # seconds spent in this run on what is remembered
    statistics: int = 0  # bytes of Fishers, Gram matrices and the like
    asked_for: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        free = may_differ(self.experts[0].network, self.batch_statistics)
        check_alike([e.network for e in self.experts], [e.name for e in self.experts], free)
        self.asking = Asking(self.make_trainer)
        self.device = self.asking.device
        for network in (self.base, *(expert.network for expert in self.experts)):
            network.to(self.device)
        self.samples = self.samples.to(self.device)

    def run(self) -> tuple[Results, Parameters, Parameters]:
        """What results.json says of the run, all tensors of the coded network it says it of, and the decoder's."""
        coding = self.coding()
        with self.phase("outputs") as advance:
            coding.outputs()
            own = self.test_outputs(advance)
        with self.phase("encode") as coding.advance:
            tuned = self.tuner.tune(self.code, coding)
        with self.phase("evaluate") as advance:
            coded = coding.network(tuned.params)
            answers = []
            for i, expert in enumerate(self.experts):
                advance(i, len(self.experts))
                answers.append(self.coded_answer(coded, tuned, expert.data))
            self.classes = own[0][0].shape[1]
            self.columns = answers[0].shape[1] if self.decoder.features else self.classes
            scores = self.evaluate(answers, tuned.decoder, own)
        return self.results(tuned, scores), coded.state_dict(), tuned.decoder.tensors()

    def coding(self) -> Coding:
        drawn = self.samples
        digest = digest_of(*Batch.of(drawn.inputs).tensors.values())
        base = digest_of(*self.base.state_dict().values())

        def remember(
            kind: str, which: Sequence[int], settings: Recipe, compute: Callable[[], Parameters]
        ) -> Parameters:
            chosen = [self.experts[i] for i in which]
            own = {"samples": digest, **settings}
            if len(chosen) > 1:
                own |= {"beta": list(self.beta), "base": base}
            return self.remember(kind, chosen, own, lambda: {k: v.cpu() for k, v in compute().items()})

        def compute_fisher(network: nn.Module, batches: Sequence[Plain], directions: Directions) -> Parameters:
            return self.asking.fisher(network, Inputs(Batch.joined(batches)), directions)

        def compute_outputs(network: nn.Module, batches: Sequence[Plain]) -> Tensor:
            return self.asking.outputs(network, Inputs(Batch.joined(batches)), len(Batch.of(batches[0])))

        networks = [e.network for e in self.experts]
        coding = Coding(
            networks,
            self.beta,
            drawn.batches(),
            base=self.base,
            labels=drawn.labels,
            owners=drawn.owners,
            decoder=self.decoder,
            batch_statistics=self.batch_statistics,
            remember=remember,
            compute_fisher=compute_fisher,
            compute_outputs=compute_outputs,
        )
        coding.test_score = self.quick_score
        return coding

    def remember(
        self, kind: str, experts: Sequence[Expert], recipe: Recipe, compute: Callable[[], Parameters]
    ) -> Parameters:
        """Something about an expert, or several: computed once for all codes, decoders, candidates and, if KEPT, runs.

        Its seconds count towards this run whenever they were spent, so that runs can be compared.
        """
        who = experts[0].digest if len(experts) == 1 else [expert.digest for expert in experts]
        recipe = {"version": KEPT.get(kind), "expert": who, **self.setting, **recipe}
        key = json.dumps([kind, recipe], sort_keys=True)

        def timed() -> tuple[Parameters, float]:
            start, before = time.perf_counter(), self.computing
            made = compute()
            took = time.perf_counter() - start - (self.computing - before)  # without what was remembered on the way
            self.computing += took
            return made, took

        def make(scratch: Path) -> Made:
            made, took = timed()
            return made, {"seconds": round(took, 3)}

        name = "-".join(f"{expert.data.name}-{expert.data.split}" for expert in experts)
        stored = kind in KEPT and lasts(recipe)

        def find() -> tuple[Parameters, float]:
            if not stored:
                return timed()
            found = self.store.obtain(kind, name, recipe, make, derived=True)
            return found.tensors(), found.facts["seconds"]

        tensors, took = self.memory.recall(key, find)
        if key not in self.asked_for:
            self.asked_for.add(key)
            if stored and kind == "fishers":
                path = self.store.locate(kind, name, recipe)
                self.journal.used(Kept("fisher", name, path.name.rpartition("-")[2], path, recipe))
            phase = {"outputs": "outputs", "answers": "evaluate"}.get(kind, "statistics")
            self.statistics += size_of(tensors) * (phase == "statistics")
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + took, 3)
        return tensors

    def test_outputs(self, advance: Advance = ignore) -> list[list[Tensor]]:
        """answers[i][j]: expert j's outputs on expert i's test set."""
        found: list[list[Tensor]] = []
        for i, expert in enumerate(self.experts):
            found.append([])
            for j, other in enumerate(self.experts):
                advance(i * len(self.experts) + j, len(self.experts) ** 2)
                found[i].append(self.answer(other, expert.data))
        return found

    def answer(self, expert: Expert, data: Data) -> Tensor:
        recipe = {"test": data.recipe()}
        found = self.remember("outputs", [expert], recipe, lambda: {"outputs": self.predict(expert.network, data)})
        return found["outputs"].to(self.device)

    def predict(self, network: nn.Module, data: Data) -> Tensor:
        data.setup()
        assert data.test_set is not None
        return self.asking.outputs(network, Inputs(data.test_set.inputs, data.transform))

    def coded_answer(self, coded: nn.Module, tuned: Tuned, data: Data) -> Tensor:
        """What the coded network's server says of a test set."""
        asked = WithFeatures(coded, required=self.decoder.features)
        recipe = {"coded": digest_of(*tuned.params.values()), "test": data.recipe()}
        found = self.remember("answers", self.experts, recipe, lambda: {"answers": self.predict(asked, data)})
        return found["answers"].to(self.device)

    def quick_score(self, network: nn.Module, count: int) -> float:
        """Average NDA, by the paper's formula, on `count` random test samples of each expert."""
        ndas = []
        for i, (expert, answers) in enumerate(zip(self.experts, self.test_outputs(), strict=True)):
            test = expert.data.test_set
            assert test is not None
            chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:count]
            raw, labels = test[chosen]
            coded = self.asking.outputs(network, Inputs(raw, expert.data.transform)).to(self.device)
            others = {j: f[chosen] for j, f in enumerate(answers) if j != i}
            decoded = decode(coded, others, self.beta, i)
            ndas.append(
                float(metrics.nda_compute(*metrics.nda_update(decoded, answers[i][chosen], labels.to(self.device))))
            )
        return sum(ndas) / len(ndas)

    def evaluate(self, answers: list[Tensor], fitted: Fitted, experts: list[list[Tensor]]) -> list[Results]:
        scores = []
        for i, expert in enumerate(self.experts):
            own, answer = experts[i][i], answers[i]
            others = {j: experts[i][j] for j in range(len(self.experts)) if j != i}
            decoded, outputs = fitted.decode(answer, others, i), answer[:, : own.shape[1]]
            assert expert.data.test_set is not None
            target = expert.data.test_set.labels.to(self.device)
            nda = metrics.NormalizedDecodingAccuracy().to(self.device)
            nda.update(decoded, own, target)
            self.journal.confused(
                expert.name, metrics.confusion(decoded, own).cpu(), metrics.class_ndas(decoded, own, target)
            )
            scores.append(
                {
                    "name": expert.name,
                    "accuracy": metrics.accuracy(own, target),
                    "decoded_accuracy": metrics.accuracy(decoded, target),
                    "nda": float(nda.compute()),
                    "own_classes_nda": metrics.nda_among(target.unique(), decoded, own, target),
                    "agreement": metrics.agreement(decoded, own),
                    "coding_loss": metrics.coding_loss(outputs, experts[i], self.beta),
                    "distance": distance(trainable(expert.network), dict(self.base.named_parameters())),
                    "logit_sd": metrics.spread(own),
                    "margin": metrics.margin(own),
                    "decoding_error": metrics.spread(decoded - own),
                }
            )
        return scores

    def results(self, tuned: Tuned, scores: list[Results]) -> Results:
        params = trainable(self.experts[0].network)
        found = {
            "seed": self.seed,
            "samples": len(self.samples.labels),
            "beta": list(self.beta),
            "hyperparameters": {**tuned.hyperparameters, **self.code.chosen},
            "nda": sum(score["nda"] for score in scores) / len(scores),
            "missing": self.missing(scores),
            "coded": 1,
            "calls": self.decoder.calls(len(self.experts)),
            "numbers": self.numbers(),
            "experts": scores,
            "coding_loss": tuned.score.coding_loss,
            "test_coding_loss": sum(score["coding_loss"] for score in scores) / len(scores),
            "samples_nda": tuned.score.nda,
            "samples_divergence": tuned.score.divergence,
            "tuner": asdict(self.tuner),
            "folds": self.tuner.folds_for(self.code),  # that judged the candidates: its own, or the tuner's
            "candidates": tuned.candidates,
            "distance": distance(*(trainable(e.network) for e in self.experts[:2])) if len(self.experts) > 1 else 0.0,
            "bytes": {
                "coded": size_of(params),
                "decoder": size_of(tuned.decoder.tensors()),
                "statistics": self.statistics,
            },
            "seconds": self.seconds,
        }
        return {**found, "history": self.code.history} if self.code.history else found

    def missing(self, scores: list[dict[str, Any]]) -> dict[str, float]:
        """Average NDA with one expert missing, with two, … for as many as can be recovered, over all of them."""
        nda = sum(score["nda"] for score in scores) / len(scores)
        most = len(self.experts) if self.decoder.alone else 1  # who asks nobody else does not miss anybody else
        return {str(count): nda for count in range(1, most + 1)}

    def numbers(self) -> int:
        """How many are sent to decode one answer."""
        return self.columns + (0 if self.decoder.alone else self.classes * (len(self.experts) - 1))

    @contextmanager
    def phase(self, name: str) -> Iterator[Advance]:
        start, before = time.perf_counter(), self.computing
        with self.journal.phase(name) as advance:
            yield advance
        took = time.perf_counter() - start - (self.computing - before)  # what is remembered is counted by itself
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)


def distance(params: Parameters, others: Parameters) -> float:
    """‖θ_1 − θ_2‖ over the tensors of the first."""
    return float(sum((p - others[name].detach()).double().square().sum() for name, p in params.items()) ** 0.5)
