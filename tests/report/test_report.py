import csv
import json
import math

import pytest
from conftest import ROOT, run_script

from coin.report import collect, pack, write_report, write_results
from coin.report.cells import cells_of
from coin.report.figures import figures
from coin.report.paper import NDA
from coin.report.quotes import QUOTE, fill, quotation
from coin.report.tables import texts
from coin.report.write import write_all


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


def test_calls_numbers_and_how_many_may_be_missing_are_told(tmp_path):
    runs = [run("coin", nda=90.0, seed=s) | {"calls": 2, "numbers": 20, "missing": {"1": 90.0}} for s in range(2)]
    runs += [
        run("coin", nda=95.0 + s, seed=s, coded="2")
        | {"calls": 3, "numbers": 30, "missing": {"1": 95.0 + s, "2": 80.0 + s, "10": 7.0}}
        for s in range(2)
    ]
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert {"missing.md", "nda_against_missing.png"} <= names
    header, _, *rows = (tmp_path / "missing.md").read_text().splitlines()
    assert header.split("|")[2:5] == [f" cifar10_splits, {count} missing " for count in (1, 2, 10)]
    assert [cell.strip() for cell in rows[1].split("|")[2:5]] == ["95.50 ± 0.71", "80.50 ± 0.71", "7.00 ± 0.00"]
    assert "| calls | numbers |" in (tmp_path / "table.md").read_text()
    older = write_report(write(tmp_path / "older", [run("coin")]), tmp_path / "older")
    assert not any("missing" in path.name for path in older)


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
    done = run_script("coin.report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err
    assert (tmp_path / "out" / "table.md").exists() and "cifar10_splits" in done.out
    done = run_script("coin.report", str(tmp_path / "absent"))
    assert done.code == 2 and done.err.startswith("error: ")


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
    folder = tmp_path / "results"
    pack(write(tmp_path / "a", [run("coin"), run("coin", experiment="mnist_splits", nda=98.0)]), folder / "tables")
    pack(write(tmp_path / "b", [run("average", nda=80.0)]), folder / "other")
    page = folder / "README.md"
    page.write_text("# Ours\n\n<!-- quote tables/averages.md -->\nold\n<!-- end of quote -->\n\nbehind\n")
    for _ in range(2):  # the second time it is as it should be already
        written = write_all(folder)
        assert page in written and (folder / "other" / "table.md").exists()
        lines = page.read_text().splitlines()
        assert lines[3].startswith("| average NDA % |") and "98.00** (98.14)" in lines[5] and "old" not in lines
        assert lines[-1] == "behind"
    page.write_text("<!-- quote absent.md -->\n<!-- end of quote -->\n")
    with pytest.raises(ValueError, match=r"quotes absent\.md, which is not there"):
        fill(page)


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*/*/runs.jsonl")), ids=lambda path: path.parent.name)
def test_committed_tables_are_what_the_committed_runs_say(file, tmp_path):
    found = texts(cells_of(collect(file.parent)))
    for name, text in found.items():
        assert (file.parent / name).read_text() == text, f"python -m coin.report {file.parent.parent}"
    tables = {path.name for path in file.parent.iterdir() if path.suffix in (".md", ".csv", ".tex")}
    assert tables == set(found), "a table that no run says"
    pack(file.parent, tmp_path)
    assert (tmp_path / "runs.jsonl").read_text() == file.read_text(), "python -m coin.report … --pack"


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
    pack(write(tmp_path / "runs", [run("coin")]), tmp_path / "results" / "tables")
    write(tmp_path / "results" / "other", [run("coin")])
    with pytest.raises(ValueError, match=r"other/0/results\.json is not packed; .* --pack"):
        write_all(tmp_path / "results")
    (tmp_path / "results" / "other" / "0" / "results.json").unlink()
    (tmp_path / "results" / "zeroes").mkdir()
    (tmp_path / "results" / "zeroes" / "runs.jsonl").write_text("<<<<<<< HEAD\n")
    with pytest.raises(ValueError, match=r"line 1 of .*zeroes/runs\.jsonl is no results\.json of a run"):
        write_all(tmp_path / "results")
    assert not (tmp_path / "results" / "tables" / "table.md").exists()


def test_a_report_is_the_same_of_packed_runs_and_in_any_order(tmp_path):
    """Runs of older versions tell less of their experts; a cell with both takes them from one that does."""
    history = [{"epoch": e, "train_nda": 50 + e} for e in range(1, 4)]
    runs = [with_experts(run("coin", nda=90.0 + s, seed=s, train_seed=str(t)), 3.0) for s in (1, 2, 10) for t in (0, 1)]
    runs += [run("coin", nda=90.0, history=history), run("other", nda=math.nan), run("another", experiment="mine")]
    runs += [run("another", experiment="also")]
    found = texts(cells_of(collect(write(tmp_path / "a", runs))))
    assert texts(cells_of(collect(write(tmp_path / "b", runs[::-1])))) == found and "3.00" in found["experts.md"]
    pack(tmp_path / "a", tmp_path / "packed")
    assert texts(cells_of(collect(tmp_path / "packed"))) == found
    lines = (tmp_path / "packed" / "runs.jsonl").read_text().splitlines()
    wanted = [json.loads(path.read_text()) for path in (tmp_path / "a").rglob("results.json")]
    assert sorted(lines) == sorted(json.dumps(results, separators=(",", ":")) for results in wanted)


def test_packing_adds_replaces_and_changes_nothing_twice(tmp_path):
    first = write(tmp_path / "a", [run("coin", nda=90.0), run("coin", nda=91.0, seed=1), run("average", nda=80.0)])
    assert "3 runs, 3 of them new, 0 replaced" in pack(first, tmp_path / "packed")
    file = tmp_path / "packed" / "runs.jsonl"
    before = file.read_text().splitlines()
    assert [json.loads(line)["code"] for line in before] == ["average", "coin", "coin"]
    assert "3 runs, 0 of them new, 0 replaced" in pack(first, file.parent) and file.read_text().splitlines() == before
    again = [run("coin", nda=95.0, seed=1, store="elsewhere"), run("coin", nda=70.0, train_seed="1"), run("matched")]
    assert "5 runs, 2 of them new, 1 replaced" in pack(write(tmp_path / "b", again), file.parent)
    after = file.read_text().splitlines()
    assert [line for line in after if line in before] == before[:2]  # the others are where they were
    assert [cell.nda()[0] for cell in cells_of(collect(file.parent))] == [80.0, 92.5, 70.0, 90.0]
    assert [path.name for path in file.parent.iterdir()] == ["runs.jsonl"]


SPOILT = [{"experts": []}, {"experts": [3]}, {"seconds": {}}, {"seed": None}, {"overrides": []}]
NO_RUNS = ["", "[]", "{", '{"code": "coin"}', *(json.dumps({**run("coin"), **part}) for part in SPOILT)]


@pytest.mark.parametrize("text", NO_RUNS)
def test_what_is_no_run_is_not_packed(text, tmp_path):
    file = tmp_path / "packed" / "runs.jsonl"
    pack(write(tmp_path / "a", [run("coin")]), file.parent)
    before = file.read_bytes()
    broken = write(tmp_path / "b", [run("average")]) / "broken" / "results.json"
    broken.parent.mkdir()
    broken.write_text(text)
    if text == "[]":  # once by the command, which says it in one line
        done = run_script("coin.report", str(tmp_path / "b"), "--pack", str(file.parent))
        assert done.code == 2 and done.err.count("\n") == 1 and "is no results.json of a run" in done.err
    with pytest.raises(ValueError, match=r"broken/results\.json is no results\.json of a run"):
        pack(tmp_path / "b", file.parent)
    assert file.read_bytes() == before
    file.write_text(file.read_text() + text + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*runs\.jsonl is no results\.json of a run"):
        pack(tmp_path / "a", file.parent)
    with pytest.raises(ValueError, match="is no folder"):
        pack(tmp_path / "a", file)


def test_trainings_of_the_experts_are_no_draws(tmp_path):
    """Runs without the override are of training 0."""
    runs = [run("average", nda=80.0, seed=s) for s in range(3)]  # of before there were others
    for t, mean in (("0", 90.0), ("1", 94.0), ("10", 98.0)):
        runs += [run("coin", nda=mean + d, seed=s, train_seed=t) for s, d in enumerate((-1.0, 0.0, 1.0))]
    runs += [run("average", nda=83.0 + s, seed=s, train_seed="1") for s in range(2)]
    runs += [{**run("coin", nda=99.0), "decoder": "ridge"}, run("coin", experiment="digits", nda=70.0)]
    names = {path.name for path in write_report(write(tmp_path, runs), tmp_path)}
    assert "training.md" in names and "nda.png" in names and "nda_against_train_seed.png" not in names
    header, _, *rows = (tmp_path / "training.md").read_text().splitlines()
    assert header == (
        "| average NDA % | cifar10_splits over trainings | cifar10_splits train_seed=0 | cifar10_splits train_seed=1 | "
        "cifar10_splits train_seed=10 | digits over trainings | digits train_seed=0 |"
    )
    assert rows == [
        "| average | 81.75 ± 2.47 | 80.00 ± 0.00 | 83.50 ± 0.71 |  |  |  |",
        "| coin | 94.00 ± 4.00 | 90.00 ± 1.00 | 94.00 ± 1.00 | 98.00 ± 1.00 | 70.00 | 70.00 |",
        "| coin + ridge | 99.00 | 99.00 |  |  |  |  |",
    ]
    cells = cells_of(runs)
    assert sum(len(cell.runs) for cell in cells) == len(runs)
    assert {cell.paper() for cell in cells if cell.name == "coin" and cell.experiment != "digits"} == {97.96}
    assert "training.md" not in texts(cells_of([run("coin", train_seed="0"), run("coin", seed=1)]))
    assert [cell.nda()[0] for cell in cells_of([run("coin", train_seed="0"), run("coin", nda=91.0, seed=1)])] == [90.5]
    undefined = [run("coin", nda=math.nan), run("coin", train_seed="1")]
    assert "| coin | nan | nan | 90.00 |" in texts(cells_of(undefined))["training.md"]


def test_cells_of_other_experts_share_no_column():
    several = run("coin", splits="3")
    several["experts"].append({**several["experts"][0], "name": "split3", "nda": 70.0})
    table = texts(cells_of([run("coin", splits="2"), several]))["table.md"].splitlines()
    assert table[0] == "| cifar10_splits | split1 | split2 | split3 | average | encode s |"
    assert table[2].startswith("| coin splits=2 | 91.00 | 89.00 |  | ") and "| 70.00 |" in table[3]
