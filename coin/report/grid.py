"""Grids: texts in rows and columns, and how they are written in Markdown, in LaTeX and on a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from coin.report.cells import Cell, distinct

Text = Callable[[Cell], str]
Texts = Callable[[Cell], dict[str, str]]


@dataclass
class Grid:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        header, *rows = (f"| {' | '.join(row)} |" for row in (self.header, *self.rows))
        return "\n".join([header, "|---" + "|---:" * (len(self.header) - 1) + "|", *rows]) + "\n"

    def latex(self) -> str:
        header, *rows = (" & ".join(row) + r" \\" for row in (self.header, *self.rows))
        begin = r"\begin{tabular}{l" + "r" * (len(self.header) - 1) + "}"
        lines = [begin, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(lines).replace("_", r"\_").replace("%", r"\%").replace("±", r"$\pm$") + "\n"

    def terminal(self, title: str) -> Table:
        table = Table(title=title)
        for i, name in enumerate(self.header):
            table.add_column(name, justify="right" if i else "left", no_wrap=not i)
        for row in self.rows:
            table.add_row(escape(row[0]), *row[1:])  # other cells may be bold
        return table


def pivot(title: str, cells: Sequence[Cell], columns: Texts, row: Text = Cell.label_without, sort: bool = True) -> Grid:
    """From the row that each cell belongs to, and its texts by column."""
    header = distinct(column for cell in cells for column in columns(cell))
    rows: dict[str, dict[str, str]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row) if sort else cells:  # a column may lack the first codes
        rows.setdefault(row(cell), {}).update(columns(cell))
    return Grid([title, *header], [[label, *(found.get(c, "") for c in header)] for label, found in rows.items()])
