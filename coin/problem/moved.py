"""Moved copies of images: a few samples, seen from slightly elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Moved:
    """Inputs, and copies of each that are moved by some pixels, edges repeated; made when they are asked for."""

    inputs: Tensor
    most: tuple[int, int] = (0, 0)
    offsets: Sequence[tuple[Tensor, Tensor]] = ()  # of a copy: how far every image is moved down and to the right

    @classmethod
    def copies_of(cls, batches: Sequence[Tensor], copies: int) -> "Moved":
        """So many of each image, moved at random by up to a tenth of its side; other inputs have none."""
        shapes = sorted({tuple(batch.shape[1:]) for batch in batches})
        if len(shapes) > 1:
            raise ValueError(f"moved copies need all samples in one shape; these have {shapes}")
        inputs = torch.cat(list(batches))
        if inputs.is_floating_point():
            inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        if inputs.ndim != 4:
            return cls(inputs)
        most = (round(inputs.shape[2] / 10), round(inputs.shape[3] / 10))
        generator = torch.Generator().manual_seed(0)

        def draw(size: int) -> Tensor:
            return torch.randint(0, 2 * size + 1, (len(inputs),), generator=generator)

        return cls(inputs, most, [(draw(most[0]), draw(most[1])) for _ in range(copies)])

    def __len__(self) -> int:
        return len(self.inputs) * (1 + len(self.offsets))

    def __getitem__(self, indices: Tensor) -> Tensor:
        """All of copy 0, the inputs themselves, come first, then those of copy 1, …"""
        which, copies = indices % len(self.inputs), indices // len(self.inputs)
        found = self.inputs[which.to(self.inputs.device)]
        if self.offsets and copies.any():
            down, right = self.most
            padded = nn.functional.pad(found, (right, right, down, down), mode="replicate")
            height, width = found.shape[2:]
            for i, (image, copy) in enumerate(zip(which.tolist(), copies.tolist(), strict=True)):
                if copy:
                    top, left = (int(offset[image]) for offset in self.offsets[copy - 1])
                    found[i] = padded[i, :, top : top + height, left : left + width]
        return found.contiguous(memory_format=torch.channels_last) if found.ndim == 4 else found
