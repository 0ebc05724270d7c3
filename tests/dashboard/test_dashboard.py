"""What W&B would be sent: compared with a file, with the keys that runs are logged under, and with the paper."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_script
from offline import offline_runs

from coin.dashboard.baseline import paper_runs
from coin.dashboard.runs import COLUMNS
from coin.dashboard.sending import as_json
from coin.report import paper

FILE = Path(__file__).with_name("workspace.json")
RENEW = "python -m coin.dashboard entity/project --json tests/dashboard/workspace.json"


@pytest.fixture(scope="module")
def built():
    return json.loads(as_json("entity", "project"))


def parts(value, key):
    """All that stands under a key, at any depth."""
    if isinstance(value, dict):
        found = [value[key]] if key in value else []
        return found + [item for part in value.values() for item in parts(part, key)]
    return [item for part in value for item in parts(part, key)] if isinstance(value, list) else []


def panels(built):
    """The settings of all panels."""
    return [
        found for part in ("workspace", "report") for found in parts(built[part], "config") if "chartTitle" in found
    ]


def test_what_is_sent_is_as_it_was():
    assert as_json("entity", "project") == FILE.read_text(), f"if it was meant to change: {RENEW}"


def test_only_its_name_tells_one_project_from_another(built):
    other = json.loads(as_json("other", "elsewhere"))
    assert other["report"].pop("title") == "COIN: elsewhere" and built["report"]["title"] == "COIN: project"
    assert other["workspace"] == built["workspace"] and other["report"]["spec"] == built["report"]["spec"]


def test_every_key_is_one_that_a_run_is_logged_under(built, digits_run):
    [encode] = offline_runs(digits_run[0], "encode")
    [training, *_] = offline_runs(digits_run[0], "train")
    logged = encode.logged() | training.logged()
    axes = {panel[axis] for panel in panels(built) for axis in ("xAxis", "yAxis") if axis in panel}
    metrics = {name for panel in panels(built) for name in panel.get("metrics", [])}
    columns = {column for columns in COLUMNS.values() for column in columns}
    keys = metrics | {key.removeprefix("summary:") for key in axes | columns if not key.startswith(("config:", "run:"))}
    assert {"nda", "hyperparameters/damping", "tuning/damping", "tuning/nda", "seconds/encode", "train/loss"} <= keys
    assert keys <= logged, keys - logged
    tables = {part["val"] for part in parts(built, "key") if isinstance(part, dict) and part.get("type") == "string"}
    assert tables == {"experts", "table"}  # the second is logged by the end of a sweep
    assert any(key.startswith("experts") for key in encode.logged())
    assert {"train/loss", "test/accuracy", "epoch", "trainer/global_step"} <= keys & training.logged()
    settings = {
        key.removeprefix("config:").removesuffix(".value") for key in axes | columns if key.startswith("config:")
    }
    assert settings <= set(encode.config), settings - set(encode.config)


def test_settings_are_named_as_the_specification_names_them(built):
    names = {"experiment", "code", "decoder", "tuning", "model", "samples", "seed", "sweep"}
    text = json.dumps(built)
    used = set(re.findall(r"config:(\w+)", text)) | set(re.findall(r'"groupBy": "(\w+)\.value"', text))
    assert used == names
    kinds = {f["value"] for fs in parts(built, "filters") for f in fs if isinstance(fs, list) and "jobType" in str(f)}
    assert kinds == {"encode", "train", "report", "paper"}


def test_every_column_of_the_paper_is_beside_the_runs(built):
    shown = [config["value"] for config in parts(built["report"], "config") if "value" in config]
    assert len(shown) == len(paper.EXPERIMENTS)
    for experiment, table in zip(paper.EXPERIMENTS, shown, strict=True):
        assert experiment in table
        for code, numbers in paper.NDA.items():
            assert f"| {code} | {numbers[experiment][2]:.2f} |" in table
    assert {(r["config"]["code"], r["config"]["experiment"], r["summary"]["nda"]) for r in built["paper"]} == {
        (code, experiment, numbers[2]) for code, row in paper.NDA.items() for experiment, numbers in row.items()
    }


def test_without_the_paper_there_is_nothing_of_its_runs(built):
    other = as_json("entity", "project", with_paper=False)
    assert json.loads(other)["paper"] == [] and "the paper" in json.dumps(built) and '"name": "the paper"' not in other
    assert "grey" not in other


def test_a_number_of_the_paper_is_a_run_that_a_dashboard_can_group(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = next(run for run in paper_runs() if (run.code, run.experiment) == ("coin", "cifar10_mnist"))
    run.log("project", mode="offline", dir=str(tmp_path))
    [logged] = offline_runs(tmp_path)
    assert (logged.id, logged.job_type, logged.group) == ("paper-coin-cifar10_mnist", "paper", "paper")
    assert logged.config.items() >= {"code": "coin", "experiment": "cifar10_mnist", "samples": 200}.items()
    assert logged.summary["nda"] == 88.62


def test_a_number_that_is_there_already_is_not_logged_again():
    first, *others = paper_runs()
    assert paper_runs([first.id]) == others and len(others) == 29


@pytest.mark.parametrize("name", ["me", "me/", "/coin", "a/b/c", "me/c?oin", "m e/coin"])
def test_what_is_no_project_is_refused_in_one_line(name):
    finished = run_script("coin.dashboard", name)
    assert finished.code == 2 and finished.out == ""
    assert (
        finished.err == f"error: {name}: must be ENTITY/PROJECT, a W&B user or team and its project, such as me/coin\n"
    )


def test_the_json_is_written_where_it_is_wanted_or_refused_in_one_line(tmp_path):
    finished = run_script("coin.dashboard", "entity/project", "--json", str(tmp_path / "sent.json"))
    assert finished.code == 0 and (tmp_path / "sent.json").read_text() == FILE.read_text()
    finished = run_script("coin.dashboard", "entity/project", "--json", str(tmp_path / "no" / "sent.json"))
    assert finished.code == 2 and finished.err.startswith("error: --json") and finished.err.count("\n") == 1


def test_without_the_extra_it_is_named(monkeypatch):
    for module in [name for name in sys.modules if name.startswith(("wandb_workspaces", "coin.dashboard"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)  # as where it is not installed
    finished = run_script("coin.dashboard", "me/coin")
    assert (finished.code, finished.err.count("\n")) == (2, 1) and "pip install 'coin[dashboard]'" in finished.err


def test_without_a_login_there_is_one_line(tmp_path):
    hidden = {"WANDB_API_KEY", "WANDB_MODE", "NETRC"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "WANDB_CONFIG_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "coin.dashboard", "me/coin"]
    finished = subprocess.run(
        command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert (finished.returncode, finished.stdout) == (2, ""), finished.stderr
    assert finished.stderr.startswith("error: me/coin: W&B says: ") and finished.stderr.count("\n") == 1
    assert "wandb login" in finished.stderr and "--json FILE" in finished.stderr
