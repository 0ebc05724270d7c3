"""Figures of results/serving; each says in its title which tier it is of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("agg")  # no screen, and none is needed

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coin.serving.cells import tail
from coin.serving.region import REGIONS, boundary

Row = dict[str, Any]
LOOKS = {  # Okabe and Ito's colours, and a mark of its own for each policy
    "none": ("#000000", "o"), "replica of one": ("#999999", "s"), "spare, all models": ("#009e73", "^"),
    "spare, loading": ("#009e73", "v"), "small backup": ("#cc79a7", "P"), "coded, at once": ("#d55e00", "D"),
    "coded, late": ("#e69f00", "d"), "pairs": ("#0072b2", "*"), "drop the last": ("#56b4e9", "X"),
    "merged alone": ("#f0e442", "h"),
}  # fmt: skip
KINDS = ((True, "ensembles"), (False, "routed queries"))


def figures(cells: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, Figure]]:
    grid = [c for c in cells["T3"] if c["skew"] == 1]
    two = [c for c in grid if c["experts"] == 2]
    slow = [c for c in two if c["fault"] == "1 % ×10"]
    yield "ccdf", panels([c for c in slow if c["load"] == 0.1], ccdf, "milliseconds", "share that takes longer (T3)")
    yield "load", panels(slow, lines("load"), "how busy each expert is", "p99.9 − p50, ms (T3)")
    tens = [{**c, "percent": percent(c)} for c in two if "×10" in c["fault"] and c["load"] == 0.4]
    yield "faults", panels(tens, lines("percent"), "calls that are 10 times slower, %", "p99.9 − p50, ms (T3)")
    sized = [c for c in grid if c["fault"] == "1 % ×10" and c["load"] == 0.1]
    yield "experts", panels(sized, lines("experts"), "N", "p99.9 − p50, ms (T3)")
    yield "region", region()
    if cells["T1"]:
        yield "kill", kill(cells["T1"])
    if cells["learning"]:
        yield "learning", learning(cells["learning"])


def percent(cell: Row) -> float:
    return float(cell["fault"].split()[0])


def panels(cells: Sequence[Row], draw: Callable[[Axes, str, Sequence[Row]], None], x: str, y: str) -> Figure:
    """Ensembles and routed queries beside one another."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    for axis, (ensembles, title) in zip(axes, KINDS, strict=True):
        own = [c for c in cells if c["ensembles"] == ensembles]
        for policy in dict.fromkeys(c["policy"] for c in own):
            draw(axis, policy, [c for c in own if c["policy"] == policy])
        axis.set(title=f"{title} (T3, simulated)", xlabel=x, xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(y)
    axes[0].legend(fontsize=8)
    return figure


def ccdf(axis: Axes, policy: str, cells: Sequence[Row]) -> None:
    colour, mark = LOOKS[policy]
    for cell in cells:
        quantiles = {float(q): ms for q, ms in cell["quantiles"].items()}
        axis.plot(
            [*quantiles.values()], [1 - q / 100 for q in quantiles], color=colour, marker=mark, ms=4, label=policy
        )


def lines(key: str) -> Callable[[Axes, str, Sequence[Row]], None]:
    def draw(axis: Axes, policy: str, cells: Sequence[Row]) -> None:
        colour, mark = LOOKS[policy]
        points = sorted((c[key], tail(c)) for c in cells)
        axis.plot(*zip(*points, strict=True), color=colour, marker=mark, ms=5, label=policy)

    return draw


def region() -> Figure:
    """What two experts and one more server can serve, in units of a server's rate."""
    figure, axis = plt.subplots(figsize=(5, 4.6), layout="constrained")
    angles = np.linspace(0, np.pi / 2, 181)
    directions = np.stack([np.cos(angles), np.sin(angles)], 1).clip(0)
    for name, (inside, style) in zip(
        REGIONS, zip(REGIONS.values(), ("k:", "k--", "C1-", "C0-"), strict=True), strict=True
    ):
        edge = boundary(inside, directions)
        axis.plot(edge[:, 0], edge[:, 1], style, label=name)
    axis.set(
        xlabel="queries for expert 1, in units of μ",
        ylabel="queries for expert 2",
        title="service-rate region, N = 2 (derived)",
    )
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
    return figure


def kill(outcomes: Sequence[Row]) -> Figure:
    """Second by second: the slowest answers, and how many were decoded or failed."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(9, 5), layout="constrained", sharex=True)
    seconds = sorted({int(o["arrival"]) for o in outcomes})
    own = {s: [o for o in outcomes if int(o["arrival"]) == s] for s in seconds}
    worst = [max((1000 * o["latency"] for o in own[s] if o["latency"] is not None), default=np.nan) for s in seconds]
    upper.plot(seconds, worst, "k.-", label="slowest answer of the second")
    upper.set(
        yscale="log", ylabel="milliseconds", title="kills of real servers (T1): an expert, then the coded network"
    )
    for label, colour, is_so in (
        ("decoded", "C1", lambda o: o["source"] == ["decoded"]),
        ("failed", "C3", lambda o: o["latency"] is None),
    ):
        lower.step(seconds, [sum(is_so(o) for o in own[s]) for s in seconds], color=colour, label=label)
    lower.set(xlabel="seconds", ylabel="queries a second")
    for axis in (upper, lower):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    return figure


def learning(found: Sequence[Row]) -> Figure:
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for i, name in enumerate(dict.fromkeys(row["expert"] for row in found)):
        own = [row for row in found if row["expert"] == name]
        for key, style in (("accuracy", "-"), ("agreement", "--")):
            points = [(row["pairs"], 100 * row[key]) for row in own]
            axis.plot(*zip(*points, strict=True), f"C{i}{style}", label=f"{name}: {key}")
    axis.set(
        xlabel="pairs seen", ylabel="% of held-out test images", title="the decoder learns from traffic (real networks)"
    )
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
    return figure
