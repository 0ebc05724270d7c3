"""Real processes: independent tasks of a launcher, and ranks that lose their first or cannot see its store."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch
from conftest import ROOT

from coin.lab.store import LONGEST, Store, shortened
from coin.training.ranks import device_of_job

LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PL_GLOBAL_SEED", "COIN_RUN")


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if k not in LAUNCHED and not k.startswith(("SLURM", "MASTER"))}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def srun(task):
    """What `srun -n4` sets."""
    return {
        "SLURM_JOB_ID": "17", "SLURM_JOBID": "17", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4",
        "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task), "SLURM_NODEID": "0", "SLURM_NNODES": "1",
        "SLURM_NODELIST": "node1", "SLURM_JOB_NAME": "python",
    }  # fmt: skip


def torchrun(task):
    return {"RANK": str(task), "LOCAL_RANK": str(task), "WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("launcher", "tasks"), [(srun, (0, 1, 2, 3)), (torchrun, (0, 3))], ids=["srun", "RANK"])
def test_independent_tasks_of_a_launcher_each_leave_their_results(launcher, tasks, tmp_path):
    few = ["encode.py", "model.weights=none", "samples=20", "code=average", "logger=csv", f"store={tmp_path / 'store'}"]
    few += ["finetune.epochs=1"]
    started = []
    for task in tasks:
        command = [sys.executable, *few, f"seed={task}", f"hydra.run.dir={tmp_path / str(task)}"]
        own = environment(**launcher(task))
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    for task, process in zip(tasks, started, strict=True):
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 0, out[-2000:]
        assert json.loads((tmp_path / str(task) / "results.json").read_text())["seed"] == task
        assert f"results: {tmp_path / str(task)}" in out, "each is the first of its own run, and speaks"
        assert list((tmp_path / str(task)).rglob("metrics.csv")), "and logs"


RANK = """
import sys, time, torch
from coin.training import ranks
from coin.lab.console import one_line_errors
from coin.lab.store import Store
rank, root = int(sys.argv[1]), sys.argv[2]

def make(scratch):
    print("making", flush=True)
    time.sleep(600)

with one_line_errors():
    ranks.settle(rank)
    Store(root).obtain("bases", "a", {}, make, alone=True)
"""


def start(rank, root):
    own = environment(COIN_RUN="test", COIN_STORE_SECONDS="3" if rank else "60")
    command = [sys.executable, "-c", RANK, str(rank), str(root)]
    return subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_rank_that_waits_ends_when_the_first_dies_and_one_with_another_store_at_once(tmp_path):
    first = start(0, tmp_path / "shared")
    try:
        assert first.stdout.readline() == "making\n"
        waiting, elsewhere = start(1, tmp_path / "shared"), start(1, tmp_path / "elsewhere")
        _, said = elsewhere.communicate(timeout=120)
        assert elsewhere.returncode == 2 and said.count("\n") == 1
        assert f"store={tmp_path / 'elsewhere'}: " in said and "a folder that all nodes share" in said
        time.sleep(2)
        assert waiting.poll() is None, "rank 0 lives: what takes long is waited for"
    finally:
        first.kill()
        first.communicate()
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 1 and said.strip().endswith("the first process of this run has ended; it says why")


def test_tasks_side_by_side_take_the_gpus_in_turn(monkeypatch):
    gpu = {"accelerator": "gpu", "devices": 1}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    assert device_of_job(gpu) == [0] and device_of_job(gpu, 6) == [2]
    monkeypatch.setenv("SLURM_LOCALID", "3")
    assert device_of_job(gpu) == [3] and device_of_job({**gpu, "strategy": "ddp"}) == 1


def test_long_names_are_short_enough_for_files_and_short_ones_stay(tmp_path):
    fits = "a" * LONGEST
    assert shortened(fits) == fits
    classes = "image_folder-" + ".".join(map(str, range(0, 1000, 2))) + "-resnet50"
    others = classes.replace(".500.", ".501.")
    names = {shortened(name) for name in (classes, others)}
    assert len(names) == 2 and all(len(name) <= LONGEST and name.startswith("image_folder-0.2.4") for name in names)
    assert all(name.endswith("-resnet50") for name in names)
    store = Store(tmp_path)
    for name in (fits, classes, "-".join(["image_folder-0-4"] * 20)):
        made = store.obtain("students", name, {"of": name}, lambda scratch: ({"x": torch.ones(1)}, {}))
        assert store.find("students", name, {"of": name}).path == made.path
