"""Quotes: what a page in Markdown shows of the tables that are written."""

import re
from pathlib import Path

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
