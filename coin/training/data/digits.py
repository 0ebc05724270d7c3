"""scikit-learn's bundled handwritten digits: 1797 images of 8×8 pixels, no download."""

import torch
from sklearn.datasets import load_digits

from coin.training.data.images import ImageData, Images


class Digits(ImageData):
    """Every second image is a test image: 899 to train on, and 898 to test on, so that one of them decides little."""

    name = "digits"
    size = 8
    mean, std = (0.3,) * 3, (0.38,) * 3

    def load(self, train: bool) -> Images:
        bunch = load_digits()
        images = torch.from_numpy(bunch.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(1)
        labels = torch.from_numpy(bunch.target).long()
        is_test = torch.arange(len(labels)) % 2 == 1
        keep = ~is_test if train else is_test
        return Images(images[keep], labels[keep])
