"""A small encoder with its tokenizer, as a folder that Hugging Face reads, and sentences that it can learn."""

import random

import torch

WORDS = ["who", "where", "when", "good", "bad", "film", "is", "the", "a", "of", "town", "king", "very", "not", "?", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tiny_bert(folder, words=(), **settings):
    """Two layers of width 16, seeded, saved as its publisher would."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    vocabulary = [*SPECIAL, *WORDS, *words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    usual = dict(vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=24, max_position_embeddings=20)  # fmt: skip
    BertModel(BertConfig(**{**usual, **settings})).save_pretrained(folder)
    return folder


def lines(count, classes, seed=0, most=9):
    """`LABEL sentence`, where the label is told by the first word."""
    chosen = random.Random(seed)
    found = []
    for i in range(count):
        label = i % classes
        more = [chosen.choice(WORDS[6:]) for _ in range(chosen.randint(1, most - 1))]
        found.append(f"{label} {' '.join([WORDS[label], *more])}")
    return "\n".join(found) + "\n"


def corpora(root, count=60):
    """TREC, SST-2 and Subj in small, where the real ones are looked for."""
    (root / "text").mkdir(parents=True, exist_ok=True)
    files = {"TREC.train.all": (count, 6), "TREC.test.all": (30, 6), "stsa.binary.train": (count, 2),
             "stsa.binary.test": (20, 2), "subj.all": (count, 2)}  # fmt: skip
    for seed, (name, (many, classes)) in enumerate(files.items()):
        (root / "text" / name).write_text(lines(many, classes, seed), "latin-1")
    return root
