"""On the real data sets, where COIN_DATA has them: pytest -m real"""

import os
from pathlib import Path

import pytest
import torch

from coin.training.data import CIFAR10, MNIST, FashionMNIST
from coin.training.models import ResNet

ROOT = Path(os.environ.get("COIN_DATA", "data"))
pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("data", "folder"), [(MNIST, "MNIST"), (FashionMNIST, "FashionMNIST"), (CIFAR10, "cifar-10-batches-bin")]
)
def test_the_published_sizes(data, folder):
    if not (ROOT / folder).is_dir():
        pytest.skip(f"no {folder} under COIN_DATA={ROOT}")
    made = data(ROOT, labels=range(5))
    made.setup()
    assert len(made.test_set) in (5000, 5139)  # MNIST's digits are not equally many
    assert made.transform(made.test_set.images[:2]).shape == (2, 3, 32, 32)


def test_an_imagenet_resnet_v1_loads():
    path = ROOT / "weights" / "resnet50_imagenet_v1.pth"
    if not path.is_file():
        pytest.skip(f"no {path}")
    network = ResNet(weights=str(path), stride_in_1x1=True).build(10).eval()
    with torch.no_grad():
        assert torch.isfinite(network(torch.randn(2, 3, 32, 32))).all()
