"""Tables and figures of results/serving, from what was measured."""

from pathlib import Path


def write(folder: Path) -> None:
    """Filled in below."""
