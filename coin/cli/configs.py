"""Where configs and sweeps are, and what Hydra is told of them beside the files in conf/.

A config's defaults are those of the class it is for: they stand in its constructor, and in no YAML file.

    defaults: [/hydra/class@_here_: coin.codes.Coin]    # all arguments of Coin with their defaults, to be overridden

Only what a file changes on purpose is in it. (Groups below `hydra/` are not among the choices that --help lists.)
"""

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING as FIELD_MISSING
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf


def folder(name: str) -> Path:
    """Beside the other packages in a wheel, at the top of the project in a checkout."""
    inside, above = (Path(__file__).parents[i] / name for i in (1, 2))
    return inside if inside.is_dir() else above


CONF, SWEEPS = folder("conf"), folder("sweeps")
GROUP = "hydra/class"


def register() -> None:
    """Gives Hydra a config for every class that a file in conf/ names, and the sweeps as a group of their own."""
    store = ConfigStore.instance()
    for path in sorted(CONF.rglob("*.yaml")):
        for name in classes_in(path):
            store.store(group=GROUP, name=name, node={"_target_": name, **arguments(name)})
    for path in sorted(SWEEPS.glob("*.yaml")):
        store.store(group="sweeps", name=path.stem, node=OmegaConf.load(path), package="_global_")


def classes_in(path: Path) -> Iterator[str]:
    listed = (yaml.safe_load(path.read_text()) or {}).get("defaults", [])
    for entry in listed:
        if isinstance(entry, Mapping) and f"/{GROUP}@_here_" in entry:
            yield entry[f"/{GROUP}@_here_"]


def arguments(name: str) -> dict[str, Any]:
    """What a class can be told, with what it assumes."""
    module, _, word = name.rpartition(".")
    kind = getattr(importlib.import_module(module), word)
    declared = fields(kind) if is_dataclass(kind) else ()
    made = {field.name: field.default_factory() for field in declared if field.default_factory is not FIELD_MISSING}
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: plain(made.get(p.name, p.default)) for p in parameters}


def plain(value: Any) -> Any:
    """As a config: an object by its class and fields, what has no default as missing."""
    if value is inspect.Parameter.empty:
        return MISSING
    if is_dataclass(value):
        kind = type(value)
        told = {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
        return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **told}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


register()
