"""Data sets as LightningDataModules: in memory, with label splits, prepared a batch at a time."""

from coin.training.data.digits import Digits
from coin.training.data.downloads import CIFAR10, MNIST, FashionMNIST
from coin.training.data.folders import ImageFolder
from coin.training.data.images import ImageData, Images

__all__ = ["CIFAR10", "MNIST", "Digits", "FashionMNIST", "ImageData", "ImageFolder", "Images"]
