"""Data sets as LightningDataModules: in memory, with label splits, prepared a batch at a time."""

from coin.data.digits import Digits
from coin.data.downloads import CIFAR10, MNIST, FashionMNIST
from coin.data.folders import ImageFolder
from coin.data.images import ImageData, Images

__all__ = ["CIFAR10", "MNIST", "Digits", "FashionMNIST", "ImageData", "ImageFolder", "Images"]
