"""A decoder that was fitted on little gets better with traffic, and never worse on what is held out."""

import numpy as np
import pytest
import torch

from coin.decoders import Alone, Answers
from coin.lab.coded import Coded
from coin.serving.learning import Learner
from coin.serving.router import Answer

NAMES = ["a", "b"]


def traffic(count, seed, drift=0.0):
    """What a coded network says, and what two experts say of the same: linear in it, and some noise."""
    rng = np.random.default_rng(seed)
    maps = np.random.default_rng(9).normal(size=(2, 4, 3))
    coded = rng.normal(size=(count, 4)).astype(np.float32)
    experts = [coded @ (m + drift) + 0.3 * rng.normal(size=(count, 3)) for m in maps]
    return coded, [expert.astype(np.float32) for expert in experts]


@pytest.fixture
def coded():
    rows, experts = traffic(6, 0)
    answers = {i: torch.from_numpy(f) for i, f in enumerate(experts)}
    fitted = Alone(features=True).fit(Answers([torch.from_numpy(rows)], answers, ((0.5, 0.5),)))
    return Coded([torch.nn.Identity()], fitted, NAMES, ((0.5, 0.5),), {})


def error(learner, name, rows, experts):
    decoded = learner.decode({"coded": torch.from_numpy(rows)}, name).numpy()
    return float(np.square(decoded - experts[NAMES.index(name)]).sum(1).mean())


def test_it_learns_and_one_expert_at_a_time(coded):
    fresh_rows, fresh = traffic(500, 2)
    learner = Learner(coded, 1.0)
    before = {name: error(learner, name, fresh_rows, fresh) for name in NAMES}
    rows, experts = traffic(400, 1)
    for i in range(400):
        learner.saw(rows[i : i + 1], Answer({"a": experts[0][i : i + 1]}, {"a": "exact"}, ["a"], 0.0))
    assert error(learner, "a", fresh_rows, fresh) < 0.7 * before["a"]
    assert error(learner, "b", fresh_rows, fresh) == pytest.approx(before["b"])
    assert learner.told()["a"]["pairs"] == 400 and learner.told()["a"]["swaps"] >= 1 and not learner.swaps["b"]


def test_what_is_decoded_teaches_nothing(coded):
    learner = Learner(coded, 1.0)
    rows, experts = traffic(1, 3)
    answer = Answer({"a": experts[0]}, {"a": "decoded"}, ["coded"], 0.0)
    assert not learner.wants(answer)
    learner.saw(rows, answer)
    assert not learner.pairs


def test_a_map_that_decodes_worse_is_not_put_in_place(coded, monkeypatch):
    learner = Learner(coded, 1.0)
    before = learner.decoders["a"]
    monkeypatch.setattr(learner, "error", lambda decoder, name: float(decoder is not before))
    rows, experts = traffic(80, 1)
    learner.saw(rows, Answer({"a": experts[0]}, {"a": "exact"}, ["a"], 0.0))
    assert learner.decoders["a"] is before and not learner.swaps


def test_a_share_of_the_queries_is_shown(coded):
    _, experts = traffic(1, 3)
    answer = Answer({"a": experts[0]}, {"a": "exact"}, ["a"], 0.0)
    learner = Learner(coded, 0.25)
    assert sum(learner.wants(answer) for _ in range(100)) == 25
    assert not Learner(coded, 0.0).wants(answer)
