"""Runs on disk: results.json files, collected and averaged over seeds."""

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coin.ranks import is_first
from coin.report import paper

# Overrides that tell neither one setting from another nor belong in a table.
IGNORED = {
    "seed",
    "experiment",
    "code",
    "decoder",
    "store",
    "sweeps",
    "data.root",
    "logger",
    "save_coded",
    "train_missing",
    "trainer",
}


# Overrides with which a run may still be as the paper's; its samples and β are looked at.
AS_THE_PAPER = IGNORED | {"model", "model.weights", "model.stride_in_1x1", "samples", "beta", "code.track"}

# The order of rows: the paper's codes as the paper has them, then ours.
CODES = [
    "average",
    "task_arithmetic",
    "regmean",
    "regmean_conv",
    "distillation",
    "coin",
    "coin_scaled",
    "coin_balanced",
    "coin_kfac",
    "matched",
    "coin_refined",
]
DECODERS = ["analytic", "ridge", "features"]


def write_results(folder: Path, results: dict) -> None:
    """Written last, by the first rank, and by one rename: where results.json is, the run is complete."""
    if not is_first():
        return
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / ".results.json.new"
    fresh.write_text(json.dumps(defined(results), indent=2, allow_nan=False) + "\n")
    os.replace(fresh, folder / "results.json")


def defined(value: Any) -> Any:
    """The same with null for what is undefined, such as the NDA of an expert that is never right: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [defined(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def collect(folder: Path) -> list[dict]:
    """Every results.json below the folder, in the order of their paths."""
    found = []
    for path in sorted(folder.rglob("results.json")):
        try:
            results = json.loads(path.read_text(), object_hook=undefined)
            if not {"code", "experiment", "nda", "experts"} <= set(results):
                raise ValueError("it lacks code, experiment, nda or experts")
        except ValueError as error:
            raise ValueError(f"{path} is no results.json of a run ({error}); move it away") from error
        found.append(results)
    if not found:
        raise ValueError(f"{folder} holds no results.json; run encode.py first")
    return found


def undefined(read: dict) -> dict:
    return {key: math.nan if value is None else value for key, value in read.items()}


@dataclass
class Cell:
    """Runs that differ in their seed alone."""

    experiment: str
    code: str
    decoder: str
    variant: dict[str, str]  # the overrides that vary within the collection
    runs: list[dict]

    @property
    def label(self) -> str:
        return self.label_without()

    def label_without(self, left_out: str | None = None) -> str:
        """What tells it from other cells, but for one setting."""
        name = self.code if self.decoder == "analytic" else f"{self.code} + {self.decoder}"
        return " ".join([name, *(f"{k}={v}" for k, v in self.variant.items() if k != left_out)])

    @property
    def row(self) -> tuple:
        """Where it is in a column: codes in the paper's order, others behind; settings by size."""
        values = [(math.inf if math.isnan(number(value)) else number(value), value) for value in self.variant.values()]
        return place(self.code, CODES), place(self.decoder, DECODERS), values

    @property
    def experts(self) -> list[str]:
        return [expert["name"] for expert in self.runs[0]["experts"]]

    def nda(self, expert: int | None = None) -> tuple[float, float]:
        """Mean and standard deviation over the seeds, of one expert or of the average; NaN where one is undefined."""
        values = [run["nda"] if expert is None else run["experts"][expert]["nda"] for run in self.runs]
        if not all(map(math.isfinite, values)):
            return math.nan, math.nan
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan

    def paper(self, expert: int | None = None) -> float | None:
        """The paper's number, where the runs are as the paper's."""
        run = self.runs[0]
        overrides = run.get("overrides", {})
        other = [key for key in overrides if key not in AS_THE_PAPER and not key.startswith("hydra.")]
        if self.decoder != "analytic" or other or overrides.get("model", "resnet50") != "resnet50":
            return None
        numbers = paper.nda(self.experiment, self.code, run["samples"], run["beta"])
        return None if numbers is None else numbers[2 if expert is None else expert]

    def seconds(self) -> float:
        """Of encoding, with the statistics (Fishers, Gram matrices) it rests on, whenever they were computed."""
        return statistics.fmean(run["seconds"]["encode"] + run["seconds"].get("statistics", 0) for run in self.runs)


def number(text: str) -> float:
    """A setting as a place on an axis: a number, or the first of a list (β); NaN where it is neither."""
    try:
        return float(text.strip("[]").split(",")[0])
    except ValueError:
        return math.nan


def place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def settings_of(run: dict) -> dict[str, str]:
    """What tells a run from others beside its code, decoder, experiment and seed: overrides, and how it was tuned."""
    chosen = {k: v for k, v in run.get("overrides", {}).items() if k not in IGNORED and not k.startswith("hydra.")}
    if "tuning" in run:  # a sweep's file may have chosen it
        chosen |= {"tuning": run["tuning"]["criterion"], "tuning.folds": str(run["tuning"]["folds"])}
    return chosen


def names_of(keys: Sequence[str], settings: Sequence[dict[str, str]]) -> dict[str, str]:
    """Short names: the last word, or as many as tell two settings apart; those that are always equal share one."""
    columns = {key: tuple(chosen.get(key) for chosen in settings) for key in keys}
    names = {}
    for key in keys:
        words = key.split(".")
        for i in range(len(words) - 1, -1, -1):
            name = ".".join(words[i:])
            if all(columns[k] == columns[key] for k in keys if f".{k}".endswith(f".{name}")):
                break
        names[key] = name
    return names


def cells_of(runs: Sequence[dict]) -> list[Cell]:
    """Runs grouped by experiment, code and whatever else varies among them; of runs with one seed the last counts."""
    settings = [settings_of(run) for run in runs]
    keys = {key for chosen in settings for key in chosen}
    found = {(run["experiment"], key, s.get(key)) for run, s in zip(runs, settings, strict=True) for key in keys}
    counts = Counter((experiment, key) for experiment, key, _ in found)
    varying = sorted(
        {key for (_, key), count in counts.items() if count > 1}
    )  # not from one experiment to another alone
    names = names_of(varying, settings)
    cells: dict[tuple, Cell] = {}
    for run, chosen in zip(runs, settings, strict=True):
        variant = {names[key]: chosen[key] for key in varying if key in chosen}
        decoder = run.get("decoder", "analytic")
        key = (run["experiment"], run["code"], decoder, tuple(variant.items()))
        cell = cells.setdefault(key, Cell(run["experiment"], run["code"], decoder, variant, []))
        cell.runs = [*(other for other in cell.runs if other.get("seed") != run.get("seed")), run]

    return sorted(cells.values(), key=lambda cell: (place(cell.experiment, paper.EXPERIMENTS), cell.row))
