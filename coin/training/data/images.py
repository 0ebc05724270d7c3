"""Image data sets: raw in uint8, padded, resized and normalised a batch at a time."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coin.problem.recipes import Recipe, class_name
from coin.training.data.sets import Data, Examples

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Images(Examples):
    """Raw images (samples, channels, height, width) in uint8 and their labels."""

    @property
    def images(self) -> Tensor:
        assert isinstance(self.inputs, Tensor)
        return self.inputs


class ImageData(Data):
    """A data set of images. Subclasses say where they come from and how they are scaled.

    `image_size` None means the data set's own size.
    """

    unit = "images"
    size = 32
    padding = 0  # zero border that brings the stored images to `size`
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    def __init__(
        self,
        root: str = "data",
        labels: Sequence[int] | str | None = None,
        image_size: int | None = None,
        batch_size: int = 128,
        seed: int = 0,
    ):
        super().__init__(root, labels, batch_size, seed)
        if image_size is not None and not 1 <= image_size <= 4096:
            raise ValueError(f"data.image_size={image_size}: must be from 1 to 4096 pixels, or null for the default")
        self.image_size = image_size or self.size

    @property
    def queries(self) -> str:
        return f"images of {self.image_size} px"

    def recipe(self) -> Recipe:
        prepared = [self.size, self.padding, *self.mean, *self.std]
        found = {**super().recipe(), "image_size": self.image_size, "preparation": prepared}
        own = type(self).transform is not ImageData.transform  # a preparation that the numbers do not tell
        return {**found, "transform": class_name(type(self))} if own else found

    def transform(self, raw: Tensor) -> Tensor:
        """uint8 (samples, 1 or 3, h, w) to what a network reads: padded, resized, three channels, normalised."""
        return prepared(raw, **self.preparation())

    def preparation(self) -> dict[str, Any]:
        """What `transform` does, in numbers."""
        numbers = {"padding": self.padding, "mean": list(self.mean), "std": list(self.std)}
        return {"image_size": self.image_size, **numbers}


def prepared(images: Tensor, *, image_size: int, padding: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """What `ImageData.transform` does, from the numbers that `preparation` tells."""
    x = images.float() / 255  # a copy: they may be floats already
    if padding:
        x = F.pad(x, [padding] * 4)
    if x.shape[-1] != image_size or x.shape[-2] != image_size:
        x = F.interpolate(x, size=[image_size] * 2, mode="bilinear", antialias=True)
    x = x.expand(-1, 3, -1, -1)
    centre, scale = (torch.tensor(list(numbers), device=x.device).view(1, 3, 1, 1) for numbers in (mean, std))
    return ((x - centre) / scale).contiguous(memory_format=torch.channels_last)
