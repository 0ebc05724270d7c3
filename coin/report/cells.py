"""Cells: runs that are averaged, and what tells them from others. Tables and figures are views of a list of cells."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coin.report import paper
from coin.report.runs import IGNORED, TRAINING, Run, settings_of

# Overrides with which a run may still be as the paper's; its samples and β are looked at.
AS_THE_PAPER = IGNORED | {"model", "model.weights", "model.stride_in_1x1", "samples", "beta", "code.track", TRAINING}

# The order of rows: the paper's codes as the paper has them, then ours.
CODES = ["base", "average", "task_arithmetic", "ties", "dare", "tsv", "iso", "regmean", "regmean_conv", "distillation",
         "coin", "coin_scaled", "coin_balanced", "coin_kfac", "matched", "coin_refined", "parity"]  # fmt: skip
DECODERS = ["direct", "analytic", "ridge", "features", "alone"]


@dataclass
class Cell:
    """Runs that differ in the draw of their samples alone."""

    experiment: str
    code: str
    decoder: str
    variant: dict[str, str]  # the settings that vary within the collection
    runs: list[Run]  # by seed
    best: bool = False  # whether no average of the experiment is higher

    @property
    def name(self) -> str:
        return name_of(self.code, self.decoder)

    @property
    def label(self) -> str:
        return self.label_without()

    def label_without(self, *left_out: str) -> str:
        """What tells it from other cells of the experiment, but for some settings."""
        return " ".join([self.name, *self.settings(*left_out)])

    def code_without(self, *left_out: str) -> str:
        """The same whatever the decoder."""
        return " ".join([self.code, *self.settings(*left_out)])

    def settings(self, *left_out: str) -> list[str]:
        return [f"{key}={value}" for key, value in self.variant.items() if key not in left_out]

    @property
    def row(self) -> tuple[Any, ...]:
        """Where it is in a column: codes in the paper's order, others behind; settings by size."""
        settings = [(number(value), value, key) for key, value in self.variant.items()]
        return place(self.code, CODES), place(self.decoder, DECODERS), settings

    @property
    def first(self) -> Run:
        """The first draw; runs of older versions, which tell less of their experts, come last."""
        return min(self.runs, key=lambda run: "distance" not in run)

    def number(self, key: str) -> float:
        """Its place on the axis of a setting; infinite where it has none."""
        return number(self.variant.get(key, ""))

    @property
    def experts(self) -> list[str]:
        return [expert["name"] for expert in self.first["experts"]]

    def facts(self, key: str) -> list[float]:
        """What is said of each expert; experts do not depend on the seed of the draw."""
        return [expert[key] for expert in self.first["experts"] if key in expert]

    @property
    def calls(self) -> int | None:
        """Answers asked for to decode one; None where no run tells it."""
        return self.first.get("calls")

    @property
    def numbers(self) -> int | None:
        """Numbers sent to decode one answer."""
        return self.first.get("numbers")

    def missing(self) -> dict[int, tuple[float, float]]:
        """Mean and standard deviation over the draws for each number of missing experts that all runs tell."""
        counts = set.intersection(*(set(run.get("missing", {})) for run in self.runs))
        return {int(c): spread([run["missing"][c] for run in self.runs]) for c in sorted(counts, key=int)}

    @property
    def distance(self) -> float:
        """Of the experts from one another; NaN where no run tells it."""
        return float(self.first.get("distance", math.nan))

    def nda(self, expert: int | None = None) -> tuple[float, float]:
        """Mean and standard deviation over the draws, of one expert or of the average."""
        return spread([run["nda"] if expert is None else run["experts"][expert]["nda"] for run in self.runs])

    def paper(self, expert: int | None = None) -> float | None:
        """The paper's number, where the runs are as the paper's."""
        run = self.runs[0]
        overrides = run.get("overrides", {})
        other = [key for key in overrides if key not in AS_THE_PAPER and not key.startswith("hydra.")]
        setting = self.decoder, overrides.get("model", "resnet50"), run["samples"], run["beta"]
        if other or setting != ("analytic", "resnet50", 200, [0.5, 0.5]):
            return None
        numbers = paper.NDA.get(self.code, {}).get(self.experiment)
        return numbers and numbers[2 if expert is None else expert]

    def seconds(self) -> float:
        """Of encoding, with the statistics (Fishers, Gram matrices) it rests on, whenever they were computed."""
        return statistics.fmean(run["seconds"]["encode"] + run["seconds"].get("statistics", 0) for run in self.runs)


def name_of(code: str, decoder: str) -> str:
    return code if decoder == "analytic" else f"{code} + {decoder}"


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; NaN where a value is undefined, and for the deviation of one."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def number(text: str) -> float:
    """A setting as a place on an axis: a number, or the first of a list (β); infinite, so behind all, if neither."""
    try:
        value = float(text.strip("[]").split(",")[0])
    except ValueError:
        value = math.inf
    return value if math.isfinite(value) else math.inf


def place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return order.index(name) if name in order else len(order), name


def distinct(values: Iterable[str]) -> list[str]:
    """In the order of their first appearance."""
    return list(dict.fromkeys(values))


def by_experiment(cells: Sequence[Cell]) -> list[list[Cell]]:
    return [[c for c in cells if c.experiment == e] for e in distinct(cell.experiment for cell in cells)]


def curves(cells: Sequence[Cell]) -> list[str]:
    """The settings that take more than two numbers: NDA is drawn against them. A seed is no size."""
    keys = distinct(key for cell in cells for key in cell.variant if key != TRAINING)
    return [key for key in keys if len({cell.number(key) for cell in cells} - {math.inf}) > 2]


def cells_of(runs: Sequence[Run]) -> list[Cell]:
    """Runs grouped by experiment, code and whatever else varies among them; of runs with one seed the last counts."""
    settings = [settings_of(run) for run in runs]
    keys = {key for chosen in settings for key in chosen}
    values = {(run["experiment"], key, s.get(key)) for run, s in zip(runs, settings, strict=True) for key in keys}
    counts = Counter((experiment, key) for experiment, key, _ in values)
    varying = sorted({key for (_, key), count in counts.items() if count > 1})  # within an experiment
    names = names_of(varying, settings)
    groups: dict[tuple[Any, ...], dict[int, Run]] = {}
    for run, chosen in zip(runs, settings, strict=True):
        variant = tuple({names[key]: chosen[key] for key in varying if key in chosen}.items())
        group = run["experiment"], run["code"], run.get("decoder", "analytic"), variant
        groups.setdefault(group, {})[run["seed"]] = run
    cells = [Cell(e, c, d, dict(v), [draws[s] for s in sorted(draws)]) for (e, c, d, v), draws in groups.items()]
    for rivals in by_experiment(cells):
        top = max((cell.nda()[0] for cell in rivals if math.isfinite(cell.nda()[0])), default=math.nan)
        for cell in rivals:
            cell.best = cell.nda()[0] == top
    return sorted(cells, key=lambda cell: (place(cell.experiment, paper.EXPERIMENTS), cell.row))


def names_of(keys: Sequence[str], settings: Sequence[dict[str, str]]) -> dict[str, str]:
    """Short names: the last word, or as many as tell two settings apart; those that are always equal share one."""
    columns = {key: tuple(chosen.get(key) for chosen in settings) for key in keys}

    def plain(name: str, key: str) -> bool:
        return all(columns[other] == columns[key] for other in keys if f".{other}".endswith(f".{name}"))

    tails = {key: [key.split(".", i)[-1] for i in range(key.count("."), -1, -1)] for key in keys}
    return {key: next((name for name in tails[key] if plain(name, key)), key) for key in keys}
