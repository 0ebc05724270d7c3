"""The journal of a run: opened before its first computation, told what happens in it, closed whatever happened."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from lightning.pytorch.loggers import Logger
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor

from coin.lab.console import console, display
from coin.lab.display import Advance

PHASES = ("experts", "outputs", "encode", "evaluate")  # of an encode run


@dataclass(kw_only=True)
class Subject:
    """What a journal is of. `id` names a run that goes on as the same one when it was killed and is started again."""

    name: str
    job_type: Literal["encode", "train", "report"]
    config: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    tags: Sequence[str] = ()
    id: str | None = None


@dataclass(frozen=True)
class Kept:
    """A folder or file that a run uses or makes. Its key follows its recipe: what is unchanged has the same."""

    kind: Literal["base", "expert", "fisher", "coded"]
    name: str
    key: str
    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)


Attempt = Callable[..., None]


class Journal:
    """Over any of Lightning's loggers: settings at the start, numbers at the end, and phases for whoever watches.

    Where a logger fails on the way there is one warning, and nothing more is logged: a log is not worth a run.
    """

    failed = False

    def __init__(self, logger: Logger | None = None):
        self.logger: Logger = logger or DummyLogger()

    def attempt(self, log: Callable[..., object], *args: Any, **settings: Any) -> None:
        if self.failed:
            return
        try:
            log(*args, **settings)
        except Exception as error:  # whatever it is
            self.failed = True
            said = " ".join(str(error).split())
            console.print(f"warning: the log stopped ({said}); the run goes on without it", markup=False)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("success" if kind is None else "failed")

    def close(self, status: str) -> None:
        self.attempt(self.logger.finalize, status)

    @contextmanager
    def phase(self, name: str) -> Iterator[Advance]:
        """A part of the run; what it yields takes how much of it is done."""
        self.entered(name)
        with display.row(name) as advance:
            yield advance

    def entered(self, phase: str) -> None:
        """A phase has begun."""

    def used(self, kept: Kept) -> None:
        """The run rests on it."""

    def made(self, kept: Kept) -> None:
        """The run has made it."""

    def confused(self, expert: str, counts: Tensor, ndas: Mapping[int, float]) -> None:
        """How often (class the expert names, class that is decoded), and the NDA of each class it is asked for."""

    def told(self, results: Mapping[str, Any]) -> None:
        """All of a run's numbers."""
        for point in results.get("history", []):
            told = {f"epoch/{key}": value for key, value in point.items()}
            self.attempt(self.logger.log_metrics, told, step=point["epoch"])
        self.attempt(self.logger.log_metrics, flat_results(results))


def flat_results(results: Mapping[str, Any]) -> dict[str, float]:
    """A run's numbers under stable keys: nda, nda/EXPERT, accuracy/EXPERT, hyperparameters/NAME, seconds/PHASE, …"""
    flat = {key: results[key] for key in ("nda", "samples_nda", "coding_loss", "test_coding_loss")}
    for expert in results["experts"]:
        for key in ("accuracy", "decoded_accuracy", "nda", "agreement"):
            flat[f"{key}/{expert['name']}"] = expert[key]
    for group in ("hyperparameters", "seconds", "bytes"):
        flat |= {f"{group}/{key}": value for key, value in results[group].items()}
    return flat
