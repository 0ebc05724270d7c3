"""Data sets as LightningDataModules: in memory, with label splits, prepared a batch at a time."""

from coin.training.data.corpora import CR, MPQA, SST2, TREC, Banking77, Subj
from coin.training.data.digits import Digits
from coin.training.data.downloads import CIFAR10, MNIST, FashionMNIST
from coin.training.data.folders import ImageFolder
from coin.training.data.images import ImageData, Images
from coin.training.data.sentences import TextData
from coin.training.data.sets import Data, Examples
from coin.training.data.tables import TextFile

__all__ = [
    "CIFAR10",
    "CR",
    "MNIST",
    "MPQA",
    "SST2",
    "TREC",
    "Banking77",
    "Data",
    "Digits",
    "Examples",
    "FashionMNIST",
    "ImageData",
    "ImageFolder",
    "Images",
    "Subj",
    "TextData",
    "TextFile",
]
