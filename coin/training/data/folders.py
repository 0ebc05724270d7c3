"""The user's own images, a folder a class."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.functional import center_crop, pil_to_tensor, resize

from coin.training.data.images import ImageData, Images


class ImageFolder(ImageData):
    """torchvision's ImageFolder layout: `root/train/CLASS/*.png` with `root/test` (or `val`) beside it, or only
    `root/CLASS/*.png`, of which a fifth, chosen by name, are test images. K is the number of class folders; `labels`
    are their numbers in alphabetical order, or their names. Images are cut to squares, read once and kept in memory.
    """

    name = "image_folder"
    size = 224

    def __init__(
        self,
        root: str = "data",
        labels: Sequence[int | str] | str | None = None,
        image_size: int | None = None,
        batch_size: int = 128,
        seed: int = 0,
    ):
        folder = Path(root)
        if not folder.is_dir():
            raise ValueError(f"data.root={root}: no such folder; give one that holds a folder of images for each class")
        self.parts = {
            part: next((folder / name for name in names if (folder / name).is_dir()), None)
            for part, names in {"train": ("train",), "test": ("test", "val")}.items()
        }
        if (self.parts["train"] is None) != (self.parts["test"] is None):
            raise ValueError(
                f"data.root={root}: has train or test (val) but not both; give both, or class folders only"
            )
        self.classes = sorted(p.name for p in (self.parts["train"] or folder).iterdir() if p.is_dir())
        if len(self.classes) < 2:
            raise ValueError(f"data.root={root}: holds {len(self.classes)} class folders; at least two are needed")
        self.num_classes = len(self.classes)
        super().__init__(root, self.numbers(labels), image_size, batch_size, seed)
        self.size = self.image_size  # they are stored at the size they are asked for

    def numbers(self, labels: Sequence[int | str] | str | None) -> list[int] | str | None:
        if labels is None or isinstance(labels, str):
            return labels
        unknown = [label for label in labels if isinstance(label, str) and label not in self.classes]
        if unknown:
            raise ValueError(f"data.labels={list(labels)}: there is no class {unknown[0]}; allowed are {self.classes}")
        return [self.classes.index(label) if isinstance(label, str) else int(label) for label in labels]

    def load(self, train: bool) -> Images:
        images, labels = [], []
        top = self.parts["train" if train else "test"]
        for number, name in enumerate(self.classes):
            for path in sorted((top or self.root).joinpath(name).rglob("*")):
                if path.suffix.lower() in IMG_EXTENSIONS and (top is not None or is_test(path) != train):
                    images.append(self.read(path))
                    labels.append(number)
        if not images:
            part = "training" if train else "test"
            raise ValueError(f"data.root={self.root}: there is no {part} image ({', '.join(IMG_EXTENSIONS)})")
        return Images(torch.stack(images), torch.tensor(labels))

    def read(self, path: Path) -> Tensor:
        try:
            with Image.open(path) as image:
                pixels = pil_to_tensor(image.convert("RGB"))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"{path} is no readable image ({error}); repair it or take it away") from error
        square: Tensor = center_crop(resize(pixels, [self.image_size], antialias=True), [self.image_size])
        return square


def is_test(path: Path) -> bool:
    """One in five, by the file's name, so that more images leave the others where they are."""
    digest = hashlib.sha256(f"{path.parent.name}/{path.name}".encode()).digest()
    return digest[0] % 5 == 0
