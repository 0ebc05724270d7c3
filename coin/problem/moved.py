"""Moved copies of images: a few samples, seen from slightly elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coin.batch import Batch, Plain


@dataclass
class Moved:
    """Inputs, and copies of images among them that are moved by some pixels, edges repeated; made when asked for."""

    inputs: Batch
    most: tuple[int, int] = (0, 0)
    offsets: Sequence[tuple[Tensor, Tensor]] = ()  # of a copy: how far every image is moved down and to the right

    @classmethod
    def copies_of(cls, batches: Sequence[Plain], copies: int) -> "Moved":
        """So many of each image, moved at random by up to a tenth of its side; other inputs have none."""
        inputs = Batch.joined(batches).map(single)
        images = inputs.plain
        if not isinstance(images, Tensor) or not is_images(images):
            return cls(inputs)
        most = (round(images.shape[2] / 10), round(images.shape[3] / 10))
        generator = torch.Generator().manual_seed(0)

        def draw(size: int) -> Tensor:
            return torch.randint(0, 2 * size + 1, (len(inputs),), generator=generator)

        return cls(inputs, most, [(draw(most[0]), draw(most[1])) for _ in range(copies)])

    def __len__(self) -> int:
        return len(self.inputs) * (1 + len(self.offsets))

    def mask(self, indices: Tensor) -> Tensor | None:
        """Which tokens of these are no padding."""
        return None if self.inputs.mask is None else self.inputs.mask[indices.to(self.inputs.mask.device)]

    def __getitem__(self, indices: Tensor) -> Plain:
        """All of copy 0, the inputs themselves, come first, then those of copy 1, …"""
        which, copies = indices % len(self.inputs), indices // len(self.inputs)
        found = self.inputs.map(lambda tensor: tensor[which.to(tensor.device)]).plain
        if not isinstance(found, Tensor):
            return found
        if self.offsets and copies.any():
            down, right = self.most
            padded = nn.functional.pad(found, (right, right, down, down), mode="replicate")
            height, width = found.shape[2:]
            for i, (image, copy) in enumerate(zip(which.tolist(), copies.tolist(), strict=True)):
                if copy:
                    top, left = (int(offset[image]) for offset in self.offsets[copy - 1])
                    found[i] = padded[i, :, top : top + height, left : left + width]
        return found.contiguous(memory_format=torch.channels_last) if found.ndim == 4 else found


def single(tensor: Tensor) -> Tensor:
    """In single precision or better, unless it holds whole numbers."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor


def is_images(batch: Plain) -> bool:
    return isinstance(batch, Tensor) and batch.ndim == 4
