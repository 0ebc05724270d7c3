"""Labelled sentences that are public, from the files they are published as, in `root/text`."""

from pathlib import Path

import torch

from coin.training.data.sentences import Sentences, TextData
from coin.training.data.tables import Row, numbered, read_rows, read_text

TEST_SHARE = 5  # where a set has no test sentences, one in so many is one


class Corpus(TextData):
    """Files of one sentence a line, `LABEL sentence`; a set of one file is split by a fixed seed."""

    files: tuple[str, ...]  # of training and test, or one of both
    encoding = "utf-8"

    def sentences(self, train: bool) -> Sentences:
        rows = self.rows(self.root / "text" / self.files[0 if train else -1])
        if len(self.files) == 1:
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
            test = set(order[: len(rows) // TEST_SHARE])
            rows = [row for i, row in enumerate(rows) if (i in test) != train]
        return [text for _, text, _ in rows], [int(label) for label, _, _ in rows]

    def rows(self, path: Path) -> list[Row]:
        found = []
        allowed = {str(label) for label in range(self.num_classes)}
        for number, line in enumerate(read_text(path, self.name, self.encoding).split("\n"), 1):
            label, _, text = line.strip().partition(" ")
            if line.strip() and (label not in allowed or not text):
                raise ValueError(
                    f"{path} is damaged: line {number} is not a label from 0 to {self.num_classes - 1} and a sentence; "
                    "fetch it again"
                )
            if line.strip():
                found.append((label, text, number))
        return found


class TREC(Corpus):
    """Six kinds of questions."""

    name = "trec"
    num_classes = 6
    files = ("TREC.train.all", "TREC.test.all")
    encoding = "latin-1"


class SST2(Corpus):
    """Film reviews, bad or good."""

    name = "sst2"
    num_classes = 2
    files = ("stsa.binary.train", "stsa.binary.test")


class Subj(Corpus):
    """Subjective sentences, and objective ones."""

    name = "subj"
    num_classes = 2
    files = ("subj.all",)
    encoding = "latin-1"


class CR(Corpus):
    """Customers' reviews, bad or good."""

    name = "cr"
    num_classes = 2
    files = ("custrev.all",)


class MPQA(Corpus):
    """Phrases of opinion, bad or good."""

    name = "mpqa"
    num_classes = 2
    files = ("mpqa.all",)


class Banking77(TextData):
    """77 things that customers of a bank want."""

    name = "banking77"
    num_classes = 77

    def sentences(self, train: bool) -> Sentences:
        paths = [self.root / "text" / f"banking77-{part}.csv" for part in ("train", "test")]
        rows = [read_rows(path, self.name) for path in paths]
        classes = sorted({label for label, _, _ in rows[0]})
        if len(classes) != self.num_classes:
            raise ValueError(f"{paths[0]} is damaged: {len(classes)} classes instead of 77; fetch it again")
        return numbered(rows[0 if train else 1], classes, paths[0 if train else 1])
