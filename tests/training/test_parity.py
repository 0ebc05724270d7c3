import json
import os
from pathlib import Path

import pytest
import torch
from conftest import run_script
from problems import experts
from torch import nn

from coin.codes import Average
from coin.problem.coding import Coding
from coin.problem.training_set import TrainingSet
from coin.problem.tuning import Tuner
from coin.training.parity import Parity
from coin.training.prediction import Inputs
from coin.training.students import Lessons, StudentData


def halved(images):
    return images.float() / 2


def as_they_are(images):
    return images.float()


def problem():
    """Two experts, each with training data of its own and another way to prepare them."""
    base, found = experts(2, make=lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    networks = [network.float() for network in (base, *found)]
    raw = [torch.randint(0, 4, (60, 4), dtype=torch.uint8), torch.randint(0, 3, (45, 4), dtype=torch.uint8)]
    data = [TrainingSet(raw[0], halved, {"name": "a"}), TrainingSet(raw[1], as_they_are, {"name": "b"})]
    inputs = torch.cat([part.transform(part.inputs) for part in data])
    coding = Coding(networks[1:], (0.7, 0.3), [inputs[::9]], base=networks[0])
    coding.training_sets = lambda: data
    return coding, inputs


def test_a_parity_model_learns_the_experts_average_on_all_their_images():
    coding, inputs = problem()
    code = Parity(epochs=40, learning_rate=1e-2, batch_size=16)
    tuned = Tuner("coding_loss").tune(code, coding)
    every = Coding(coding.experts, coding.beta, [inputs], base=coding.base)
    losses = [every.loss(params) for params in (tuned.params[0], Average().encode(coding), coding.base_params)]
    assert losses[0] < min(losses[1:]) / 2
    assert code.chosen == {"images": 105, "epochs": 40}
    again = Parity(epochs=40, learning_rate=1e-2, batch_size=16)
    assert all(torch.equal(value, again.encode(coding)[name]) for name, value in tuned.params[0].items())
    assert again.chosen == code.chosen


def test_it_starts_from_the_base_or_the_average():
    coding, _ = problem()
    for start, params in (("base", coding.base_params), ("average", Average().encode(coding))):
        found = Parity(epochs=1, learning_rate=1e-9, start=start).encode(coding)
        for name, value in params.items():
            torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match=r"code\.start=coin: must be base or average"):
        Parity(start="coin")
    with pytest.raises(ValueError, match=r"code\.epochs=0"):
        Parity(epochs=0)


def test_a_problem_without_training_sets_is_refused():
    coding, _ = problem()
    coding.training_sets = None
    with pytest.raises(ValueError, match="all training images of all experts, and this problem has none"):
        Parity().encode(coding)


def test_a_batch_of_several_sources_is_prepared_by_each_ones_own_transform():
    first, second = torch.arange(5, dtype=torch.uint8)[:, None], torch.arange(10, 13, dtype=torch.uint8)[:, None]
    sources = [Inputs(first, halved), Inputs(second, as_they_are)]
    target = torch.tensor([0, 0.5, 1, 1.5, 2, 10, 11, 12])[:, None]  # what the inputs are when prepared
    lessons = Lessons(sources, target)
    assert len(lessons) == 8
    data = StudentData(sources, target, batch_size=3, seed=0)
    for numbers in ([6, 1, 4], [0], [7, 5], []):
        inputs, wanted = data.on_after_batch_transfer(lessons[numbers], 0)
        assert torch.equal(inputs, wanted) and len(inputs) == len(numbers)
        assert sorted(wanted.flatten().tolist()) == sorted(target[numbers].flatten().tolist())


def test_it_is_trained_once_whatever_the_samples_and_the_decoder(digits_run, tmp_path):
    """A real Trainer on the digits, and it is better than a student of few samples would be after an epoch."""
    ways = [("analytic", 0), ("features", 0), ("analytic", 1)]
    kept = Path(os.environ["COIN_STORE"]) / "parities"
    for decoder, seed in ways:
        run = ["code=parity", "code.epochs=8", f"decoder={decoder}", f"seed={seed}", "logger=csv"]
        finished = run_script("encode.py", *run, f"hydra.run.dir={tmp_path / f'{decoder}{seed}'}")
        assert finished.code == 0, finished.err
        assert len(list(kept.glob("digits-*"))) == 1
    found = [json.loads((tmp_path / f"{d}{s}" / "results.json").read_text()) for d, s in ways]
    for results in found:
        assert results["hyperparameters"] == {"images": 899, "epochs": 8}
        assert results["seconds"]["statistics"] == found[0]["seconds"]["statistics"] > 0
    assert found[0]["nda"] > 90
