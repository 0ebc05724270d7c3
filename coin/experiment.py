"""One encode run: experts in, a coded network and how well each expert is decoded from it out."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from coin import metrics, prediction
from coin.artifacts import Expert
from coin.codes.code import Code
from coin.coding import Coding
from coin.data.images import ImageData
from coin.decoding import decode
from coin.expert import MakeTrainer
from coin.parameters import Parameters, check_alike, trainable
from coin.prediction import Inputs
from coin.samples import Samples
from coin.store import Made, Store, digest_of
from coin.tuning import Tuned, tune


@dataclass
class Experiment:
    """Codes `experts` with `code` and scores every decoded expert on its own test set."""

    store: Store
    experts: Sequence[Expert]
    base: nn.Module
    code: Code
    beta: Sequence[float]
    samples: Samples
    seed: int
    make_trainer: MakeTrainer
    setting: dict  # what else an expert's outputs depend on: the architecture, the Trainer's precision
    seconds: dict[str, float] = field(default_factory=dict)
    computing: float = 0.0  # seconds spent on statistics in this run
    memory: dict[str, Parameters] = field(default_factory=dict, repr=False)  # what this run has read or computed

    def __post_init__(self) -> None:
        check_alike([e.network for e in self.experts], [e.name for e in self.experts])

    def run(self) -> tuple[dict, Parameters]:
        """What results.json says of the run, and all tensors of the coded network it says it of."""
        coding = self.coding()
        with self.phase("outputs"):
            coding.outputs()
            answers = self.test_outputs()
        with self.phase("encode"):
            tuned = tune(self.code, coding)
        with self.phase("evaluate"):
            coded = coding.network(tuned.params)
            scores = self.evaluate(coded, answers)
        return self.results(tuned, scores), coded.state_dict()

    def coding(self) -> Coding:
        drawn = self.samples
        digest = digest_of(drawn.inputs)

        def remember(kind: str, i: int, settings: dict, compute: Callable[[], Parameters]) -> Parameters:
            return self.remember(kind, self.experts[i], {"samples": digest, **settings}, compute)

        def compute_fisher(network: nn.Module, directions) -> Parameters:
            return prediction.fisher(self.make_trainer, network, Inputs(drawn.inputs), directions)

        networks = [e.network for e in self.experts]
        return Coding(
            networks,
            self.beta,
            drawn.batches(),
            self.base,
            drawn.labels,
            drawn.owners,
            remember,
            compute_fisher,
            lambda network, count: self.quick_score(network, count),
        )

    def remember(self, kind: str, expert: Expert, recipe: dict, compute: Callable[[], Parameters]) -> Parameters:
        """A statistic of an expert, computed once for all codes, candidates and runs."""
        recipe = {"expert": expert.digest, **self.setting, **recipe}
        key = json.dumps([kind, recipe], sort_keys=True)

        def make(scratch: Path) -> Made:
            start = time.perf_counter()
            made = compute()
            took = time.perf_counter() - start
            self.computing += took
            return made, {"seconds": round(took, 3)}

        if key not in self.memory:
            found = self.store.obtain(kind, f"{expert.data.name}-{expert.data.split}", recipe, make)
            self.memory[key] = found.tensors()
            if kind != "outputs":
                self.seconds["statistics"] = self.seconds.get("statistics", 0.0) + found.facts["seconds"]
        return self.memory[key]

    def test_outputs(self) -> list[list[Tensor]]:
        """answers[i][j]: expert j's outputs on expert i's test set."""
        return [[self.answer(other, expert.data) for other in self.experts] for expert in self.experts]

    def answer(self, expert: Expert, data: ImageData) -> Tensor:
        recipe = {"test": data.recipe()}
        return self.remember("outputs", expert, recipe, lambda: {"outputs": self.predict(expert.network, data)})[
            "outputs"
        ]

    def predict(self, network: nn.Module, data: ImageData) -> Tensor:
        data.setup()
        assert data.test_set is not None
        return prediction.predict(self.make_trainer, network, Inputs(data.test_set.images, data.transform))

    def quick_score(self, network: nn.Module, count: int) -> float:
        """Average NDA on `count` random test samples of each expert."""
        ndas = []
        for i, (expert, answers) in enumerate(zip(self.experts, self.test_outputs(), strict=True)):
            test = expert.data.test_set
            assert test is not None
            chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:count]
            images, labels = test[chosen]
            device = next(network.parameters()).device
            with torch.inference_mode():
                parts = [network(expert.data.transform(part.to(device))) for part in images.split(250)]
            coded = torch.cat(parts).float().cpu()
            others = {j: f[chosen] for j, f in enumerate(answers) if j != i}
            decoded = decode(coded, others, self.beta, i)
            ndas.append(float(metrics.nda_compute(*metrics.nda_update(decoded, answers[i][chosen], labels))))
        return sum(ndas) / len(ndas)

    def evaluate(self, coded: nn.Module, answers: list[list[Tensor]]) -> list[dict]:
        scores = []
        for i, expert in enumerate(self.experts):
            own, outputs = answers[i][i], self.predict(coded, expert.data)
            others = {j: answers[i][j] for j in range(len(self.experts)) if j != i}
            decoded = decode(outputs, others, self.beta, i)
            assert expert.data.test_set is not None
            target = expert.data.test_set.labels
            nda = metrics.NormalizedDecodingAccuracy()
            nda.update(decoded, own, target)
            scores.append(
                {
                    "name": expert.name,
                    "accuracy": metrics.accuracy(own, target),
                    "decoded_accuracy": metrics.accuracy(decoded, target),
                    "nda": float(nda.compute()),
                    "agreement": metrics.agreement(decoded, own),
                    "coding_loss": metrics.coding_loss(outputs, answers[i], self.beta),
                }
            )
        return scores

    def results(self, tuned: Tuned, scores: list[dict]) -> dict:
        params = trainable(self.experts[0].network)
        found = {
            "seed": self.seed,
            "samples": len(self.samples.labels),
            "beta": list(self.beta),
            "hyperparameters": tuned.hyperparameters,
            "nda": sum(score["nda"] for score in scores) / len(scores),
            "experts": scores,
            "coding_loss": tuned.coding_loss,
            "test_coding_loss": sum(score["coding_loss"] for score in scores) / len(scores),
            "samples_nda": tuned.nda,
            "candidates": tuned.candidates,
            "bytes": {"coded": sum(p.numel() * p.element_size() for p in params.values())},
            "seconds": self.seconds,
        }
        return {**found, "history": self.code.history} if self.code.history else found

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start, before = time.perf_counter(), self.computing
        yield
        # statistics are counted by themselves, whether they were computed now or by another run
        self.seconds[name] = round(time.perf_counter() - start - (self.computing - before), 3)
