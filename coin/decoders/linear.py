"""Linear decoders: what there is without fitting, plus a linear correction fitted on the P samples without labels.

f̂_i = plain_i + W_i [x; 1] with W_i by ridge regression towards zero. How strong the ridge is, and how much the other
experts' samples weigh, is chosen by the closed-form leave-one-out error on the samples of expert i; no correction at
all is among the choices. With `features` the coded network sends its penultimate features φ_c too, as part of x.

    ridge    plain_i = (f_c − Σ_{j≠i} β_j f_j) / β_i    x = [f_j, j ≠ i; f_c; φ_c]    all others must have answered
    alone    plain_i = f_c                              x = [f_c; φ_c]                one call, whoever is missing
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoding import decode
from coin.parameters import Parameters


@dataclass
class Linear(Decoder):
    """What linear decoders have in common; whether they look at the others is the class's."""

    features: bool = False
    strengths: Sequence[float] = (  # of the ridge, in units of the mean squared regressor
        *(1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
        *(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    )
    foreign: Sequence[float] = (0.0, 0.1, 0.3, 1.0)  # weights of samples drawn for other experts
    shares: Sequence[float] = (0.1, 0.3, 1.0)  # how large the features are beside the outputs

    def __post_init__(self) -> None:
        if not isinstance(self.features, bool):
            raise ValueError(f"decoder.features={self.features}: must be true or false")
        if not self.strengths or any(not s > 0 for s in self.strengths):
            raise ValueError(f"decoder.strengths={list(self.strengths)}: give at least one, all positive")
        if not self.foreign or any(not 0 <= w <= 1 for w in self.foreign):
            raise ValueError(f"decoder.foreign={list(self.foreign)}: give at least one weight from 0 to 1")
        if not self.shares or any(not s > 0 for s in self.shares):
            raise ValueError(f"decoder.shares={list(self.shares)}: give at least one, all positive")

    def fit(self, answers: Answers) -> Fitted:
        if self.features and answers.coded.shape[1] == answers.classes:
            raise ValueError("features need a network that ends in a Linear layer; use decoder.features=false")
        columns = answers.coded.shape[1] if self.features else answers.classes
        answers = replace(
            answers, coded=answers.coded[:, :columns].double(), experts=[f.double() for f in answers.experts]
        )
        fitted = FittedLinear(answers.beta, columns, self.alone, [], answers)
        fitted.corrections = [self.correction(fitted, answers, i) for i in range(len(answers.experts))]
        return fitted

    def correction(self, fitted: "FittedLinear", answers: Answers, missing: int) -> "Correction":
        """The correction with the lowest leave-one-out error; none at all is among the choices."""
        others = {} if self.alone else answers.others(missing)
        wanted = answers.experts[missing] - fitted.plain(outputs_of(answers), others, missing)
        own = torch.ones(len(wanted), dtype=torch.bool, device=wanted.device)
        if answers.owners is not None and (answers.owners == missing).any():
            own = (answers.owners == missing).to(wanted.device)
        x = regressors(answers.coded, others)
        none = x.new_zeros(x.shape[1], wanted.shape[1])
        best = Correction(none, none.new_zeros(wanted.shape[1]), torch.zeros_like(wanted), squared(wanted[own]))
        for share in self.shares if self.features else [1.0]:
            scale = block_scales(x, wanted.shape[1] * (1 + len(others)), share)
            for foreign in self.foreign if not own.all() else [1.0]:
                fit = Regression(x * scale, wanted, torch.where(own, 1.0, foreign).double())
                strength = min(self.strengths, key=lambda strength: fit.error(strength, own))
                if fit.error(strength, own) < best.error:
                    best = fit.correction(strength, own)
                    best.weight *= scale[:, None]
        return best


@dataclass
class Correction:
    """x ↦ x W + b, what it says of each sample when fitted on all others, and the mean squared error of that."""

    weight: Tensor
    bias: Tensor
    held_out: Tensor
    error: float


@dataclass
class FittedLinear(Fitted):
    """`columns` is how much of the coded network's answer it looks at: outputs, or outputs and features."""

    beta: Sequence[float]
    columns: int
    alone: bool  # whether it looks at nothing else
    corrections: Sequence[Correction]
    answers: Answers | None = None  # that it was fitted on

    def decode(self, coded: Tensor, others: Mapping[int, Tensor], missing: int) -> Tensor:
        if not 0 <= missing < len(self.beta):
            raise ValueError(f"missing={missing}: there are experts 0 to {len(self.beta) - 1}")
        found, dtype = self.corrections[missing], coded.dtype
        coded = coded[:, : self.columns].to(torch.promote_types(dtype, torch.float32))
        others = {} if self.alone else {j: f.to(coded) for j, f in others.items()}
        plain = self.plain(coded[:, : len(found.bias)], others, missing)
        x = regressors(coded, others)
        return (plain + x @ found.weight.to(x) + found.bias.to(x)).to(dtype)

    def plain(self, outputs: Tensor, others: Mapping[int, Tensor], missing: int) -> Tensor:
        """What there is to be corrected: the paper's formula, or the coded network's own answer."""
        return outputs if self.alone else decode(outputs, others, self.beta, missing)

    def held_out(self, missing: int) -> Tensor:
        assert self.answers is not None, "it was read from a file, not fitted"
        plain = self.plain(outputs_of(self.answers), self.answers.others(missing), missing)
        return plain + self.corrections[missing].held_out.to(plain)

    def tensors(self) -> Parameters:
        found = {"beta": torch.tensor(list(self.beta), dtype=torch.float64), "columns": torch.tensor(self.columns)}
        found["alone"] = torch.tensor(self.alone)
        for i, correction in enumerate(self.corrections):
            found[f"{i}.weight"] = correction.weight.T.float().contiguous()
            found[f"{i}.bias"] = correction.bias.float()
        return found


def from_tensors(tensors: Mapping[str, Tensor]) -> FittedLinear:
    """The decoder that `tensors` are of, such as a run's decoder.safetensors."""
    try:
        beta, columns = tensors["beta"].tolist(), int(tensors["columns"])
        alone = bool(tensors.get("alone", torch.tensor(False)))  # before there was one, none was
        parts = [(tensors[f"{i}.weight"].T, tensors[f"{i}.bias"]) for i in range(len(beta))]
    except KeyError as error:
        raise ValueError(f"these are not the tensors of a decoder: {error} is missing") from error
    corrections = [Correction(w, b, torch.empty(0, len(b)), float("nan")) for w, b in parts]
    return FittedLinear(beta, columns, alone, corrections)


def outputs_of(answers: Answers) -> Tensor:
    return answers.coded[:, : answers.classes]


def regressors(coded: Tensor, others: Mapping[int, Tensor]) -> Tensor:
    """Outputs of the others and of the coded network, then its features."""
    return torch.cat([*(others[j] for j in sorted(others)), coded], 1)


def block_scales(x: Tensor, outputs: int, share: float) -> Tensor:
    """One factor a column: the outputs' block and the features' block get unit mean square, times `share`."""
    scale = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    for block, factor in ((slice(0, outputs), 1.0), (slice(outputs, None), share)):
        columns = x[:, block]
        size = (columns - columns.mean(0)).square().sum(1).mean().sqrt()
        scale[block] = factor / size.clamp_min(1e-12)
    return scale


class Regression:
    """Ridge regression with a free intercept, weighted by sample, for any strength.

    The leave-one-out residual of a penalised least-squares fit is r / (1 − h), h its leverage. The eigenvectors of
    the smaller of the two Gram matrices serve all strengths.
    """

    def __init__(self, x: Tensor, wanted: Tensor, weights: Tensor):
        self.x, self.wanted, self.kept = x, wanted, weights > 0
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
        rest = 1 - (self.left.square() @ shrunk + self.share)[:, None]
        fitted = self.left @ (shrunk[:, None] * self.projected)
        residuals = (self.ys - fitted) / rest.clamp_min(1e-9) / self.root
        # without a sample that alone decides its own fit, nothing is left to predict it from
        return torch.where(rest > 1e-9, residuals, torch.inf)

    def error(self, strength: float, own: Tensor) -> float:
        return squared(self.residuals(strength)[own[self.kept]])

    def correction(self, strength: float, own: Tensor) -> Correction:
        weight = self.xs.T @ (self.left @ (self.projected / (self.values + self.ridge(strength))[:, None]))
        bias = self.y_mean - self.x_mean @ weight
        held_out = self.x @ weight + bias  # right for samples of weight zero, which the fit did not see
        residuals = self.residuals(strength)
        held_out[self.kept] = self.wanted[self.kept] - torch.where(residuals.isinf(), 0, residuals)
        return Correction(weight, bias, held_out, self.error(strength, own))


def squared(residuals: Tensor) -> float:
    return float(residuals.square().sum(1).mean())
