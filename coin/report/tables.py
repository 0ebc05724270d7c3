"""Tables: for the terminal, Markdown, CSV and LaTeX."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rich.table import Table

from coin.report.runs import Cell


def run_table(results: dict) -> Table:
    """One run: how well each expert is decoded."""
    chosen = ", ".join(f"{k}={v:g}" for k, v in results["hyperparameters"].items())
    decoder = results.get("decoder", "analytic")
    name = results["code"] if decoder == "analytic" else f"{results['code']} + {decoder}"
    table = Table(title=f"{name} on {results['experiment']}" + (f"  ({chosen})" if chosen else ""))
    table.add_column("expert")
    keys = ("accuracy", "decoded_accuracy", "nda", "agreement")
    for column in ("accuracy %", "decoded accuracy %", "NDA %", "agreement %"):
        table.add_column(column, justify="right")
    for expert in results["experts"]:
        table.add_row(expert["name"], *(f"{expert[key]:.2f}" for key in keys))
    table.add_section()
    means = [sum(e[key] for e in results["experts"]) / len(results["experts"]) for key in keys]
    table.add_row("average", *(f"{mean:.2f}" for mean in means), style="bold")
    return table


def plus_minus(mean: float, deviation: float) -> str:
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f}"


def grid(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]], set[tuple[int, int]]]:
    """Column names, rows of text, and which (row, column) are the best average of their experiment.

    A row is a code with its settings; an experiment has a column an expert, their average, the paper's average where
    there is one, and the seconds of encoding.
    """
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    labels = list(dict.fromkeys(cell.label for cell in cells))
    by_place = {(cell.label, cell.experiment): cell for cell in cells}
    header, best, rows = ["NDA %"], set(), [[label] for label in labels]
    for experiment in experiments:
        column = [by_place.get((label, experiment)) for label in labels]
        names = next(cell.experts for cell in column if cell)
        with_paper = any(cell and cell.paper() is not None for cell in column)
        start = len(header)
        header += [f"{experiment} {name}" for name in names] + [f"{experiment} average"]
        header += [f"{experiment} paper"] if with_paper else []
        header += [f"{experiment} encode s"]
        for row, cell in zip(rows, column, strict=True):
            if cell is None:
                row += [""] * (len(header) - start)
                continue
            row += [plus_minus(*cell.nda(i)) for i in range(len(names))] + [plus_minus(*cell.nda())]
            if with_paper:
                reference = cell.paper()
                row.append("" if reference is None else f"{reference:.2f}")
            row.append(f"{cell.seconds():.1f}")
        top = highest(cell for cell in column if cell)
        best |= {(i, start + len(names)) for i, cell in enumerate(column) if cell and cell.nda()[0] == top}
    return header, rows, best


def highest(cells: Iterable[Cell]) -> float:
    return max((mean for mean, _ in (cell.nda() for cell in cells) if math.isfinite(mean)), default=math.nan)


def pivot(title: str, cells: Iterable[Cell], row: Callable[[Cell], str], texts: Callable[[Cell], dict]) -> str:
    """Markdown: the row that each cell belongs to, and its texts by column."""
    cells = list(cells)
    columns = dict.fromkeys(column for cell in cells for column in texts(cell))
    rows: dict[str, dict[str, str]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row):  # a column may lack the first codes
        rows.setdefault(row(cell), {}).update(texts(cell))
    return marked_down(
        [title, *columns], [[label, *(found.get(c, "") for c in columns)] for label, found in rows.items()]
    )


def average_of(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """The text of a cell's average NDA; the best of each experiment is bold."""
    best = {e: highest(c for c in cells if c.experiment == e) for e in {cell.experiment for cell in cells}}

    def text(cell: Cell) -> str:
        plain = plus_minus(*cell.nda())
        return f"**{plain}**" if cell.nda()[0] == best[cell.experiment] else plain

    return text


def averages(cells: Sequence[Cell]) -> str:
    """A row a code, a column an experiment: the average NDA, and in brackets what the paper has."""
    average = average_of(cells)

    def text(cell: Cell) -> str:
        reference = cell.paper()
        return average(cell) if reference is None else f"{average(cell)} ({reference:.2f})"

    return pivot("average NDA %", cells, lambda cell: cell.label, lambda cell: {cell.experiment: text(cell)})


def decoders(cells: Sequence[Cell]) -> str:
    """A row a code, a column a decoder of every experiment: the average NDA."""
    average = average_of(cells)
    return pivot(
        "average NDA %",
        cells,
        lambda cell: replace(cell, decoder="analytic").label,
        lambda cell: {f"{cell.experiment} {cell.decoder}": average(cell)},
    )


def terminal(cells: Sequence[Cell]) -> list[Table]:
    """One table an experiment, so that each fits a terminal."""
    tables = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        header, rows, best = grid([cell for cell in cells if cell.experiment == experiment])
        table = Table(title=experiment)
        for i, name in enumerate(header):
            table.add_column(name.removeprefix(f"{experiment} "), justify="right" if i else "left", no_wrap=not i)
        for r, row in enumerate(rows):
            table.add_row(*(f"[bold]{text}[/bold]" if (r, c) in best else text for c, text in enumerate(row)))
        tables.append(table)
    return tables


def markdown(cells: Sequence[Cell]) -> str:
    """One table an experiment."""
    parts = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        header, rows, best = grid([cell for cell in cells if cell.experiment == experiment])
        names = [experiment, *(name.removeprefix(f"{experiment} ") for name in header[1:])]
        bold = [[f"**{t}**" if (r, c) in best else t for c, t in enumerate(row)] for r, row in enumerate(rows)]
        parts.append(marked_down(names, bold))
    return "\n".join(parts)


def marked_down(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def experts(cells: Sequence[Cell]) -> str:
    """A row a set of experts: how good and how far from one another they are, and the NDA of every code."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in (cell for cell in cells if "distance" in cell.runs[0]):
        groups.setdefault(who(cell), []).append(cell)
    shared = {
        key: dict(set.intersection(*(set(cell.variant.items()) for cell in group))) for key, group in groups.items()
    }

    def row(cell: Cell) -> str:
        return " ".join([cell.experiment, *(f"{k}={v}" for k, v in sorted(shared[who(cell)].items()))])

    def texts(cell: Cell) -> dict[str, str]:
        own = {k: v for k, v in cell.variant.items() if k not in shared[who(cell)]}
        numbers = {
            "accuracy %": facts(cell, "accuracy"),
            "‖θ_i − θ_0‖": facts(cell, "distance"),
            "‖θ_1 − θ_2‖": [cell.runs[0]["distance"]],
            "spread of logits": facts(cell, "logit_sd"),
            "margin": facts(cell, "margin"),
        }
        said = {column: " / ".join(f"{x:.2f}" for x in found) for column, found in numbers.items()}
        return {**said, f"NDA % {replace(cell, variant=own).label}": plus_minus(*cell.nda())}

    return pivot("experts", [cell for group in groups.values() for cell in group], row, texts)


def who(cell: Cell) -> tuple:
    """What tells one set of experts from another."""
    return (cell.experiment, *facts(cell, "accuracy"), f"{cell.runs[0]['distance']:.3g}")


def own_classes(cells: Sequence[Cell]) -> str:
    """Average NDA where only an expert's own classes may be named, for experts of some of the classes."""
    experiments = {cell.experiment for cell in cells if names_fewer_classes(cell)}
    chosen = [c for c in cells if c.experiment in experiments and facts(c, "own_classes_nda")]

    def texts(cell: Cell) -> dict[str, str]:
        both = {cell.experiment: "nda", f"{cell.experiment}, among own classes": "own_classes_nda"}
        return {column: f"{statistics.fmean(facts(cell, key)):.2f}" for column, key in both.items()}

    return pivot("average NDA %, first draw", chosen, lambda cell: cell.label, texts)


def names_fewer_classes(cell: Cell) -> bool:
    both = [(e["nda"], e["own_classes_nda"]) for e in cell.runs[0]["experts"] if "own_classes_nda" in e]
    return any(own != nda for nda, own in both if math.isfinite(nda))


def facts(cell: Cell, key: str) -> list[float]:
    """What is said of each expert; experts do not depend on the seed of the draw."""
    return [expert[key] for expert in cell.runs[0]["experts"] if key in expert]


def latex(cells: Sequence[Cell]) -> str:
    header, rows, best = grid(cells)
    escape = str.maketrans({"_": r"\_", "%": r"\%", "±": r"$\pm$"})
    lines = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\toprule"]
    lines.append(" & ".join(name.translate(escape) for name in header) + r" \\")
    lines.append(r"\midrule")
    for r, row in enumerate(rows):
        texts = (t.translate(escape) for t in row)
        lines.append(" & ".join(rf"\textbf{{{t}}}" if (r, c) in best else t for c, t in enumerate(texts)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(cells: Sequence[Cell]) -> str:
    """Long format, a row an expert and one for the average, for other programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "experiment",
            "code",
            "decoder",
            "settings",
            "expert",
            "nda_mean",
            "nda_sd",
            "runs",
            "paper_nda",
            "encode_seconds",
        ]
    )
    for cell in cells:
        settings = " ".join(f"{k}={v}" for k, v in cell.variant.items())
        for i, name in [*enumerate(cell.experts), (None, "average")]:
            mean, deviation = cell.nda(i)
            sd = "" if math.isnan(deviation) else f"{deviation:.4f}"
            reference = cell.paper(i)
            paper_nda = "" if reference is None else f"{reference:.2f}"
            row = [
                cell.experiment,
                cell.code,
                cell.decoder,
                settings,
                name,
                f"{mean:.4f}",
                sd,
                len(cell.runs),
                paper_nda,
            ]
            writer.writerow([*row, f"{cell.seconds():.3f}"])
    return out.getvalue()
