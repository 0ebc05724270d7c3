"""A trial of a code: experts in, coded networks and how well each expert is decoded from them out."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from coin import metrics
from coin.batch import Batch, Plain
from coin.codes.code import Code
from coin.decoders import Answers, Decoder, Fitted
from coin.decoding import decode
from coin.fisher import Directions
from coin.generator import Generator
from coin.lab.artifacts import Expert
from coin.lab.display import Advance, ignore
from coin.lab.evaluation import Evaluation, Scores, TestSet
from coin.lab.ledger import Ledger
from coin.parameters import Parameters, check_alike, size_of, trainable
from coin.problem.coding import Coding
from coin.problem.digests import digest_of
from coin.problem.features import WithFeatures
from coin.problem.recipes import Recipe
from coin.problem.statistics import Statistics, may_differ
from coin.problem.training_set import TrainingSet
from coin.problem.tuning import Tuned, Tuner
from coin.training.data.sets import Data
from coin.training.prediction import Asking, Inputs
from coin.training.samples import Queries, Samples
from coin.training.trainers import MakeTrainer

Results = dict[str, Any]  # what results.json says

WITHOUT_SAMPLES = {"merges", "parities"}  # what is the same whatever the samples


@dataclass
class Finished:
    """What a trial leaves: what results.json says of it, all tensors of the coded networks, and the decoder's."""

    results: Results
    coded: list[Parameters]
    decoder: Parameters


@dataclass(kw_only=True)
class Trial:
    """Codes `experts` with `code` and scores every decoded expert on its own test set.

    Networks and samples go to the Trainer's device once, at the start, and all is computed there. With `queries`, one
    set an expert, the decoder is fitted on these instead of the samples.
    """

    experts: Sequence[Expert]
    base: nn.Module
    code: Code
    decoder: Decoder
    tuner: Tuner
    generator: Generator
    samples: Samples
    seed: int
    make_trainer: MakeTrainer
    ledger: Ledger
    queries: Sequence[Queries] = ()
    batch_statistics: Statistics = "equal"  # BatchNorm's, of the coded network

    def __post_init__(self) -> None:
        free = may_differ(self.experts[0].network, self.batch_statistics)
        check_alike([e.network for e in self.experts], [e.name for e in self.experts], free)
        self.asking = Asking(self.make_trainer)
        self.device = self.asking.device
        for network in (self.base, *(expert.network for expert in self.experts)):
            network.to(self.device)
        self.samples = self.samples.to(self.device)

    def run(self) -> Finished:
        coding, phase = self.coding(), self.ledger.phase
        with phase("outputs") as advance:
            coding.outputs()
            own = self.test_outputs(advance)
        with phase("encode") as coding.advance:
            tuned = self.tuner.tune(self.code, coding)
            if self.queries:
                tuned = replace(tuned, decoder=self.calibrated(coding, tuned))
        with phase("evaluate") as advance:
            answers = self.coded_answers(coding, tuned, advance)
            tests = [self.test_set(*of_one) for of_one in zip(self.experts, own, answers, strict=True)]
            evaluation = Evaluation(tests=tests, decoder=self.decoder, fitted=tuned.decoder, generator=self.generator)
            results = self.results(tuned, evaluation)
        states = (network.state_dict() for network in coding.networks(tuned.params))  # of one scratch network
        coded = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
        return Finished(results, coded, tuned.decoder.tensors())

    def coding(self) -> Coding:
        drawn = self.samples
        digest = digest_of(*Batch.of(drawn.inputs).tensors.values())
        base = digest_of(*self.base.state_dict().values())

        def remember(
            kind: str, which: Sequence[int], settings: Recipe, compute: Callable[[], Parameters]
        ) -> Parameters:
            chosen = [self.experts[i] for i in which]
            own = settings if kind in WITHOUT_SAMPLES else {"samples": digest, **settings}
            if len(chosen) > 1:
                own = {**own, "base": base}
            return self.ledger.remember(kind, chosen, own, lambda: {k: v.cpu() for k, v in compute().items()})

        def compute_fisher(network: nn.Module, batches: Sequence[Plain], directions: Directions) -> Parameters:
            return self.asking.fisher(network, Inputs(Batch.joined(batches)), directions)

        def compute_outputs(network: nn.Module, batches: Sequence[Plain]) -> Tensor:
            return self.asking.outputs(network, Inputs(Batch.joined(batches)), len(Batch.of(batches[0])))

        return Coding(
            [e.network for e in self.experts],
            self.generator[0],
            drawn.batches(),
            base=self.base,
            labels=drawn.labels,
            owners=drawn.owners,
            decoder=self.decoder,
            batch_statistics=self.batch_statistics,
            remember=remember,
            compute_fisher=compute_fisher,
            compute_outputs=compute_outputs,
            test_score=self.quick_score,
            training_sets=self.training_sets,
            generator=self.generator,
        )

    def training_sets(self) -> list[TrainingSet]:
        found = []
        for data in (expert.data for expert in self.experts):
            recipe = data.recipe()  # which reads the images first
            assert data.train_set is not None
            found.append(TrainingSet(data.train_set.inputs, data.transform, recipe))
        return found

    def test_outputs(self, advance: Advance = ignore) -> list[list[Tensor]]:
        """answers[i][j]: expert j's outputs on expert i's test set."""
        found: list[list[Tensor]] = []
        for i, expert in enumerate(self.experts):
            found.append([])
            for j, other in enumerate(self.experts):
                advance(i * len(self.experts) + j, len(self.experts) ** 2)
                found[i].append(self.answer(other, test_inputs(expert.data), {"test": expert.data.recipe()}))
        return found

    def answer(self, expert: Expert, inputs: Inputs, recipe: Recipe) -> Tensor:
        """What an expert says of these inputs, which the recipe tells."""
        network = expert.network
        found = self.ledger.remember(
            "outputs", [expert], recipe, lambda: {"outputs": self.asking.outputs(network, inputs)}
        )
        return found["outputs"].to(self.device)

    def coded_answers(self, coding: Coding, tuned: Tuned, advance: Advance) -> list[dict[int, Tensor]]:
        """For every expert's test set, what the coded networks' servers say of it, by number."""
        found: list[dict[int, Tensor]] = [{} for _ in self.experts]
        for r, network in enumerate(coding.networks(tuned.params)):
            coded = WithFeatures(network, required=self.decoder.features)
            digest = digest_of(*tuned.params[r].values())
            for i, expert in enumerate(self.experts):
                advance(r * len(self.experts) + i, len(tuned.params) * len(self.experts))
                found[i][r] = self.coded_answer(coded, digest, expert.data)
        return found

    def coded_answer(self, coded: nn.Module, digest: str, data: Data) -> Tensor:
        found = self.ledger.remember(
            "answers",
            self.experts,
            {"coded": digest, "test": data.recipe()},
            lambda: {"answers": self.asking.outputs(coded, test_inputs(data))},
        )
        return found["answers"].to(self.device)

    def test_set(self, expert: Expert, own: list[Tensor], coded: dict[int, Tensor]) -> TestSet:
        """Of all its test images, or of those that were not taken for queries."""
        assert expert.data.test_set is not None
        target = expert.data.test_set.labels.to(self.device)
        rows: Any = self.queries[self.experts.index(expert)].scored if self.queries else None
        rows = slice(None) if rows is None else rows.to(self.device)
        return TestSet(
            coded={r: answer[rows] for r, answer in coded.items()},
            experts=[answer[rows] for answer in own],
            target=target[rows],
        )

    def calibrated(self, coding: Coding, tuned: Tuned) -> Fitted:
        """The decoder, fitted on what all networks say of the queries."""
        inputs = [Inputs(q.inputs, e.data.transform) for q, e in zip(self.queries, self.experts, strict=True)]
        recipes = [
            {"queries": digest_of(*Batch.of(q.inputs).tensors.values()), "of": e.data.recipe()}
            for q, e in zip(self.queries, self.experts, strict=True)
        ]
        experts = {
            j: torch.cat([self.answer(expert, *query) for query in zip(inputs, recipes, strict=True)])
            for j, expert in enumerate(self.experts)
        }
        coded = []
        for network in coding.networks(tuned.params):
            asked = WithFeatures(network, required=self.decoder.features)
            coded.append(torch.cat([self.asking.outputs(asked, part).to(self.device) for part in inputs]))
        owners = torch.cat([torch.full((len(part),), i) for i, part in enumerate(inputs)]).to(self.device)
        return self.decoder.fit(Answers(coded, experts, self.generator, owners))

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
            decoded = decode(coded, others, self.generator[0], i)
            ndas.append(
                float(metrics.nda_compute(*metrics.nda_update(decoded, answers[i][chosen], labels.to(self.device))))
            )
        return sum(ndas) / len(ndas)

    def results(self, tuned: Tuned, evaluation: Evaluation) -> Results:
        scores = [self.scores(evaluation, i) for i in range(len(self.experts))]
        params, nda = trainable(self.experts[0].network), sum(score["nda"] for score in scores) / len(scores)
        missing, patterns = evaluation.missing(nda)
        experts, coded = len(self.experts), len(self.generator)
        found = {
            "seed": self.seed,
            "samples": len(self.samples.labels),
            "calibration": len(Batch.of(self.queries[0].inputs)) if self.queries else 0,
            "beta": list(self.generator[0]),
            "generator": [list(row) for row in self.generator],
            "hyperparameters": {**tuned.hyperparameters, **self.code.chosen},
            "nda": nda,
            "missing": missing,
            "patterns": patterns,
            "coded": coded,
            "calls": self.decoder.calls(experts, coded),
            "numbers": self.numbers(evaluation.tests[0]),
            "experts": scores,
            "coding_loss": tuned.score.coding_loss,
            "test_coding_loss": sum(score["coding_loss"] for score in scores) / len(scores),
            "samples_nda": tuned.score.nda,
            "samples_divergence": tuned.score.divergence,
            "tuner": asdict(self.tuner),
            "folds": self.tuner.folds_for(self.code),  # that judged the candidates: its own, or the tuner's
            "candidates": tuned.candidates,
            "distance": distance(*(trainable(e.network) for e in self.experts[:2])) if experts > 1 else 0.0,
            "bytes": {
                "coded": coded * size_of(params),
                "decoder": size_of(tuned.decoder.tensors()),
                "statistics": self.ledger.statistics,
            },
            "seconds": self.ledger.seconds,
        }
        return {**found, "history": self.code.history} if self.code.history else found

    def scores(self, evaluation: Evaluation, number: int) -> Scores:
        expert, test = self.experts[number], evaluation.tests[number]
        decoded, own = evaluation.decoded(number), test.experts[number]
        ndas = metrics.class_ndas(decoded, own, test.target)
        self.ledger.journal.confused(expert.name, metrics.confusion(decoded, own).cpu(), ndas)
        far = distance(trainable(expert.network), dict(self.base.named_parameters()))
        return {"name": expert.name, **evaluation.scores(number, decoded), "distance": far}

    def numbers(self, test: TestSet) -> int:
        """How many are sent to decode one answer."""
        classes = test.experts[0].shape[1]
        columns = test.coded[0].shape[1] if self.decoder.features else classes
        return columns * len(test.coded) + (0 if self.decoder.alone else classes * (len(self.experts) - 1))


def test_inputs(data: Data) -> Inputs:
    data.setup()
    assert data.test_set is not None
    return Inputs(data.test_set.inputs, data.transform)


def distance(params: Parameters, others: Parameters) -> float:
    """‖θ_1 − θ_2‖ over the tensors of the first."""
    return float(sum((p - others[name].detach()).double().square().sum() for name, p in params.items()) ** 0.5)
