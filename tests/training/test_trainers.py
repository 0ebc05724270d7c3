"""One Trainer in the config, four purposes: fine-tuning has its settings to itself, and what cannot run is refused."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from conftest import composed, run_script
from safetensors.torch import load_file

from coin.training import ranks
from coin.training.trainers import check_trainer, place_of, trainer_recipe


@pytest.fixture(autouse=True)
def settled():
    yield
    ranks.settle(None)


def test_the_default_recipe_is_what_stores_hold_and_32_is_32_true():
    usual = {"precision": "32-true"}
    assert trainer_recipe(composed("train").trainer) == trainer_recipe(composed("encode").trainer) == usual
    for precision in (32, "32", "32-true", None):
        assert trainer_recipe({"precision": precision, "devices": 8, "max_steps": -1}) == usual
    said = {"precision": "bf16-mixed", "gradient_clip_val": 1.0, "limit_train_batches": None}
    assert trainer_recipe(said) == {"precision": "bf16-mixed", "gradient_clip_val": 1.0}


def test_all_but_the_fine_tuning_runs_in_float32_with_none_of_its_settings():
    config = {"accelerator": "cpu", "devices": 1, "deterministic": True}
    tuning = {"accumulate_grad_batches": 4, "precision": "bf16-mixed", "limit_predict_batches": 1, "max_steps": 3}
    assert place_of(partial(L.Trainer, **config, **tuning)).settings == {**config, "precision": "32-true"}
    assert place_of(partial(L.Trainer, **config), "bf16-mixed").settings["precision"] == "bf16-mixed"


def kept(store, kind):
    return {path.name: load_file(path / "tensors.safetensors") for path in (store / kind).iterdir() if path.is_dir()}


def test_neither_outputs_nor_students_know_how_experts_are_fine_tuned(digits_run, tmp_path):
    experts = [line.split(": ")[1] for line in digits_run[1].out.splitlines() if line.startswith("expert ")]
    given = [f"experts.split{i + 1}.path={path}" for i, path in enumerate(experts)]
    given += ["code=distillation", "code.epochs=1", "samples=40", "logger=csv"]
    stores = [tmp_path / "plain", tmp_path / "mixed"]
    settings = [[], ["trainer.precision=bf16-mixed", "trainer.accumulate_grad_batches=4", "+trainer.overfit_batches=1"]]
    for store, more in zip(stores, settings, strict=True):
        shutil.copytree(Path(os.environ["COIN_STORE"]) / "bases", store / "bases")
        finished = run_script("encode.py", *given, *more, f"store={store}", f"hydra.run.dir={store / 'run'}")
        assert finished.code == 0, finished.err
    for kind in ("bases", "outputs", "students"):
        one, other = (kept(store, kind) for store in stores)
        assert set(one) == set(other), "what is the same has one key"
        for name, tensors in one.items():
            assert all(torch.equal(value, other[name][key]) for key, value in tensors.items()), (kind, name)


def test_another_precision_of_outputs_is_asked_for_by_name_and_is_part_of_their_keys(digits_run, tmp_path):
    experts = [line.split(": ")[1] for line in digits_run[1].out.splitlines() if line.startswith("expert ")]
    given = [f"experts.split{i + 1}.path={path}" for i, path in enumerate(experts)]
    given += ["code=average", "samples=40", "logger=csv", f"store={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}"]
    shutil.copytree(Path(os.environ["COIN_STORE"]) / "bases", tmp_path / "bases")
    names = []
    for more in ([], ["coding_trainer.precision=32"], ["coding_trainer.precision=bf16-mixed"]):
        finished = run_script("encode.py", *given, *more)
        assert finished.code == 0, finished.err
        names.append(set(kept(tmp_path, "outputs")))
    assert names[0] == names[1] < names[2]
    records = [json.loads((tmp_path / "outputs" / n / "record.json").read_text()) for n in names[2] - names[0]]
    assert {record["recipe"]["trainer"]["precision"] for record in records} == {"bf16-mixed"}


BAD = {
    "trainer=gpu": "gpu",
    "trainer=ddp": "gpu",
    "trainer=gpu trainer.devices=8": "devices=8",
    "trainer.devices=0": "devices=0",
    "trainer.devices=two": "devices=two",
    "trainer.accelerator=tpu": "accelerator=tpu",
    "trainer.accelerator=abacus": "abacus",
    "+trainer.strategy=nonsense": "strategy=nonsense",
    "+trainer.strategy=ddp_spawn trainer.devices=2": "must be auto or ddp",
    "+trainer.num_nodes=text": "num_nodes=text: must be a whole number",
    "+trainer.num_nodes=0": "num_nodes=0",
    "trainer.accumulate_grad_batches=0": "at least 1",
    "trainer.deterministic=maybe": "true or false",
    "trainer.precision=16-mixed": "bf16-mixed",
    "trainer.max_steps=-7": "max_steps",
    "--multirun trainer=gpu seed=0,1": "gpu",
    "--multirun trainer.devices=2 seed=0,1": "one device each",
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU says")
@pytest.mark.parametrize("script", ["encode.py", "train.py"])
@pytest.mark.parametrize("overrides", BAD)
def test_a_trainer_that_cannot_run_here_gets_one_line_before_anything_is_made(script, overrides, tmp_path):
    more = (f"store={tmp_path / 'store'}", f"hydra.run.dir={tmp_path / 'run'}", f"hydra.sweep.dir={tmp_path / 'run'}")
    finished = run_script(script, *overrides.split(), "logger=csv", *more)
    assert finished.code == 2
    lines = [line for line in finished.err.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("error: ") and BAD[overrides] in lines[0], finished.err
    assert not (tmp_path / "store").exists() and not list(tmp_path.rglob("results.json"))


def test_what_encode_alone_has_is_checked_too(tmp_path):
    finished = run_script("encode.py", "coding_trainer.precision=7", f"hydra.run.dir={tmp_path}")
    assert finished.code == 2 and "coding_trainer.precision=7: must be one of" in finished.err


def test_several_devices_make_a_distributed_run_and_one_does_not(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    one = check_trainer(partial(L.Trainer, accelerator="cpu", devices=1))
    assert ranks.is_first() and not ranks.is_distributed() and one(logger=False).global_rank == 0
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    for settings in ({"devices": 2}, {"devices": 2, "strategy": "ddp"}):
        check_trainer(partial(L.Trainer, accelerator="cpu", **settings))
        assert ranks.is_distributed() and not ranks.is_first()
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "3")
    with pytest.raises(ValueError, match="ntasks-per-node=3"):
        check_trainer(partial(L.Trainer, accelerator="cpu", devices=2))
