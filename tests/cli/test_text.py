"""Sentences through the commands: train.py, encode.py and coin.load, on a small encoder."""

import json

import pytest
import torch
from conftest import run_script

import coin


@pytest.fixture
def told(bert, text_root, tmp_path):
    return [f"data.root={text_root}", f"model.weights={bert}", f"store={tmp_path / 'store'}", "logger=csv"]


def test_sentences_are_coded_and_decoded(told, bert, tmp_path):
    folder = tmp_path / "run"
    said = ["experiment=trec_sst2", "samples=24", "finetune.epochs=1", "finetune.learning_rate=1e-3"]
    finished = run_script("encode.py", *told, *said, "decoder=features", "tuning=divergence", f"hydra.run.dir={folder}")
    assert finished.code == 0, finished.err
    results = json.loads((folder / "results.json").read_text())
    assert [expert["name"] for expert in results["experts"]] == ["trec", "sst2"]
    assert results["numbers"] == 6 + 16 + 6  # outputs and features of the coded network, outputs of the other expert
    loaded = coin.load(folder)
    assert loaded.facts["num_classes"] == 6  # the most that an expert has
    assert loaded.facts["experts"][0]["preparation"] == {"tokenizer": str(bert), "longest": None, "padding": 0}
    sentence = {"input_ids": torch.tensor([[2, 5, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    answers = {"coded": loaded.network(**sentence), "sst2": torch.zeros(1, 6)}
    assert loaded.decode(answers, missing="trec").shape == (1, 6)


@pytest.mark.parametrize("code", ["distillation", "coin_kfac", "task_arithmetic"])
def test_other_codes_take_sentences_too(told, tmp_path, code):
    said = [f"code={code}", "samples=12", "finetune.epochs=1", f"hydra.run.dir={tmp_path / 'run'}"]
    finished = run_script("encode.py", "experiment=trec_sst2", *told, *said)
    assert finished.code == 0, finished.err


REFUSED = {
    "data=digits": "digits is made of images, and model bert_2x16 reads sentences",
    "model=small_resnet": "trec is made of sentences, and model small_resnet reads images",
    "data.longest=2": "must be at least 3 tokens",
    "data.labels=[6]": "trec has the labels 0 to 5",
    "data.tokenizer=NOWHERE": "no such folder",
    "model.weights=NOWHERE": "no folder of a Hugging Face model",
}


@pytest.mark.parametrize("word", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(told, tmp_path, bert, word):
    model = "data.tokenizer" if word.startswith("model=") else "model.weights"
    said = [model + "=" + str(bert) if value.startswith("model.weights=") else value for value in told]
    choice = [] if word.startswith("model=") else ["model=hf_text"]
    choice += [] if word.startswith("data=") else ["data=trec"]
    finished = run_script("train.py", *choice, *said, word, f"hydra.run.dir={tmp_path / 'run'}")
    assert finished.code == 2 and REFUSED[word] in finished.err
    assert len(finished.err.strip().splitlines()) == 1
    assert not (tmp_path / "store").exists()
