"""Every YAML file composes, and what it describes can be built."""

from pathlib import Path

import pytest
from conftest import composed
from hydra.utils import instantiate
from omegaconf import OmegaConf

from coin.cli.configs import CONF, arguments, classes_in
from coin.problem.recipes import recipe_of

GROUPED = sorted(p.relative_to(CONF) for p in CONF.rglob("*.yaml") if p.parent != CONF and "hydra" not in p.parts)
INSTANTIATED = ("code", "data", "finetune", "fisher", "model", "pretraining", "trainer", "decoder", "tuning", "serve")


def script_for(path: Path) -> str:
    if path.parts[0] == "serve":
        return "serve"
    return "train" if path.parts[0] in ("data", "finetune") else "encode"


@pytest.mark.parametrize("path", GROUPED, ids=str)
def test_every_option_composes_and_instantiates(path, tmp_path, request):
    group, option = "/".join(path.parts[:-1]), path.stem
    overrides = [f"{group}={option}"]
    if group == "model" and option.startswith("resnet"):
        overrides.append("model.weights=none")
    if path.stem == "hf_text":
        overrides.append(f"model.weights={request.getfixturevalue('bert')}")
    if path.stem.startswith("text_file") and group != "finetune":
        (tmp_path / "own.tsv").write_text("a\tgood\nb\tbad\n")
        overrides += [f"data.{part}={tmp_path / 'own.tsv'}" for part in ("train", "test")]
    config = composed(script_for(path), *overrides)
    OmegaConf.resolve(config)
    if option == "image_folder":
        for label in "ab":
            (tmp_path / label).mkdir()
        config.data.root = str(tmp_path)
    if group in INSTANTIATED:
        assert instantiate(config[group]) is not None
    if group == "experiment" and option != "image_folder_splits":  # its images are the user's to give
        experts = instantiate(config.experts, _convert_="all")
        classes = {"trec_sst2": [6, 2], "text_file_splits": [2, 2]}.get(option, [10, 10])
        assert [source.data.num_classes for source in experts.values()] == classes
    if group == "code":
        assert instantiate(config.code).candidates()


def own_class(path):
    """The class a file is for, its own or that of the file it starts from, and what the file itself says."""
    said = dict(OmegaConf.to_container(OmegaConf.load(path)))
    listed = said.pop("defaults", [])
    found = list(classes_in(path)) or [own_class(path.with_name(f"{e}.yaml"))[0] for e in listed if isinstance(e, str)]
    return found[0] if found else None, said


CLASSES = [path for path in GROUPED if own_class(CONF / path)[0]]


def test_every_config_of_a_class_of_ours_takes_its_defaults():
    others = {"trainer", "logger", "experiment", "hydra"}  # Lightning's, functions, and collections of the others
    assert not [path for path in GROUPED if path not in CLASSES and path.parts[0] not in others]


@pytest.mark.parametrize("path", CLASSES, ids=str)
def test_a_default_stands_in_the_class_and_no_file_repeats_it(path):
    name, said = own_class(CONF / path)
    defaults = arguments(name)
    repeated = [key for key, value in said.items() if value == defaults[key] and type(value) is type(defaults[key])]
    assert not repeated, f"{path} repeats what {name} assumes: {repeated}"
    assert "_target_" not in said


@pytest.mark.parametrize("path", [p for p in CLASSES if p.parts[0] in ("code", "decoder", "tuning", "fisher")], ids=str)
def test_a_config_makes_what_the_class_makes_by_itself(path):
    """But for what the file changes on purpose."""
    tuning = [] if path.parts[0] == "tuning" else ["tuning=nda"]  # the digits have another
    config = composed("encode", f"{path.parts[0]}={path.stem}", *tuning, "seed=0", "student_learning_rate=1e-5")
    made = instantiate(config[path.parts[0]])
    changed = {"coin_scaled": {"scale"}, "coin_balanced": {"scale", "balance"}, "regmean_conv": {"convolutions"}}
    changed |= {"coin_refined": {"epochs", "batch_size", "start", "folds"}, "features": {"features"}}
    changed |= {"coding_loss": {"criterion"}, "divergence": {"criterion"}}
    ours, plain = recipe_of(made), recipe_of(type(made)())
    assert {key for key in ours if ours[key] != plain[key]} == changed.get(path.stem, set())


@pytest.mark.parametrize("path", [p for p in CONF.rglob("*.yaml") if "hydra" not in p.parts], ids=lambda p: p.name)
def test_every_file_opens_with_the_command_that_runs_it(path):
    first = next(line for line in path.read_text().splitlines() if not line.startswith("# @package"))
    commands = ("python train.py", "python encode.py", "python serve.py")
    assert first.removeprefix("# srun").lstrip("# ").startswith(commands), path


def test_the_paper_recipe():
    config = composed("train", "data=cifar10", "data.labels=[0,1,2,3,4]", "model=resnet50", "model.weights=none")
    finetune = instantiate(config.finetune)
    assert (finetune.epochs, finetune.learning_rate, finetune.weight_decay) == (3, 1e-5, 0.1)
    assert config.data.batch_size == 128
    assert instantiate(composed("train", "data=mnist").finetune).epochs == 1
    assert instantiate(composed("train", "data=fashion_mnist").finetune).epochs == 5


def test_train_and_encode_describe_the_same_expert():
    train = composed("train", "data=cifar10", "data.labels=[0,1,2,3,4]", "model=resnet50", "data.root=x")
    encode = composed("encode", "experiment=cifar10_splits", "data.root=x")
    assert {**train.data, "labels": "1/2"} == encode.experts.split1.data
    assert instantiate(train.data).labels == instantiate(encode.experts.split1.data).labels == [0, 1, 2, 3, 4]
    assert train.finetune == encode.experts.split1.finetune
    assert train.model == encode.model and train.trainer == encode.trainer
    sizes = [composed(script, "data.image_size=16").pretraining.data.image_size for script in ("train", "encode")]
    assert sizes == [16, 16]
    assert composed("train", "data.root=x").data.root == "x"
    other = composed("encode", "experiment=cifar10_splits", "seed=1", "data.image_size=64")
    assert other.experts.split1.finetune == train.finetune  # another draw of the samples, the same experts
    assert other.experts.split2.data.image_size == 64


def labels(config):
    return [instantiate(spec.data).labels for spec in config.experts.values()]


def test_any_number_of_experts_by_one_override():
    five = composed("encode", "experiment=cifar10_splits", "splits=5")
    assert list(five.experts) == [f"split{i}" for i in range(1, 6)]
    assert labels(five) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert labels(composed("encode", "splits=3")) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert labels(composed("encode")) == labels(composed("encode", "splits=2")) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    three = composed("encode", "experts=[mnist,fashion_mnist,cifar10]")
    assert list(three.experts) == ["mnist", "fashion_mnist", "cifar10"] and labels(three) == [None] * 3
    assert [spec.finetune.epochs for spec in three.experts.values()] == [1, 5, 3]
    mixed = composed("encode", "experts=[cifar10,mnist_splits]", "splits=10")
    assert list(mixed.experts)[:2] == ["cifar10", "mnist1"] and len(mixed.experts) == 11


def test_a_setting_of_all_experts_is_one_override_and_one_of_a_single_expert_counts_more():
    config = composed("encode", "experiment=cifar10_mnist", "finetune.epochs=7", "experts.mnist.finetune.epochs=9")
    assert [spec.finetune.epochs for spec in config.experts.values()] == [7, 9]
    config = composed("encode", "splits=3", "data.batch_size=8", "experts.split2.data.batch_size=9", "train_seed=4")
    assert [spec.data.batch_size for spec in config.experts.values()] == [8, 9, 8]
    assert {spec.finetune.seed for spec in config.experts.values()} == {4}
    named = composed("encode", "experiment=image_folder_splits", "split1=[ants,bees]", "splits=3", "data.root=x")
    assert [spec.data.labels for spec in named.experts.values()] == [["ants", "bees"], "2/3", "3/3"]
    assert {spec.data.root for spec in named.experts.values()} == {"x"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [(["splits=1"], "at least 2"), (["splits=half"], "whole number"), (["splits=2.5"], "whole number"),
     (["experiment=cifar10_mnist", "splits=5"], "whole data sets"), (["experts=[]"], "there are no experts"),
     (["experts.split3.path=x"], "experts.split3: there is no such expert; these are split1, split2")],
)  # fmt: skip
def test_experts_that_cannot_be_are_refused(overrides, words):
    with pytest.raises(ValueError, match=words):
        composed("encode", *overrides)
