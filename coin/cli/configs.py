"""Where configs and sweeps are, and what Hydra is told of them beside the files in conf/.

A config's defaults are those of the class it is for: they stand in its constructor, and in no YAML file.

    defaults: [/hydra/class@_here_: coin.codes.Coin]    # all arguments of Coin with their defaults, to be overridden

Only what a file changes on purpose is in it. (Groups below `hydra/` are not among the choices that --help lists.)
"""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING as FIELD_MISSING
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from coin.cli import experts
from coin.lab.console import Problems
from coin.lab.store import Store
from coin.training.ranks import device_of_job
from coin.training.trainers import check_trainer

Built = TypeVar("Built")


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
    experts.register({p.stem: arguments(next(classes_in(p))) for p in (CONF / "data").glob("*.yaml")})
    for path in sorted(SWEEPS.glob("*.yaml")):
        alone = {
            "hydra": {"run": {"dir": "${hydra.sweep.dir}/${hydra.sweep.subdir}"}}
        }  # one of its jobs: hydra.mode=RUN
        node = OmegaConf.merge(OmegaConf.load(path), alone)
        store.store(group="sweeps", name=path.stem, node=node, package="_global_")


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


def built(kind: type[Built], config: DictConfig, **makers: Callable[[Any], Any]) -> Built:
    """What a config describes: its keys are the arguments of a dataclass. All that is wrong with it is said at once.

    `makers` make an argument from what its part of the config describes.
    """
    problems = Problems()
    makers = {"trainer": check_trainer, "store": Store, **makers}
    names = [field.name for field in fields(kind) if field.init and field.name in config]  # type: ignore[arg-type]
    told = {}
    for name in sorted(names, key=lambda name: name != "trainer"):  # first: it settles who speaks
        part = config[name]

        def make(name: str = name, part: Any = part) -> Any:
            found = instantiate(part, _convert_="all") if isinstance(part, DictConfig | ListConfig) else part
            return makers[name](found) if name in makers else found

        told[name] = problems.attempt(make)
    problems.check()
    return kind(**told)


def own_device(config: DictConfig) -> None:
    """Jobs that run side by side on one machine take its devices in turn."""
    settings = HydraConfig.get()
    side_by_side = settings.mode == RunMode.MULTIRUN and "joblib" in settings.launcher._target_
    if "devices" in config.trainer:
        config.trainer.devices = device_of_job(config.trainer, settings.job.num if side_by_side else None)


register()
