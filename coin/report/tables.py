"""Tables: for the terminal, Markdown, CSV and LaTeX."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence

from rich.table import Table

from coin.report.cells import Cell, by_experiment, distinct, name_of, place, size, spread
from coin.report.paper import EXPERIMENTS
from coin.report.runs import TRAINING

Grid = tuple[list[str], list[list[str]]]  # header and rows
Text = Callable[[Cell], str]


def texts(cells: Sequence[Cell]) -> dict[str, str]:
    """The tables that these cells have something to show in, by the names of their files."""
    found = {"table.md": markdown(cells), "table.csv": comma_separated(cells), "table.tex": latex(cells)}
    if len({cell.experiment for cell in cells}) > 1:
        found["averages.md"] = averages(cells)
    if len({cell.decoder for cell in cells}) > 1:
        found["decoders.md"] = decoders(cells)
    if any(not math.isnan(cell.distance) for cell in cells):
        found["experts.md"] = experts(cells)
    if any(map(names_fewer_classes, cells)):
        found["own_classes.md"] = own_classes(cells)
    if any(TRAINING in cell.variant for cell in cells):
        found["training.md"] = training(cells)
    return found


def pivot(title: str, cells: Sequence[Cell], row: Text, columns: Callable[[Cell], dict], sort: bool = True) -> Grid:
    """The row that each cell belongs to, and its texts by column."""
    header = distinct(column for cell in cells for column in columns(cell))
    rows: dict[str, dict[str, str]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row) if sort else cells:  # a column may lack the first codes
        rows.setdefault(row(cell), {}).update(columns(cell))
    return [title, *header], [[label, *(found.get(c, "") for c in header)] for label, found in rows.items()]


def plus_minus(mean: float, deviation: float) -> str:
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f}"


def average_of(cells: Sequence[Cell], bold: str = "**{}**") -> Text:
    """The text of a cell's average NDA; the best of each experiment is bold."""
    found = {group[0].experiment: [cell.nda()[0] for cell in group] for group in by_experiment(cells)}
    best = {experiment: max(filter(math.isfinite, means), default=math.nan) for experiment, means in found.items()}

    def text(cell: Cell) -> str:
        plain = plus_minus(*cell.nda())
        return bold.format(plain) if cell.nda()[0] == best[cell.experiment] else plain

    return text


def grid(cells: Sequence[Cell], title: str, bold: str, column: str = "{1}") -> Grid:
    """A row a code with its settings; an experiment has a column an expert, their average, the paper's average where
    there is one, and the seconds of encoding."""
    average = average_of(cells, bold)
    empty: dict[str, dict[str, str]] = {}  # the columns of an experiment: one cell alone may lack some
    for group in by_experiment(cells):
        paper = ["paper"] if any(cell.paper() is not None for cell in group) else []
        names = [*distinct(name for cell in group for name in cell.experts), "average", *paper, "encode s"]
        empty[group[0].experiment] = dict.fromkeys(names, "")

    def columns(cell: Cell) -> dict[str, str]:
        found = empty[cell.experiment] | {name: plus_minus(*cell.nda(i)) for i, name in enumerate(cell.experts)}
        found |= {"average": average(cell), "encode s": f"{cell.seconds():.1f}"}
        if "paper" in found:
            found["paper"] = told(cell.paper())
        return {column.format(cell.experiment, name): text for name, text in found.items()}

    return pivot(title, cells, Cell.label_without, columns, sort=False)


def told(value: float | None, digits: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def markdown(cells: Sequence[Cell]) -> str:
    """One table an experiment."""
    return "\n".join(marked_down(*grid(group, group[0].experiment, "**{}**")) for group in by_experiment(cells))


def marked_down(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def terminal(cells: Sequence[Cell]) -> list[Table]:
    """One table an experiment, so that each fits a terminal."""
    return [drawn(group[0].experiment, *grid(group, "NDA %", "[bold]{}[/bold]")) for group in by_experiment(cells)]


def drawn(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*row)
    return table


def run_table(results: dict) -> Table:
    """One run: how well each expert is decoded."""
    chosen = ", ".join(f"{k}={v:g}" for k, v in results["hyperparameters"].items())
    name = name_of(results["code"], results.get("decoder", "analytic"))
    shown = {"accuracy": "accuracy %", "decoded_accuracy": "decoded accuracy %", "nda": "NDA %",
             "agreement": "agreement %"}  # fmt: skip
    rows = [[expert["name"], *(f"{expert[key]:.2f}" for key in shown)] for expert in results["experts"]]
    table = drawn(
        f"{name} on {results['experiment']}" + (f"  ({chosen})" if chosen else ""), ["expert", *shown.values()], rows
    )
    table.add_section()
    means = [sum(e[key] for e in results["experts"]) / len(results["experts"]) for key in shown]
    table.add_row("average", *(f"{mean:.2f}" for mean in means), style="bold")
    return table


def latex(cells: Sequence[Cell]) -> str:
    header, rows = grid(cells, "NDA %", r"\textbf{{{}}}", column="{0} {1}")
    lines = [" & ".join(row) + r" \\" for row in (header, *rows)]
    begin = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\toprule", lines[0], r"\midrule"]
    escape = str.maketrans({"_": r"\_", "%": r"\%", "±": r"$\pm$"})
    return "\n".join([*begin, *lines[1:], r"\bottomrule", r"\end{tabular}"]).translate(escape) + "\n"


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


def averages(cells: Sequence[Cell]) -> str:
    """A row a code, a column an experiment: the average NDA, and in brackets what the paper has."""
    average = average_of(cells)

    def columns(cell: Cell) -> dict[str, str]:
        reference = cell.paper()
        return {cell.experiment: average(cell) if reference is None else f"{average(cell)} ({reference:.2f})"}

    return marked_down(*pivot("average NDA %", cells, Cell.label_without, columns))


def decoders(cells: Sequence[Cell]) -> str:
    """A row a code, a column a decoder of every experiment: the average NDA."""
    average = average_of(cells)

    def columns(cell: Cell) -> dict[str, str]:
        return {f"{cell.experiment} {cell.decoder}": average(cell)}

    return marked_down(*pivot("average NDA %", cells, Cell.code_without, columns))


def training(cells: Sequence[Cell]) -> str:
    """A row a code: the average NDA over the trainings of the experts (mean ± deviation of each training's mean), then
    that of each training (over its draws)."""

    def row(cell: Cell) -> str:
        return cell.label_without(TRAINING)

    def columns(cell: Cell) -> dict[str, str]:
        means = [c.nda()[0] for c in cells if (c.experiment, row(c)) == (cell.experiment, row(cell))]
        over = {f"{cell.experiment} over trainings": plus_minus(*spread(means))}
        return over | {f"{cell.experiment} {TRAINING}={cell.variant[TRAINING]}": plus_minus(*cell.nda())}

    def order(cell: Cell) -> tuple:
        return place(cell.experiment, EXPERIMENTS), size(cell.variant[TRAINING])

    return marked_down(*pivot("average NDA %", sorted(cells, key=order), row, columns))


def experts(cells: Sequence[Cell]) -> str:
    """A row a set of experts: how good and how far from one another they are, and the NDA of every code."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in (cell for cell in cells if not math.isnan(cell.distance)):
        groups.setdefault(who(cell), []).append(cell)
    shared = {who: dict(set.intersection(*(set(c.variant.items()) for c in group))) for who, group in groups.items()}

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

    return marked_down(*pivot("experts", [cell for group in groups.values() for cell in group], row, columns))


def who(cell: Cell) -> tuple:
    """What tells one set of experts from another."""
    return (cell.experiment, *cell.facts("accuracy"), f"{cell.distance:.3g}")


def own_classes(cells: Sequence[Cell]) -> str:
    """Average NDA where only an expert's own classes may be named, for experts of some of the classes."""
    experiments = {cell.experiment for cell in cells if names_fewer_classes(cell)}
    chosen = [c for c in cells if c.experiment in experiments and c.facts("own_classes_nda")]

    def columns(cell: Cell) -> dict[str, str]:
        both = {cell.experiment: "nda", f"{cell.experiment}, among own classes": "own_classes_nda"}
        return {column: f"{statistics.fmean(cell.facts(key)):.2f}" for column, key in both.items()}

    return marked_down(*pivot("average NDA %, first draw", chosen, Cell.label_without, columns))


def names_fewer_classes(cell: Cell) -> bool:
    both = [(e["nda"], e["own_classes_nda"]) for e in cell.first["experts"] if "own_classes_nda" in e]
    return any(own != nda for nda, own in both if math.isfinite(nda))
