"""The faults of benchmarks/faults.py, with fewer repetitions: `pytest -m slow` runs all of them."""

import json
import random
import sys

import pytest
import torch
from conftest import ROOT, run_script

sys.path.insert(0, str(ROOT))

from benchmarks import bad_inputs, faults
from coin.training.data import Digits
from coin.training.data.images import Batches, ResumableLoader
from coin.training.ranks import device_of_job

QUICK = ("hostile pickle", "damaged Fisher or outputs")  # the others take minutes


def survived(name, tmp_path, count):
    random.seed(0)
    outcome = faults.FAULTS[name][0](tmp_path, count)
    assert outcome.survived == outcome.tried >= count, outcome.notes


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_loses_nothing(name, tmp_path):
    survived(name, tmp_path, 3)


def test_a_training_killed_at_random_moments_ends_with_the_same_weights(tmp_path):
    survived("SIGKILL at a random moment of a training", tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", faults.FAULTS)
def test_every_fault_loses_nothing(name, tmp_path):
    survived(name, tmp_path, min(faults.FAULTS[name][1], 20))


@pytest.mark.slow
def test_a_hundred_bad_inputs_get_one_line_each(tmp_path):
    found = bad_inputs.run_all(tmp_path)
    cases = [case for kind in found.values() for case in kind]
    assert len(cases) >= 50
    assert not [case for case in cases if not case[1]]


def test_a_loader_goes_on_where_it_was():
    data = Digits()
    data.setup()
    loaders = [ResumableLoader(data.train_set, sampler=Batches(100, 8, seed=0), batch_size=None) for _ in range(2)]
    whole = [labels for _, labels in loaders[0]]
    assert loaders[0].state_dict() == {"done": 0}
    walk = iter(loaders[0])
    for _ in range(5):
        next(walk)
    loaders[1].load_state_dict(loaders[0].state_dict())
    rest = [labels for _, labels in loaders[1]]
    assert len(whole) == 13 and len(rest) == 8
    assert all(torch.equal(a, b) for a, b in zip(whole[5:], rest, strict=True))
    assert len(list(loaders[1])) == 13  # the next epoch is whole again


def test_logs_hold_no_environment_and_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET", "correct-horse-battery-staple")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef" * 3)
    finished = run_script("encode.py", f"hydra.run.dir={tmp_path}", f"store={tmp_path / 'store'}")
    assert finished.code == 0, finished.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("wandb" in str(path) for path in files)
    for path in files:
        raw = path.read_bytes()
        assert b"correct-horse" not in raw and b"0123456789abcdef" not in raw, path


def table_of(folder):
    """What a sweep found, whatever it cost."""
    runs = [json.loads(path.read_text()) for path in folder.glob("*/results.json")]
    return sorted((run["code"], run["seed"], run["nda"], run["coding_loss"]) for run in runs)


@pytest.mark.parametrize("launcher", ["parallel", "submitit_local"])
def test_a_sweep_with_parallel_jobs_gives_the_same_table(launcher, digits_run, tmp_path):
    sweep = ["-m", "code=coin,average", "seed=0,1", "logger=csv", "save_coded=false"]
    sweep.append("hydra.sweep.subdir=${hydra.job.override_dirname}")
    run_script("encode.py", *sweep, f"hydra.sweep.dir={tmp_path / 'serial'}")
    place = faults.Place(tmp_path / launcher)
    place.store = digits_run[1].out.split("expert split1: ")[1].split("/experts/")[0]
    code, out = place.run("encode.py", *sweep, f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path / 'many'}")
    assert code == 0, out
    serial, many = table_of(tmp_path / "serial"), table_of(tmp_path / "many")
    assert len(serial) == 4
    for a, b in zip(serial, many, strict=True):
        assert a[:3] == b[:3] and a[3] == pytest.approx(b[3], rel=1e-4)
    assert (tmp_path / "many" / "table.md").is_file()


def test_parallel_jobs_take_the_gpus_in_turn(monkeypatch):
    gpu = {"accelerator": "gpu", "devices": 1}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [device_of_job(gpu, job) for job in (0, 3, 5)] == [[0], [3], [1]]
    assert device_of_job({"accelerator": "cpu", "devices": 1}, 5) == 1
    assert device_of_job({"accelerator": "gpu", "devices": "auto"}, 5) == "auto"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_of_job(gpu, 5) == 1


@pytest.mark.parametrize(
    "switches",
    [["trainer.precision=bf16-mixed"], ["trainer.accumulate_grad_batches=2"]],
    ids=lambda switches: switches[0].split(".")[1],
)
def test_switches_of_the_trainer_work_from_training_to_decoding(switches, tmp_path):
    few = ["experts.split1.finetune.epochs=2", "experts.split2.finetune.epochs=2", "pretraining.epochs=1"]
    finished = run_script("encode.py", *few, *switches, "logger=csv", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0, finished.err
    assert json.loads((tmp_path / "results.json").read_text())["nda"] > 0


@pytest.mark.slow
def test_compiled_training_ends_near_the_same_expert(tmp_path):
    stores = [tmp_path / "plain", tmp_path / "compiled"]
    accuracies = []
    for store, compiled in zip(stores, ("false", "true"), strict=True):
        finished = run_script("train.py", f"store={store}", f"compile={compiled}", "finetune.epochs=3", "logger=csv")
        assert finished.code == 0, finished.err
        accuracies.append(json.loads(next(store.glob("experts/*/record.json")).read_text())["facts"]["accuracy"])
    assert accuracies[0] == pytest.approx(accuracies[1], abs=2)
