"""Writes a collection of runs as tables and figures, and shows it in the terminal."""

from pathlib import Path

import matplotlib.pyplot as plt
from rich.console import Console

from coin.report import figures, tables
from coin.report.runs import cells_of, collect


def write_report(folder: Path, out: Path, console: Console | None = None) -> list[Path]:
    """table.md, table.csv, table.tex and figures (PNG and SVG) of all runs below `folder`."""
    cells = cells_of(collect(folder))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    texts = {"md": tables.markdown(cells), "csv": tables.comma_separated(cells), "tex": tables.latex(cells)}
    for suffix, text in texts.items():
        written.append(out / f"table.{suffix}")
        written[-1].write_text(text)
    if len({cell.decoder for cell in cells}) > 1:
        written.append(out / "decoders.md")
        written[-1].write_text(tables.decoders(cells))
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
