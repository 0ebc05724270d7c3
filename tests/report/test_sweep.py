"""The sweep files, and what a multirun leaves behind."""

import functools
import json
import math
import re
import shutil

import pytest
import yaml
from conftest import ROOT, composed, run_script
from hydra.core.override_parser.overrides_parser import OverridesParser

composes = functools.cache(lambda *overrides: composed("encode", *overrides))  # sweeps share most of their jobs
SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))


def choices(params):
    parser = OverridesParser.create()
    found = {}
    for key, value in params.items():
        override = parser.parse_override(f"{key}={value}")
        found[key] = list(override.sweep_string_iterator()) if override.is_sweep_override() else [str(value)]
    return found


def params_of(path):
    return yaml.safe_load(path.read_text())["hydra"]["sweeper"]["params"]


def test_all_the_sweeps_that_are_asked_for_are_there():
    names = {path.stem for path in SWEEPS}
    assert {"table1", "table2", "figure2a", "figure2b", "damping", "samples", "beta", "quickstart", "codes"} <= names


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_a_sweep_says_what_it_runs_and_every_job_composes(path):
    lines = path.read_text().splitlines()
    assert lines[1] == f"# python encode.py sweeps={path.stem}"
    grid = choices(params_of(path))
    assert int(re.search(r"# (\d+) runs", lines[2]).group(1)) == math.prod(map(len, grid.values()))
    assert any(line.startswith("# Expected:") for line in lines)
    composes(f"sweeps={path.stem}")
    for key, values in grid.items():
        group = "/".join(key.split(".")) if key in ("code", "experiment") else key
        rest = [f"{k}={v[0]}" for k, v in grid.items() if k != key and k in ("code", "experiment")]
        for value in values:
            composes(*rest, f"{group}={value}")


@pytest.mark.parametrize("path", [p for p in SWEEPS if "experiment" in params_of(p)], ids=lambda p: p.stem)
def test_the_model_of_a_sweep_over_experiments_can_be_set_for_all_of_them(path):
    """Before its jobs, Hydra composes a sweep without what it varies: with the default experiment's small network."""
    both = ["model.weights=none", "model.stride_in_1x1=true"]
    experiment = choices(params_of(path))["experiment"][0]
    for overrides in (both, [*both, f"experiment={experiment}"]):
        config = composed("encode", f"sweeps={path.stem}", *overrides)
        assert config.model.stride_in_1x1 and config.model.depth == 50


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_the_same_sweep_for_wandb(path):
    """Its grid is the sweep's, and every job composes as an agent hands it over."""
    done = run_script("coin.cli.sweep", path.stem, "store=elsewhere")
    assert done.code == 0
    sweep = yaml.safe_load(done.out)
    assert sweep["program"] == "coin-encode" and sweep["command"][-1] == "${args_no_hyphens}"
    told = {key: spec["values"] for key, spec in sweep["parameters"].items()}
    assert {key: list(map(str, values)) for key, values in told.items()} == choices(params_of(path))
    assert all(isinstance(value, int) for key in ("seed", "samples") for value in told.get(key, []))
    given = [word for word in sweep["command"] if not word.startswith("$")]
    config = composed("encode", *given, *(f"{key}={spec['values'][-1]}" for key, spec in sweep["parameters"].items()))
    assert config.store == "elsewhere"


def test_a_wandb_agent_finds_what_a_multirun_has_done_and_does_the_rest(quickstart):
    folder, _ = quickstart
    job = ["sweeps=quickstart", "hydra.mode=RUN", f"hydra.sweep.dir={folder}"]
    done = run_script("encode.py", *job, "code=coin")
    assert done.code == 0 and f"done already: {folder / 'code=coin'}" in done.out
    other = run_script("encode.py", *job, "code=average", "samples=50")
    assert other.code == 0 and (folder / "code=average,samples=50" / "results.json").is_file()
    shutil.rmtree(folder / "code=average,samples=50")


def test_who_starts_a_job_by_itself_learns_that_it_failed(digits_run, tmp_path):
    job = ["sweeps=quickstart", "hydra.mode=RUN", f"hydra.sweep.dir={tmp_path}", "logger=csv", "code=coin"]
    failed = run_script("encode.py", *job, "beta=[1,2]")
    assert failed.code == 2 and "failed:" in failed.out and list(tmp_path.rglob("error.txt"))


def test_there_is_no_such_sweep_for_wandb():
    done = run_script("coin.cli.sweep", "nonsense")
    assert done.code == 2 and done.err.startswith("error: there is no sweep nonsense; there are any")


@pytest.fixture(scope="module")
def quickstart(digits_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    finished = run_script("encode.py", "sweeps=quickstart", f"hydra.sweep.dir={folder}")
    assert finished.code == 0, finished.err
    return folder, finished


def test_a_sweep_ends_with_a_comparison(quickstart):
    folder, finished = quickstart
    for name in ("report.html", "table.md", "table.csv", "table.tex", "nda.png", "nda.svg", "nda_per_epoch.png"):
        assert (folder / name).stat().st_size > 0
    codes = {"coin", "average", "task_arithmetic", "regmean", "regmean_conv", "distillation"}
    assert {json.loads(p.read_text())["code"] for p in folder.glob("*/results.json")} == codes
    for code in codes:
        assert f"| {code} |" in (folder / "table.md").read_text()
    assert "comparison:" in finished.out
    assert not list(folder.rglob("coded.safetensors"))


def test_repeated_it_does_nothing_again(quickstart):
    folder, _ = quickstart
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*/results.json")}
    finished = run_script("encode.py", "sweeps=quickstart", f"hydra.sweep.dir={folder}")
    assert finished.code == 0
    assert finished.out.count("done already") == 6
    assert before == {p: p.stat().st_mtime_ns for p in folder.glob("*/results.json")}


def test_a_failing_run_leaves_the_others_and_a_rerun_does_what_is_missing(digits_run, tmp_path):
    command = ["-m", f"hydra.sweep.dir={tmp_path}", "logger=csv", "save_coded=false", "code=average"]
    finished = run_script("encode.py", *command, "samples=50,1,60")
    assert finished.code == 1
    assert sorted(json.loads(p.read_text())["samples"] for p in tmp_path.glob("*/results.json")) == [50, 60]
    (failed,) = tmp_path.glob("*/error.txt")
    assert "at least one sample each" in failed.read_text()
    assert f"failed: {failed.parent}" in finished.out and (tmp_path / "table.md").exists()
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/results.json")}
    again = run_script("encode.py", *command, "samples=50,40,60")
    assert again.code == 0 and again.out.count("done already") == 2
    assert len(list(tmp_path.glob("*/results.json"))) == 3 and not list(tmp_path.glob("*/error.txt"))
    assert all(p.stat().st_mtime_ns == t for p, t in kept.items())


def test_results_of_another_config_are_neither_taken_nor_replaced(digits_run, tmp_path):
    command = ["-m", f"hydra.sweep.dir={tmp_path}", "save_coded=false", "code=average"]
    assert run_script("encode.py", *command, "samples=50", "logger=csv").code == 0
    (results,) = tmp_path.glob("*/results.json")
    before = results.read_text()
    other = run_script("encode.py", *command, "samples=60", "logger=csv")
    assert other.code == 1 and results.read_text() == before
    assert "holds the results of another config (samples=60 instead of 50)" in other.out
    again = run_script("encode.py", *command, "samples=50", "checkpoint_minutes=7")
    assert again.code == 0 and "done already" in again.out, "what changes no result does not count"


def test_a_failure_of_another_command_in_the_same_folder_is_not_this_ones(digits_run, tmp_path):
    command = ["-m", f"hydra.sweep.dir={tmp_path}", "logger=csv", "save_coded=false", "code=average"]
    assert run_script("encode.py", *command, "samples=1,1,1").code == 1
    (tmp_path / "error.txt").write_text("somebody's own")
    assert run_script("encode.py", *command, "samples=50,60").code == 0
    assert (tmp_path / "error.txt").exists()


@pytest.mark.parametrize(("override", "words"), [("nonsense=1,2", "nonsense"), ("code=coin,nonsense", "nonsense")])
def test_a_bad_sweep_starts_nothing(override, words, digits_run, tmp_path):
    finished = run_script("encode.py", "-m", override, f"hydra.sweep.dir={tmp_path}", "logger=csv")
    assert finished.code == 2 and finished.err.strip().splitlines()[-1].startswith("error: ") and words in finished.err
    assert not list(tmp_path.glob("*/results.json"))
