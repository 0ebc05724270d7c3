"""Writes a collection of runs as tables and figures, and shows it in the terminal."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from rich.console import Console

from coin.report import figures, tables
from coin.report.cells import Cell, cells_of
from coin.report.page import write_page
from coin.report.quotes import fill
from coin.report.runs import collect, files


def write_report(folder: Path, out: Path, console: Console | None = None) -> list[Path]:
    """Tables (Markdown, CSV, LaTeX), figures (PNG and SVG) and a page (HTML) of all runs below `folder`."""
    return [*write_cells(cells_of(collect(folder)), out, console), write_page(folder, out)]


def write_cells(cells: Sequence[Cell], out: Path, console: Console | None) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in tables.texts(cells).items():
        written.append(out / name)
        written[-1].write_text(text)
    for name, figure in figures.figures(cells):
        for suffix in ("png", "svg"):
            written.append(out / f"{name}.{suffix}")
            metadata = {"Date": None} if suffix == "svg" else None  # the same runs give the same file
            figure.savefig(written[-1], dpi=150, metadata=metadata, bbox_inches="tight")
        plt.close(figure)
    if console:
        for table in tables.terminal(cells):
            console.print(table)
    return written


def write_all(page: Path, console: Console | None = None) -> list[Path]:
    """The report of every NAME/runs.jsonl of a page, such as results/paper; what README.md quotes of it is renewed."""
    loose = files(page, "results.json")
    if loose:
        raise ValueError(f"{loose[0]} is not packed; python -m coin.report DIR --pack {page}/NAME, and move it away")
    found = {path.parent: cells_of(collect(path.parent)) for path in sorted(page.glob("*/runs.jsonl"))}  # all or none
    written = [path for folder, cells in found.items() for path in write_cells(cells, folder, console)]
    written += [write_page(folder, folder) for folder in found]
    readme = page / "README.md"
    return [*written, readme] if readme.is_file() and fill(readme) else written
