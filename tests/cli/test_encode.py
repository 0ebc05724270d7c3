"""The two commands, as a user runs them."""

import copy
import json
import os
from pathlib import Path

import pytest
import torch
from conftest import run_script, shown_in_the_readme
from hydra.errors import ConfigCompositionException
from safetensors.torch import load_file, save_file

import coin
from coin.lab.console import message

EXPERT_KEYS = {"name", "accuracy", "decoded_accuracy", "nda"}


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_results_say_how_far_the_experts_went(digits_run):
    found = results_of(digits_run[0])
    first, second = (expert["distance"] for expert in found["experts"])
    assert abs(first - second) <= found["distance"] <= first + second and min(first, second) > 0
    assert all(expert["logit_sd"] > 0 for expert in found["experts"])


def test_the_first_command_decodes_two_experts(digits_run):
    folder, finished = digits_run
    results = results_of(folder)
    assert results["code"] == "coin" and results["experiment"] == "digits"
    assert (results["seed"], results["samples"], results["beta"]) == (0, 200, [0.5, 0.5])
    assert results["hyperparameters"]["damping"] in [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert len(results["experts"]) == 2 and all(set(expert) >= EXPERT_KEYS for expert in results["experts"])
    for expert in results["experts"]:
        assert expert["accuracy"] > 90
        assert expert["nda"] == pytest.approx(100 * expert["decoded_accuracy"] / expert["accuracy"], rel=1e-4)
    assert results["nda"] == pytest.approx(sum(e["nda"] for e in results["experts"]) / 2)
    assert results["coding_loss"] > 0 and results["seconds"]["encode"] > 0
    for words in ("split1", "split2", "average", "NDA", str(folder), "wandb sync"):
        assert words in finished.out


def test_the_first_command_prints_what_the_readme_shows(digits_run):
    """To the point that results/demonstration finds over threads, kernels and training seeds."""
    damping, shown = shown_in_the_readme()
    results = results_of(digits_run[0])
    assert results["hyperparameters"]["damping"] == damping
    assert results["nda"] == pytest.approx(shown["average"][2], abs=1)
    for expert in results["experts"]:
        assert expert["accuracy"] == pytest.approx(shown[expert["name"]][0], abs=1)


def test_experts_are_brought_nearer_to_the_base_model(digits_run, tmp_path):
    finished = run_script("encode.py", "stretch=0.5", f"hydra.run.dir={tmp_path}", "logger=csv", "train_missing=false")
    assert finished.code == 0, finished.err
    near, far = results_of(tmp_path), results_of(digits_run[0])
    assert near["distance"] == pytest.approx(far["distance"] / 2, rel=1e-4)
    for one, other in zip(near["experts"], far["experts"], strict=True):
        assert one["distance"] == pytest.approx(other["distance"] / 2, rel=1e-4)
        assert 0 < one["decoding_error"] < other["decoding_error"] and one["margin"] < other["margin"]
    finished = run_script("encode.py", "stretch=far", f"hydra.run.dir={tmp_path / 'bad'}")
    assert finished.code == 2 and "stretch=far: must be a number" in finished.err


def test_a_student_is_trained_once_for_all_decoders(digits_run, tmp_path):
    students = []
    for decoder in ("analytic", "features"):
        finished = run_script(
            "encode.py", "code=distillation", "code.epochs=2", f"decoder={decoder}", f"hydra.run.dir={tmp_path}"
        )
        assert finished.code == 0, finished.err
        students.append(sorted((Path(os.environ["COIN_STORE"]) / "students").iterdir()))
    assert students[0] == students[1]


def test_what_has_no_default_is_asked_for(tmp_path):
    finished = run_script("train.py", "~finetune.epochs", "+finetune.epochs=???", f"store={tmp_path}", "logger=csv")
    assert finished.code == 2
    assert "error: finetune.epochs has no default; add finetune.epochs=… to the command" in finished.err


def test_the_coded_network_is_left_complete(digits_run):
    folder, _ = digits_run
    coded = load_file(folder / "coded.safetensors")
    assert "fc.weight" in coded and "stem.1.running_mean" in coded


def test_again_it_reuses_everything_and_says_the_same(digits_run, tmp_path):
    first, _ = digits_run
    finished = run_script("encode.py", f"hydra.run.dir={tmp_path}", "logger=csv", "train_missing=false")
    assert finished.code == 0, finished.err
    assert "Epoch" not in finished.out
    one, two = results_of(first), results_of(tmp_path)
    for results in (one, two):
        results.pop("seconds"), results.pop("overrides")
    assert one == two


@pytest.fixture(scope="module")
def from_scratch(digits_run, tmp_path_factory):
    """The first command again, with an empty store and two secrets in its environment."""
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("A_SECRET", "correct-horse-battery-staple")
        patched.setenv("WANDB_API_KEY", "0123456789abcdef" * 3)
        finished = run_script("encode.py", f"hydra.run.dir={folder / 'run'}", f"store={folder / 'store'}")
    assert finished.code == 0, finished.err
    return folder


def test_from_scratch_the_same_config_gives_the_same_numbers(digits_run, from_scratch):
    one, two = results_of(digits_run[0]), results_of(from_scratch / "run")
    for results in (one, two):
        results.pop("seconds"), results.pop("overrides")
    assert one == two


def test_logs_hold_no_environment_and_no_key(from_scratch):
    files = [path for path in from_scratch.rglob("*") if path.is_file()]
    assert any("wandb" in str(path) for path in files)
    for path in files:
        raw = path.read_bytes()
        assert b"correct-horse" not in raw and b"0123456789abcdef" not in raw, path


def test_train_makes_the_expert_that_encode_uses(digits_run):
    finished = run_script("train.py", "data.labels=[0,1,2,3,4]", "logger=csv")
    assert finished.code == 0, finished.err
    assert "digits-0-4-small_resnet" in finished.out and "Epoch" not in finished.out


def test_unequal_weights_and_another_code(digits_run, tmp_path):
    finished = run_script(
        "encode.py", "code=average", "beta=[0.7,0.3]", "samples=20", "logger=csv", f"hydra.run.dir={tmp_path}"
    )
    assert finished.code == 0, finished.err
    results = results_of(tmp_path)
    assert results["beta"] == [0.7, 0.3] and results["samples"] == 20 and results["hyperparameters"] == {}


@pytest.mark.parametrize("script", ["encode.py", "train.py"])
def test_help_fits_a_screen(script):
    finished = run_script(script, "--help")
    assert finished.code == 0
    assert len(finished.out.splitlines()) <= 40
    for words in (
        "data.labels" if script == "train.py" else "samples=",
        "store=DIR",
        "model:",
        "resnet50",
        "small_resnet",
    ):
        assert words in finished.out


BAD = {
    "beta=[0.5,0.6]": "sum to 1.1",
    "beta=[-0.5,1.5]": "must be positive",
    "beta=[1.0]": "1 weights for 2 experts",
    "samples=1": "at least one sample each",
    "samples=1000000": "training images",
    "experts.split1.data.labels=[0,11]": "labels 0 to 9",
    "experts.split1.data.labels=[]": "labels 0 to 9",
    "code=nonsense": "average",
    "model=nonsense": "resnet50",
    "experiment=nonsense": "cifar10_mnist",
    "code.damping=0": "must be a positive number",
    "code.damping=-0.1": "must be a positive number",
    "code.damping=nan": "must be a positive number",
    "code.damping=inf": "must be a positive number",
    "code.dampening=1": "dampening",
    "model.weights=/no/such/file.pth": "no such file",
    "model.weights=imagenet": "torchvision has none",
    "experts.split1.path=/no/such/folder": "no such file or folder",
    "data.image_size=0": "1 to 4096",
    "experts.split1.finetune.epochs=0": "at least 1",
    "experts.split1.finetune.learning_rate=-1": "must be positive",
    "finetune.learning_rate=-1": "must be positive",
    "splits=11": "at most 10",
    "splits=0": "at least 2",
    "experts=[]": "there are no experts",
    "experts=[digits,nonsense]": "nonsense",
    "experts.split9.path=x": "there is no such expert",
    "experts.split1.pth=x": "pth",
    "experts.split1=x": "such as experts.split1.path=PATH",
    "experts.split1=null": "such as experts.split1.path=PATH",
    "experts.split1.data=5": "experts.split1.data=5: has settings of its own",
    "fisher=probes fisher.probes=0": "at least 1",
    "coded=2": "must be less than the 2 experts",
    "splits=3 generator=[[0.5,0.5,0.0]]": "every weight must be positive",
    "splits=3 generator=[[0.5,0.7,-0.2]]": "every weight must be positive",
    "splits=3 generator=[[0.5,0.5]]": "2 weights for 3 experts",
    "splits=3 coded=2 generator=[[0.5,0.3,0.2]]": "generator has 1 rows",
    "splits=3 generator=[[0.2,0.3,0.5],[0.2,0.3,0.5]]": "do not tell them apart",
    "calibration=5000": "give at most as many",
    "calibration=300 traffic=true": "half of the test images",
    "calibration=-1": "0 for none",
    "traffic=true": "give their number",
    "decoder=alone decoder.copies=-1": "0 for none",
}


@pytest.mark.parametrize("override", BAD)
def test_bad_input_gets_one_line_and_leaves_nothing(override, digits_run, tmp_path):
    finished = run_script("encode.py", *override.split(), "logger=csv", f"hydra.run.dir={tmp_path / 'run'}")
    assert finished.code == 2
    lines = [line for line in finished.err.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("error: "), finished.err
    assert BAD[override] in lines[0]
    assert "Traceback" not in finished.out + finished.err
    assert not (tmp_path / "run" / "results.json").exists()
    assert not (tmp_path / "run" / "coded.safetensors").exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [("data.labels=[0,10]", "labels 0 to 9"), ("data=nonsense", "cifar10"), ("model=nonsense", "small_resnet"),
     ("data.batch_size=0", "at least 1"), ("+model.nonsense=1", "nonsense")],
)  # fmt: skip
def test_bad_input_to_train(override, words):
    finished = run_script("train.py", override, "logger=csv")
    assert finished.code == 2 and finished.err.startswith("error: ") and words in finished.err
    assert finished.err.count("\n") == 1


def spoiled(digits_run, change):
    path = digits_run[1].out.split("expert split1: ")[1].split()[0]
    tensors = load_file(Path(path) / "tensors.safetensors")
    change(tensors)
    return tensors


def nan(tensors):
    tensors["fc.bias"][0] = float("nan")


def other_batch_norm(tensors):
    tensors["stem.1.running_mean"] += 1


def other_shape(tensors):
    tensors["fc.weight"] = torch.zeros(3, 3)


def lacking(tensors):
    del tensors["fc.weight"]


@pytest.mark.parametrize(
    ("change", "words"),
    [(nan, "NaN or infinite weights in fc.bias"), (other_batch_norm, "stem.1.running_mean"),
     (other_shape, "fc.weight (3, 3)"), (lacking, "lacks fc.weight")],
)  # fmt: skip
def test_bad_experts_are_refused(change, words, digits_run, tmp_path):
    save_file(spoiled(digits_run, change), tmp_path / "expert.safetensors")
    finished = run_script("encode.py", f"experts.split1.path={tmp_path / 'expert.safetensors'}", "logger=csv")
    assert finished.code == 2 and words in finished.err, finished.err


def test_an_expert_of_another_base_is_refused(digits_run):
    finished = run_script(
        "train.py", "data.labels=[0,1,2,3,4]", "model.weights=none", "logger=csv", "finetune.epochs=1"
    )
    path = finished.out.split("expert: ")[1].split()[0]
    refused = run_script("encode.py", f"experts.split1.path={path}", "logger=csv")
    assert refused.code == 2 and "share one base model" in refused.err


def test_an_expert_made_elsewhere_is_taken(digits_run, tmp_path):
    tensors = spoiled(digits_run, lambda t: None)
    torch.save(copy.deepcopy(tensors), tmp_path / "expert.pth")
    finished = run_script(
        "encode.py", f"experts.split1.path={tmp_path / 'expert.pth'}", "logger=csv", f"hydra.run.dir={tmp_path / 'run'}"
    )
    assert finished.code == 0, finished.err
    assert results_of(tmp_path / "run")["nda"] == results_of(digits_run[0])["nda"]


@pytest.mark.parametrize(("plugin", "extra"), [("joblib", "parallel"), ("submitit_slurm", "slurm")])
def test_a_launcher_that_is_not_installed_says_how_to_get_it(plugin, extra):
    error = ConfigCompositionException(f"In 'hydra/launcher/{extra}': Could not load 'hydra/launcher/{plugin}'.")
    assert message(error).endswith(f"pip install -e '.[{extra}]'")


def test_a_limit_of_steps_is_the_experts_alone(digits_run, tmp_path):
    """θ_0 stays, a student gets all its steps, and an expert that ended within an epoch is judged at its end."""
    bases = sorted((Path(os.environ["COIN_STORE"]) / "bases").iterdir())
    args = ("trainer.max_steps=35", "code=distillation", "code.epochs=3")
    finished = run_script("encode.py", *args, f"hydra.run.dir={tmp_path}", "logger=csv")
    assert finished.code == 0, finished.err
    assert sorted((Path(os.environ["COIN_STORE"]) / "bases").iterdir()) == bases
    results = results_of(tmp_path)
    assert len(results["history"]) == 3  # 75 steps
    folders = [line.split(": ")[1] for line in finished.out.splitlines() if line.startswith("expert ")]
    for folder, expert in zip(folders, results["experts"], strict=True):
        accuracy = json.loads((Path(folder) / "record.json").read_text())["facts"]["accuracy"]
        assert accuracy == pytest.approx(
            expert["accuracy"], abs=0.3
        )  # one of 449 images: other batches round otherwise


@pytest.mark.parametrize("statistics", ["average", "samples"])
def test_experts_that_trained_batch_norm_are_coded(tmp_path, statistics):
    told = ["finetune.batch_norm=trained", "finetune.epochs=1", f"batch_statistics={statistics}", "code=average"]
    finished = run_script("encode.py", *told, "logger=csv", f"hydra.run.dir={tmp_path}", "samples=40")
    assert finished.code == 0, finished.err
    assert coin.load(tmp_path).network.stem[1].running_mean.isfinite().all()
