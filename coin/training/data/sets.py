"""Labelled data sets that live in memory as tensors and are prepared a batch at a time.

A batch is one tensor index and one transform on the device, so no worker processes and no per-sample Python are
needed. The order of the samples depends on the seed and the epoch alone, never on the number of devices: every rank
takes its slice of the same global batch.
"""

import abc
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from coin.batch import Batch, Plain
from coin.problem.recipes import Recipe

Labelled = tuple[Any, Tensor]  # inputs, raw or prepared, and their labels


class Examples(Dataset[Labelled]):
    """Inputs, samples first, and their labels; indexed by a list, not by an item."""

    def __init__(self, inputs: Plain, labels: Tensor):
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Any) -> Labelled:
        return Batch.of(self.inputs)[indices].trimmed().plain, self.labels[indices]

    def only(self, labels: Sequence[int]) -> "Examples":
        keep = torch.isin(self.labels, torch.tensor(labels))
        return type(self)(Batch.of(self.inputs)[keep].plain, self.labels[keep])


class Batches(Sampler[list[int]]):
    """Index lists of global batches, of which this rank gets every `ranks`-th sample.

    Shuffled anew each epoch from (seed, epoch), or in order without a seed. Lightning calls `set_epoch`. The next epoch
    begins with batch `skip`.
    """

    def __init__(self, length: int, batch_size: int, seed: int | None = None, rank: int = 0, ranks: int = 1):
        self.length, self.batch_size, self.seed, self.rank, self.ranks = length, batch_size, seed, rank, ranks
        self.epoch = self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.length // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.length)
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed * 100_003 + self.epoch)
            order = torch.randperm(self.length, generator=generator)
        skip, self.skip = self.skip, 0
        for batch in order.split(self.batch_size)[skip:]:
            yield batch[self.rank :: self.ranks].tolist()


class ResumableLoader(DataLoader[Labelled]):
    """Knows how far it is, so that a training killed within an epoch goes on with the next batch.

    Lightning keeps a loader's state_dict in its checkpoints.
    """

    done = 0  # batches of this epoch

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        assert isinstance(self.sampler, Batches)
        self.done = self.sampler.skip
        for batch in super().__iter__():
            self.done += 1
            yield batch
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        assert isinstance(self.sampler, Batches)
        self.sampler.skip = state["done"]


def part_of(classes: int, part: str) -> list[int]:
    """ "2/5": the second of five parts of the classes, as even as can be, the larger ones first."""
    number, slash, parts = part.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts) <= classes):
        raise ValueError(
            f"data.labels={part}: must be a list, null for all, or a part such as 1/2 (at most {classes} of them)"
        )
    return torch.arange(classes).tensor_split(int(parts))[int(number) - 1].tolist()


class Data(L.LightningDataModule, abc.ABC):
    """A data set with a label split. Subclasses say where the samples come from and how a network reads them.

    `labels` keeps only these classes (None: all; "2/5": the second of five parts, as even as can be); heads keep all
    outputs. `batch_size` is the global one: under DDP each device gets its share.
    """

    name: str
    num_classes = 10
    unit: str  # what its samples are: images, sentences

    def __init__(self, root: str, labels: Sequence[int] | str | None, batch_size: int, seed: int):
        super().__init__()
        self.root = Path(root)
        if isinstance(labels, str):
            labels = part_of(self.num_classes, labels)
        self.labels = None if labels is None else sorted({int(label) for label in labels})
        if batch_size < 1:
            raise ValueError(f"data.batch_size={batch_size}: must be at least 1")
        self.batch_size, self.seed = batch_size, seed
        self.train_set: Examples | None = None
        self.test_set: Examples | None = None
        self._fingerprint = ""

    @abc.abstractmethod
    def load(self, train: bool) -> Examples:
        """Reads the whole training or test set, all labels; the inputs are one tensor, raw."""

    @abc.abstractmethod
    def transform(self, raw: Tensor) -> Plain:
        """What a network reads, of raw inputs."""

    @property
    @abc.abstractmethod
    def queries(self) -> str:
        """What a network is asked, in words that are equal where one network can be asked both."""

    @abc.abstractmethod
    def preparation(self) -> dict[str, Any]:
        """What `transform` does, for those who ask a network themselves."""

    def setup(self, stage: str | None = None) -> None:
        if self.train_set is not None:
            return
        train, test = self.load(train=True), self.load(train=False)
        if self.labels is not None:
            outside = [label for label in self.labels if not 0 <= label < self.num_classes]
            if outside or not self.labels:
                raise ValueError(
                    f"data.labels={self.labels}: {self.name} has the labels 0 to {self.num_classes - 1}; "
                    "choose at least one of them, or null for all"
                )
        digest = hashlib.sha256()
        for part in (train.inputs, train.labels, test.inputs, test.labels):
            assert isinstance(part, Tensor)
            digest.update(part.contiguous().numpy())  # type: ignore[arg-type]
        self._fingerprint = digest.hexdigest()
        keep = self.labels if self.labels is not None else range(self.num_classes)
        self.train_set, self.test_set = train.only(list(keep)), test.only(list(keep))
        if not len(self.train_set) or not len(self.test_set):
            raise ValueError(f"data.labels={self.labels}: {self.name} has no {self.unit} of these labels")

    @property
    def split(self) -> str:
        """The label split, readable: `0-4`, `1.3.7` or `all`."""
        labels = self.labels
        if labels is None or labels == list(range(self.num_classes)):
            return "all"
        if labels == list(range(labels[0], labels[-1] + 1)) and len(labels) > 1:
            return f"{labels[0]}-{labels[-1]}"
        return ".".join(map(str, labels))

    def recipe(self) -> Recipe:
        """What determines this data, as plain data: contents and preparation, not the folder they lie in."""
        self.setup()
        return {"name": self.name, "contents": self._fingerprint, "labels": self.split}

    def on_after_batch_transfer(self, batch: Labelled, dataloader_idx: int) -> Labelled:
        raw, labels = batch
        return self.transform(raw), labels

    def loader(self, examples: Examples, batch_size: int | None = None, shuffle: bool = False) -> DataLoader[Labelled]:
        rank, ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        seed = self.seed if shuffle else None
        batches = Batches(len(examples), batch_size or self.batch_size, seed, rank, ranks)
        kind = ResumableLoader if shuffle else DataLoader
        return kind(examples, sampler=batches, batch_size=None)

    def train_dataloader(self) -> DataLoader[Labelled]:
        assert self.train_set is not None, "setup() comes first"
        return self.loader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader[Labelled]:
        assert self.test_set is not None, "setup() comes first"
        return self.loader(self.test_set)
