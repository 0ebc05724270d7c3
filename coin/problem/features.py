"""Penultimate features: what a network's last Linear layer reads."""

from typing import Any

import torch
from torch import Tensor, nn


class WithFeatures(nn.Module):
    """Answers with a network's outputs and, in further columns, the features its last Linear layer made them from.

    It is asked as the network is. One that does not end in a Linear layer has none; unless they are `required`, it
    answers with its outputs.
    """

    def __init__(self, network: nn.Module, required: bool = True):
        super().__init__()
        self.network, self.required = network, required

    def forward(self, *given: Any, **named: Any) -> Tensor:
        seen: list[tuple[Tensor, Tensor]] = []

        def keep(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> None:
            seen[:] = [(inputs[0] if inputs else next(iter(named.values())), output)]

        linears = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        handles = [module.register_forward_hook(keep, with_kwargs=True) for module in linears]
        try:
            answer = self.network(*given, **named)
            outputs: Tensor = getattr(answer, "logits", answer)
        finally:
            for handle in handles:
                handle.remove()
        ends_in_linear = seen and seen[0][1] is outputs and isinstance(outputs, Tensor) and outputs.ndim == 2
        if not ends_in_linear:
            if not self.required:
                return outputs
            raise ValueError(
                f"{type(self.network).__name__} does not end in a Linear layer, so it has no penultimate features to "
                "send; use decoder=ridge"
            )
        return torch.cat([outputs, seen[0][0].to(outputs.dtype)], 1)
