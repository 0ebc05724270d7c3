from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from coin.batch import Batch


class Keyed(nn.Module):
    """Asked by keywords, answers as Hugging Face's networks do."""

    def forward(self, tokens, scale=1):
        return SimpleNamespace(logits=tokens.float() * scale)


@pytest.mark.parametrize("kind", [dict, UserDict])  # tokenizers answer with the latter
def test_whatever_a_loader_yields_is_a_batch(kind):
    x = torch.arange(12).view(4, 3)
    for given in (x, (x,), [x, torch.zeros(4)], (x, torch.zeros(4), "more"), Batch.of(x)):
        assert torch.equal(Batch.of(given).ask(nn.Identity()), x)
    mapping = kind(tokens=x, scale=torch.full((4, 1), 2.0), labels=torch.zeros(1), targets=None)
    for given in (mapping, (mapping, torch.zeros(4))):
        assert torch.equal(Batch.of(given).ask(Keyed()), 2.0 * x)


def test_parts_are_of_about_equal_size():
    batch = Batch.of({"a": torch.arange(7), "b": torch.arange(14).view(7, 2)})
    assert [len(part) for part in batch.parts(3)] == [3, 3, 1]
    assert [len(part) for part in batch.parts(6)] == [4, 3]
    assert torch.equal(torch.cat([part.tensors["b"] for part in batch.parts(2)]), batch.tensors["b"])
    assert batch[:2].kind == batch[[6]].kind != Batch.of({"a": torch.arange(7.0)}).kind


def test_the_contents_of_a_sample_know_no_padding():
    short = {"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 2), "score": torch.tensor([0.5])}
    padded = {
        "score": torch.tensor([0.1, 0.5]),
        "input_ids": torch.tensor([[1, 2, 3], [0, 5, 6]]),
        "attention_mask": torch.tensor([[1.0, 1, 1], [0, 1, 1]]),
    }
    alone, among = Batch.of(short).contents(0), Batch.of(padded).contents(1)
    assert all(map(torch.equal, alone, among)) and len(alone) == len(among) == 3
    assert not torch.equal(among[1], Batch.of(padded).contents(0)[1])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.tensor(1.0), "a batch is a single number, expected a tensor"),
        ("text", "a batch is str"),
        ([], "a batch is list"),
        ({"text": ["a", "b"]}, "a batch has text that is list"),
        ({"labels": torch.zeros(3)}, "a batch has no inputs"),
        ({"a": torch.zeros(3, 2), "b": torch.zeros(2)}, r"a batch has a \(3, 2\), b \(2,\); all its tensors"),
    ],
)
def test_what_is_no_batch_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Batch.of(given)


def test_answers_that_are_no_outputs_are_refused():
    with pytest.raises(ValueError, match="returns SimpleNamespace, expected one tensor"):
        Batch.of(torch.zeros(2, 3)).ask(lambda x: SimpleNamespace(hidden=x))
    with pytest.raises(ValueError, match=r"returns \(2, 3, 1\) for 2 samples"):
        Batch.of({"tokens": torch.zeros(2, 3, 1)}).ask(Keyed())


def masked(ids, mask):
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "weight": torch.ones(len(ids))}


def test_batches_of_other_lengths_are_joined_by_padding_and_parts_lose_it_again():
    long, short = masked([[1, 2, 3]], [[1, 1, 1]]), masked([[4, 5], [6, 0]], [[1, 1], [1, 0]])
    whole = Batch.joined([short, (long, "label")])
    assert whole.tensors["input_ids"].tolist() == [[4, 5, 0], [6, 0, 0], [1, 2, 3]]
    assert whole.mask.tolist() == [[True, True, False], [True, False, False], [True] * 3]
    assert [part.tensors["input_ids"].tolist() for part in whole.split(2)] == [[[4, 5], [6, 0]], [[1, 2, 3]]]
    assert whole[[1]].trimmed().tensors["weight"].shape == (1,)
    left = Batch.of(masked([[0, 7]], [[0, 1]]))
    assert left.trimmed().tensors["input_ids"].tolist() == [[0, 7]]  # who pads in front has the end in use


def test_a_plain_batch_is_what_was_given():
    x = torch.randn(3, 2)
    assert Batch.of(x).plain is x and Batch.of((x, 1)).plain is x and Batch.of(x).trimmed().plain is x
    assert Batch.of({"a": x, "labels": x}).plain == {"a": x}


def test_batches_that_do_not_go_together_are_refused():
    for others in ([torch.ones(2, 3), torch.ones(2, 4)], [{"a": torch.ones(2, 3)}, {"a": torch.ones(2, 4)}],
                   [{"a": torch.ones(2)}, {"b": torch.ones(2)}]):  # fmt: skip
        with pytest.raises(ValueError, match="all must have the same tensors in one shape, or an attention_mask"):
            Batch.joined(others)
