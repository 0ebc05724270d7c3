"""BatchNorm layers, which stay frozen while experts are fine-tuned."""

from torch import nn


def freeze_batch_norm(network: nn.Module) -> nn.Module:
    """Freezes BatchNorm's affine parameters; `batch_norms(network)` in eval mode freezes its statistics."""
    for module in batch_norms(network):
        module.requires_grad_(False).eval()
    return network


def batch_norms(network: nn.Module) -> list[nn.Module]:
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
