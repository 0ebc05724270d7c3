"""What a person at a terminal sees of work under way: a row a phase, with its time, and one for the sweep.

Where the output is piped there is nobody to watch, and nothing is drawn.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from coin.training.ranks import is_first

Advance = Callable[[float, float], None]  # how much is done, and of how much


class Display:
    def __init__(self, console: Console):
        self.console, self.rows = console, 0
        self.progress: Progress | None = None

    @contextmanager
    def row(self, name: str) -> Iterator[Advance]:
        """A row for as long as it lasts; of one that stands alone and ends well, its seconds stay."""
        if not (self.console.is_terminal and is_first()):
            yield ignore
            return
        row, start = self.add(name), time.monotonic()
        try:
            yield lambda done, of: self.update(row, done, of)
        except BaseException:
            self.remove(row)
            raise
        self.remove(row)
        if not self.rows:
            self.console.print(f"[dim]{name}  {time.monotonic() - start:.1f} s[/dim]")

    def add(self, name: str) -> TaskID:
        if self.progress is None:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
            self.progress = Progress(*columns, console=self.console)
            self.progress.start()
        self.rows += 1
        return self.progress.add_task(name, total=None)

    def update(self, row: TaskID, done: float, of: float, name: str | None = None) -> None:
        if self.progress is not None:
            self.progress.update(row, completed=done, total=of, description=name)

    def close(self) -> None:
        """Whatever happened: a terminal gets its cursor back."""
        if self.progress is not None:
            self.progress.stop()
        self.progress, self.rows = None, 0

    def remove(self, row: TaskID) -> None:
        if self.progress is None:
            return
        self.progress.remove_task(row)
        self.rows -= 1
        if not self.rows:
            self.progress.stop()
            self.progress = None


def ignore(done: float, of: float) -> None:
    pass
