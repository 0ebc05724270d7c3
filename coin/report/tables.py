"""Tables: what they tell of cells, for the terminal, Markdown, CSV and LaTeX."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from coin.report.cells import Cell, by_experiment, distinct, name_of, spread
from coin.report.grid import Grid, pivot
from coin.report.runs import TRAINING, Run


def texts(cells: Sequence[Cell]) -> dict[str, str]:
    """The tables that these cells have something to show in, by the names of their files."""
    found = {"table.md": markdown(cells), "table.csv": comma_separated(cells)}
    found["table.tex"] = table(cells, "NDA %", r"\textbf{{{}}}", column="{0} {1}").latex()
    others = {
        averages: len({cell.experiment for cell in cells}) > 1,
        decoders: len({cell.decoder for cell in cells}) > 1,
        experts: not all(math.isnan(cell.distance) for cell in cells),
        own_classes: any(map(names_fewer_classes, cells)),
        missing: any(len(cell.missing()) > 1 for cell in cells),
        training: any(TRAINING in cell.variant for cell in cells),
    }
    return found | {f"{table.__name__}.md": table(cells).markdown() for table, shown in others.items() if shown}


def marked_down(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Grid(header, rows).markdown()


def plus_minus(mean: float, deviation: float) -> str:
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f}"


def told(value: float | None, digits: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def average(cell: Cell, bold: str = "**{}**") -> str:
    text = plus_minus(*cell.nda())
    return bold.format(text) if cell.best else text


def table(cells: Sequence[Cell], title: str, bold: str, column: str = "{1}") -> Grid:
    """A row a code with its settings; an experiment has a column an expert, their average, the paper's average where
    there is one, the answers asked for and the numbers sent to decode one, and the seconds of encoding."""
    empty: dict[str, dict[str, str]] = {}  # the columns of an experiment: one cell alone may lack some
    for group in by_experiment(cells):
        paper = ["paper"] if any(cell.paper() is not None for cell in group) else []
        calls = ["calls", "numbers"] if any(cell.calls is not None for cell in group) else []
        names = [*distinct(name for cell in group for name in cell.experts), "average", *paper, *calls, "encode s"]
        empty[group[0].experiment] = dict.fromkeys(names, "")

    def columns(cell: Cell) -> dict[str, str]:
        found = empty[cell.experiment] | {name: plus_minus(*cell.nda(i)) for i, name in enumerate(cell.experts)}
        found |= {"average": average(cell, bold), "encode s": f"{cell.seconds():.1f}"}
        found |= {"paper": told(cell.paper())} if "paper" in found else {}
        found |= {"calls": told(cell.calls, 0), "numbers": told(cell.numbers, 0)} if "calls" in found else {}
        return {column.format(cell.experiment, name): text for name, text in found.items()}

    return pivot(title, cells, columns, sort=False)


def markdown(cells: Sequence[Cell]) -> str:
    """One table an experiment."""
    return "\n".join(table(group, group[0].experiment, "**{}**").markdown() for group in by_experiment(cells))


def terminal(cells: Sequence[Cell]) -> list[Table]:
    """One table an experiment, so that each fits a terminal."""
    return [table(group, "NDA %", "[bold]{}[/bold]").terminal(group[0].experiment) for group in by_experiment(cells)]


def run_table(results: Run) -> Table:
    """One run: how well each expert is decoded."""
    chosen = ", ".join(f"{k}={v:g}" for k, v in results["hyperparameters"].items())
    title = f"{name_of(results['code'], results.get('decoder', 'analytic'))} on {results['experiment']}"
    keys = ("accuracy", "decoded_accuracy", "nda", "agreement")
    rows = [[expert["name"], *(f"{expert[key]:.2f}" for key in keys)] for expert in results["experts"]]
    header = ["expert", "accuracy %", "decoded accuracy %", "NDA %", "agreement %"]
    drawn = Grid(header, rows).terminal(title + (f"  ({chosen})" if chosen else ""))
    drawn.add_section()
    means = [sum(e[key] for e in results["experts"]) / len(results["experts"]) for key in keys]
    drawn.add_row("average", *(f"{mean:.2f}" for mean in means), style="bold")
    return drawn


def comma_separated(cells: Sequence[Cell]) -> str:
    """Long format, a row an expert and one for the average, for other programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = "experiment code decoder settings expert nda_mean nda_sd runs paper_nda encode_seconds"
    writer.writerow(columns.split())
    for cell in cells:
        start = [cell.experiment, cell.code, cell.decoder, " ".join(cell.settings())]
        for i, name in [*enumerate(cell.experts), (None, "average")]:
            mean, deviation = cell.nda(i)
            row = [*start, name, f"{mean:.4f}", told(deviation, 4), len(cell.runs), told(cell.paper(i))]
            writer.writerow([*row, f"{cell.seconds():.3f}"])
    return out.getvalue()


def averages(cells: Sequence[Cell]) -> Grid:
    """A row a code, a column an experiment: the average NDA, and in brackets what the paper has."""

    def columns(cell: Cell) -> dict[str, str]:
        return {cell.experiment: average(cell) + (f" ({told(cell.paper())})" if cell.paper() is not None else "")}

    return pivot("average NDA %", cells, columns)


def decoders(cells: Sequence[Cell]) -> Grid:
    """A row a code, a column a decoder of every experiment: the average NDA."""

    def columns(cell: Cell) -> dict[str, str]:
        return {f"{cell.experiment} {cell.decoder}": average(cell)}

    return pivot("average NDA %", cells, columns, Cell.code_without)


def training(cells: Sequence[Cell]) -> Grid:
    """A row a code: the average NDA over the trainings of the experts (mean ± deviation of each training's mean), then
    that of each training (over its draws)."""

    def row(cell: Cell) -> str:
        return cell.label_without(TRAINING)

    def columns(cell: Cell) -> dict[str, str]:
        means = [c.nda()[0] for c in cells if (c.experiment, row(c)) == (cell.experiment, row(cell))]
        over = {f"{cell.experiment} over trainings": plus_minus(*spread(means))}
        return over | {f"{cell.experiment} {TRAINING}={cell.variant[TRAINING]}": plus_minus(*cell.nda())}

    by_seed = sorted(cells, key=lambda cell: (cell.number(TRAINING), cell.variant[TRAINING]))
    return pivot("average NDA %", [cell for group in by_experiment(by_seed) for cell in group], columns, row)


def experts(cells: Sequence[Cell]) -> Grid:
    """A row a set of experts: how good and how far from one another they are, and the NDA of every code."""

    def who(cell: Cell) -> tuple[Any, ...]:
        """What tells one set of experts from another."""
        return (cell.experiment, *cell.facts("accuracy"), f"{cell.distance:.3g}")

    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in (cell for cell in cells if not math.isnan(cell.distance)):
        groups.setdefault(who(cell), []).append(cell)
    shared = {key: dict(set.intersection(*(set(c.variant.items()) for c in group))) for key, group in groups.items()}

    def row(cell: Cell) -> str:
        return " ".join([cell.experiment, *(f"{k}={v}" for k, v in sorted(shared[who(cell)].items()))])

    def columns(cell: Cell) -> dict[str, str]:
        numbers: dict[str, list[float]] = {
            "accuracy %": cell.facts("accuracy"),
            "‖θ_i − θ_0‖": cell.facts("distance"),
            "‖θ_1 − θ_2‖": [cell.distance],
            "spread of logits": cell.facts("logit_sd"),
            "margin": cell.facts("margin"),
        }
        said = {column: " / ".join(f"{x:.2f}" for x in found) for column, found in numbers.items()}
        return {**said, f"NDA % {cell.label_without(*shared[who(cell)])}": plus_minus(*cell.nda())}

    return pivot("experts", [cell for group in groups.values() for cell in group], columns, row)


def own_classes(cells: Sequence[Cell]) -> Grid:
    """Average NDA where only an expert's own classes may be named, for experts of some of the classes."""
    experiments = {cell.experiment for cell in cells if names_fewer_classes(cell)}
    chosen = [c for c in cells if c.experiment in experiments and c.facts("own_classes_nda")]

    def columns(cell: Cell) -> dict[str, str]:
        both = {cell.experiment: "nda", f"{cell.experiment}, among own classes": "own_classes_nda"}
        return {column: f"{statistics.fmean(cell.facts(key)):.2f}" for column, key in both.items()}

    return pivot("average NDA %, first draw", chosen, columns)


def missing(cells: Sequence[Cell]) -> Grid:
    """A row a code with its decoder and settings: average NDA with one expert missing, with two, …"""

    def columns(cell: Cell) -> dict[str, str]:
        return {f"{cell.experiment}, {count} missing": plus_minus(*nda) for count, nda in cell.missing().items()}

    return pivot("average NDA %", cells, columns, sort=False)


def names_fewer_classes(cell: Cell) -> bool:
    both = [(e["nda"], e["own_classes_nda"]) for e in cell.first["experts"] if "own_classes_nda" in e]
    return any(own != nda for nda, own in both if math.isfinite(nda))
