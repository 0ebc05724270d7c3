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
    loose = [path for path in groups if (path / "results.json").exists()]
    if loose:
        raise ValueError(f"{loose[0]} is a run; put the runs of a comparison together, as {folder}/runs/NAME/RUN")
    written = [path for group in groups for path in write_report(group, folder / group.name, console)]
    readme = folder / "README.md"
    return [*written, readme] if readme.is_file() and fill(readme) else written


QUOTE = re.compile(r"(<!-- quote ([^\n]+) -->\n)(?:(?!<!-- quote ).)*?(<!-- end of quote -->)", re.S)


def fill(page: Path) -> bool:
    """Puts what a page quotes into it; whether it quotes anything.

    It does so between the lines `<!-- quote FILE -->` (as seen from the page) and `<!-- end of quote -->`. Of a table,
    `FILE: coin, average` takes these rows alone, and `FILE; OTHER: coin + ridge` adds rows of another.
    """
    text = page.read_text()
    filled = QUOTE.sub(lambda match: f"{match[1]}{quotation(page, match[2])}{match[3]}", text)
    if filled != text:
        page.write_text(filled)
    return bool(QUOTE.search(text))


def quotation(page: Path, what: str) -> str:
    quoted: list[str] = []
    for part in what.split("; "):
        name, _, wanted = part.partition(": ")
        file = page.parent / name
        if not file.is_file():
            raise ValueError(f"{page} quotes {name}, which is not there; make its report first")
        lines = file.read_text().splitlines()
        if wanted:
            labels = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
            if labels.count("---") > 1:
                raise ValueError(f"{page} quotes rows of {name}, which has several tables; quote it whole")
            rows = dict(zip(labels, lines, strict=True))
            missing = [label for label in wanted.split(", ") if label not in rows]
            if missing:
                raise ValueError(f"{page} quotes the row {missing[0]} of {name}; it has {', '.join(list(rows)[2:])}")
            lines = [*lines[:2], *(rows[label] for label in wanted.split(", "))]
        if quoted and quoted[0] != lines[0]:
            raise ValueError(f"{page} quotes tables with other columns as one: {what}")
        quoted += lines[2:] if quoted else lines
    return "\n".join(quoted) + "\n"


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
