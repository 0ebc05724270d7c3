"""Writes a collection of runs as tables and figures, and shows it in the terminal."""

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from rich.console import Console

from coin.report import figures, tables
from coin.report.runs import Cell, cells_of, collect


def texts(cells: Sequence[Cell]) -> dict[str, str]:
    """The tables that these cells have something to show in, by the names of their files."""
    found = {"table.md": tables.markdown(cells), "table.csv": tables.comma_separated(cells)}
    found["table.tex"] = tables.latex(cells)
    if len({cell.experiment for cell in cells}) > 1:
        found["averages.md"] = tables.averages(cells)
    if len({cell.decoder for cell in cells}) > 1:
        found["decoders.md"] = tables.decoders(cells)
    if any("distance" in cell.runs[0] for cell in cells):
        found["experts.md"] = tables.experts(cells)
    if any(map(tables.names_fewer_classes, cells)):
        found["own_classes.md"] = tables.own_classes(cells)
    return found


def write_all(folder: Path, console: Console | None = None) -> list[Path]:
    """A folder of results: the report of runs/NAME goes to NAME, and what README.md quotes of it is renewed."""
    groups = sorted(path for path in (folder / "runs").iterdir() if path.is_dir())
    written = [path for group in groups for path in write_report(group, folder / group.name, console)]
    readme = folder / "README.md"
    return [*written, readme] if readme.is_file() and fill(readme) else written


QUOTE = re.compile(r"(<!-- quote (\S+) -->\n).*?(<!-- end of quote -->)", re.S)


def fill(page: Path) -> bool:
    """Puts the files a page quotes into it; whether it quotes any.

    It does so between the lines `<!-- quote FILE -->` (as seen from the page) and `<!-- end of quote -->`.
    """
    text = page.read_text()

    def quoted(match: re.Match) -> str:
        file = page.parent / match[2]
        if not file.is_file():
            raise ValueError(f"{page} quotes {match[2]}, which is not there; make its report first")
        return f"{match[1]}{file.read_text()}{match[3]}"

    filled = QUOTE.sub(quoted, text)
    if filled != text:
        page.write_text(filled)
    return bool(QUOTE.search(text))


def write_report(folder: Path, out: Path, console: Console | None = None) -> list[Path]:
    """Tables (Markdown, CSV, LaTeX) and figures (PNG and SVG) of all runs below `folder`."""
    cells = cells_of(collect(folder))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in texts(cells).items():
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
