"""Networks and the foundation models experts start from."""

from coin.training.models.foundation import (
    Model,
    ResNet,
    Small,
    model_of,
    network_of,
    read_state_dict,
)
from coin.training.models.sentences import HfText, SentenceClassifier
from coin.training.models.small_resnet import SmallResNet
from coin.training.models.vision import SmallViT, Timm, Torchvision

__all__ = [
    "HfText",
    "Model",
    "ResNet",
    "SentenceClassifier",
    "Small",
    "SmallResNet",
    "SmallViT",
    "Timm",
    "Torchvision",
    "model_of",
    "network_of",
    "read_state_dict",
]
