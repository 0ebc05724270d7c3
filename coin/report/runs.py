"""Runs on disk: a results.json each, where a run has left it, or a comparison's runs as the lines of one runs.jsonl."""

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from coin.training.ranks import is_first

Run = dict[str, Any]  # what a results.json says

# Overrides that tell neither one setting from another nor belong in a table.
IGNORED = {"seed", "experiment", "code", "decoder", "store", "sweeps", "data.root", "logger", "save_coded",
           "train_missing", "trainer", "trainer.enable_progress_bar"}  # fmt: skip
TRAINING = "train_seed"  # of the experts; `seed` draws the samples

# What a report is made from; a run tells more.
NUMBER = (int, float)
RUN: dict[str, Any] = {"code": str, "experiment": str, "seed": int, "samples": int, "beta": list, "nda": NUMBER,
                       "experts": [{"name": str, "nda": NUMBER}], "seconds": {"encode": NUMBER}}  # fmt: skip


def write_results(folder: Path, results: Run) -> None:
    """Written last, by the first rank, and by one rename: where results.json is, the run is complete."""
    if not is_first():
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / "results.json", json.dumps(defined(results), indent=2, allow_nan=False) + "\n")


def replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    os.replace(fresh, path)


def defined(value: Any) -> Any:
    """The same with null for what is undefined, such as the NDA of an expert that is never right: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [defined(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def undefined(read: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in read.items()}


def collect(folder: Path) -> list[Run]:
    """All runs below the folder, in the order of their paths; packed ones first, as they are the older."""
    found = [run for _, run in located(folder)]
    if not found:
        raise ValueError(f"{folder} holds no results.json and no runs.jsonl; run encode.py first")
    return found


def located(folder: Path) -> list[tuple[Path, Run]]:
    """The same with the files they are in; none where there is none yet."""
    found = [(path, run) for path in files(folder, "runs.jsonl") for run in unpack(path)]
    return found + [(path, parse(path.read_text(), str(path))) for path in files(folder, "results.json")]


def read_json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    return {}  # unreadable: who knows what it was


def files(folder: Path, name: str) -> list[Path]:
    return sorted(path for path in folder.rglob(name) if path.is_file())


def unpack(path: Path) -> list[Run]:
    return [parse(line, f"line {i} of {path}") for i, line in enumerate(path.read_text().splitlines(), start=1)]


def parse(text: str, where: str) -> Run:
    try:
        run: Run = json.loads(text, object_hook=undefined)
        lacking = [key for key, shape in RUN.items() if not (isinstance(run, dict) and fits(run.get(key), shape))]
        if lacking or not isinstance(run.get("overrides", {}), dict):
            raise ValueError(f"it lacks {', '.join(lacking) or 'overrides'}")
    except ValueError as error:
        raise ValueError(f"{where} is no results.json of a run ({error}); mend or remove it") from error
    return run


def fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(fits(value.get(key), part) for key, part in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and bool(value) and all(fits(item, shape[0]) for item in value)
    return isinstance(value, shape)


def experiment_name(choice: str, overrides: dict[str, str]) -> str:
    """Of a run whose experts were named on the command line, these; else the experiment it chose."""
    return overrides["experts"].strip("[]").replace(",", "-") if "experts" in overrides else choice


def settings_of(run: Run) -> dict[str, str]:
    """What tells a run from others beside its code, decoder, experiment and seed: overrides, the seed of its experts'
    training, and how it was tuned."""
    overrides = run.get("overrides", {})
    chosen = {k: str(v) for k, v in overrides.items() if k not in IGNORED and not k.startswith(("hydra.", "logger."))}
    chosen.setdefault(TRAINING, "0")  # said or not, it is the default
    tuner = run.get("tuner") or run.get("tuning")  # a sweep's file may have chosen it; runs of before name it otherwise
    if isinstance(tuner, dict):
        chosen |= {"tuning": tuner["criterion"], "tuning.folds": str(tuner["folds"])}
    return chosen


def identity(run: Run) -> tuple[Any, ...]:
    """Runs that have it in common are one run, made twice."""
    settings = tuple(sorted(settings_of(run).items()))
    return run["experiment"], run["code"], run.get("decoder", "analytic"), settings, run["seed"]


def pack(folder: Path, into: Path) -> str:
    """Adds the runs below a folder to into/runs.jsonl, a line a run; a run that it has already is replaced.

    Lines are sorted by what tells runs apart, so that a new one changes no other. Says what it did.
    """
    path = into / "runs.jsonl"
    if into.is_file() or into.name == path.name:
        raise ValueError(f"{into} is no folder; give the one whose runs.jsonl is meant, such as results/PAGE/NAME")
    packed = unpack(path) if path.is_file() else []
    runs = [*packed, *collect(folder)]
    every = [(identity(run), json.dumps(defined(run), separators=(",", ":"), allow_nan=False)) for run in runs]
    kept = dict(every)
    replaced = sum(kept[key] != line for key, line in every)
    into.mkdir(parents=True, exist_ok=True)
    replace(path, "".join(kept[key] + "\n" for key in sorted(kept)))
    new = len(kept) - len({identity(run) for run in packed})
    return f"{path}: {len(kept)} runs, {new} of them new, {replaced} replaced by a later one of the same settings"
