"""Normalized decoding accuracy and the coding loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class NormalizedDecodingAccuracy(Metric):
    """NDA in percent: 100 × (decoded outputs that name the target) / (the expert's own outputs that do).

    100 means nothing was lost by decoding; more is possible where decoding errs less than the expert. Its states are
    two counts, so it is right under any number of devices and any batch size.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    decoded_correct: Tensor
    expert_correct: Tensor

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_state("decoded_correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("expert_correct", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, decoded: Tensor, expert: Tensor, target: Tensor) -> None:
        decoded_correct, expert_correct = nda_update(decoded, expert, target)
        self.decoded_correct += decoded_correct
        self.expert_correct += expert_correct

    def compute(self) -> Tensor:
        return nda_compute(self.decoded_correct, self.expert_correct)


def check_outputs(outputs: Tensor, samples: int) -> Tensor:
    """Refuses anything but one row of outputs a sample: a class would be looked for along the wrong axis."""
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the network returns {type(outputs).__name__}, expected one tensor of outputs; "
            "wrap the network in a module that returns its logits"
        )
    if outputs.ndim != 2 or len(outputs) != samples or not outputs.shape[1]:
        raise ValueError(
            f"the network returns {tuple(outputs.shape)} for {samples} samples, expected (samples, outputs), one row a "
            "sample; wrap the network in a module that does (of tokens, read one or their mean)"
        )
    return outputs


def check_alike(outputs: Tensor, *others: Tensor) -> None:
    """Refuses outputs that are not all (samples, classes), of the same samples and classes."""
    shapes = [tuple(rows.shape) for rows in (outputs, *others)]
    if outputs.ndim != 2 or any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            f"outputs of the shapes {', '.join(map(str, shapes))} cannot be compared; "
            "all must be (samples, classes), of the same samples and classes"
        )


def nda_update(decoded: Tensor, expert: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """How many samples the decoded and the expert's own outputs (samples, classes) get right."""
    if decoded.shape != expert.shape or decoded.shape[:1] != target.shape or decoded.ndim != 2:
        raise ValueError(
            f"decoded {tuple(decoded.shape)} and expert {tuple(expert.shape)} must both be (samples, classes) and the "
            f"target {tuple(target.shape)} one label a sample"
        )
    return (decoded.argmax(1) == target).sum(), (expert.argmax(1) == target).sum()


def nda_compute(decoded_correct: Tensor, expert_correct: Tensor) -> Tensor:
    """NaN where the expert itself is never right: nothing to normalise by."""
    return torch.where(expert_correct > 0, 100 * decoded_correct / expert_correct, torch.nan)


def nda_among(classes: Tensor, decoded: Tensor, expert: Tensor, target: Tensor) -> float:
    """NDA where only these classes (in order, all targets among them) may be named."""
    counts = nda_update(decoded[:, classes], expert[:, classes], torch.searchsorted(classes, target))
    return float(nda_compute(*counts))


def confusion(decoded: Tensor, expert: Tensor) -> Tensor:
    """(classes, classes): how often the expert names one class and its decoded outputs another."""
    check_alike(decoded, expert)
    classes = expert.shape[1]
    pairs = expert.argmax(1) * classes + decoded.argmax(1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def class_ndas(decoded: Tensor, expert: Tensor, target: Tensor) -> dict[int, float]:
    """NDA of the samples of each class."""
    rows = {int(label): target == label for label in target.unique()}
    return {c: float(nda_compute(*nda_update(decoded[own], expert[own], target[own]))) for c, own in rows.items()}


def accuracy(outputs: Tensor, target: Tensor) -> float:
    return 100 * float((outputs.argmax(1) == target).double().mean())


def agreement(outputs: Tensor, others: Tensor) -> float:
    """How often two networks name the same class, in percent; it needs no labels."""
    check_alike(outputs, others)
    return 100 * float((outputs.argmax(1) == others.argmax(1)).double().mean())


def spread(outputs: Tensor) -> float:
    """The standard deviation of outputs over the classes: what adds one number to all of them is no part of it."""
    return float((outputs - outputs.mean(1, keepdim=True)).square().mean().sqrt())


def margin(outputs: Tensor) -> float:
    """How far the largest output is ahead of the second, the median over samples."""
    first, second = outputs.topk(2).values.unbind(1)
    return float((first - second).median())


def divergence(outputs: Tensor, experts: Tensor) -> float:
    """The mean Kullback–Leibler divergence, in nats, of the experts' class probabilities from those of `outputs`.

    It needs no labels, and follows NDA better than squared distances do: those count classes nobody asks for.
    """
    check_alike(outputs, experts)
    wanted, found = experts.double().log_softmax(1), outputs.double().log_softmax(1)
    return float((wanted.exp() * (wanted - found)).sum(1).mean())


def coding_loss(coded: Tensor, experts: Sequence[Tensor] | Tensor, beta: Sequence[float]) -> float:
    """The empirical coding loss L̂ = (β̄ / 2P) Σ_l ‖f_c(x_l) − Σ_i β_i f_i(x_l)‖², β̄ = (Σ_i 1/β_i²) / N."""
    check_alike(coded, *experts)
    target = sum(b * f.double() for b, f in zip(beta, experts, strict=True))
    beta_bar = sum(1 / b**2 for b in beta) / len(beta)
    return beta_bar / 2 * float((coded.double() - target).detach().square().sum(1).mean())
