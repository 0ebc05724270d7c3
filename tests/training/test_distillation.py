import lightning as L
import pytest
import torch
from problems import coding, experts
from torch import nn

import coin
from coin.codes import Average, Coin
from coin.problem.tuning import Tuner
from coin.training.distillation import Distillation


def test_distillation_learns_the_ensemble_and_leaves_a_history():
    problem = coding(2)
    code = Distillation(epochs=30, learning_rate=1e-2)
    before = problem.loss(problem.base_params)
    tuned = Tuner().tune(code, problem)
    losses = [point["coding_loss"] for point in code.history]
    assert len(losses) == 30 and losses[-1] < losses[0] < before
    assert tuned.score.coding_loss == pytest.approx(losses[-1])
    again = Tuner().tune(Distillation(epochs=30, learning_rate=1e-2), problem)
    assert all(torch.equal(value, again.params[0][name]) for name, value in tuned.params[0].items())
    closer = Distillation(epochs=1, learning_rate=1e-9, start="average")
    average = Average().encode(problem)
    for name, value in closer.encode(problem).items():
        torch.testing.assert_close(value, average[name], atol=1e-6, rtol=1e-6)


def test_students_are_trained_in_mixed_precision_with_clipped_gradients():
    """Fused optimizers refuse the two together."""

    def trainer(**settings):
        return L.Trainer(accelerator="cpu", precision="bf16-mixed", gradient_clip_val=1.0, **settings)

    base, found = experts(2)
    networks = [network.float() for network in (base, *found)]
    code = Distillation(epochs=1, learning_rate=1e-2, trainer=trainer)
    coded = coin.encode(networks[1:], [torch.randn(20, 4)], code=code, base=networks[0])
    assert any(not torch.equal(a, b) for a, b in zip(coded.parameters(), base.parameters(), strict=True))


def test_distillation_leaves_batch_norm_alone():
    make = lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))  # noqa: E731
    base, found = experts(2, make=make)
    for network in [base, *found]:
        network[1].load_state_dict(base[1].state_dict())
        network[1].requires_grad_(False)
        network.eval()
    inputs = torch.randn(20, 4, dtype=torch.float64)
    coded = coin.encode(found, [inputs], code=Distillation(epochs=2, learning_rate=1e-2), base=base)
    for key, value in base[1].state_dict().items():
        assert torch.equal(coded[1].state_dict()[key], value)
    assert not torch.equal(coded[0].weight, base[0].weight)


def test_refining_never_ends_worse_than_it_began_on_unseen_samples():
    problem = coding(2)
    start = Coin(0.01)
    code = Distillation(epochs=4, learning_rate=1e-3, start=start, folds=2)
    refined = code.encode(problem)
    losses = [point["unseen_loss"] for point in code.history]
    assert len(losses) == 5 and [p["epoch"] for p in code.history] == [0, 1, 2, 3, 4]
    if min(losses) == losses[0]:
        assert all(torch.equal(v, start.encode(problem, damping=0.01)[k]) for k, v in refined.items())
    ruinous = Distillation(epochs=2, learning_rate=10.0, start=start, folds=2)
    for name, value in ruinous.encode(problem).items():  # every epoch makes it worse, so none is done
        assert torch.equal(value, start.encode(problem, damping=0.01)[name])


def test_a_fold_that_diverges_does_not_choose_the_epochs(monkeypatch):
    problem = coding(2)
    code = Distillation(epochs=2, learning_rate=1e-3, start=Coin(0.01), folds=2)
    monkeypatch.setattr(code, "unseen_losses", lambda coding, start: [[1.0, float("nan"), 2.0], [1.0, 0.1, 2.0]])
    refined = code.encode(problem)
    assert code.chosen == {"damping": 0.01, "epochs": 0}
    assert all(torch.equal(v, Coin().encode(problem, damping=0.01)[k]) for k, v in refined.items())
    other = Distillation(epochs=1, start="average", folds=2)
    other.encode(problem)
    assert set(other.chosen) == {"epochs"} and not Average().chosen  # nobody else's
    with pytest.raises(ValueError, match="only 20 samples"):
        Distillation(start=Coin(0.01), folds=50).encode(problem)
