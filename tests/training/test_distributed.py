"""Real processes: what comes out does not depend on how many there are.

Ranks add in another order, so everything is equal up to float32 rounding, and training amplifies rounding: weights are
compared by norms, accuracies by counting images.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from safetensors.torch import load_file

import coin

# a single sample is left for the last batch, of one expert in training and of the other in its test: rank 1 has none
FEW = ["experts.split1.data.batch_size=41", "experts.split2.data.batch_size=64", "samples=51", "finetune.epochs=6"]
# candidates far apart, judged by what is continuous: rounding does not choose
TUNED = ["code=coin_balanced", "decoder=features", "tuning=coding_loss", "code.grid=[1e-3,1]", "code.scales=[1,2]"]
STUDENT = ["code=distillation", "code.epochs=3"]


def start(folder, *overrides):
    command = [
        sys.executable,
        "encode.py",
        "logger=csv",
        f"store={folder / 'store'}",
        f"hydra.run.dir={folder / 'run'}",
    ]
    ranks = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "PL_GLOBAL_SEED")
    environment = {k: v for k, v in os.environ.items() if k not in ranks} | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *FEW, *overrides],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, folder):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out[-4000:]
    return folder, json.loads((folder / "run" / "results.json").read_text()), out


def at_once(folders, commands):
    """Both of a comparison side by side: most of the time they import."""
    started = [start(folder, *command) for folder, command in zip(folders, commands, strict=True)]
    return [finish(process, folder) for process, folder in zip(started, folders, strict=True)]


@pytest.fixture(scope="module")
def trained(digits_run, tmp_path_factory):
    """Experts from one θ_0, trained, coded and decoded by one rank and by two."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    store = Path(os.environ["COIN_STORE"])
    expert = coin.load(digits_run[0]).facts["experts"][0]
    base = json.loads((Path(expert["path"]) / "record.json").read_text())["recipe"]["base"]  # other tests make others
    for folder in folders:
        shutil.copytree(store / "bases" / base, folder / "store" / "bases" / base)
    return at_once(folders, [[*TUNED, "trainer=cpu"], [*TUNED, "trainer=ddp_cpu"]])


@pytest.fixture(scope="module")
def recoded(trained, tmp_path_factory):
    """The experts that one rank trained, taken by one rank and by two."""

    def copied(name):
        folder = tmp_path_factory.mktemp(name)
        for kind in ("bases", "experts"):
            shutil.copytree(trained[0][0] / "store" / kind, folder / "store" / kind)
        return folder

    student = at_once([copied("one"), copied("two")], [[*STUDENT, "trainer=cpu"], [*STUDENT, "trainer=ddp_cpu"]])
    two = copied("coded")
    return {"coded": (trained[0], finish(start(two, *TUNED, "trainer=ddp_cpu"), two)), "student": student}


def tensors(folder, kind, name=""):
    (path,) = [p for p in (folder / "store" / kind).glob(f"{name}*") if p.is_dir() and not p.name.startswith(".")]
    return load_file(path / "tensors.safetensors")


def difference(one, two):
    """‖one − two‖ / ‖one‖ over all tensors."""
    apart = sum(float((two[key].double() - value.double()).square().sum()) for key, value in one.items())
    return (apart / sum(float(value.double().square().sum()) for value in one.values())) ** 0.5


def images_apart(one, two, test_images=449):
    """By how many of an expert's test images the two differ at most: right by itself, or right when decoded."""
    return max(
        abs(a[key] - b[key]) / 100 * test_images
        for a, b in zip(one["experts"], two["experts"], strict=True)
        for key in ("accuracy", "decoded_accuracy")
    )


def test_experts_trained_on_two_ranks_are_those_of_one(trained):
    (first, one, _), (second, two, out) = trained
    assert min(expert["accuracy"] for expert in one["experts"]) > 80  # they have learnt something
    base = tensors(first, "bases")
    for name in ("digits-0-4", "digits-5-9"):
        a, b = (tensors(folder, "experts", name) for folder in (first, second))
        went = {key: value - base[key] for key, value in a.items()}
        assert difference(went, {key: value - base[key] for key, value in b.items()}) < 0.02
        assert difference(tensors(first, "fishers", name), tensors(second, "fishers", name)) < 0.02
    assert images_apart(one, two) < 5
    assert out.count("results: ") == 1  # rank 0 alone speaks


@pytest.mark.parametrize("code", ["coded", "student"])
def test_the_same_experts_are_coded_and_decoded_alike_by_one_rank_and_two(code, recoded):
    (first, one, _), (second, two, out) = recoded[code]
    assert two["hyperparameters"] == one["hyperparameters"]
    for a, b in zip(one["candidates"], two["candidates"], strict=True):
        assert b["coding_loss"] == pytest.approx(a["coding_loss"], rel=1e-3)
    assert difference(*(load_file(folder / "run" / "coded.safetensors") for folder in (first, second))) < 1e-4
    assert images_apart(one, two) < 2
    if code == "coded":
        a, b = tensors(first, "fishers", "digits-0-4"), tensors(second, "fishers", "digits-0-4")
        assert difference(a, b) < 1e-5
    assert out.count("results: ") == 1
