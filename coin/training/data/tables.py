"""The user's own sentences: `label<TAB>text` a line, CSV or JSONL."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from coin.training.data.sentences import Sentences, TextData

Row = tuple[str, str, int]  # label, sentence, and the line it stands on
LABEL, TEXT = ("label", "category", "class"), ("text", "sentence")  # what columns may be called


class TextFile(TextData):
    """Sentences of two files, `train` and `test`, which may lie below `root`. Those that end in .csv have a header with
    `label` and `text`, those in .jsonl an object with them a line; any other is `label<TAB>text`. Classes are the
    labels of `train`, in order: of numbers, or of the alphabet.
    """

    name = "text_file"

    def __init__(
        self,
        root: str = "data",
        train: str | None = None,
        test: str | None = None,
        tokenizer: str | None = None,
        labels: Sequence[int] | str | None = None,
        longest: int | None = None,
        batch_size: int = 32,
        seed: int = 0,
    ):
        self.paths = {True: found("train", train, root), False: found("test", test, root)}
        rows = read_rows(self.paths[True], self.name)
        self.classes = sorted(
            {label for label, _, _ in rows}, key=lambda label: (not label.isdecimal(), label.zfill(9))
        )
        if len(self.classes) < 2:
            raise ValueError(f"data.train={train}: has {len(self.classes)} classes; at least two are needed")
        self.num_classes = len(self.classes)
        super().__init__(root, tokenizer, labels, longest, batch_size=batch_size, seed=seed)

    def sentences(self, train: bool) -> Sentences:
        path = self.paths[train]
        return numbered(read_rows(path, self.name), self.classes, path)


def found(part: str, name: str | None, root: str) -> Path:
    for path in (Path(name), Path(root) / name) if name is not None else ():
        if path.is_file():
            return path
    raise ValueError(
        f"data.{part}={name}: no such file, nor below {root}; give one of sentences: label<TAB>text, .csv or .jsonl"
    )


def numbered(rows: Sequence[Row], classes: Sequence[str], path: Path) -> Sentences:
    """Sentences, and the numbers of their classes."""
    numbers = {label: number for number, label in enumerate(classes)}
    for label, _, line in rows:
        if label not in numbers:
            raise ValueError(
                f"{path}: line {line} has the label {label}, which is none of the {len(classes)} of the training "
                "sentences; correct it, or add sentences of that class to them"
            )
    return [text for _, text, _ in rows], [numbers[label] for label, _, _ in rows]


def read_rows(path: Path, name: str) -> list[Row]:
    """All sentences of a file, by how its name ends."""
    read = {".csv": of_csv, ".jsonl": of_jsonl}.get(path.suffix, of_tabs)
    rows = read(read_text(path, name), path)
    for label, text, line in rows:
        if not (label and text):
            raise ValueError(f"{path}: line {line} lacks a label or a sentence; give both, or take it away")
    if not rows:
        raise ValueError(f"{path}: holds no sentence")
    return rows


def of_csv(contents: str, path: Path) -> list[Row]:
    reader = csv.DictReader(io.StringIO(contents, newline=""))  # a sentence may have several lines
    names = reader.fieldnames or []
    label, text = (next((n for n in names if n.strip().lower() in known), None) for known in (LABEL, TEXT))
    if label is None or text is None:
        raise ValueError(f"{path}: its first line is {','.join(names)}; it must name the columns label and text")
    return [((row[label] or "").strip(), (row[text] or "").strip(), reader.line_num) for row in reader]


def of_jsonl(contents: str, path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(contents.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            label, text = [next(found[key] for key in known if key in found) for known in (LABEL, TEXT)]
        except (ValueError, TypeError, StopIteration) as error:
            raise ValueError(f'{path}: line {number} must be an object such as {{"label": 0, "text": "…"}}') from error
        rows.append((str(label).strip(), str(text).strip(), number))
    return rows


def of_tabs(contents: str, path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(contents.split("\n"), 1):
        label, tab, text = line.partition("\t")
        if line.strip() and not tab:
            raise ValueError(
                f"{path}: line {number} has no tab; it must be label<TAB>text (or name the file .csv, .jsonl)"
            )
        if line.strip():
            rows.append((label.strip(), text.strip(), number))
    return rows


def read_text(path: Path, name: str, encoding: str = "utf-8") -> str:
    if not path.is_file():
        raise ValueError(f"{path} is missing: {name} is read from there; put it there, or give another data.root=DIR")
    try:
        return path.read_text(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: byte {error.start} is no {encoding}; fetch or save it again") from error
