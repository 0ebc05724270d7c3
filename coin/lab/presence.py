"""Ranks of a distributed run find each other in a folder they share: rank 0 holds a lock there for as long as it lives,
which the kernel frees when it dies. A rank that cannot see it is in another folder, or alone."""

import atexit
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from coin.training.ranks import is_first, run_name

T = TypeVar("T")
_held: dict[Path, IO[str]] = {}  # until the process ends


class Deserted(RuntimeError):
    """Rank 0 of this run has ended; its own words say why."""


class Presence:
    """Rank 0, seen from `folder`. The others wait COIN_STORE_SECONDS (120) for it to show itself there."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / ".runs" / f"{run_name()}.lock"
        self.met = False

    def show(self) -> None:
        if not is_first() or self.path in _held:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self.path, "a+")  # noqa: SIM115 (it is held)
        fcntl.flock(file, fcntl.LOCK_EX)
        _held[self.path] = file
        atexit.register(self.path.unlink, missing_ok=True)

    def is_there(self) -> bool:
        """Whether another process holds the lock: those who only look share it."""
        try:
            with open(self.path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def wait_for(self, found: Callable[[], T]) -> T:
        """What it finds, as soon as there is something; an error where rank 0 is not to be seen, or has ended."""
        limit = time.monotonic() + patience()
        while True:
            alive = self.is_there()  # asked first: rank 0 may leave something and go
            self.met = self.met or alive
            if result := found():
                return result
            if self.met and not alive:
                raise Deserted("the first process of this run has ended; it says why")
            if not self.met and time.monotonic() > limit:
                raise ValueError(
                    f"store={self.folder}: the first process of this run does not show itself here within "
                    f"{patience():g} s; give a folder that all nodes share, whose locks hold between them "
                    "(for a slower start: COIN_STORE_SECONDS=600)"
                )
            time.sleep(0.1)


def patience() -> float:
    text = os.environ.get("COIN_STORE_SECONDS", "120")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise ValueError(f"COIN_STORE_SECONDS={text}: must be a positive number of seconds")
    return seconds
