"""What people see: messages, and one clear line with exit code 2 for bad input."""

import errno
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console

from coin.lab.display import Display
from coin.lab.presence import Deserted
from coin.training.ranks import is_first

T = TypeVar("T")

console = Console(highlight=False, soft_wrap=True)
display = Display(console)
USER_ERROR, SHORTAGE = 2, 1  # exit codes: the input is bad; the machine ran out of something, or a process died


def say(*what: object) -> None:
    """Prints, on the first rank. (A function, since launchers pickle the scripts with all they refer to.)"""
    if is_first():
        console.print(*what, markup=False)  # a path may hold brackets


def quiet() -> None:
    """Silences what Lightning says to everybody and nobody can act on."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        r".*does not have many workers.*",
        r".*treespec, LeafSpec.*",
        r".*module\(s\) in eval mode at the start of training.*",  # frozen BatchNorm
        r".*The number of training batches .* is smaller than the logging interval.*",
        r".*You passed in a `val_dataloader` but have no `validation_step`.*",
        r".*predict returned None if it was on purpose.*",
        r".*Checkpoint directory .* exists and is not empty.*",
    ):
        warnings.filterwarnings("ignore", message)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns bad input (a ValueError, or what Hydra says of an override) into `error: …` and exit code 2.

    Everything else is a bug and keeps its traceback; so does everything when COIN_DEBUG is set.
    """
    try:
        yield
    except Exception as error:
        if os.environ.get("COIN_DEBUG"):
            raise
        shortage = str(error) if isinstance(error, Deserted) else short_of(error)
        if not shortage and not is_user_error(error):
            raise
        sys.stdout.flush()
        print(f"error: {shortage or message(error)}", file=sys.stderr)
        sys.exit(SHORTAGE if shortage else USER_ERROR)


def short_of(error: BaseException | None) -> str | None:
    """What to say where the machine ran out of something, in any library's words: nothing is lost by that."""
    while error is not None:
        text = str(error)
        goes_on = "run the same command again, it goes on where it stopped"
        if "No space left on device" in text or "Disk quota exceeded" in text or "File too large" in text:
            return f"the disk is full ({text}); make room and {goes_on}"
        if isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text:
            return f"there is not enough memory ({' '.join(text.split())[:200]}); free some and {goes_on}"
        error = error.__cause__ or error.__context__
    return None


def is_user_error(error: BaseException) -> bool:
    cause = root_cause(error)
    if isinstance(cause, TypeError) and cause is not error:
        return True  # a constructor's signature is its config's schema
    if isinstance(cause, OSError) and cause.errno == errno.ENAMETOOLONG:
        return True  # a folder is named for overrides, say
    return isinstance(cause, ValueError) or type(cause).__module__.startswith(("hydra.", "omegaconf."))


def root_cause(error: BaseException) -> BaseException:
    """Hydra wraps what a constructor raised; the constructor's own words are the clear ones."""
    while error.__cause__ is not None and type(error).__module__.startswith("hydra."):
        error = error.__cause__
    return error


def message(error: BaseException) -> str:
    cause = root_cause(error)
    text = str(cause).split("Config search path:")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # omegaconf adds the place as two more lines; the first names it already
    lines = [line for line in lines if not line.startswith(("full_key:", "object_type="))]
    missing = re.search(r"Missing mandatory value: (\S+)", text)
    if missing:
        lines = [f"{missing[1]} has no default; add {missing[1]}=… to the command"]
    plugin = re.search(r"Could not load 'hydra/launcher/(joblib|submitit)", text)
    if plugin:
        extra = {"joblib": "parallel", "submitit": "slurm"}[plugin[1]]
        lines.append(f"This launcher comes with an extra: pip install -e '.[{extra}]'")
    return " ".join(lines)


def check_switches(config: Mapping[str, Any], names: Sequence[str]) -> None:
    """`train_missing=no` is a text for Hydra, and a text would count as true."""
    for name in names:
        if not isinstance(config[name], bool):
            raise ValueError(f"{name}={config[name]}: must be true or false")


class Problems:
    """Collects what is wrong with a config, so that all of it is said at once and nothing is begun."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, make: Callable[..., T], *args: Any, **settings: Any) -> T | None:
        """What `make` returns, or None and one more problem."""
        try:
            return make(*args, **settings)
        except Exception as error:
            if not is_user_error(error):
                raise
            self.add(message(error))
            return None

    def add(self, problem: str) -> None:
        if problem not in self.found:  # two experts with the same mistake
            self.found.append(problem)

    def check(self) -> None:
        if self.found:
            raise ValueError("; ".join(self.found))
