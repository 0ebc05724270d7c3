"""BatchNorm layers, which stay frozen while experts are fine-tuned, unless they are asked not to."""

from typing import Literal

from torch import nn

from coin.problem.statistics import batch_norms

Mode = Literal["frozen", "affine", "trained"]
MODES = ("frozen", "affine", "trained")


def freeze_batch_norm(network: nn.Module, mode: Mode = "frozen") -> nn.Module:
    """Freezes BatchNorm's affine parameters, unless they are trained; `batch_norms(network)` in eval mode freezes its
    statistics."""
    for module in batch_norms(network):
        module.requires_grad_(mode != "frozen").eval()
    return network
