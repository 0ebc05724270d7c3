"""The README's Python runs as it stands."""

import re

import pytest
from conftest import ROOT, shown_in_the_readme
from sentences import tiny_bert


def test_its_python_runs(capsys, digits_run, tmp_path, monkeypatch):
    classifiers(tmp_path / "questions", tmp_path / "reviews")
    (tmp_path / "outputs" / "encode").mkdir(parents=True)
    (tmp_path / "outputs" / "encode" / "run").symlink_to(digits_run[0])
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "decoded" in capsys.readouterr().out


def classifiers(*folders):
    """Two small fine-tunings of one encoder, with its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="pip install -e '.[text]'")
    for folder in folders:
        tiny_bert(folder)
        config = transformers.AutoConfig.from_pretrained(folder, num_labels=3)
        network = transformers.AutoModelForSequenceClassification.from_config(config)
        network.save_pretrained(folder)


def test_the_two_commands_stand_at_the_top_and_ci_runs_the_second():
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    top = readme.split("## ")[0]
    assert "pip install -e . && python encode.py" in top and "pip install -e '.[test]' && pytest" in top
    assert "pip install --quiet -e '.[test]'\npytest" in ci


def test_the_first_table_is_a_run_of_the_demonstration_whose_runs_agree_within_a_point():
    page = (ROOT / "results" / "demonstration" / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [\w ]+ \| \d", line)]
    assert len({(row[0], row[1]) for row in rows}) == 15
    averages = [float(row[-1]) for row in rows]
    assert max(averages) - min(averages) <= 1
    damping, shown = shown_in_the_readme()
    first, second, average = (shown[name] for name in ("split1", "split2", "average"))
    assert [damping, first[0], second[0], first[2], second[2], average[2]] in [
        list(map(float, row[2:])) for row in rows
    ]


def test_every_option_is_named_in_the_readme_or_the_docs():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    for group in ("code", "decoder", "tuning", "experiment", "logger", "fisher", "trainer", "data", "model"):
        for path in (ROOT / "conf" / group).glob("*.yaml"):
            assert path.stem in text, path
    for path in (ROOT / "sweeps").glob("*.yaml"):
        assert path.stem in text, path
