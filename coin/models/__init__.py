"""Networks and the foundation models experts start from."""

from coin.models.foundation import (
    Model,
    ResNet,
    Small,
    batch_norms,
    freeze_batch_norm,
    network_of,
    read_state_dict,
)
from coin.models.small_resnet import SmallResNet

__all__ = [
    "Model",
    "ResNet",
    "Small",
    "SmallResNet",
    "batch_norms",
    "freeze_batch_norm",
    "network_of",
    "read_state_dict",
]
