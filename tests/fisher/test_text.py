"""Hugging Face's networks: batches that are mappings, padding, outputs as `.logits`."""

import pytest
import torch
from reference import diagonal_fisher as by_loop
from reference import relative_error

from coin.fisher import DiagonalFisher, Probes, diagonal_fisher

transformers = pytest.importorskip("transformers", reason="pip install -e '.[text]'")
SETTINGS = dict(vocab_size=30, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                max_position_embeddings=10, num_labels=3)  # fmt: skip
LENGTHS = (7, 3, 5, 7, 1, 4)


def bert(attention="eager"):
    torch.manual_seed(0)
    config = transformers.BertConfig(**SETTINGS, attn_implementation=attention)
    return transformers.BertForSequenceClassification(config).double().eval()


def sentences(lengths=LENGTHS):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, 30, (length,), generator=generator) for length in lengths]


def padded(sentences, length, left=False):
    """With labels, as a collator makes them."""
    side = [(length - len(s), 0) if left else (0, length - len(s)) for s in sentences]
    ids, mask = (
        torch.stack([torch.nn.functional.pad(row, pad) for row, pad in zip(rows, side, strict=True)])
        for rows in (sentences, [torch.ones_like(s) for s in sentences])
    )
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.zeros(len(ids), dtype=torch.long)}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("directions", [None, Probes(4)])
def test_padding_changes_no_number(attention, directions):
    network = bert(attention)
    alone = diagonal_fisher(network, [padded([s], len(s)) for s in sentences()], directions)
    for length in (7, 10):
        together = diagonal_fisher(network, [padded(sentences(), length)], directions)
        assert relative_error(together, alone) < 1e-9


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_sentences_in_batches_of_their_own_length_are_exact(attention):
    network, rows = bert(attention), sentences()
    batches = [padded(rows[:2], 7), padded(rows[2:5], 7), padded(rows[5:], 4)]
    fisher = DiagonalFisher(network)
    for batch in batches:
        fisher.update(batch)
    assert relative_error(fisher.compute(), by_loop(network, batches)) < 1e-9
