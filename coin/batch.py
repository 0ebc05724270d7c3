"""A batch of samples, and how a network is asked about it.

A batch is a tensor, samples first; a tuple or list that begins with one, labels and the like behind it; or a mapping
whose tensors are passed as keywords (`input_ids`, `attention_mask`), labels left out by name. A network answers with a
tensor, (samples, outputs), or with an object that has it as `.logits`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from coin.metrics import check_outputs

LABELS = {"label", "labels", "label_ids", "target", "targets"}
UNNAMED = ""  # the keyword of a tensor that is passed without one
Plain = Tensor | dict[str, Tensor]  # a batch as its owner holds it


@dataclass(frozen=True, eq=False)
class Batch:
    """Tensors of the same samples, by keyword."""

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, given: Any) -> "Batch":
        if isinstance(given, Batch):
            return given
        first = given[0] if isinstance(given, tuple | list) and given else given
        named = first if isinstance(first, Mapping) else {UNNAMED: first}
        tensors = {name: value for name, value in named.items() if name not in LABELS}
        for name, value in tensors.items():
            if not isinstance(value, Tensor) or not value.ndim:
                got = "a single number" if isinstance(value, Tensor) else type(value).__name__
                place = f" has {name} that" if name else ""
                raise ValueError(
                    f"a batch{place} is {got}, expected a tensor of inputs, samples first, "
                    "a tuple that begins with one, or a mapping of such tensors by the network's keywords"
                )
        if len({len(value) for value in tensors.values()}) != 1:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in tensors.items())
            raise ValueError(f"a batch has {shapes or 'no inputs'}; all its tensors must be of the same samples, first")
        return cls(tensors)

    @classmethod
    def joined(cls, given: Iterable[Any]) -> "Batch":
        """All samples of several batches in one; where they have an `attention_mask`, padded to the longest."""
        batches = [cls.of(batch) for batch in given]
        longest = max(batch.tokens for batch in batches)
        padded = [batch.padded(longest).tensors for batch in batches]
        try:
            return cls({name: torch.cat([tensors[name] for tensors in padded]) for name in padded[0]})
        except (RuntimeError, KeyError) as error:
            shapes = sorted({str({name or "inputs": tuple(t.shape[1:]) for name, t in b.items()}) for b in padded})
            raise ValueError(
                f"batches have samples of {' and of '.join(shapes)}; all must have the same tensors in one shape, "
                "or an attention_mask that says what is padding"
            ) from error

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, samples: slice | list[int] | Tensor) -> "Batch":
        return self.map(lambda tensor: tensor[samples])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch({name: change(tensor) for name, tensor in self.tensors.items()})

    def parts(self, most: int) -> Iterator["Batch"]:
        """Of about equal size, at most so many samples each."""
        size = -(-len(self) // -(-len(self) // most))
        return (self[start : start + size] for start in range(0, len(self), size))

    def split(self, size: int) -> list["Batch"]:
        """So many samples each, but for the last, none padded more than its longest needs."""
        return [self[start : start + size].trimmed() for start in range(0, len(self), size)]

    @property
    def mask(self) -> Tensor | None:
        """(samples, tokens): which are no padding; None where nothing is said of it."""
        mask = self.tensors.get("attention_mask")
        return mask != 0 if mask is not None and mask.ndim == 2 else None

    @property
    def tokens(self) -> int:
        return 0 if self.mask is None else self.mask.shape[1]

    def trimmed(self) -> "Batch":
        """Without the tokens at the end that are padding in all samples."""
        if self.mask is None or not self.mask.any():
            return self
        last = int(self.mask.any(0).nonzero().max()) + 1
        return self.map(lambda tensor: tensor[:, :last] if tensor.shape[1:2] == (self.tokens,) else tensor)

    def padded(self, longest: int) -> "Batch":
        """With so many tokens; those that are added are zeros, which the mask says are padding."""
        more = longest - self.tokens
        if self.mask is None or not more:
            return self

        def pad(tensor: Tensor) -> Tensor:
            if tensor.shape[1:2] != (self.tokens,):
                return tensor
            return torch.cat([tensor, tensor.new_zeros(len(tensor), more, *tensor.shape[2:])], 1)

        return self.map(pad)

    @property
    def plain(self) -> Plain:
        """The tensor itself, or a dictionary of several."""
        return self.tensors[UNNAMED] if UNNAMED in self.tensors else dict(self.tensors)

    @property
    def kind(self) -> Hashable:
        """What batches that differ in nothing but their samples have in common."""
        return tuple((name, t.dtype, t.device, t.shape[1:]) for name, t in sorted(self.tensors.items()))

    def contents(self, sample: int) -> list[Tensor]:
        """The tensors of one sample, without what its `attention_mask` says is padding."""
        rows = {name: tensor[sample] for name, tensor in sorted(self.tensors.items())}
        mask = rows.get("attention_mask")
        if mask is None or mask.ndim != 1:
            return list(rows.values())
        return [row[mask != 0] if row.shape[:1] == mask.shape else row for row in rows.values()]

    def by_length(self) -> list[int]:
        """All samples, from the least to the most that the `attention_mask` tells of; in order where there is none."""
        mask = self.tensors.get("attention_mask")
        return list(range(len(self))) if mask is None else mask.flatten(1).sum(1).argsort(stable=True).tolist()

    def ask(self, network: nn.Module) -> Tensor:
        """The network's outputs, (samples, outputs), and a clear word for what is not."""
        named = {name: tensor for name, tensor in self.tensors.items() if name != UNNAMED}
        answer = network(**named) if named else network(self.tensors[UNNAMED])
        return check_outputs(getattr(answer, "logits", answer), len(self))
