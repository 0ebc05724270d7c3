"""Ridge regression with a free intercept, weighted by sample, and its leave-one-out error, for any strength.

The leave-one-out residual of a penalised least-squares fit is r / (1 − h), h its leverage; of a sample that is there
several times, moved, it is (I − H)⁻¹ r over all its rows, of which the first is the sample itself. The eigenvectors of
the smaller of the two Gram matrices serve all strengths.
"""

import torch
from torch import Tensor

LEAST = 1e-9  # of what a row leaves to the others: without a sample that alone decides its fit nothing predicts it


class Regression:
    def __init__(self, x: Tensor, wanted: Tensor, weights: Tensor, copies: int = 1):
        """`x`, `wanted` and `weights` have all samples, then all of them again, `copies` times in all."""
        self.x, self.wanted, self.kept, self.copies = x, wanted, weights > 0, copies
        w = weights[self.kept]
        self.root, self.share = w.sqrt()[:, None], w / w.sum()
        x, y = x[self.kept], wanted[self.kept]
        self.x_mean, self.y_mean = self.share @ x, self.share @ y
        self.xs, self.ys = (x - self.x_mean) * self.root, (y - self.y_mean) * self.root
        if len(x) <= x.shape[1]:
            values, left = torch.linalg.eigh(self.xs @ self.xs.T)
        else:
            values, right = torch.linalg.eigh(self.xs.T @ self.xs)
            left = self.xs @ right / values.clamp_min(1e-300).sqrt()
        keep = values > 1e-12 * values.max().clamp_min(1e-300)
        self.values, self.left = values[keep], left[:, keep]
        self.projected = self.left.T @ self.ys

    def ridge(self, strength: float) -> Tensor:
        return strength * self.values.sum() / len(self.xs) if len(self.values) else torch.ones(())

    def residuals(self, strength: float) -> Tensor:
        """Of each sample of positive weight, when fitted on all others."""
        shrunk = self.values / (self.values + self.ridge(strength))
        rows = self.ys - self.left @ (shrunk[:, None] * self.projected)
        if self.copies == 1:
            rest = 1 - (self.left.square() @ shrunk + self.share)[:, None]
            return torch.where(rest > LEAST, rows / rest.clamp_min(LEAST) / self.root, torch.inf)
        left, root = (part.view(self.copies, -1, part.shape[1]).transpose(0, 1) for part in (self.left, self.root))
        hat = (left * shrunk) @ left.transpose(1, 2) + root @ root.transpose(1, 2) / self.root.square().sum()
        rest = torch.eye(self.copies, dtype=hat.dtype, device=hat.device) - hat  # (samples, copies, copies)
        decided = torch.linalg.eigvalsh(rest)[:, :1] <= LEAST
        rest = torch.where(decided[:, :, None], torch.eye(self.copies, dtype=hat.dtype, device=hat.device), rest)
        found = torch.linalg.solve(rest, rows.view(self.copies, -1, rows.shape[1]).transpose(0, 1))[:, 0]
        return torch.where(decided, torch.inf, found / root[:, 0])

    def error(self, strength: float, own: Tensor) -> float:
        """The mean square over the samples that are `own`."""
        return squared(self.residuals(strength)[own[self.kept[: len(own)]]])

    def solution(self, strength: float) -> tuple[Tensor, Tensor]:
        weight = self.xs.T @ (self.left @ (self.projected / (self.values + self.ridge(strength))[:, None]))
        return weight, self.y_mean - self.x_mean @ weight

    def held_out(self, strength: float) -> Tensor:
        """What is said of each sample when fitted on all others."""
        weight, bias = self.solution(strength)
        samples = len(self.x) // self.copies
        found, kept = (
            self.x[:samples] @ weight + bias,
            self.kept[:samples],
        )  # right for those of weight zero, not fitted on
        residuals = self.residuals(strength)
        found[kept] = self.wanted[:samples][kept] - torch.where(residuals.isinf(), 0, residuals)
        return found


def squared(residuals: Tensor) -> float:
    return float(residuals.square().sum(1).mean())
