"""Tables of results/serving from what was measured: a line a cell in T2 and T3.jsonl, a line a query in T1.jsonl."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coin.report.quotes import fill
from coin.serving.cells import tail
from coin.serving.figures import figures

Row = dict[str, Any]


def write(folder: Path) -> None:
    """All tables and figures, then what the page quotes of them."""
    cells = {name: rows(folder / f"{name}.jsonl") for name in ("T1", "T2", "T3", "learning")}
    for ensembles, kind in ((True, "ensembles"), (False, "routed")):
        grid = [c for c in cells["T3"] if c["ensembles"] == ensembles and is_plain(c) and c["load"] == 0.4]
        table(folder / f"{kind}-tail.md", grid, "fault", lambda c: f"{tail(c):.1f}")
        table(folder / f"{kind}-grid.md", grid, "fault", percentiles)
        named = [c for c in cells["T3"] if c["ensembles"] == ensembles and is_plain(c) and c["fault"] == "1 % ×10"]
        table(folder / f"{kind}-load.md", named, "load", lambda c: f"{tail(c):.1f}")
        sized = [c for c in cells["T3"] if c["ensembles"] == ensembles and c["fault"] == "1 % ×10" and c["skew"] == 1]
        table(
            folder / f"{kind}-experts.md", [c for c in sized if c["load"] == 0.1], "experts", lambda c: f"{tail(c):.1f}"
        )
        costs(folder / f"{kind}-costs.md", [c for c in named if c["load"] == 0.1])
    skewed = [c for c in cells["T3"] if c["skew"] != 1 and c["fault"] == "1 % ×10"]
    table(folder / "traffic.md", [{**c, "traffic": traffic_of(c)} for c in skewed], "traffic", percentiles)
    agreement(folder / "engine.md", cells["T2"])
    for name, figure in figures(cells):
        figure.savefig(folder / f"{name}.png", dpi=110)
    if (folder / "README.md").is_file():
        fill(folder / "README.md")


def rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def is_plain(cell: Row) -> bool:
    return bool(cell["experts"] == 2 and cell["skew"] == 1)


def traffic_of(cell: Row) -> str:
    return "one expert asked 4 × as often" + (", another every 20 s" if cell["moving"] else "")


def percentiles(cell: Row) -> str:
    return " / ".join(f"{cell['quantiles'][q]:.1f}" for q in ("50", "99", "99.9"))


def table(file: Path, cells: Sequence[Row], column: str, show: Callable[[Row], str]) -> None:
    """A row a policy, a column a value of what varies."""
    heads = list(dict.fromkeys(cell[column] for cell in cells))
    heads = sorted(heads) if all(isinstance(head, int | float) for head in heads) else heads
    found = {(cell["policy"], cell[column]): show(cell) for cell in cells}
    names = dict.fromkeys(cell["policy"] for cell in cells)
    lines = [[name, *(found.get((name, head), "–") for head in heads)] for name in names]
    markdown(file, [f"{'N' if column == 'experts' else column}", *map(str, heads)], lines)


def costs(file: Path, cells: Sequence[Row]) -> None:
    """What a policy costs, beside what it gives."""
    heads = [
        "policy",
        "machines",
        "models in memory",
        "calls a query",
        "not exact %",
        "p50",
        "p99",
        "p99.9",
        "p99.9 − p50",
    ]
    lines = []
    for c in cells:
        numbers = [f"{c['quantiles'][q]:.1f}" for q in ("50", "99", "99.9")]
        known = [c["policy"], c["machines"], c["memory"], f"{c['calls']:.2f}", f"{100 * c['inexact']:.1f}"]
        lines.append([*known, *numbers, f"{tail(c):.1f}"])
    markdown(file, heads, lines)


def agreement(file: Path, cells: Sequence[Row]) -> None:
    """The engine beside the simulator, and how far they are apart."""
    heads = ["engine (T2)", "queries", "failed", "p50", "p50 T3", "p99", "p99 T3", "p50 apart", "p99 apart"]
    lines = []
    for c in cells:
        pairs = [(c["quantiles"][q], c["simulated"][q]) for q in ("50", "99")]
        apart = [f"{100 * (a / b - 1):+.0f} %" for a, b in pairs]
        what = f"{'ensemble' if c['ensembles'] else 'routed'}, {c['policy']}, {c['fault']}, load {c['load']:g}"
        shown = [f"{number:.1f}" for pair in pairs for number in pair]
        lines.append([what, c["answered"] + c["failed"], c["failed"], *shown, *apart])
    markdown(file, heads, lines)


def markdown(file: Path, heads: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    bars = ["---", *(["---:"] * (len(heads) - 1))]
    file.write_text("".join("| " + " | ".join(map(str, line)) + " |\n" for line in [heads, bars, *lines]))
