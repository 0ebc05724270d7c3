"""MNIST, FashionMNIST and CIFAR10: through torchvision, and CIFAR10 from its binary layout too."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock
import torch
import torchvision
from torch import Tensor

from coin.training.data.images import ImageData, Images


class Downloaded(ImageData):
    """A torchvision data set in `root`, downloaded there when it is absent and a network is there."""

    source: type
    folder: str  # what lies below root

    def load(self, train: bool) -> Images:
        folder = self.root / self.folder
        absent = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            with self.alone():
                found = self.source(str(self.root), train=train, download=True)
        except (RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
            for path in absent:  # torchvision makes folders before it knows whether there is a network
                with suppress(OSError):
                    path.rmdir()
            raise ValueError(
                f"data.root={self.root}: {self.name} is not there, or is damaged, and cannot be downloaded "
                f"({' '.join(str(error).split())}); put its files under {self.root / self.folder}"
            ) from error
        return Images(self.images(found), torch.as_tensor(found.targets).long())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process downloads, ranks and jobs that want the same wait: torchvision writes where others would read."""
        lock = self.root / f".{self.name}.lock"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError:
            yield  # nobody can download into a folder that is read-only
            return
        with filelock.FileLock(lock):
            try:
                yield
            except BaseException:
                lock.unlink(missing_ok=True)  # a download that fails leaves nothing behind
                raise

    def images(self, found: Any) -> Tensor:
        return torch.as_tensor(found.data).unsqueeze(1)


class MNIST(Downloaded):
    name = "mnist"
    padding = 2
    source = torchvision.datasets.MNIST
    folder = "MNIST/raw"


class FashionMNIST(Downloaded):
    name = "fashion_mnist"
    padding = 2
    source = torchvision.datasets.FashionMNIST
    folder = "FashionMNIST/raw"


class CIFAR10(Downloaded):
    """From `cifar-10-batches-bin` (the official binary layout) where that exists, else torchvision's pickles."""

    name = "cifar10"
    source = torchvision.datasets.CIFAR10
    folder = "cifar-10-batches-bin"
    RECORD = 1 + 3 * 32 * 32  # a label byte, then the red, green and blue planes

    def load(self, train: bool) -> Images:
        folder = self.root / self.folder
        if not folder.is_dir():
            return super().load(train)
        files = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
        records = torch.cat([self.records(folder / file) for file in files])
        return Images(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())

    def records(self, path: Path) -> Tensor:
        if not path.is_file():
            raise ValueError(f"{path} is missing; CIFAR10's binary layout has data_batch_1..5.bin and test_batch.bin")
        raw = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        if len(raw) != 10_000 * self.RECORD:
            raise ValueError(f"{path} is damaged: {len(raw)} bytes instead of {10_000 * self.RECORD}; fetch it again")
        records = raw.view(10_000, self.RECORD)
        if records[:, 0].max() > 9:
            raise ValueError(f"{path} is damaged: a label of {int(records[:, 0].max())}, allowed are 0 to 9")
        return records

    def images(self, found: Any) -> Tensor:
        return torch.as_tensor(found.data).permute(0, 3, 1, 2).contiguous()
