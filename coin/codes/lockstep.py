"""Samples that advance through a network together, layer by layer, in bounded memory.

A layer is fitted when all samples have reached it, and they go on when it has been. Samples are cut into parts, each
with a forward pass of its own, in a thread that waits in the layer until the others are there (one runs at a time).
What is alive in a forward pass grows with the image and shrinks along the network, so a part whose samples the memory
does not hold yet begins later, when the layers before have been fitted without it.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from coin.batch import Batch, Plain
from coin.codes.layers import Layer, made_of, own_layers, watched
from coin.parameters import size_of


class Inputs(Protocol):
    """Samples that are made when they are asked for, by their numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, numbers: Tensor) -> Plain: ...


Arrived = Sequence[tuple[slice, Tensor, Tensor]]  # of each part: which samples, a layer's inputs and its outputs


@dataclass
class Step:
    """A layer in the order of the forward pass: how many samples it is fitted to, at how many positions of each."""

    samples: int
    positions: int
    all_positions: int
    chosen: Tensor | None = None  # (samples, positions), where not all are

    def rows(self, part: slice) -> slice:
        """Where what is drawn of a part is among all that is drawn of the layer's rows."""
        return slice(part.start * self.positions, min(part.stop, self.samples) * self.positions)

    def drawn(self, rows: Tensor, part: slice, before: int = 0) -> Tensor:
        """Those that are drawn of the rows a layer has of a part's samples, or of some, with so many `before` them."""
        count = min(part.stop, self.samples) - part.start
        if self.chosen is None:
            return rows[: max(0, count * self.all_positions - before)]
        firsts = self.all_positions * torch.arange(count)[:, None]
        wanted = (self.chosen[part.start : part.start + count] + firsts).flatten() - before  # ascending
        first, last = torch.searchsorted(wanted, torch.tensor([0, len(rows)])).tolist()
        return rows[wanted[first:last].to(rows.device)]


@dataclass
class Schedule:
    steps: dict[str, Step]
    order: Tensor  # of the samples: drawn at random, since those in front are used the most
    parts: list[slice]
    part: slice = field(default_factory=lambda: slice(0, 0))  # that is running


@dataclass
class Pass:
    """What one forward pass of a few samples tells of the layers that ran: how often each did, its rows, its columns
    and outputs, and the bytes alive there, and at most."""

    runs: Counter[str] = field(default_factory=Counter)
    rows: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    alive: dict[str, int] = field(default_factory=dict)
    peak: int = 0

    @classmethod
    @torch.no_grad()
    def of(cls, network: nn.Module, given: Plain) -> "Pass":
        samples = Batch.of(given)
        found, tracker, own = cls(), Alive(), size_of(samples.tensors)

        def see(name: str, layer: Layer, x: Tensor, output: Tensor) -> None:
            found.runs[name] += 1
            made = made_of(layer, output)
            found.rows[name], found.sizes[name] = len(made), (layer.weight[0].numel(), made.shape[1])
            found.alive[name] = tracker.bytes() + own

        with watched(own_layers(network, norms=True), see), tracker:
            samples.ask(network)
        found.peak = tracker.peak + own
        return found


def schedule_for(network: nn.Module, inputs: Inputs, memory: int, sets: int) -> Schedule:
    """For every layer that can be fitted: it runs once, with a weight of its own, and makes as many rows of a sample
    whatever the number of samples.

    Of `memory`, three eighths are for `sets` of wanted outputs, a quarter for what is alive in all forward passes, an
    eighth for what is alive only while one part runs; the rest is for Gram matrices and their solutions.
    """
    two, three = (Pass.of(network, inputs[torch.arange(count) % len(inputs)]) for count in (2, 3))
    every = {name: rows // 3 for name, rows in three.rows.items() if three.runs[name] == 1}
    every = {name: n for name, n in every.items() if n and three.rows[name] == 3 * n and two.rows.get(name) == 2 * n}
    names, sizes = list(every), three.sizes
    samples, most = {}, len(inputs)
    for name in reversed(names):  # who has joined stays, so what is alive later counts too
        most = min(most, max(1, memory // 4 * 3 // max(three.alive[name], 1)))
        samples[name] = most
    most_rows = {name: min(samples[name] * every[name], largest(memory, *sizes[name])) for name in names}

    def rows_with(per_column: float) -> dict[str, int]:
        return {name: min(most_rows[name], int(per_column * sizes[name][0])) for name in names}

    per_column = float(max(most_rows.values(), default=1))
    while sets * sum(4 * rows * sizes[name][1] for name, rows in rows_with(per_column).items()) > memory * 3 / 8:
        per_column *= 0.95
    steps = {}
    for i, (name, rows) in enumerate(rows_with(per_column).items()):
        step = steps[name] = Step(
            min(samples[name], max(1, rows)), max(1, min(every[name], rows // samples[name])), every[name]
        )
        if step.positions < step.all_positions:
            numbers = torch.rand(step.samples, step.all_positions, generator=torch.Generator().manual_seed(i))
            step.chosen = numbers.topk(step.positions).indices.sort().values
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    last = max((step.samples for step in steps.values()), default=0)
    size = max(1, min(most, memory // 8 * 3 // max(three.peak, 1)))
    return Schedule(steps, order, [slice(start, min(start + size, last)) for start in range(0, last, size)])


def largest(memory: int, columns: int, outputs: int) -> int:
    """How many rows a layer can be fitted to: any, by a Gram matrix of its columns, unless that is too large itself."""
    if 3 * 4 * columns**2 <= memory // 4:
        return 1 << 62
    return max(1, min(columns - 1, memory // 4 // (3 * 4 * columns)))


class Alive(TorchDispatchMode):
    """The bytes of tensors that operations have made and that are still in use."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[weakref.ref[Tensor]] = []
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        self.made += [weakref.ref(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.peak = max(self.peak, self.bytes())
        return result

    def bytes(self) -> int:
        self.made = [ref for ref in self.made if ref() is not None]
        storages = (ref().untyped_storage() for ref in self.made)  # type: ignore[union-attr]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class Ended(Exception):
    """All layers are fitted: nothing more is wanted of a forward pass."""


class Part(threading.Thread):
    """The forward pass of some samples, which waits at layers until it is told to go on."""

    def __init__(self, samples: slice, run: Callable[[], object]):
        super().__init__(daemon=True)
        self.samples, self.forward = samples, run
        self.go, self.stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.at: tuple[str, Tensor, Tensor] | None = None
        self.ending = False
        self.error: BaseException | None = None

    def run(self) -> None:
        self.go.acquire()
        try:
            if not self.ending:
                with torch.no_grad():  # of this thread
                    self.forward()
        except Ended:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.at = None
            self.stopped.release()

    def wait_at(self, name: str, inputs: Tensor, output: Tensor) -> None:
        """Called by the forward pass itself: the others' turn."""
        self.at = (name, inputs, output)
        self.stopped.release()
        self.go.acquire()
        self.at = None
        if self.ending:
            raise Ended

    def proceed(self) -> None:
        """Lets it run until it waits at a layer, or ends."""
        if not self.is_alive() and self.ident is None:
            self.start()
        self.go.release()
        self.stopped.acquire()
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        self.ending = True
        if self.is_alive():
            self.go.release()
            self.join()


def in_lockstep(
    network: nn.Module,
    layers: Mapping[str, Layer],
    inputs: Inputs,
    schedule: Schedule,
    fit: Callable[[str, Arrived], None],
) -> None:
    """Calls `fit` for one layer after the other, with what has arrived there through the layers fitted before."""
    names = list(schedule.steps)
    place = {name: i for i, name in enumerate(names)}
    begins = {  # the first layer that a part is wanted at
        part.start: next(i for i, name in enumerate(names) if schedule.steps[name].samples > part.start)
        for part in schedule.parts
    }

    def see(name: str, layer: Layer, x: Tensor, output: Tensor) -> Tensor | None:
        part = threading.current_thread()
        assert isinstance(part, Part)
        if place[name] < begins[part.samples.start]:
            return None  # fitted already
        part.wait_at(name, x, output)
        return layer.forward(x)

    def ask(part: slice) -> Callable[[], object]:
        return lambda: Batch.of(inputs[schedule.order[part]]).ask(network)

    parts = [Part(part, ask(part)) for part in schedule.parts]
    try:
        with watched({name: layers[name] for name in names}, see):
            for i, name in enumerate(names):
                arrived = []
                for part in parts:
                    if begins[part.samples.start] > i:
                        continue
                    part.proceed()
                    if part.at is None or part.at[0] != name:
                        raise ValueError(
                            f"a sample did not reach {name} where others did: layers are matched in a network that "
                            "runs all of them, in one order, for any sample; use another code"
                        )
                    if part.samples.start < schedule.steps[name].samples:
                        arrived.append((part.samples, *part.at[1:]))
                fit(name, arrived)
    finally:
        for part in parts:
            part.end()
