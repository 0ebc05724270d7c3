import pytest
import reference
import torch
from problems import coding
from torch import nn

from coin.codes import Coin
from coin.problem.tuning import Tuner


def test_tuning_picks_the_best_and_breaks_ties_by_the_coding_loss():
    problem = coding(2)
    tuned = Tuner().tune(Coin(), problem)
    assert len(tuned.candidates) == 6
    assert tuned.score.nda == max(c["nda"] for c in tuned.candidates)
    tied = [c["coding_loss"] for c in tuned.candidates if c["nda"] == tuned.score.nda]
    assert tuned.score.coding_loss == pytest.approx(min(tied), rel=1e-9)
    assert tuned.hyperparameters["damping"] in Coin().grid


def test_cross_validation_judges_candidates_by_samples_they_were_not_made_from():
    problem = coding(2)
    tuned = Tuner("divergence", folds=3).tune(Coin(), problem)
    count = sum(map(len, problem.batches))
    fold = torch.arange(count) % 3
    losses = []
    for k in range(3):
        seen, unseen = problem.part(torch.where(fold != k)[0]), problem.part(torch.where(fold == k)[0])
        fishers = [reference.diagonal_fisher(e, seen.batches) for e in problem.experts]
        params = reference.fisher_average(problem.params, fishers, problem.beta, 1e-5)
        losses.append(unseen.score(unseen.answers(unseen.asked([params]))).divergence)
    assert tuned.candidates[0]["divergence"] == pytest.approx(sum(losses) / 3)
    best = min(tuned.candidates, key=lambda c: c["divergence"])
    assert tuned.hyperparameters["damping"] == best["damping"]
    whole = Coin().encode(problem, damping=best["damping"])
    assert all(torch.equal(value, whole[name]) for name, value in tuned.params[0].items())
    with pytest.raises(ValueError, match="too few"):
        Tuner(folds=count).tune(Coin(), problem)


@pytest.mark.parametrize("criterion", ["coding_loss", "divergence"])
def test_tuning_without_labels(criterion):
    problem = coding(2)
    problem.labels = None
    tuned = Tuner(criterion).tune(Coin(), problem)
    assert getattr(tuned.score, criterion) == pytest.approx(min(c[criterion] for c in tuned.candidates), rel=1e-9)


def test_ties_without_labels_go_to_the_lowest_coding_loss():
    problem = coding(
        2, make=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    )  # one class: no divergence
    problem.labels = None
    tuned = Tuner("divergence").tune(Coin(), problem)
    assert tuned.score.coding_loss == pytest.approx(min(c["coding_loss"] for c in tuned.candidates), rel=1e-9)
