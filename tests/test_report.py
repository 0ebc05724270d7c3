import csv
import json
import math
import subprocess
import sys

import pytest
from conftest import ROOT

from coin.report import collect, write_report, write_results
from coin.report.figures import figures
from coin.report.paper import NDA
from coin.report.runs import cells_of
from coin.report.write import QUOTE, fill, quotation, texts, write_all


def run(code, experiment="cifar10_splits", nda=90.0, seed=0, samples=200, history=None, **overrides):
    experts = [
        {"name": n, "accuracy": 95.0, "decoded_accuracy": 90.0, "nda": nda + d}
        for n, d in (("split1", 1), ("split2", -1))
    ]
    found = {"code": code, "experiment": experiment, "seed": seed, "samples": samples, "beta": [0.5, 0.5], "nda": nda,
             "hyperparameters": {}, "experts": experts, "coding_loss": 1.0, "seconds": {"encode": 2.0},
             "overrides": {"code": code, "seed": str(seed), **overrides}}  # fmt: skip
    return {**found, "history": history} if history else found


def write(folder, runs):
    for i, results in enumerate(runs):
        write_results(folder / str(i), results)
    return folder


def test_means_and_deviations_over_seeds_with_the_papers_number(tmp_path):
    runs = [run("coin", nda=n, seed=s) for s, n in enumerate((96.0, 97.0, 98.0))] + [run("average", nda=90.0)]
    write_report(write(tmp_path, runs), tmp_path)
    table = (tmp_path / "table.md").read_text()
    coin, average = (
        next(line for line in table.splitlines() if line.startswith(f"| {c} ")) for c in ("coin", "average")
    )
    assert "**97.00 ± 1.00**" in coin and "98.00 ± 1.00" in coin and "97.96" in coin
    assert "90.00" in average and "**" not in average and "90.19" in average
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    row = next(r for r in rows if r["code"] == "coin" and r["expert"] == "average")
    assert (row["nda_mean"], row["nda_sd"], row["runs"], row["paper_nda"]) == ("97.0000", "1.0000", "3", "97.96")
    tex = (tmp_path / "table.tex").read_text()
    assert r"\textbf{97.00 $\pm$ 1.00}" in tex and r"cifar10\_splits average" in tex
    assert (tmp_path / "nda.png").stat().st_size > 5000 and (tmp_path / "nda.svg").exists()


def test_a_numeric_setting_becomes_a_curve(tmp_path):
    runs = [run("coin", samples=p, nda=80 + p / 100, samples_="x") for p in (20, 50, 100)]
    for results in runs:
        results["overrides"] = {"samples": str(results["samples"]), "data.root": "/somewhere"}
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert "nda_against_samples.png" in names and "nda.png" not in names
    cells = cells_of(collect(tmp_path))
    assert [cell.label for cell in cells] == ["coin samples=20", "coin samples=50", "coin samples=100"]
    assert all(cell.paper() is None for cell in cells)


def test_a_setting_of_the_code_is_no_seed(tmp_path):
    runs = [run("coin", nda=80 + i, **{"code.damping": d}) for i, d in enumerate(("1e-3", "1e-2", "1e-1"))]
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert "nda_against_damping.png" in names
    cells = cells_of(collect(tmp_path))
    assert [cell.label for cell in cells] == ["coin damping=1e-3", "coin damping=1e-2", "coin damping=1e-1"]


def test_histories_are_drawn(tmp_path):
    history = [{"epoch": e, "train_nda": 50 + e, "test_nda": 40 + e, "coding_loss": 1 / e} for e in range(1, 4)]
    names = {path.name for path in write_report(write(tmp_path, [run("distillation", history=history)]), tmp_path)}
    assert "nda_per_epoch.png" in names


def test_the_report_is_reproducible(tmp_path):
    write(tmp_path, [run("coin"), run("average", nda=80)])
    first = {path: path.read_bytes() for path in write_report(tmp_path, tmp_path / "a") if path.suffix != ".svg"}
    second = {path: path.read_bytes() for path in write_report(tmp_path, tmp_path / "b") if path.suffix != ".svg"}
    assert list(first.values()) == list(second.values())


def test_the_papers_averages_are_averages():
    for rows in NDA.values():
        for first, second, average in rows.values():
            assert average == pytest.approx((first + second) / 2, abs=0.0151)


def test_a_folder_without_runs_or_with_a_broken_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results\.json"):
        collect(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"code": "coin"}))
    with pytest.raises(ValueError, match=r"results\.json is no results\.json of a run"):
        collect(tmp_path)


def test_the_command(tmp_path):
    write(tmp_path / "runs", [run("coin")])
    command = [sys.executable, "-m", "coin.report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "table.md").exists() and "cifar10_splits" in done.stdout
    done = subprocess.run([*command[:3], str(tmp_path / "absent")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: ")


def with_experts(results, distance, margin=4.0):
    for expert in results["experts"]:
        expert |= {"distance": distance / 2, "logit_sd": 2.0, "margin": margin, "decoding_error": 1.0}
    return {**results, "distance": distance}


def test_what_the_experts_are_like_goes_beside_their_nda(tmp_path):
    runs = [
        with_experts(run(code, nda=nda, **{"trainer.max_steps": str(steps)}), steps / 50)
        for steps in (50, 100, 200)
        for code, nda in (("coin", 95 - steps / 50), ("average", 90 - steps / 50))
    ]
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert {"experts.md", "nda_against_distance.png", "nda_against_error.png", "nda_against_max_steps.png"} <= names
    header, _, *rows = (tmp_path / "experts.md").read_text().splitlines()
    assert header.endswith("| NDA % average | NDA % coin |")
    assert rows[0].startswith("| cifar10_splits max_steps=50 | 95.00 / 95.00 | 0.50 / 0.50 | 1.00 | 2.00 / 2.00 |")
    assert rows[0].endswith("| 4.00 / 4.00 | 89.00 | 94.00 |")
    assert len(rows) == 3


def test_nda_among_own_classes_is_told_where_it_differs(tmp_path):
    runs = [run("coin", nda=90.0), run("average", nda=80.0)]
    for expert in runs[0]["experts"]:
        expert["own_classes_nda"] = 97.5
    write_report(write(tmp_path, runs), tmp_path)
    assert (tmp_path / "own_classes.md").read_text().splitlines()[-1] == "| coin | 90.00 | 97.50 |"


def test_a_folder_of_results_is_reported_whole_and_its_page_quotes_it(tmp_path):
    write(tmp_path / "runs" / "tables", [run("coin"), run("coin", experiment="mnist_splits", nda=98.0)])
    write(tmp_path / "runs" / "other", [run("average", nda=80.0)])
    page = tmp_path / "README.md"
    page.write_text("# Ours\n\n<!-- quote tables/averages.md -->\nold\n<!-- end of quote -->\n\nbehind\n")
    for _ in range(2):  # the second time it is as it should be already
        written = write_all(tmp_path)
        assert page in written and (tmp_path / "other" / "table.md").exists()
        lines = page.read_text().splitlines()
        assert lines[3].startswith("| average NDA % |") and "98.00** (98.14)" in lines[5] and "old" not in lines
        assert lines[-1] == "behind"
    page.write_text("<!-- quote absent.md -->\n<!-- end of quote -->\n")
    with pytest.raises(ValueError, match=r"quotes absent\.md, which is not there"):
        fill(page)


@pytest.mark.parametrize("folder", sorted((ROOT / "results").glob("*/runs")), ids=lambda path: path.parent.name)
def test_committed_tables_are_what_the_committed_runs_say(folder, tmp_path):
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        for name, text in texts(cells_of(collect(group))).items():
            assert (folder.parent / group.name / name).read_text() == text, f"python -m coin.report {folder.parent}"


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *(ROOT / "results").glob("*/README.md")]))
def test_pages_quote_what_is_there(page, tmp_path):
    for mark, what, end in QUOTE.findall(page.read_text()):
        assert f"{mark}{quotation(page, what)}{end}" in page.read_text(), "python -m coin.report … --fill"


def test_rows_of_several_tables_are_quoted_as_one(tmp_path):
    (tmp_path / "a.md").write_text("| x | y |\n|---|---:|\n| coin | 1 |\n| average | 2 |\n")
    (tmp_path / "b.md").write_text("| x | y |\n|---|---:|\n| coin | 3 |\n| coin + ridge | 4 |\n")
    page = tmp_path / "page.md"
    assert quotation(page, "a.md") == (tmp_path / "a.md").read_text()
    rows = ["| x | y |", "|---|---:|", "| average | 2 |", "| coin | 1 |", "| coin + ridge | 4 |"]
    assert quotation(page, "a.md: average, coin; b.md: coin + ridge").splitlines() == rows
    with pytest.raises(ValueError, match=r"the row regmean of .*; it has coin, average"):
        quotation(page, "a.md: regmean")
    (tmp_path / "b.md").write_text("| x | z |\n|---|---:|\n| coin | 3 |\n")
    with pytest.raises(ValueError, match="other columns"):
        quotation(page, "a.md; b.md")


def test_runs_that_were_tuned_in_another_way_are_no_seeds(tmp_path):
    runs = [
        {**run("coin", nda=90.0 + i), "tuning": {"criterion": c, "folds": 0}}
        for i, c in enumerate(("nda", "divergence"))
    ]
    assert [cell.label for cell in cells_of(runs)] == ["coin tuning=divergence", "coin tuning=nda"]
    repeated = cells_of([run("coin", nda=90.0), run("coin", nda=91.0), run("coin", nda=92.0, seed=1)])
    assert [cell.nda()[0] for cell in repeated] == [91.5]


def test_settings_are_told_apart_by_as_many_words_as_it_takes():
    first, second = "experts.split1.finetune.learning_rate", "experts.split2.finetune.learning_rate"
    runs = [run("coin", **{first: "1e-4"}), run("coin", **{second: "1e-4"}), run("coin")]
    labels = ["coin split1.finetune.learning_rate=1e-4", "coin split2.finetune.learning_rate=1e-4", "coin"]
    assert sorted(cell.label for cell in cells_of(runs)) == sorted(labels)
    both = [run("coin", **{first: rate, second: rate}) for rate in ("1e-4", "1e-5", "1e-6")]
    assert [cell.label for cell in cells_of(both)] == [
        f"coin learning_rate={rate}" for rate in ("1e-6", "1e-5", "1e-4")
    ]


def test_what_is_undefined_is_null_in_the_file_and_worst_in_tables(tmp_path):
    write_results(tmp_path, run("coin", nda=math.inf))
    text = (tmp_path / "results.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["nda"] is None
    assert math.isnan(collect(tmp_path)[0]["nda"])


def test_what_every_run_of_an_experiment_has_is_not_said_of_each():
    """The digits have a network of their own."""
    large = {"model": "resnet50", "model.weights": "/a/long/path.pth"}
    runs = [run("coin", experiment="digits", tuning="nda"), run("coin", experiment="digits", tuning="divergence")]
    runs += [run("coin", tuning="nda", **large), run("coin", tuning="divergence", **large)]
    assert {cell.label for cell in cells_of(runs)} == {"coin tuning=nda", "coin tuning=divergence"}


OTHERS = [{"stretch": "0.5"}, {"trainer.max_steps": "50"}, {"model": "resnet18"}, {"fisher": "likelihood"}]


@pytest.mark.parametrize("override", OTHERS)
def test_the_papers_number_stands_beside_runs_like_the_papers(override):
    (cell,) = cells_of([run("coin", **override)])
    assert cell.paper() is None
    (cell,) = cells_of([run("coin", model="resnet50")])
    assert cell.paper() == 97.96


def test_mixed_and_undefined_runs_are_reported(tmp_path):
    """An experiment without the curve's setting, runs of an older version, and an expert that is never right."""
    runs = [run("coin", experiment="digits"), *(run("coin", **{"code.damping": d}) for d in ("1e-3", "1e-2", "1e-1"))]
    runs += [with_experts(run("coin", **{"trainer.max_steps": str(s)}), s / 50) for s in (50, 100, 200)]
    runs += [run("average", nda=math.nan), run("average", nda=math.nan, seed=1)]
    for expert in runs[-1]["experts"]:
        expert["own_classes_nda"] = math.nan
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert {"nda_against_damping.png", "nda_against_distance.png"} <= names and "own_classes.md" not in names
    only_undefined = write(tmp_path / "undefined", [run("average", nda=math.nan)])
    assert "nda.png" in {path.name for path in write_report(only_undefined, only_undefined)}


def test_curves_are_drawn_once_whatever_decodes(tmp_path):
    history = [{"epoch": e, "train_nda": 50 + e} for e in range(1, 4)]
    runs = [{**run("distillation", history=history), "decoder": d} for d in ("analytic", "ridge")]
    runs.append(run("coin_refined", history=[{"epoch": 0, "unseen_loss": 1.0}]))
    drawn = dict(figures(cells_of(runs)))["nda_per_epoch"]
    assert [axis.get_title() for axis in drawn.axes if axis.get_visible()] == ["distillation on cifar10_splits"]


def test_a_row_of_several_tables_and_a_quote_without_an_end(tmp_path):
    (tmp_path / "a.md").write_text("| x | y |\n|---|---:|\n| coin | 1 |\n\n| z | y |\n|---|---:|\n| coin | 2 |\n")
    page = tmp_path / "page.md"
    with pytest.raises(ValueError, match="several tables"):
        quotation(page, "a.md: coin")
    text = "<!-- quote a.md -->\nprose\n<!-- quote a.md -->\nold\n<!-- end of quote -->\n"
    page.write_text(text)
    assert fill(page) and page.read_text() == text.replace("old\n", (tmp_path / "a.md").read_text())


def test_loose_runs_are_no_comparison(tmp_path):
    write(tmp_path / "runs", [run("coin")])
    with pytest.raises(ValueError, match="put the runs of a comparison together"):
        write_all(tmp_path)
