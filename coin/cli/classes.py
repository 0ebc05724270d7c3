"""A config's defaults are those of the class it is for: they stand in its constructor, and in no YAML file.

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
from omegaconf import MISSING

CONF = Path(__file__).parents[2] / "conf"
GROUP = "hydra/class"


def register(conf: Path = CONF) -> None:
    """Gives Hydra a config for every class that a file below `conf` names."""
    for path in sorted(conf.rglob("*.yaml")):
        for name in classes_in(path):
            ConfigStore.instance().store(group=GROUP, name=name, node={"_target_": name, **arguments(name)})


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
