"""The faults of benchmarks/faults.py, with fewer repetitions: `pytest -m slow` runs all of them."""

import json
import os
import random
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, run_script

from benchmarks import bad_inputs, faults
from coin.training.data import Digits
from coin.training.data.sets import Batches, ResumableLoader
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


def table_of(folder):
    """What a sweep found, whatever it cost."""
    runs = [json.loads(path.read_text()) for path in folder.glob("*/results.json")]
    return sorted(runs, key=lambda run: (run["code"], run["seed"]))


@pytest.fixture(scope="module")
def serial_sweep(digits_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    assert run_script("encode.py", *SWEEP, f"hydra.sweep.dir={folder}").code == 0
    return table_of(folder)


# the divergence is continuous: rounding does not choose λ
SWEEP = ["-m", "code=coin,average", "seed=0,1", "tuning=divergence", "logger=csv", "save_coded=false"]
SWEEP.append("hydra.sweep.subdir=${hydra.job.override_dirname}")


@pytest.mark.parametrize("launcher", ["parallel", "submitit_local"])
def test_a_sweep_with_parallel_jobs_gives_the_same_table(launcher, serial_sweep, tmp_path):
    command = [sys.executable, "encode.py", *SWEEP, f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    many = table_of(tmp_path)
    assert len(serial_sweep) == len(many) == 4
    for a, b in zip(serial_sweep, many, strict=True):
        assert all(a[key] == b[key] for key in ("code", "seed", "hyperparameters"))
        assert a["coding_loss"] == pytest.approx(b["coding_loss"], rel=1e-3)
        for one, other in zip(a["experts"], b["experts"], strict=True):  # workers of one thread round otherwise
            assert one["decoded_accuracy"] == pytest.approx(other["decoded_accuracy"], abs=0.5), "two of 449 images"
    assert (tmp_path / "table.md").is_file()


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
    few = ["finetune.epochs=2", "pretraining.epochs=1"]
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
