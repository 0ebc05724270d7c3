"""What a run leaves behind is enough to decode with."""

import json
from pathlib import Path

import pytest
import torch
from conftest import run_script
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import coin
from coin.lab.artifacts import load_expert
from coin.training.data import Digits
from coin.training.models import Small, model_of


@pytest.fixture(scope="module")
def with_features(digits_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    finished = run_script("encode.py", "decoder=features", "logger=csv", f"hydra.run.dir={folder}")
    assert finished.code == 0, finished.err
    return folder


def answers_of(loaded):
    """Test images of the first expert, what all networks answer to them, and the labels."""
    facts = loaded.facts["experts"]
    data = Digits(labels=facts[0]["labels"])
    data.setup()
    x = data.transform(data.test_set.images)
    model = model_of(loaded.facts["model"])
    key = json.loads((Path(facts[0]["path"]) / "record.json").read_text())["recipe"]["base"]
    base = type("Base", (), {"key": key, "recipe": {"num_classes": 10}})
    experts = {e["name"]: load_expert(e["name"], e["path"], model, base, data).network for e in facts}
    with torch.no_grad():
        return {"coded": loaded.network(x)} | {name: f(x) for name, f in experts.items()}, data.test_set.labels


def test_what_asks_the_coded_network_alone_decodes_whoever_is_missing(digits_run, tmp_path):
    finished = run_script("encode.py", "code=base", "decoder=alone", "logger=csv", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0, finished.err
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["calls"], results["coded"], results["numbers"]) == (1, 1, 10 + 64)
    assert results["missing"] == {"1": results["nda"], "2": results["nda"]}
    loaded = coin.load(tmp_path)
    answers, _ = answers_of(loaded)
    assert torch.equal(loaded.decode({"coded": answers["coded"]}, "split1"), loaded.decode(answers, "split1"))


@pytest.mark.parametrize("kind", ["analytic", "features"])
def test_it_decodes_as_the_run_did(kind, digits_run, with_features):
    folder = digits_run[0] if kind == "analytic" else with_features
    loaded = coin.load(folder)
    results = json.loads((folder / "results.json").read_text())
    assert loaded.experts == ["split1", "split2"] and list(loaded.beta) == results["beta"]
    answers, target = answers_of(loaded)
    decoded = loaded.decode({name: answers[name] for name in ("coded", "split2")}, missing="split1")
    right = int((decoded.argmax(1) == target).sum())
    assert abs(right - results["experts"][0]["decoded_accuracy"] / 100 * len(target)) < 1.5  # one image, by rounding
    assert torch.equal(decoded, loaded.decode(answers, "split1")), "what the missing expert says does not count"


def test_the_file_says_what_it_is(digits_run):
    with safe_open(digits_run[0] / "coded.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["coin"])
    assert facts["model"] == {"class": "Small", "width": 16, "seed": 0, "head_scale": 1.0}
    assert facts["num_classes"] == 10 and facts["experts"][1]["labels"] == [5, 6, 7, 8, 9]
    assert facts["experts"][0]["preparation"]["image_size"] == 8
    assert facts["recipe"]["code"] == "coin" and facts["recipe"]["samples"] == 200


def test_bad_answers_and_folders_get_one_clear_sentence(digits_run, with_features, tmp_path):
    loaded = coin.load(digits_run[0])
    rows = torch.zeros(1, 10)
    for answers, missing, words in [
        ({"coded": rows}, "split3", "the experts are split1, split2"),
        ({"split2": rows}, "split1", "the coded network has not answered"),
        ({"coded": rows, "split9": rows}, "split1", "split9 answered; known are coded, split1, split2"),
        ({"coded": rows}, "split1", "needs the outputs of"),
    ]:
        with pytest.raises(ValueError, match=words):
            loaded.decode(answers, missing)
    with pytest.raises(ValueError, match="no such file; give the folder of an encode run"):
        coin.load(tmp_path)
    tensors = load_file(with_features / "coded.safetensors")
    save_file(tensors, tmp_path / "coded.safetensors")
    with pytest.raises(ValueError, match="it is of an older version"):
        coin.load(tmp_path)
    (tmp_path / "coded.safetensors").write_bytes((with_features / "coded.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"decoder.safetensors: no such file"):
        coin.load(tmp_path)
    (tmp_path / "coded.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is damaged"):
        coin.load(tmp_path)
    with pytest.raises(ValueError, match="a Nonsense, which this version does not know"):
        model_of({"class": "Nonsense"})
    assert model_of(Small(width=8).facts()) == Small(weights="none", width=8)
