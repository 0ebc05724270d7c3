"""The P samples, P' = P/N from each expert's training set, without replacement, seeded; and queries beside them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coin.batch import Batch, Plain
from coin.training.data.sets import Data


@dataclass
class Samples:
    inputs: Plain  # prepared: images (P, 3, height, width), or token numbers and their mask, (P, tokens)
    labels: Tensor  # (P,)
    owners: Tensor  # (P,): the expert each was drawn for

    def to(self, device: torch.device) -> "Samples":
        inputs = Batch.of(self.inputs).map(lambda tensor: tensor.to(device)).plain
        return Samples(inputs, self.labels.to(device), self.owners.to(device))

    def batches(self, size: int = 100) -> list[Plain]:
        return [part.plain for part in Batch.of(self.inputs).split(size)]


def draw(data: Sequence[Data], samples: int, seed: int) -> Samples:
    """The draw depends on the seed and the data set, not on the order of the experts."""
    if not isinstance(samples, int) or isinstance(samples, bool):
        raise ValueError(f"samples={samples}: must be a whole number, the P samples of all experts together")
    if not isinstance(seed, int):
        raise ValueError(f"seed={seed}: must be a whole number")
    if samples < len(data):
        raise ValueError(f"samples={samples}: {len(data)} experts need at least one sample each")
    queries = sorted({d.queries for d in data})
    if len(queries) > 1:
        raise ValueError(f"the experts read {' and '.join(queries)}; all experts must answer the same queries")
    shares = [samples // len(data) + (i < samples % len(data)) for i in range(len(data))]
    inputs, labels, owners = [], [], []
    seen: dict[str, int] = {}
    for i, (d, share) in enumerate(zip(data, shares, strict=True)):
        d.setup()
        assert d.train_set is not None
        if share > len(d.train_set):
            raise ValueError(
                f"samples={samples}: {share} from {d.name} ({d.split}), which has {len(d.train_set)} training "
                f"{d.unit}; at most {len(data) * min(len(e.train_set) for e in data if e.train_set)} in all"
            )
        raw, targets = d.train_set[order_of(d, len(d.train_set), seed, seen)[:share]]
        inputs.append(Batch.of(d.transform(raw)))
        labels.append(targets)
        owners.append(torch.full((share,), i))
    return Samples(Batch.joined(inputs).plain, torch.cat(labels), torch.cat(owners))


def order_of(data: Data, count: int, seed: int, seen: dict[str, int]) -> Tensor:
    """In which order its samples are drawn; `seen` counts the data sets, so that experts of one get different ones."""
    source = f"{seed}/{data.name}/{data.split}"
    seen[source] = seen.get(source, -1) + 1
    digest = hashlib.sha256(f"{source}/{seen[source]}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randperm(count, generator=generator)


@dataclass
class Queries:
    """Unlabelled inputs of one expert's data, for the decoder alone; and which test samples are left to be scored."""

    inputs: Plain  # raw
    scored: Tensor | None = None  # None: all


def draw_queries(data: Sequence[Data], calibration: int, samples: int, seed: int, traffic: bool) -> list[Queries]:
    """So many an expert: training samples that are not among the P, or, as `traffic`, of one half of its test set, of
    which the other half is scored."""
    if not isinstance(calibration, int) or isinstance(calibration, bool) or calibration < 1:
        raise ValueError(f"calibration={calibration}: must be a number of unlabelled queries an expert, 0 for none")
    share = -(-samples // len(data))
    found: list[Queries] = []
    seen: dict[str, int] = {}
    for d in data:
        d.setup()
        assert d.train_set is not None and d.test_set is not None
        source = d.test_set if traffic else d.train_set
        order = order_of(d, len(source), seed, seen)
        free = order[: len(source) // 2] if traffic else order[share:]
        if calibration > len(free):
            kind = f"half of the test {d.unit}" if traffic else f"training {d.unit} beside the {share} samples"
            raise ValueError(
                f"calibration={calibration}: {d.name} ({d.split}) has {len(free)} queries, {kind}; give at most as many"
            )
        scored = order[len(source) // 2 :].sort().values if traffic else None
        found.append(Queries(Batch.of(source.inputs)[free[:calibration]].plain, scored))
    return found
