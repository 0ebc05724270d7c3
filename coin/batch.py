"""A batch of samples, and how a network is asked about it.

A batch is a tensor, samples first; a tuple or list that begins with one, labels and the like behind it; or a mapping
whose tensors are passed as keywords (`input_ids`, `attention_mask`), labels left out by name. A network answers with a
tensor, (samples, outputs), or with an object that has it as `.logits`.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from coin.metrics import check_outputs

LABELS = {"label", "labels", "label_ids", "target", "targets"}
UNNAMED = ""  # the keyword of a tensor that is passed without one


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

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, samples: slice | list[int]) -> "Batch":
        return self.map(lambda tensor: tensor[samples])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch({name: change(tensor) for name, tensor in self.tensors.items()})

    def parts(self, most: int) -> Iterator["Batch"]:
        """Of about equal size, at most so many samples each."""
        size = -(-len(self) // -(-len(self) // most))
        return (self[start : start + size] for start in range(0, len(self), size))

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
