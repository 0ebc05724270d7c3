"""Matched layers: what distillation does by gradients, done by one least-squares fit a layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coin.codes.code import Code, check_positive, choices
from coin.coding import Coding
from coin.matching import layer_outputs, match_layers
from coin.parameters import Parameters, trainable, weighted_sum


@dataclass
class Matched(Code):
    """Makes every layer answer what it answers in the experts, on average, to what the coded network sends it.

    Layer after layer, in the order they run: with z_i its outputs in expert i and z_0 those in θ_0, the weight is
    fitted to z_0 + s (Σ β_i z_i − z_0) on the coded network's own inputs, by ridge regression towards the weight of
    θ_0 + s (θ_c − θ_0), θ_c the `start`'s. The ridge's `strength` is in units of the squared inputs of a sample.
    Images are matched with `shifts` copies of each, moved by up to a tenth: most layers have more numbers to fit than
    samples have positions. A fit looks good to the samples it was made from, so candidates are judged by `folds` that
    they have not seen.
    """

    strength: float | None = 1.0
    grid: Sequence[float] = (0.3, 1.0, 3.0)
    scale: float | None = None
    scales: Sequence[float] = (1.0, 1.5, 2.0)
    shifts: int = 3
    start: Code | None = None  # the experts' average
    folds: int = 3

    def __post_init__(self) -> None:
        self.last: tuple[Coding, Sequence[float], Parameters, Parameters] | None = None
        check_positive("strength", self.strength, self.grid)
        check_positive("scale", self.scale, self.scales)
        if not isinstance(self.folds, int) or self.folds < 0 or self.folds == 1:
            raise ValueError(f"code.folds={self.folds}: must be at least 2, or 0 to be judged by the samples it fits")
        if not isinstance(self.shifts, int) or self.shifts < 0:
            raise ValueError(f"code.shifts={self.shifts}: must be a whole number of copies, 0 for none")
        if self.start is not None and (not isinstance(self.start, Code) or len(self.start.candidates()) > 1):
            raise ValueError(f"code.start={self.start}: must be null, the average, or a code with nothing to tune")

    def candidates(self) -> list[dict]:
        scales = choices("scale", self.scale, self.scales)
        return [{**s, **t} for s in scales for t in choices("strength", self.strength, self.grid)]

    def encode(self, coding: Coding, **hyperparameters) -> Parameters:
        scale = hyperparameters["scale"]
        start = weighted_sum(coding.params, coding.beta)
        if self.start:
            start = self.start.encode(coding, **self.start.candidates()[0])
        wanted, before = self.layers(coding)
        if scale != 1:
            start = weighted_sum([start, coding.base_params], [scale, 1 - scale])
            wanted = weighted_sum([wanted, before], [scale, 1 - scale])
        network = coding.network(start)
        match_layers(network, self.inputs(coding), wanted, hyperparameters["strength"])
        return {name: value.clone() for name, value in trainable(network).items()}

    def inputs(self, coding: Coding) -> Tensor:
        shapes = sorted({tuple(batch.shape[1:]) for batch in coding.batches})
        if len(shapes) > 1:
            raise ValueError(f"matched layers need all samples in one shape; these have {shapes}")
        return with_shifts(torch.cat(list(coding.batches)), self.shifts)

    def layers(self, coding: Coding) -> tuple[Parameters, Parameters]:
        """Σ β_i z_i and z_0 of every layer. Those of the last problem are kept: all candidates need them."""
        if self.last is None or self.last[0] is not coding or self.last[1] != coding.beta:
            self.last = None  # before the next ones are made: they are large
            inputs, average = self.inputs(coding), Parameters()
            for weight, expert in zip(coding.beta, coding.experts, strict=True):
                for name, made in layer_outputs(expert, inputs).items():
                    average[name] = average[name].add_(made, alpha=weight) if name in average else made.mul_(weight)
            base = layer_outputs(coding.network(coding.base_params), inputs) if coding.base is not None else {}
            self.last = (coding, coding.beta, average, base)
        return self.last[2:]


def with_shifts(images: Tensor, copies: int) -> Tensor:
    """Images, and so many copies of each, moved at random by up to a tenth of their side, edges repeated. Inputs that
    are no images stay as they are."""
    if images.ndim != 4 or not copies:
        return images
    height, width = images.shape[2:]
    most = round(height / 10), round(width / 10)
    padded = nn.functional.pad(images, (most[1], most[1], most[0], most[0]), mode="replicate")
    generator = torch.Generator().manual_seed(0)
    moved = [images]
    for _ in range(copies):
        tops, lefts = (torch.randint(0, 2 * m + 1, (len(images),), generator=generator).tolist() for m in most)
        crops = [p[:, t : t + height, c : c + width] for p, t, c in zip(padded, tops, lefts, strict=True)]
        moved.append(torch.stack(crops))
    return torch.cat(moved).contiguous(memory_format=torch.channels_last)
