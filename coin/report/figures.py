"""Figures: codes side by side, NDA against whatever number a sweep varies, and training histories."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import matplotlib

matplotlib.use("agg")  # no screen, and none is needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from coin.report.cells import Cell, by_experiment, curves, distinct
from coin.report.runs import Run

AXES = {"samples": "samples P", "damping": "damping λ", "scale": "scale α", "beta": "weight β₁ of the first expert",
        "splits": "experts N", "coded": "coded networks N_c",
        "calibration": "unlabelled queries an expert"}  # fmt: skip
NDA = "average NDA, %"
MARKERS = "osD^v<>P*Xhp"
STYLES = ["-", "--", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3))]
MOST_LINES = 16  # in a panel
COLORS = [f"C{i}" for i in range(10)]
Panels = list[tuple[Axes, list[Cell]]]


def figures(cells: Sequence[Cell]) -> Iterator[tuple[str, Figure]]:
    """Named figures that these cells have something to show in."""
    varied = curves(cells)
    for key in varied:
        yield f"nda_against_{key}", against(cells, key)
    if not varied:
        yield "nda", bars(cells)
        if len(cells) > 2:
            yield "nda_against_seconds", costs(cells)
    if any(len(cell.missing()) > 1 for cell in cells):
        yield "nda_against_missing", losses(cells)
    known = [cell for cell in cells if not math.isnan(cell.distance)]
    if any(len({cell.distance for cell in group}) > 2 for group in by_experiment(known)):
        yield "nda_against_distance", distances(known)
    if len(cells) > 2 and all("margin" in expert for cell in cells for run in cell.runs for expert in run["experts"]):
        yield "nda_against_error", errors(cells)
    if any(has_curves(run) for cell in cells for run in cell.runs):
        yield "nda_per_epoch", histories(cells)


def panels(groups: Sequence[list[Cell]], x: str, y: str = NDA, height: float = 3.6) -> tuple[Figure, Panels]:
    """A panel a group of cells, titled with their experiment."""
    columns = min(len(groups), 3)
    rows = math.ceil(len(groups) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.2 + 4.2 * columns, height * rows), squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    drawn = list(zip(axes.flat, groups, strict=False))
    names = [cell_group[0].experiment for cell_group in groups]
    for axis, group in drawn:
        title = group[0].experiment
        if names.count(title) > 1:  # what else the cells of the panel have in common tells it
            shared = set.intersection(*({c.decoder, *c.settings()} for c in group))
            title = " ".join([title, *(part for part in [group[0].decoder, *group[0].settings()] if part in shared)])
        axis.set(xlabel=x, ylabel=y, title=title)
        axis.grid(alpha=0.3)
    return figure, drawn


def looks(names: Sequence[str], choice: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, cycle(choice), strict=False))


def finish(figure: Figure, handles: Sequence[Line2D] = (), **place: Any) -> Figure:
    """With one legend for all panels that have none of their own: what has the same name is in it once."""
    figure.tight_layout()
    bare = [axis for axis in figure.axes if not axis.get_legend()]
    every = [*handles, *(handle for axis in bare for handle in axis.get_legend_handles_labels()[0])]
    named = {handle.get_label(): handle for handle in every}
    if named:
        figure.legend(handles=[*named.values()], **place or {"loc": "center left", "bbox_to_anchor": (1, 0.5)})
    return figure


def bars(cells: Sequence[Cell]) -> Figure:
    """Average NDA of every code, a panel an experiment, a bar a decoder, the paper's number as a mark."""
    decoders = distinct(cell.decoder for cell in cells)
    several = len(decoders) > 1
    hues = looks(decoders if several else distinct(map(Cell.code_without, cells)), COLORS)
    groups = by_experiment(cells)
    rows = max(len({cell.code_without() for cell in group}) for group in groups)
    figure, drawn = panels(groups, NDA, "", height=1.2 + 0.35 * rows * max(1, 0.6 * len(decoders)))
    width = 0.8 / len(decoders)
    for axis, group in drawn:
        codes = distinct(map(Cell.code_without, group))
        for d, decoder in enumerate(decoders):
            own = [cell for cell in group if cell.decoder == decoder]
            places = [codes.index(cell.code_without()) + (d - (len(decoders) - 1) / 2) * width for cell in own]
            means, deviations = [cell.nda()[0] for cell in own], [cell.nda()[1] for cell in own]
            look: dict[str, Any] = {
                "color": [hues[decoder if several else cell.code_without()] for cell in own],
                "alpha": 0.85,
            }
            axis.barh(places, means, width, xerr=deviations, label=decoder if several else None, **look)
            marks = [(cell.paper(), place) for cell, place in zip(own, places, strict=True) if cell.paper() is not None]
            if marks:
                axis.plot(*zip(*marks, strict=True), marker="D", color="black", linestyle="none", label="paper")
        axis.grid(False)
        axis.set_yticks(range(len(codes)), codes)
        axis.invert_yaxis()
        shown = [value for cell in group for value in (cell.nda()[0], cell.paper()) if value is not None]
        lowest = min(filter(math.isfinite, shown), default=0)
        axis.set_xlim(max(0, math.floor((lowest - 10) / 10) * 10), 102)
    return finish(figure, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(decoders) + 1)


def costs(cells: Sequence[Cell]) -> Figure:
    """Average NDA against the seconds of encoding: a marker a code, a colour a decoder, or a code if there is one."""
    decoders = distinct(cell.decoder for cell in cells)
    codes = distinct(map(Cell.code_without, cells))
    several, marks = len(decoders) > 1, looks(codes, MARKERS)
    hues = looks(decoders if several else codes, COLORS)
    figure, drawn = panels(by_experiment(cells), "seconds of encoding")
    for axis, group in drawn:
        for cell in group:
            code, x = cell.code_without(), max(cell.seconds(), 1e-2)
            hue = hues[cell.decoder if several else code]
            axis.plot(x, cell.nda()[0], marker=marks[code], color=hue, linestyle="none")
        axis.set_xscale("log")
    named = [(d, hues[d], "s") for d in decoders if several]
    named += [(code, "grey" if several else hues[code], marks[code]) for code in codes]
    return finish(figure, [Line2D([], [], color=c, marker=m, linestyle="none", label=name) for name, c, m in named])


def distances(cells: Sequence[Cell]) -> Figure:
    """Average NDA against the distance of the experts, a colour a code; the best code of a setting tells it."""
    hues = looks(distinct(cell.name for cell in cells), COLORS)
    figure, drawn = panels(by_experiment(cells), "‖θ₁ − θ₂‖, distance of the experts", height=4.2)
    for axis, group in drawn:
        for name, hue in hues.items():
            own = [cell for cell in group if cell.name == name]
            axis.plot([c.distance for c in own], [c.nda()[0] for c in own], "o", color=hue, label=name)
        tops = {" ".join(cell.settings()): cell for cell in sorted(group, key=lambda cell: cell.nda()[0])}
        for text, cell in tops.items():
            spot = (cell.distance, cell.nda()[0])
            axis.annotate(text, spot, xytext=(3, 3), textcoords="offset points", fontsize=6)
        axis.legend()
    return finish(figure)


def errors(cells: Sequence[Cell]) -> Figure:
    """NDA of every expert against how large decoding errors are beside its margins: a colour a code."""
    names = distinct(cell.name for cell in cells)
    x = "error of a decoded output / median margin of the expert"
    figure, [(axis, _)] = panels([list(cells)], x, "NDA of an expert, %", height=4.2)
    axis.set_title("")
    for name, hue, mark in zip(names, cycle(COLORS), cycle(MARKERS), strict=False):
        experts = [e for cell in cells if cell.name == name for run in cell.runs for e in run["experts"]]
        ratios = [expert["decoding_error"] / expert["margin"] for expert in experts]
        axis.plot(ratios, [expert["nda"] for expert in experts], mark, color=hue, alpha=0.7, label=name)
    axis.set_xlim(left=0)
    axis.legend(fontsize=7)
    return finish(figure)


def against(cells: Sequence[Cell], key: str) -> Figure:
    """Average NDA against one setting, a line for each combination of everything else: a colour a code, a style a
    decoder, or a panel of its own where lines are many. What has no value of the setting is drawn across, for
    comparison."""
    styles = looks(distinct(cell.decoder for cell in cells), STYLES)
    hues = looks(distinct(cell.code_without(key) for cell in cells), COLORS)
    groups = by_experiment(cells)
    many = max(len({cell.label_without(key) for cell in group}) for group in groups) > MOST_LINES
    if many:
        groups = [[c for c in g if c.decoder == d] for g in groups for d in distinct(c.decoder for c in g)]
    figure, drawn = panels(groups, AXES.get(key, key))
    for axis, group in drawn:
        for cell in (cell for cell in group if math.isinf(cell.number(key))):
            label = cell.label if key in cell.variant else f"{cell.label}, no {key}"
            hue = hues[cell.code_without(key)]
            axis.axhline(cell.nda()[0], label=label, color=hue, linestyle="-.", linewidth=1)
        numbered = [cell for cell in group if math.isfinite(cell.number(key))]
        for label in distinct(cell.label_without(key) for cell in numbered):
            own = [cell for cell in numbered if cell.label_without(key) == label]
            x, y, deviations = zip(*sorted((cell.number(key), *cell.nda()) for cell in own), strict=True)
            look: dict[str, Any] = {"color": hues[own[0].code_without(key)], "linestyle": styles[own[0].decoder]}
            if many:
                label, look["linestyle"] = own[0].code_without(key), "-"
            axis.errorbar(x, y, yerr=deviations, marker="o", capsize=3, label=label, **look)
        values = sorted({cell.number(key) for cell in numbered})
        if values and values[0] > 0 and values[-1] / values[0] >= 10:
            axis.set_xscale("log")
        if 1 < len(values) <= 8:  # what was run, rather than round numbers
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.minorticks_off()
    return finish(figure)


def losses(cells: Sequence[Cell]) -> Figure:
    """Average NDA against how many experts are missing: a panel a setting, a line a decoder, of the code that is best
    with one missing."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in (cell for cell in cells if cell.missing()):
        groups.setdefault((cell.experiment, *cell.settings()), []).append(cell)
    figure, drawn = panels(list(groups.values()), "experts missing")
    decoders = distinct(cell.decoder for cell in cells)
    hues, marks = looks(decoders, COLORS), looks(decoders, MARKERS)
    for axis, group in drawn:
        best = {cell.decoder: cell for cell in sorted(group, key=lambda cell: cell.nda()[0])}
        for cell in sorted(best.values(), key=lambda cell: cell.row):
            x, y = zip(*((count, mean) for count, (mean, _) in cell.missing().items()), strict=True)
            axis.plot(x, y, marker=marks[cell.decoder], color=hues[cell.decoder], label=cell.name)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(fontsize=7)
    return finish(figure)


def has_curves(run: Run) -> bool:
    """Whether the run has an NDA for every epoch."""
    return any("train_nda" in point for point in run.get("history", []))


def histories(cells: Sequence[Cell]) -> Figure:
    """NDA on the P samples and on test samples after every epoch of a code that trains, a line a seed.

    It is told for the paper's formula whatever decodes in the end, so one decoder's runs are enough.
    """
    trained = [cell for cell in cells if any(map(has_curves, cell.runs))]
    chosen = {(cell.experiment, cell.code_without()): replace(cell, decoder="analytic") for cell in trained}
    figure, drawn = panels([[cell] for cell in chosen.values()], "epoch")
    for axis, [cell] in drawn:
        for i, run in enumerate(filter(has_curves, cell.runs)):
            epochs = [point["epoch"] for point in run["history"]]
            for key, hue, label in (("train_nda", "C0", "the P samples"), ("test_nda", "C1", "test samples")):
                if all(key in point for point in run["history"]):
                    y = [point[key] for point in run["history"]]
                    axis.plot(epochs, y, color=hue, alpha=0.8, label=label if not i else None)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_title(f"{cell.label} on {cell.experiment}")
        axis.legend()
    return finish(figure)
