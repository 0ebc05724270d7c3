"""Trainers, for what a run needs them for: fine-tuning has its settings to itself, all else only runs where it runs."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import lightning as L
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy, SingleDeviceStrategy

from coin.problem.recipes import Recipe
from coin.training import ranks

MakeTrainer = Callable[..., L.Trainer]
SET_ELSEWHERE = {
    "max_epochs": "give finetune.epochs, of all experts or of one, or trainer.max_steps",
    "logger": "choose it with logger=wandb or logger=csv",
    "callbacks": "checkpoints are written every checkpoint_minutes",
    "enable_checkpointing": "checkpoints are written every checkpoint_minutes",
    "default_root_dir": "experts are kept in store=…",
    "plugins": "checkpoints have to be written whole",
}
PRECISIONS = ("32-true", "32", "bf16-mixed", "16-mixed")  # weights stay float32: they are what is coded

# Arguments of the Trainer that say where and how it runs, not what comes out of it beyond float rounding.
PLACES = {
    "accelerator", "devices", "num_nodes", "strategy", "logger", "callbacks", "default_root_dir", "profiler",
    "enable_progress_bar", "enable_model_summary", "enable_checkpointing", "log_every_n_steps", "deterministic",
    "benchmark", "num_sanity_val_steps", "use_distributed_sampler", "check_val_every_n_epoch", "inference_mode",
}  # fmt: skip
ARGUMENTS = {name: p for name, p in inspect.signature(L.Trainer.__init__).parameters.items() if name != "self"}


class Alone(LightningEnvironment):
    """The environment of a run of one process, whatever numbers a launcher has given it."""

    @property
    def creates_processes_externally(self) -> bool:
        return False

    def local_rank(self) -> int:
        return 0

    def node_rank(self) -> int:
        return 0

    def teardown(self) -> None:
        pass  # the environment's WORLD_SIZE is not ours to take away


@dataclass(frozen=True)
class Trainers:
    """Makes Trainers of these settings. Those of one process are told so, also inside a SLURM allocation of many."""

    settings: Mapping[str, Any]

    def __call__(self, **more: Any) -> L.Trainer:
        settings = {**self.settings, **more}
        plugins = list(settings.pop("plugins", []))
        if not self.distributed(settings):
            plugins.append(Alone())
        return L.Trainer(**settings, plugins=plugins)

    @staticmethod
    def distributed(settings: Mapping[str, Any]) -> bool:
        place = {key: settings[key] for key in ("accelerator", "devices", "num_nodes", "strategy") if key in settings}
        return several(tuple((key, tuple(v) if isinstance(v, list) else v) for key, v in place.items()))


@lru_cache
def several(place: tuple[tuple[str, Any], ...]) -> bool:
    """Whether Lightning would take a strategy of several processes for this."""
    settings = {key: list(v) if isinstance(v, tuple) else v for key, v in place}
    return isinstance(trial(settings, plugins=[Alone()]).strategy, ParallelStrategy)


def trial(settings: Mapping[str, Any], **more: Any) -> L.Trainer:
    """A Trainer that leaves nothing behind."""
    silent: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    return L.Trainer(**{**settings, **silent, "enable_progress_bar": False, **more})


def check_trainer(make_trainer: partial[L.Trainer]) -> Trainers:
    """The Trainers of a config; refuses, before anything is begun, what Lightning or this machine cannot do.

    From here on the process is a rank of a distributed run, or a run of its own (see `coin.training.ranks`).
    """
    settings = plain(make_trainer.keywords)
    unknown = [name for name in settings if name not in ARGUMENTS]
    if unknown:
        raise ValueError(f"trainer.{unknown[0]}: Lightning's Trainer has no such argument; see its documentation")
    ours = [name for name in settings if name in SET_ELSEWHERE]
    if ours:
        raise ValueError(f"trainer.{ours[0]}: is not the Trainer's to say; {SET_ELSEWHERE[ours[0]]}")
    check_precision(settings.get("precision", "32-true"), "trainer.precision", settings.get("accelerator", "auto"))
    hints = typing.get_type_hints(L.Trainer.__init__)
    for name, value in settings.items():
        if name != "precision" and not fits(value, hints[name]):
            raise ValueError(f"trainer.{name}={value}: must be {in_words(hints[name])}")
    if settings.get("accumulate_grad_batches", 1) < 1:
        raise ValueError(f"trainer.accumulate_grad_batches={settings['accumulate_grad_batches']}: must be at least 1")
    trainers = Trainers(settings)
    try:
        trial(settings, plugins=[Alone()])  # what is wrong with it wherever it runs
        if not trainers.distributed(settings):
            ranks.settle(None)
            return trainers
        trainer = trial(settings)
        trainer.strategy.cluster_environment.validate_settings(trainer.num_devices, trainer.num_nodes)  # type: ignore[attr-defined]
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError, LookupError) as error:
        place = ("accelerator", "devices", "num_nodes", "strategy")
        said = ", ".join(f"{key}={settings[key]}" for key in place if key in settings)
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"trainer ({said}): {reason}; choose what this machine and its launcher offer, trainer=cpu runs everywhere"
        ) from error
    strategy = trainer.strategy
    started_here = isinstance(strategy, DDPStrategy) and strategy._start_method == "popen"  # by the script itself
    if not (isinstance(strategy, SingleDeviceStrategy) or started_here):
        raise ValueError(f"trainer.strategy={settings.get('strategy')}: must be auto or ddp; others split networks up")
    ranks.settle(trainer.global_rank)
    return trainers


def check_swept(make_trainer: partial[L.Trainer]) -> None:
    """Refuses a sweep that none of its jobs can run."""
    check_trainer(make_trainer)
    if ranks.is_distributed():
        raise ValueError("a sweep runs its jobs on one device each: use trainer=cpu or trainer=gpu, or train first")


def check_precision(precision: Any, name: str, accelerator: Any = "auto") -> str:
    """The precision by its one name: 32 is 32-true."""
    if str(precision) not in PRECISIONS:
        raise ValueError(f"{name}={precision}: must be one of {', '.join(PRECISIONS)}")
    if precision == "16-mixed" and accelerator == "cpu":
        raise ValueError(f"{name}=16-mixed: a CPU computes in bf16-mixed or 32-true; choose one of them")
    return "32-true" if str(precision) == "32" else str(precision)


def place_of(
    trainer: partial[L.Trainer], precision: Any = "32-true", name: str = "coding_trainer.precision"
) -> Trainers:
    """Trainers that run where `trainer` does, with none of its other settings: those are the fine-tuning's."""
    settings = {key: value for key, value in plain(trainer.keywords).items() if key in PLACES}
    chosen = check_precision(precision, name, settings.get("accelerator", "auto"))
    return Trainers({**settings, "precision": chosen})


def on_one_device(make_trainer: MakeTrainer) -> MakeTrainer:
    """Trainers in float32 on the first device alone of those that these have, with none of their other settings."""
    if not isinstance(make_trainer, Trainers):
        return make_trainer
    settings = {key: value for key, value in make_trainer.settings.items() if key in PLACES}
    devices = settings.get("devices", 1)
    one = {"devices": devices[:1] if isinstance(devices, list) else 1, "num_nodes": 1, "strategy": "auto"}
    return Trainers({**settings, **one, "precision": "32-true"})


def trainer_recipe(settings: Mapping[str, Any]) -> Recipe:
    """The Trainer's arguments that change the weights, such as the precision: part of an expert's recipe. What is its
    own default is as good as not said."""
    said = {key: value for key, value in settings.items() if key not in PLACES and not key.startswith("_")}
    recipe = {key: value for key, value in said.items() if ARGUMENTS[key].default != value}
    return {**recipe, "precision": check_precision(said.get("precision") or "32-true", "trainer.precision")}


def plain(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The same with Hydra's lists as lists."""
    return {
        key: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for key, value in keywords.items()
    }


def fits(value: Any, hint: Any) -> bool:
    """Whether a config's value is of the type that an argument declares."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(fits(value, kind) for kind in kinds)
    if typing.get_origin(hint) is typing.Literal:
        return value in kinds
    if isinstance(value, str | bool | int | float | None):
        simple = isinstance(hint, type) and typing.get_origin(hint) is None  # list[int] is a type to Python 3.10
        plain = {int: (int,), float: (int, float)}.get(hint, (hint,)) if simple else ()
        return isinstance(value, plain) and (hint is bool or not isinstance(value, bool))
    return True  # lists and objects are Lightning's to judge


def in_words(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(filter(None, map(in_words, typing.get_args(hint)))))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", type(None): "null"}
    return names.get(hint, "")
