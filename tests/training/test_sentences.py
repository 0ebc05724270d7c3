"""Text is a data set like any other."""

import json

import pytest
import torch
from sentences import lines, tiny_bert

from coin.batch import Batch
from coin.training.data import SST2, TREC, Banking77, Digits, Subj, TextFile
from coin.training.samples import draw


def test_sentences_are_tokenised_once_and_padded_to_the_longest_of_their_batch(bert, text_root):
    data = TREC(text_root, bert, batch_size=7)
    data.setup()
    assert (len(data.train_set), len(data.test_set), data.num_classes) == (60, 30, 6)
    tokenizer = data.tokenizer
    texts = [line.partition(" ")[2] for line in (text_root / "text" / "TREC.test.all").read_text().splitlines()]
    data.folder = None  # it is not read again
    for start, batch in enumerate(data.val_dataloader()):
        inputs, labels = data.on_after_batch_transfer(batch, 0)
        wanted = tokenizer(texts[7 * start : 7 * start + 7], padding=True, return_tensors="pt")
        assert torch.equal(inputs["input_ids"], wanted["input_ids"])
        assert torch.equal(inputs["attention_mask"], wanted["attention_mask"])
        assert labels.tolist() == [i % 6 for i in range(7 * start, 7 * start + len(labels))]


def test_a_label_split_and_a_cut_are_other_data(bert, text_root):
    every, some = TREC(text_root, bert), TREC(text_root, bert, labels="1/2", longest=4)
    assert some.split == "0-2" and some.longest_sentence == 4 < every.longest_sentence
    assert set(some.train_set.labels.tolist()) == {0, 1, 2}
    recipes = [json.dumps(data.recipe()) for data in (every, some, TREC(text_root, bert))]
    assert recipes[0] == recipes[2] != recipes[1]


def test_a_set_without_test_sentences_is_split_by_a_fixed_seed(bert, text_root):
    one, two = Subj(text_root, bert), Subj(text_root, bert, seed=3)
    one.setup(), two.setup()
    assert (len(one.train_set), len(one.test_set)) == (48, 12)
    assert torch.equal(one.test_set.inputs, two.test_set.inputs)
    lengths = (text_root / "text" / "subj.all").read_text().splitlines()
    assert len(lengths) == len(one.train_set) + len(one.test_set)


def test_samples_of_several_corpora_are_one_padded_batch(bert, text_root):
    data = [TREC(text_root, bert), SST2(text_root, bert)]
    drawn = draw(data, 21, seed=0)
    whole = Batch.of(drawn.inputs)
    assert len(whole) == 21 and drawn.labels.max() < 6
    parts = drawn.batches(4)
    assert [len(Batch.of(part)) for part in parts] == [4] * 5 + [1]
    assert all(Batch.of(part).mask[:, -1].any() for part in parts)  # none is padded more than it needs
    again = Batch.joined(parts)
    assert all(torch.equal(again.tensors[name], whole.tensors[name]) for name in whole.tensors)


def write(path, rows):
    if path.suffix == ".csv":
        path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for label, text in rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows))
    else:
        path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return str(path)


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_sentences_of_ones_own(bert, tmp_path, ending):
    rows = [("10", "who is the king"), ("9", "the film is bad"), ("10", "who , the king of a town")]
    data = TextFile(
        train=write(tmp_path / f"a.{ending}", rows), test=write(tmp_path / f"b.{ending}", rows[:2]), tokenizer=bert
    )
    data.setup()
    assert data.classes == ["9", "10"] and data.train_set.labels.tolist() == [1, 0, 1]
    below = TextFile(tmp_path, f"a.{ending}", f"b.{ending}", bert)
    assert below.recipe() == data.recipe()
    assert TextFile(tmp_path, f"a.{ending}", f"b.{ending}", bert, labels=[1]).split == "1"


def test_a_sentence_of_several_lines_in_a_csv_file(bert, tmp_path):
    (tmp_path / "a.csv").write_text('text,category\n"the film\nis bad",x\nwho,y\n')
    data = TextFile(tmp_path, "a.csv", "a.csv", bert)
    assert data.sentences(True) == (["the film\nis bad", "who"], [0, 1])


BAD = {
    "a.csv": ("words,kind\nwho,1\n", "must name the columns label and text"),
    "a.jsonl": ('{"text": "who"}\n', r"line 1 must be an object such as"),
    "b.jsonl": ("who\n", "line 1 must be an object"),
    "a.tsv": ("1 who\n", "line 1 has no tab"),
    "b.tsv": ("1\t\n", "line 1 lacks a label or a sentence"),
    "c.tsv": ("\n", "holds no sentence"),
    "d.tsv": ("1\twho\n1\twhere\n", "has 1 classes; at least two"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_hold_no_labelled_sentences_are_refused(tmp_path, name):
    (tmp_path / name).write_text(BAD[name][0])
    with pytest.raises(ValueError, match=BAD[name][1]):
        TextFile(tmp_path, name, name)


def test_bad_data_are_refused_in_one_line(bert, text_root, tmp_path):
    with pytest.raises(ValueError, match=r"data\.train=None: no such file"):
        TextFile(tmp_path)
    write(tmp_path / "a.tsv", [("x", "who"), ("y", "the king")])
    write(tmp_path / "b.tsv", [("x", "who"), ("z", "the king")])
    with pytest.raises(ValueError, match=r"line 2 has the label z, which is none of the 2"):
        TextFile(tmp_path, "a.tsv", "b.tsv", bert).setup()
    with pytest.raises(ValueError, match=r"TREC\.train\.all is missing: trec is read from there"):
        TREC(tmp_path, bert).setup()
    (tmp_path / "text").mkdir()
    for name, text in {"TREC.train.all": lines(12, 6) + "7 who\n", "TREC.test.all": lines(12, 6)}.items():
        (tmp_path / "text" / name).write_text(text)
    with pytest.raises(ValueError, match="damaged: line 13 is not a label from 0 to 5 and a sentence"):
        TREC(tmp_path, bert).setup()
    (tmp_path / "text" / "stsa.binary.train").write_bytes(b"0 caf\xe9\n")
    with pytest.raises(ValueError, match="damaged: byte 5 is no utf-8"):
        SST2(tmp_path, bert).setup()
    for part in ("train", "test"):
        write(tmp_path / "text" / f"banking77-{part}.csv", [("card", "where")])
    with pytest.raises(ValueError, match="1 classes instead of 77"):
        Banking77(tmp_path, bert).setup()
    with pytest.raises(ValueError, match=r"data\.longest=1: must be at least 3 tokens"):
        TREC(text_root, bert, longest=1)


def test_a_tokenizer_that_is_not_there_is_refused(text_root, tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match=r"data\.tokenizer=.*nowhere: no such folder"):
        TREC(text_root, tmp_path / "nowhere").setup()
    with pytest.raises(ValueError, match="holds no tokenizer that can be read"):
        TREC(text_root, tmp_path).setup()


def test_experts_of_different_vocabularies_are_refused(bert, text_root, tmp_path):
    other = tiny_bert(tmp_path, words=["queen"])
    with pytest.raises(ValueError, match=r"read sentences in 21 tokens .* and sentences in 22 tokens"):
        draw([TREC(text_root, bert), SST2(text_root, other)], 10, 0)
    with pytest.raises(ValueError, match="read images of 8 px and sentences"):
        draw([Digits(), SST2(text_root, bert)], 10, 0)
