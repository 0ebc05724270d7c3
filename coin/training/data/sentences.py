"""Sentences: tokenised once and kept in memory as numbers; batches are padded to their own longest sentence."""

import abc
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from coin.batch import Plain
from coin.problem.recipes import Recipe
from coin.training.data.sets import Data, Examples

NOTHING = -1  # in place of a token, where a sentence has ended
Sentences = tuple[list[str], list[int]]  # and their labels


class TextData(Data):
    """A data set of sentences. Subclasses say where they come from.

    `tokenizer` is the folder of a Hugging Face tokenizer, usually that of the model; `longest` cuts sentences to so
    many tokens (None: as long as they are).
    """

    unit = "sentences"

    def __init__(
        self,
        root: str = "data",
        tokenizer: str | None = None,
        labels: Sequence[int] | str | None = None,
        longest: int | None = None,
        batch_size: int = 32,
        seed: int = 0,
    ):
        super().__init__(root, labels, batch_size, seed)
        if longest is not None and not (isinstance(longest, int) and longest >= 3):
            raise ValueError(f"data.longest={longest}: must be at least 3 tokens, or null for sentences as they are")
        self.folder, self.longest = tokenizer, longest
        self._tokenizer: Any = None

    @abc.abstractmethod
    def sentences(self, train: bool) -> Sentences:
        """All sentences of the training or test set, and their labels."""

    @property
    def tokenizer(self) -> Any:
        """Hugging Face's, read once."""
        if self._tokenizer is None:
            self._tokenizer = read_tokenizer(self.folder)
        return self._tokenizer

    def load(self, train: bool) -> Examples:
        texts, labels = self.sentences(train)
        cut = {"truncation": True, "max_length": self.longest} if self.longest else {}
        rows = self.tokenizer(texts, return_attention_mask=False, verbose=False, **cut)["input_ids"]
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=NOTHING)
        return Examples(ids.int(), torch.tensor(labels))

    def transform(self, raw: Tensor) -> Plain:
        """Token numbers (samples, tokens) to what a network is asked by keyword, cut to the longest sentence."""
        mask = raw != NOTHING
        longest = int(mask.sum(1).max()) if len(raw) else 1
        ids = torch.where(mask, raw, self.tokenizer.pad_token_id or 0)
        return {"input_ids": ids[:, :longest].long(), "attention_mask": mask[:, :longest].long()}

    @property
    def longest_sentence(self) -> int:
        """In tokens, of all that a network would be asked."""
        self.setup()
        assert self.train_set is not None and self.test_set is not None
        parts = (part.inputs for part in (self.train_set, self.test_set))
        return max(int((part != NOTHING).sum(1).max()) for part in parts if isinstance(part, Tensor))

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self.tokenizer)

    @property
    def queries(self) -> str:
        words = json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        return f"sentences in {self.vocabulary} tokens ({hashlib.sha256(words.encode()).hexdigest()[:6]})"

    def recipe(self) -> Recipe:
        """The contents are token numbers, so the tokenizer is told; what stands for padding is not among them."""
        return {**super().recipe(), "padding": self.tokenizer.pad_token_id or 0}

    def preparation(self) -> dict[str, Any]:
        padding = self.tokenizer.pad_token_id or 0
        return {"tokenizer": str(self.folder), "longest": self.longest, "padding": padding}


def read_tokenizer(folder: str | None) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ValueError("text needs Hugging Face's transformers: pip install -e '.[text]'") from error
    if folder is None or not Path(folder).is_dir():
        raise ValueError(
            f"data.tokenizer={folder}: no such folder; give that of a Hugging Face model, model.weights=DIR"
        )
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever its files make of it
        raise ValueError(
            f"data.tokenizer={folder}: holds no tokenizer that can be read ({' '.join(str(error).split())[:100]}); "
            "give a folder with tokenizer.json"
        ) from error
