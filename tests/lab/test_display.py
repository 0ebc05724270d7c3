"""What a person at a terminal sees, and that there is nothing where nobody looks."""

import io
import re

import pytest
from rich.console import Console

from coin.lab.display import Display


def shown(console):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_rows_show_phases_and_the_seconds_of_one_that_stands_alone_stay():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    display = Display(console)
    with display.row("outputs") as advance:
        advance(1, 2)
        with display.row("fine-tuning"):
            pass
    assert re.search(r"outputs  \d+\.\d s", shown(console)) and not re.search(r"fine-tuning  \d", shown(console))
    with pytest.raises(ValueError), display.row("encode"):
        raise ValueError
    assert display.progress is None and not re.search(r"encode  \d", shown(console))


def test_a_terminal_gets_its_cursor_back():
    console = Console(file=io.StringIO(), force_terminal=True)
    display = Display(console)
    row = display.add("sweep")
    display.close()
    display.update(row, 1, 2)  # by a thread that has not noticed
    display.remove(row)
    assert display.progress is None and "\x1b[?25h" in console.file.getvalue()


def test_nothing_is_drawn_where_nobody_looks():
    console = Console(file=io.StringIO(), force_terminal=False)
    with Display(console).row("outputs") as advance:
        advance(1, 2)
    assert shown(console) == ""
