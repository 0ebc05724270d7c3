"""What is in people's stores is found by later versions: the keys of bases and experts stay what they were."""

import os
from pathlib import Path

import pytest

from coin.lab.artifacts import Workshop
from coin.lab.store import Store
from coin.training.data import CIFAR10, Digits
from coin.training.expert import FineTuning
from coin.training.models import Model, ResNet, Small
from coin.training.pretraining import Rotations
from coin.training.trainers import Trainers

DATA = Path(os.environ.get("COIN_DATA", "data"))


def workshop(folder: Path, model: Model) -> Workshop:
    """One that makes no experts, and says which it looked for."""
    trainers = Trainers({"precision": "32-true", "max_steps": -1, "accelerator": "cpu"})
    pretraining = Rotations(Digits(batch_size=64))
    return Workshop(store=Store(folder), model=model, pretraining=pretraining, trainer=trainers, train_missing=False)


def test_bases_and_experts_keep_their_keys(tmp_path):
    with pytest.raises(ValueError, match="bases/small_resnet-rotations-af29c3033e and train_missing=false"):
        workshop(tmp_path, Small()).base(10)
    shop = workshop(tmp_path, Small(weights="none"))
    base = shop.base(10)
    assert base.key == "small_resnet-none-2356c44b77"
    with pytest.raises(ValueError, match="experts/digits-0-4-small_resnet-f261c855d5 and train_missing=false"):
        shop.expert(base, Digits(labels="1/2"), FineTuning(30, 3e-4))


@pytest.mark.real
def test_a_resnet_50_and_its_experts_keep_their_keys(tmp_path):
    weights = DATA / "weights" / "resnet50_imagenet_v1.pth"
    if not weights.is_file() or not (DATA / "cifar-10-batches-bin").is_dir():
        pytest.skip(f"no {weights}, or no CIFAR10, under COIN_DATA={DATA}")
    shop = workshop(tmp_path, ResNet(weights=str(weights), stride_in_1x1=True))
    base = shop.base(10)
    assert base.key == "resnet50_v1-resnet50_imagenet_v1-e806b9c80a"
    with pytest.raises(ValueError, match="experts/cifar10-0-4-resnet50_v1-1ab6e47fa5"):
        shop.expert(base, CIFAR10(DATA, labels="1/2"), FineTuning(3))
