"""Matched layers: what distillation does by gradients, done by one least-squares fit a layer."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from coin.batch import Batch
from coin.codes.code import Code, check_positive, choices
from coin.codes.layers import Layer, in_use, made_of, own_layers, parts_of, watched
from coin.codes.lockstep import Schedule, in_lockstep, schedule_for
from coin.parameters import Parameters, load, trainable, weighted_sum
from coin.problem.coding import Coding, Hyperparameters
from coin.problem.moved import Moved


@dataclass
class Matched(Code):
    """Makes every layer answer what it answers in the experts, on average, to what the coded network sends it.

    Layer after layer, in the order they run, parts of attention and LayerNorms too: with z_i its outputs in expert i
    and z_0 those in θ_0, the weight is fitted to z_0 + s (Σ β_i z_i − z_0) on the coded network's own inputs, by ridge
    regression towards the weight of θ_0 + s (θ_c − θ_0), θ_c the `start`'s. The ridge's `strength` is in units of the
    squared inputs of a sample.
    Images are matched with `shifts` copies of each, moved by up to a tenth: most layers have more numbers to fit than
    samples have positions. A fit looks good to the samples it was made from, so candidates are judged by the first
    `judges` of `folds` that they have not seen, and fitted for that without copies, which is cheaper. Where
    samples and their positions are more than `memory` (in bytes, beside the networks) holds, a layer is
    fitted to as many, drawn at random, as it does.
    """

    strength: float | None = 1.0
    grid: Sequence[float] = (0.3, 1.0, 3.0)
    scale: float | None = None
    scales: Sequence[float] = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    shifts: int = 3
    start: Code | None = None  # the experts' average
    folds: int = 3
    judges: int = 1
    memory: int = 4 << 30

    def __post_init__(self) -> None:
        check_positive("strength", self.strength, self.grid)
        check_positive("scale", self.scale, self.scales)
        if not isinstance(self.folds, int) or self.folds < 0 or self.folds == 1:
            raise ValueError(f"code.folds={self.folds}: must be at least 2, or 0 to be judged by the samples it fits")
        if not isinstance(self.judges, int) or self.judges < 0 or self.judges > self.folds > 0:
            raise ValueError(
                f"code.judges={self.judges}: must be at most code.folds={self.folds}, or 0 for all of them"
            )
        if not isinstance(self.shifts, int) or self.shifts < 0:
            raise ValueError(f"code.shifts={self.shifts}: must be a whole number of copies, 0 for none")
        if not isinstance(self.memory, int) or self.memory < 1:
            raise ValueError(f"code.memory={self.memory}: must be a positive number of bytes; 4294967296 is the usual")
        if self.start is not None and (not isinstance(self.start, Code) or len(self.start.candidates()) > 1):
            raise ValueError(f"code.start={self.start}: must be null, the average, or a code with nothing to tune")

    def candidates(self) -> list[Hyperparameters]:
        scales = choices("scale", self.scale, self.scales)
        return [{**s, **t} for s in scales for t in choices("strength", self.strength, self.grid)]

    def draft(self) -> "Matched":
        return replace(self, shifts=0)

    def encode(self, coding: Coding, **hyperparameters: float) -> Parameters:
        scale = hyperparameters["scale"]
        start = weighted_sum(coding.params, coding.beta)
        if self.start:
            start = self.start.encode(coding, **self.start.candidates()[0])
        if scale != 1:
            start = weighted_sum([start, coding.base_params], [scale, 1 - scale])
        settings = {"shifts": self.shifts, "memory": self.memory, "beta": list(coding.beta)}
        # first: they are made with the one scratch network
        targets = coding.prepare(settings, lambda: Targets.of(coding, self.shifts, self.memory))
        network = load(in_single(coding.scratch), start)
        match_layers(network, targets, scale, hyperparameters["strength"])
        return {name: value.clone() for name, value in trainable(network).items()}


@dataclass
class Targets:
    """What layers are wanted to make of which inputs: Σ β_i z_i and z_0, a row a position that was drawn."""

    inputs: "Moved"
    schedule: Schedule
    average: Parameters
    base: Parameters

    @classmethod
    def of(cls, coding: Coding, shifts: int, memory: int) -> "Targets":
        inputs = Moved.copies_of(coding.batches, shifts)
        schedule = schedule_for(in_single(coding.experts[0]), inputs, memory, sets=1 + (coding.base is not None))
        average = Parameters()
        for weight, expert in zip(coding.beta, coding.experts, strict=True):
            for name, made in layer_outputs(in_single(expert), inputs, schedule).items():
                average[name] = average[name].add_(made, alpha=weight) if name in average else made.mul_(weight)
        base = in_single(coding.network(coding.base_params)) if coding.base is not None else None
        return cls(inputs, schedule, average, layer_outputs(base, inputs, schedule) if base else {})

    def wanted(self, name: str, rows: slice, scale: float) -> Tensor:
        """z_0 + s (Σ β_i z_i − z_0)"""
        made = self.average[name][rows]
        return made if scale == 1 else scale * made + (1 - scale) * self.base[name][rows]


@torch.no_grad()
def layer_outputs(network: nn.Module, inputs: "Moved", schedule: Schedule) -> Parameters:
    """{layer: what it makes, a row for every sample and position that the schedule draws}."""
    made: Parameters = {}
    layers = own_layers(network, norms=True)

    def see(name: str, layer: Layer, x: Tensor, output: Tensor) -> None:
        step, part = schedule.steps[name], schedule.part
        if part.start < step.samples:
            rows = step.drawn(made_of(layer, output), part)
            if name not in made:
                made[name] = rows.new_empty(step.samples * step.positions, rows.shape[1])
            made[name][step.rows(part)] = rows

    with watched({name: layers[name] for name in schedule.steps}, see):
        for part in schedule.parts:
            schedule.part = part
            Batch.of(inputs[schedule.order[part]]).ask(network)
    return made


@torch.no_grad()
def match_layers(network: nn.Module, targets: Targets, scale: float, strength: float) -> None:
    """Moves weights, and biases, so that each layer makes what is wanted of what the layers before, moved already, send
    it. A single pass over the samples: they advance from layer to layer together. Padding is no row of any layer."""
    schedule, layers = targets.schedule, own_layers(network, norms=True)

    def fit(name: str, arrived: Sequence[tuple[slice, Tensor, Tensor]]) -> None:
        layer, step = layers[name], schedule.steps[name]
        bias = layer.bias if layer.bias is not None and layer.bias.requires_grad else None
        kind = LeastStretch if isinstance(layer, nn.LayerNorm) else LeastMove
        move = kind(step.samples * step.positions, bias is not None)
        for part, inputs, output in arrived:
            missing = targets.wanted(name, step.rows(part), scale) - step.drawn(made_of(layer, output), part)
            use = in_use(layer, output, targets.inputs.mask(schedule.order[part]))
            use = step.drawn(use, part) if isinstance(use, Tensor) else use  # its rows come in one part
            before = used = 0
            for rows in parts_of(layer, inputs):
                x = step.drawn(rows, part, before)
                move.add(x[use], missing[used : used + len(x)][use])
                before, used = before + len(rows), used + len(x)
        weight, shift = move.solve(strength / step.samples)
        layer.weight += weight.T.reshape(layer.weight.shape)
        if bias is not None:
            bias += shift

    in_lockstep(network, layers, targets.inputs, schedule, fit)


class LeastMove:
    """D, b with the least ‖x D + b − y‖² + ridge ‖D‖² over all rows of x and y that are added, b = 0 unless there is an
    `offset`; the ridge is a multiple of the sum of squares of x, less its mean if there is an offset.

    From the smaller of the two Gram matrices. The ridge bounds their condition by the samples over the strength, which
    is within reach of single precision; what is added up is taken from the mean of the first rows, for the same reason.
    """

    def __init__(self, rows: int, offset: bool):
        self.rows, self.offset, self.count = rows, offset, 0

    def add(self, x: Tensor, y: Tensor) -> None:
        if not len(x):
            return
        if not self.count:
            self.origin = (x.mean(0), y.mean(0)) if self.offset else (x.new_zeros(x.shape[1]), y.new_zeros(y.shape[1]))
            self.few = self.rows < x.shape[1]
            self.kept: list[tuple[Tensor, Tensor]] = []
            self.sums = (torch.zeros_like(self.origin[0]), torch.zeros_like(self.origin[1]))
            if not self.few:
                self.gram, self.cross = x.new_zeros(x.shape[1], x.shape[1]), x.new_zeros(x.shape[1], y.shape[1])
        self.count += len(x)
        if self.offset:
            x, y = x - self.origin[0], y - self.origin[1]
            self.sums[0].add_(x.sum(0))
            self.sums[1].add_(y.sum(0))
        if self.few:
            self.kept.append((x, y))
        else:
            self.gram.addmm_(x.T, x)
            self.cross.addmm_(x.T, y)

    def solve(self, strength: float) -> tuple[Tensor, Tensor]:
        mean, level = (total / self.count for total in self.sums)
        if self.few:
            x, y = (torch.cat(parts) for parts in zip(*self.kept, strict=True))
            x, y = x - mean, y - level
            gram = x @ x.T
        else:
            gram = self.gram.addr_(mean, mean, alpha=-self.count)
            cross = self.cross.addr_(mean, level, alpha=-self.count)
        mean, level = mean + self.origin[0], level + self.origin[1]
        ridge = strength * gram.diagonal().sum()
        if not ridge > 0:  # nothing reaches the layer
            if ridge == 0:
                return gram.new_zeros(len(mean), len(level)), level
            raise ValueError("the samples, or what a layer makes of them, are not finite; are the experts?")
        gram.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise ValueError(f"a ridge of strength {strength:g} is too weak, or a network's outputs are not finite")
        move = x.T @ torch.cholesky_solve(y, factor) if self.few else torch.cholesky_solve(cross, factor)
        return move, level - mean @ move


class LeastStretch:
    """The same for what multiplies every column by a number of its own: as many least moves as there are columns."""

    def __init__(self, rows: int, offset: bool):
        self.offset, self.count = offset, 0
        self.sums = torch.zeros(())

    def add(self, x: Tensor, y: Tensor) -> None:
        x, y = x.double(), y.double()  # four sums a column: precision costs nothing
        self.sums = self.sums.to(x) + torch.stack([x.sum(0), y.sum(0), x.square().sum(0), (x * y).sum(0)])
        self.count += len(x)

    def solve(self, strength: float) -> tuple[Tensor, Tensor]:
        mean, level, squares, products = self.sums / self.count
        if self.offset:
            squares, products = squares - mean.square(), products - mean * level
        move = products / ((1 + strength) * squares).clamp_min(torch.finfo(squares.dtype).tiny)
        return move[None], level - mean * move


def in_single(network: nn.Module) -> nn.Module:
    """A network that may be changed and runs in single precision or better: itself, or a copy where it is in half."""
    half = any(p.is_floating_point() and p.dtype.itemsize < 4 for p in network.parameters())
    return copy.deepcopy(network).float() if half else network
