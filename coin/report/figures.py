"""Figures: codes side by side, NDA against whatever number a sweep varies, and training histories."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import matplotlib

matplotlib.use("agg")  # no screen, and none is needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from coin.report.runs import Cell, number

AXES = {"samples": "samples P", "damping": "damping λ", "beta": "weight β₁ of the first expert"}


def figures(cells: Sequence[Cell]) -> Iterator[tuple[str, Figure]]:
    """Named figures that these cells have something to show in."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.variant))
    curves = [key for key in keys if len({as_number(c.variant[key]) for c in cells if key in c.variant} - {None}) > 2]
    for key in curves:
        yield f"nda_against_{key}", against(cells, key)
    if not curves:
        yield "nda", bars(cells)
        if len(cells) > 2:
            yield "nda_against_seconds", costs(cells)
    distances = [{c.runs[0]["distance"] for c in group if "distance" in c.runs[0]} for group in by_experiment(cells)]
    if max(map(len, distances)) > 2:
        known = [cell for cell in cells if "distance" in cell.runs[0]]
        yield "nda_against_distance", scatter(known, "distance", "‖θ₁ − θ₂‖, distance of the experts")
    if len(cells) > 2 and all("margin" in expert for cell in cells for run in cell.runs for expert in run["experts"]):
        yield "nda_against_error", errors(cells)
    if any(has_curves(run) for cell in cells for run in cell.runs):
        yield "nda_per_epoch", histories(cells)


def as_number(text: str) -> float | None:
    return None if math.isnan(number(text)) else number(text)


def panels(count: int, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.2 + 4.2 * columns, height * rows), squeeze=False)
    flat = list(axes.flat)
    for axis in flat[count:]:
        axis.set_visible(False)
    return figure, flat[:count]


def bars(cells: Sequence[Cell]) -> Figure:
    """Average NDA of every code, a panel an experiment, a bar a decoder, the paper's number as a mark."""
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    decoders = list(dict.fromkeys(cell.decoder for cell in cells))
    every = list(dict.fromkeys(map(code_of, cells)))
    rows = max(len({code_of(c) for c in cells if c.experiment == e}) for e in experiments)
    figure, axes = panels(len(experiments), height=1.2 + 0.35 * rows * max(1, 0.6 * len(decoders)))
    for axis, experiment in zip(axes, experiments, strict=True):
        chosen = [cell for cell in cells if cell.experiment == experiment]
        codes = list(dict.fromkeys(map(code_of, chosen)))
        width = 0.8 / len(decoders)
        for d, decoder in enumerate(decoders):
            own = [cell for cell in chosen if cell.decoder == decoder]
            places = [codes.index(code_of(c)) + (d - (len(decoders) - 1) / 2) * width for c in own]
            deviations = [0 if math.isnan(cell.nda()[1]) else cell.nda()[1] for cell in own]
            means = [cell.nda()[0] for cell in own]
            colors = [f"C{every.index(code_of(c)) % 10}" for c in own] if len(decoders) == 1 else f"C{d}"
            label = decoder if len(decoders) > 1 else None
            axis.barh(places, means, height=width, xerr=deviations, color=colors, alpha=0.85, label=label)
            marks = [(cell.paper(), place) for cell, place in zip(own, places, strict=True) if cell.paper() is not None]
            if marks:
                axis.plot(*zip(*marks, strict=True), marker="D", color="black", linestyle="none", label="paper")
        axis.set_yticks(range(len(codes)), codes)
        axis.invert_yaxis()
        shown = [value for cell in chosen for value in (cell.nda()[0], cell.paper()) if value is not None]
        lowest = min(filter(math.isfinite, shown), default=0)
        axis.set_xlim(max(0, math.floor((lowest - 10) / 10) * 10), 102)
        axis.set_xlabel("average NDA, %")
        axis.set_title(experiment)
    figure.tight_layout()
    named: dict = {}
    for axis in axes:
        named |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if named:
        figure.legend(named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(named))
    return figure


def code_of(cell: Cell) -> str:
    """The code with its settings, whatever the decoder."""
    return " ".join([cell.code, *(f"{k}={v}" for k, v in cell.variant.items())])


MARKERS = "osD^v<>P*Xhp"


def costs(cells: Sequence[Cell]) -> Figure:
    """Average NDA against the seconds of encoding: a marker a code, a colour a decoder, or a code if there is one."""
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    decoders = list(dict.fromkeys(cell.decoder for cell in cells))
    codes = list(dict.fromkeys(map(code_of, cells)))
    figure, axes = panels(len(experiments))
    for axis, experiment in zip(axes, experiments, strict=True):
        for cell in (cell for cell in cells if cell.experiment == experiment):
            i = codes.index(code_of(cell))
            color = f"C{decoders.index(cell.decoder)}" if len(decoders) > 1 else f"C{i % 10}"
            x, y = max(cell.seconds(), 1e-2), cell.nda()[0]
            axis.plot(x, y, marker=MARKERS[i % len(MARKERS)], color=color, linestyle="none")
        axis.set_xscale("log")
        axis.set_xlabel("seconds of encoding")
        axis.set_ylabel("average NDA, %")
        axis.set_title(experiment)
        axis.grid(alpha=0.3)
    handles = [Line2D([], [], color=f"C{i}", marker="s", linestyle="none", label=d) for i, d in enumerate(decoders)]
    if len(decoders) == 1:
        handles = []
    for i, code in enumerate(codes):
        color = "grey" if len(decoders) > 1 else f"C{i % 10}"
        handles.append(Line2D([], [], color=color, marker=MARKERS[i % len(MARKERS)], linestyle="none", label=code))
    figure.tight_layout()
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def by_experiment(cells: Sequence[Cell]) -> list[list[Cell]]:
    return [[c for c in cells if c.experiment == e] for e in dict.fromkeys(cell.experiment for cell in cells)]


def scatter(cells: Sequence[Cell], key: str, label: str) -> Figure:
    """Average NDA against a fact of the experts, a colour a code; the best code of a setting tells it."""
    groups = by_experiment(cells)
    names = list(dict.fromkeys(replace(cell, variant={}).label for cell in cells))
    figure, axes = panels(len(groups), height=4.2)
    for axis, group in zip(axes, groups, strict=True):
        for name in names:
            own = sorted((c for c in group if replace(c, variant={}).label == name), key=lambda c: c.runs[0][key])
            x, y = [c.runs[0][key] for c in own], [c.nda()[0] for c in own]
            axis.plot(x, y, "o", color=f"C{names.index(name) % 10}", label=name)
        tops = {tuple(c.variant.items()): c for c in sorted(group, key=lambda c: c.nda()[0])}
        for settings, cell in tops.items():
            text, place = " ".join(f"{k}={v}" for k, v in settings), (cell.runs[0][key], cell.nda()[0])
            axis.annotate(text, place, xytext=(3, 3), textcoords="offset points", fontsize=6)
        axis.set_xlabel(label)
        axis.set_ylabel("average NDA, %")
        axis.set_title(group[0].experiment)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    return figure


def errors(cells: Sequence[Cell]) -> Figure:
    """NDA of every expert against how large decoding errors are beside its margins: a colour a code."""
    names = list(dict.fromkeys(replace(cell, variant={}).label for cell in cells))
    figure, (axis,) = panels(1, height=4.2)
    for i, name in enumerate(names):
        experts = [e for c in cells if replace(c, variant={}).label == name for run in c.runs for e in run["experts"]]
        x = [expert["decoding_error"] / expert["margin"] for expert in experts]
        y = [expert["nda"] for expert in experts]
        axis.plot(x, y, MARKERS[i % len(MARKERS)], color=f"C{i % 10}", alpha=0.7, label=name)
    axis.set_xlim(left=0)
    axis.set_xlabel("error of a decoded output / median margin of the expert")
    axis.set_ylabel("NDA of an expert, %")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    figure.tight_layout()
    return figure


STYLES = ["-", "--", ":"]


def against(cells: Sequence[Cell], key: str) -> Figure:
    """Average NDA against one setting, a line for each combination of everything else: a colour a code, a style a
    decoder. What has no value of the setting is drawn across, for comparison."""
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    decoders = list(dict.fromkeys(cell.decoder for cell in cells))
    codes = list(dict.fromkeys(without(cell, key) for cell in cells))
    figure, axes = panels(len(experiments))
    for axis, experiment in zip(axes, experiments, strict=True):
        lines: dict[str, list[tuple[float, float, float]]] = {}
        looks: dict[str, dict] = {}
        for cell in (cell for cell in cells if cell.experiment == experiment):
            color = f"C{codes.index(without(cell, key)) % 10}"
            look: dict = {"color": color, "linestyle": STYLES[decoders.index(cell.decoder) % len(STYLES)]}
            place = as_number(cell.variant[key]) if key in cell.variant else None
            if place is None:
                label = cell.label if key in cell.variant else f"{cell.label}, no {key}"
                axis.axhline(cell.nda()[0], label=label, color=color, linestyle="-.", linewidth=1)
            else:
                lines.setdefault(cell.label_without(key), []).append((place, *cell.nda()))
                looks[cell.label_without(key)] = look
        for label, points in lines.items():
            x, y, error = zip(*sorted(points), strict=True)
            height = [0 if math.isnan(e) else e for e in error]
            axis.errorbar(x, y, yerr=height, marker="o", capsize=3, label=label, **looks[label])
        values = {x for points in lines.values() for x, _, _ in points}
        if values and min(values) > 0 and max(values) / min(values) >= 10:
            axis.set_xscale("log")
        if 1 < len(values) <= 8:  # what was run, rather than round numbers
            axis.set_xticks(sorted(values), [f"{value:g}" for value in sorted(values)])
            axis.minorticks_off()
        axis.set_xlabel(AXES.get(key, key))
        axis.set_ylabel("average NDA, %")
        axis.set_title(experiment)
        axis.grid(alpha=0.3)
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.tight_layout()
    figure.legend(named.values(), named.keys(), loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def without(cell: Cell, key: str) -> str:
    """The code with its settings but this one, whatever the decoder."""
    return code_of(replace(cell, variant={k: v for k, v in cell.variant.items() if k != key}))


def has_curves(run: dict) -> bool:
    """Whether the run has an NDA for every epoch."""
    return any("train_nda" in point for point in run.get("history", []))


def histories(cells: Sequence[Cell]) -> Figure:
    """NDA on the P samples and on test samples after every epoch of a code that trains, a line a seed.

    It is told for the paper's formula whatever decodes in the end, so one decoder's runs are enough.
    """
    trained = [cell for cell in cells if any(map(has_curves, cell.runs))]
    chosen = list({(c.experiment, code_of(c)): replace(c, decoder="analytic") for c in trained}.values())
    figure, axes = panels(len(chosen))
    for axis, cell in zip(axes, chosen, strict=True):
        for i, run in enumerate(filter(has_curves, cell.runs)):
            epochs = [point["epoch"] for point in run["history"]]
            for key, color, label in (("train_nda", "C0", "the P samples"), ("test_nda", "C1", "test samples")):
                if all(key in point for point in run["history"]):
                    y = [point[key] for point in run["history"]]
                    axis.plot(epochs, y, color=color, alpha=0.8, label=label if not i else None)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel("average NDA, %")
        axis.set_title(f"{cell.label} on {cell.experiment}")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    return figure
