"""Trials with several coded networks, with any number of experts missing, and with queries beside the samples."""

import json

import pytest
import torch
from conftest import run_script
from safetensors import safe_open

import coin
from coin.lab.evaluation import MOST_PATTERNS, absent_with
from coin.training.data import Digits
from coin.training.samples import draw, draw_queries

THREE = ("splits=3", "finetune.epochs=3", "logger=csv")


def encoded(folder, *told):
    finished = run_script("encode.py", *told, f"hydra.run.dir={folder}")
    assert finished.code == 0, finished.err
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def two_coded(digits_run, tmp_path_factory):
    """Three experts coded by two networks, with a fitted decoder."""
    folder = tmp_path_factory.mktemp("three")
    return folder, encoded(folder, *THREE, "coded=2", "decoder=ridge")


def test_several_coded_networks_are_told_left_and_decoded_from(two_coded):
    folder, results = two_coded
    assert (results["coded"], results["calls"], results["numbers"]) == (2, 4, 40)
    assert list(results["missing"]) == ["1", "2", "3"] and results["patterns"] == {"1": 3, "2": 6, "3": 3}
    assert results["missing"]["1"] == results["nda"] and len(results["generator"]) == 2
    loaded = coin.load(folder)
    assert loaded.names == ["coded1", "coded2"] and loaded.beta == loaded.generator[0]
    first, second = (network.state_dict() for network in loaded.networks)
    assert any(not torch.equal(value, second[name]) for name, value in first.items()), "they are not the same"
    x = torch.rand(4, 3, 8, 8)
    answers = {name: network(x) for name, network in zip(loaded.names, loaded.networks, strict=True)}
    for arrived in (answers, {"coded2": answers["coded2"]}, {**answers, "split3": torch.zeros(4, 10)}):
        assert torch.isfinite(loaded.decode(arrived, "split1")).all()
    with pytest.raises(ValueError, match="add its answer as 'coded1'"):
        loaded.decode({"split2": torch.zeros(4, 10)}, "split1")


@pytest.mark.parametrize("decoder", ["analytic", "alone"])
def test_as_many_experts_may_be_missing_as_the_decoder_recovers(decoder, two_coded, tmp_path):
    results = encoded(tmp_path, *THREE, "coded=2", f"decoder={decoder}", "save_coded=false")
    assert list(results["missing"]) == (["1", "2"] if decoder == "analytic" else ["1", "2", "3"])
    assert results["calls"] == (4 if decoder == "analytic" else 2)
    if decoder == "analytic":
        assert results["missing"]["2"] < results["missing"]["1"] - 1, "errors grow"
    else:
        assert len(set(results["missing"].values())) == 1, "who asks nobody else misses nobody else"


@pytest.mark.parametrize("traffic", ["true", "false"])
def test_a_decoder_is_calibrated_on_unlabelled_queries(traffic, digits_run, tmp_path):
    results = encoded(tmp_path, "decoder=alone", "calibration=150", f"traffic={traffic}", "logger=csv")
    assert results["calibration"] == 150 and results["samples"] == 200 and results["nda"] > 90
    with safe_open(tmp_path / "decoder.safetensors", "pt") as file:
        seen = {name: file.get_tensor(name) for name in file.keys() if name.startswith("group")}  # noqa: SIM118
    counts = [
        int(value) if name.endswith("count") else len(value) for name, value in seen.items() if "/gram" not in name
    ]
    assert counts.count(150) == 2, "so many queries an expert, and not the samples"


def test_queries_are_not_among_the_samples_and_traffic_is_not_scored():
    data = [Digits(labels=[0, 1, 2, 3, 4]), Digits(labels=[5, 6, 7, 8, 9])]
    samples, queries = draw(data, 100, seed=0), draw_queries(data, 200, 100, seed=0, traffic=False)
    drawn = {row.numpy().tobytes() for row in samples.inputs}
    for d, found in zip(data, queries, strict=True):
        assert len(found.inputs) == 200 and found.scored is None
        assert not drawn & {row.numpy().tobytes() for row in d.transform(found.inputs)}
    for d, found in zip(data, draw_queries(data, 150, 100, seed=0, traffic=True), strict=True):
        test = d.test_set.inputs
        scored = {row.numpy().tobytes() for row in test[found.scored]}
        assert len(found.scored) == len(test) - len(test) // 2
        assert len(scored & {row.numpy().tobytes() for row in found.inputs}) <= 1, "but for images that are there twice"
    again = draw_queries(data, 50, 100, seed=0, traffic=False)
    assert torch.equal(again[0].inputs, queries[0].inputs[:50]), "fewer are the first of more"


def test_where_patterns_are_many_a_fixed_draw_of_them_is_looked_at():
    assert absent_with(1, 4, 3) == [(0, 2), (0, 3), (2, 3)]
    drawn = absent_with(0, 10, 5)
    assert len(drawn) == MOST_PATTERNS == len(set(drawn)) and drawn == absent_with(0, 10, 5)
    assert all(len(others) == 4 and 0 not in others for others in drawn)
