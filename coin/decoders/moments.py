"""Accumulated sums: all that least squares asks of the rows it is fitted on, so that fitting can go on with more."""

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST = 1e-200  # of a ridge, where all inputs are the same


class Moments:
    """Σ 1, Σ z and Σ z zᵀ of the rows z that were added, in double precision.

    As long as there are no more rows than columns they are the rows themselves, which are fewer numbers.
    """

    def __init__(self, columns: int):
        self.columns, self.count = columns, 0
        self.rows: Tensor | None = None  # in the precision they arrived in
        self.total: Tensor | None = None
        self.gram: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        self.count += len(rows)
        if self.gram is None:
            self.rows = rows.detach() if self.rows is None else torch.cat([self.rows, rows.detach().to(self.rows)])
            if self.count <= self.columns:
                return
            rows, self.rows = self.rows, None
            self.total = rows.new_zeros(self.columns, dtype=torch.float64)
            self.gram = rows.new_zeros(self.columns, self.columns, dtype=torch.float64)
        assert self.total is not None
        z = rows.detach().to(self.gram)
        self.total += z.sum(0)
        self.gram.addmm_(z.T, z)

    def only(self, columns: Tensor) -> "Moments":
        """Those of some of the columns."""
        found = Moments(len(columns))
        found.count = self.count
        found.rows = None if self.rows is None else self.rows[:, columns]
        if self.gram is not None and self.total is not None:
            found.total, found.gram = self.total[columns], self.gram[columns][:, columns]
        return found

    def sums(self) -> tuple[Tensor, Tensor]:
        """Σ z and Σ z zᵀ."""
        if self.gram is not None and self.total is not None:
            return self.total, self.gram
        assert self.rows is not None
        rows = self.rows.double()
        return rows.sum(0), rows.T @ rows

    def squares(self) -> tuple[Tensor, Tensor]:
        """Σ z and Σ z², of each column."""
        if self.gram is not None and self.total is not None:
            return self.total, self.gram.diagonal()
        assert self.rows is not None
        rows = self.rows.double()
        return rows.sum(0), rows.square().sum(0)

    def tensors(self) -> dict[str, Tensor]:
        if self.rows is not None:
            return {"rows": self.rows.contiguous()}
        assert self.total is not None and self.gram is not None
        return {"count": torch.tensor(self.count), "total": self.total.contiguous(), "gram": self.gram.contiguous()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> "Moments":
        if "rows" in tensors:
            found = cls(tensors["rows"].shape[1])
            found.count, found.rows = len(tensors["rows"]), tensors["rows"]
            return found
        found = cls(len(tensors["total"]))
        found.count, found.total, found.gram = int(tensors["count"]), tensors["total"], tensors["gram"]
        return found


def variances(parts: Sequence[Moments]) -> Tensor:
    """Of every column, over the rows of all parts."""
    count = sum(part.count for part in parts)
    total, square = (torch.stack(sums).sum(0) for sums in zip(*(part.squares() for part in parts), strict=True))
    return (square / count - (total / count).square()).clamp_min(0)


def solve(parts: list[tuple[Moments, float]], targets: Tensor, scale: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """W, b of the ridge regression z[:, :inputs] W + b ≈ z @ targets over the rows of all parts, each with its weight.

    `scale` (inputs,) says how large a column counts; W is for columns as they are. The ridge is `strength` times the
    mean square of a row of inputs, so that it means the same whatever the number of rows.
    """
    inputs, used = len(scale), [(part, weight) for part, weight in parts if weight > 0 and part.count]
    count = sum(part.count for part, _ in used)
    if count <= inputs and all(part.rows is not None for part, _ in used):
        rows = torch.cat([part.rows for part, _ in used if part.rows is not None]).double()
        weights = torch.cat([rows.new_full((part.count,), weight) for part, weight in used])
        share, root = weights / weights.sum(), weights.sqrt()[:, None]
        mean = share @ rows
        centred = (rows - mean) * root
        x, y = centred[:, :inputs] * scale, centred @ targets
        gram = x @ x.T
        gram.diagonal().add_((strength * gram.diagonal().sum() / count).clamp_min(LEAST))
        weight = x.T @ torch.cholesky_solve(y, torch.linalg.cholesky(gram)) * scale[:, None]
    else:
        total, gram, size = targets.new_zeros(len(targets)), targets.new_zeros(len(targets), len(targets)), 0.0
        for part, factor in used:
            sums = part.sums()
            total, gram, size = total + factor * sums[0], gram + factor * sums[1], size + factor * part.count
        mean = total / size
        gram = gram - size * torch.outer(mean, mean)
        x, y = gram[:inputs, :inputs] * scale * scale[:, None], scale[:, None] * (gram[:inputs] @ targets)
        x.diagonal().add_((strength * x.diagonal().sum() / count).clamp_min(LEAST))
        weight = torch.cholesky_solve(y, torch.linalg.cholesky(x)) * scale[:, None]
    return weight, mean @ targets - mean[:inputs] @ weight
