"""What an encode run leaves in W&B, read back from its offline run; and in the other loggers, really run."""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
import wandb
from conftest import ROOT, run_script
from offline import offline_runs
from packaging.version import Version
from safetensors.torch import save_file

from coin.lab.journal import Journal, Subject
from coin.lab.loggers import Csv, MLflow, without_secrets


@pytest.fixture(scope="module")
def sweep(digits_run, tmp_path_factory):
    """Two jobs of a sweep, one of them without a choice of hyperparameters."""
    folder = tmp_path_factory.mktemp("sweep")
    command = ["-m", "code=coin,average", "decoder=ridge", f"hydra.sweep.dir={folder}"]
    finished = run_script("encode.py", *command, "hydra.sweep.subdir=${hydra.job.override_dirname}")
    assert finished.code == 0, finished.err
    return folder, finished


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_summary_keys_stay_as_they_are(digits_run):
    (run,) = offline_runs(digits_run[0], "encode")
    results = results_of(digits_run[0])
    assert run.summary["nda"] == pytest.approx(results["nda"])
    for expert in results["experts"]:
        for key in ("nda", "accuracy", "decoded_accuracy"):
            assert run.summary[f"{key}/{expert['name']}"] == pytest.approx(expert[key])
    assert run.summary["hyperparameters/damping"] == results["hyperparameters"]["damping"]
    assert {"coding_loss", "seconds/encode", "bytes/coded"} <= set(run.summary)


def test_dashboards_can_group_by_names_and_numbers(digits_run):
    (run,) = offline_runs(digits_run[0], "encode")
    names = {"experiment": "digits", "code": "coin", "decoder": "analytic", "tuning": "divergence"}
    assert run.config.items() >= {**names, "model": "small_resnet", "sweep": None, "samples": 200, "seed": 0}.items()
    assert (run.config["N"], run.config["K"], run.config["data"]) == (2, 10, ["digits"])
    assert run.config["settings"]["code"]["_target_"] == "coin.codes.Coin" and set(run.tags) == {*names.values()} - {
        "divergence"
    }
    assert results_of(digits_run[0]).items() >= {**names, "model": "small_resnet"}.items()


def test_a_run_is_open_before_the_first_computation_and_tells_its_phases(digits_run):
    runs = offline_runs(digits_run[0])
    assert [run.job_type for run in runs] == ["encode", "train", "train"], "before the trainings that it needs"
    run = runs[0]
    told = [row["progress"] for row in run.history if "progress" in row]
    assert told == [0, 0.25, 0.5, 0.75, 1.0] and run.summary["phase"] == "done"
    assert run.exit_code == 0
    if Version(wandb.__version__) >= Version("0.31"):  # older ones look at the system every 15 s, and not at the end
        assert run.system > 0


def test_a_run_is_linked_to_the_trainings_it_rests_on(digits_run):
    encode, *trainings = offline_runs(digits_run[0])
    keys = {training.id for training in trainings}
    assert keys == {
        f"{name.removeprefix('trainings/')}-{key}" for name, key in encode.config.items() if "trainings/" in name
    }
    for training in trainings:
        assert training.config["data"] == "digits" and {"train/loss", "test/accuracy"} <= training.logged()
        assert training.axes["train/*"] == "trainer/global_step" and training.axes["test/*"] == "epoch"


def test_networks_are_artifacts_with_lineage_and_versions_that_follow_the_recipe(digits_run, sweep):
    encode, first, _ = offline_runs(digits_run[0])

    def told(run):
        kinds = ("base", "expert", "fisher", "coded")
        return [(a.type, a.name, bool(a.use_after_commit)) for a in run.artifacts if a.type in kinds]

    used = [("base", "base-small_resnet-rotations", True)]
    experts = [("expert", f"expert-digits-{labels}-small_resnet", True) for labels in ("0-4", "5-9")]
    fishers = [("fisher", f"fisher-digits-{labels}", True) for labels in ("0-4", "5-9")]
    made = [("coded", "coded-coin-analytic-digits-coded", False)]
    assert told(encode) == [*used, *experts, *fishers, *made]
    assert told(first) == [*used, ("expert", "expert-digits-0-4-small_resnet", False)], "the training made it"
    other = next(run for run in offline_runs(sweep[0], "encode") if run.config["code"] == "coin")
    digests = [{a.name: a.digest for a in run.artifacts if a.type == "expert"} for run in (encode, first, other)]
    assert digests[0] == digests[2] and digests[1].items() <= digests[0].items(), "never a new version of the same"
    (expert,) = [a for a in first.artifacts if a.type == "expert"]
    assert first.id.rpartition("-")[2] in expert.aliases
    assert all(entry.ref.startswith("file://") for entry in expert.manifest.contents), "by reference"
    assert "finetune" in json.loads(expert.metadata)


def test_networks_can_be_uploaded(digits_run, tmp_path):
    finished = run_script("encode.py", "logger.upload=true", "code=average", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0, finished.err
    (run,) = offline_runs(tmp_path)
    entries = [entry for a in run.artifacts if a.type in ("expert", "coded") for entry in a.manifest.contents]
    assert entries and all(entry.local_path and not entry.ref for entry in entries)


def table(folder, name):
    (path,) = folder.rglob(f"media/table/{name}_*.table.json")
    found = json.loads(path.read_text())
    return found["columns"], found["data"]


def test_candidates_experts_confusions_and_classes_are_tables_and_charts(digits_run):
    folder, results = digits_run[0], results_of(digits_run[0])
    (run,) = offline_runs(folder, "encode")
    columns, rows = table(folder, "candidates")
    assert columns == ["damping", "nda", "divergence", "coding_loss"]
    assert [row[0] for row in rows] == [candidate["damping"] for candidate in results["candidates"]]
    assert run.axes["tuning/*"] == "tuning/damping" and run.axes["nda"] == "samples"
    assert [row["tuning/divergence"] for row in run.history if "tuning/damping" in row] == [row[2] for row in rows]
    charts = {key.removeprefix("_wandb/visualize/") for key in run.config if key.startswith("_wandb/visualize/")}
    assert {f"{score} against damping" for score in ("nda", "divergence", "coding_loss")} < charts
    assert {"confusion/split1", "confusion/split2", "classes/split1", "classes/split2"} < charts
    columns, rows = table(folder, "experts")
    assert [row[columns.index("nda")] for row in rows] == pytest.approx([e["nda"] for e in results["experts"]])
    _, cells = table(folder, "confusion/split1_table")
    agree = sum(n for actual, predicted, n in cells if actual == predicted) / sum(cell[2] for cell in cells)
    assert 100 * agree == pytest.approx(results["experts"][0]["agreement"])
    _, classes = table(folder, "classes/split1_table")
    assert [row[0] for row in classes] == ["0", "1", "2", "3", "4"]


def test_runs_of_a_sweep_share_a_group_and_its_figures_are_logged(sweep):
    folder, _ = sweep
    runs = offline_runs(folder)
    assert [run.job_type for run in runs] == ["encode", "encode", "report"]
    assert {run.group for run in runs} == {str(folder)} and {run.config.get("sweep") for run in runs[:2]} == {
        folder.name
    }
    assert {"table", "nda"} <= {key.split("/")[0] for key in runs[2].logged()}


def test_a_sweeps_job_that_is_started_again_is_the_same_run(sweep, tmp_path):
    folder, _ = sweep
    job = folder / "code=average,decoder=ridge"
    (before,) = offline_runs(job)
    kept = tmp_path / "results.json"
    shutil.move(job / "results.json", kept)
    command = ["-m", "code=coin,average", "decoder=ridge", f"hydra.sweep.dir={folder}"]
    again = run_script("encode.py", *command, "hydra.sweep.subdir=${hydra.job.override_dirname}")
    assert again.code == 0 and again.out.count("done already") == 1
    runs = offline_runs(job)
    assert [run.id for run in runs] == [before.id] * 2
    assert before.id not in {run.id for run in offline_runs(folder / "code=coin,decoder=ridge")}


def test_a_crash_is_seen_as_one(digits_run, tmp_path):
    save_file({"fc.weight": torch.zeros(10, 64)}, tmp_path / "part.safetensors")
    broken = run_script(
        "encode.py", f"experts.split2.path={tmp_path / 'part.safetensors'}", f"hydra.run.dir={tmp_path / 'run'}"
    )
    assert broken.code == 2 and "lacks" in broken.err
    (run,) = offline_runs(tmp_path)
    assert run.exit_code == 1 and run.summary["phase"] == "experts" and "nda" not in run.summary


def test_a_killed_training_goes_on_as_the_same_run(tmp_path):
    command = [sys.executable, "train.py", "model.weights=none", f"store={tmp_path / 'store'}", "finetune.epochs=8"]
    command += ["trainer.log_every_n_steps=1", "data.batch_size=32"]

    own = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}  # that of this process
    own["OMP_NUM_THREADS"] = "1"

    def start(name):
        call = [*command, f"hydra.run.dir={tmp_path / name}"]
        return subprocess.Popen(call, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    process = start("killed")
    limit = time.monotonic() + 120
    while not list(tmp_path.rglob("last.ckpt")) and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    out, _ = start("again").communicate(timeout=240)
    (first,) = {path.stem for path in (tmp_path / "killed").rglob("*.wandb")}  # its records may not have been written
    (second,) = offline_runs(tmp_path / "again")
    assert first == f"run-{second.id}" and second.id in os.listdir(tmp_path / "store" / "experts"), out
    assert second.exit_code == 0
    assert min(row["trainer/global_step"] for row in second.history if "train/loss" in row) > 0, "it goes on"


def test_csv_keeps_settings_and_numbers(digits_run, tmp_path):
    finished = run_script("encode.py", "logger=csv", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0, finished.err
    with open(tmp_path / "encode" / "coin-analytic-digits" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["nda"]) == pytest.approx(results_of(tmp_path)["nda"])
    assert "experiment: digits" in (tmp_path / "encode" / "coin-analytic-digits" / "hparams.yaml").read_text()


def test_tensorboard(digits_run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    finished = run_script(
        "encode.py", "logger=tensorboard", "finetune.epochs=1", f"store={tmp_path / 's'}", f"hydra.run.dir={tmp_path}"
    )
    assert finished.code == 0, finished.err
    encode = EventAccumulator(str(tmp_path / "encode" / "coin-analytic-digits")).Reload()
    assert encode.Scalars("nda")[-1].value == pytest.approx(results_of(tmp_path)["nda"], rel=1e-5)
    (training, _) = sorted((tmp_path / "train").iterdir())
    assert EventAccumulator(str(training)).Reload().Scalars("test/accuracy")


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    server = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(30)


def test_mlflow_on_a_server(digits_run, mlflow_server, tmp_path):
    import mlflow

    finished = run_script("encode.py", "logger=mlflow", f"logger.uri={mlflow_server}", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0, finished.err
    client = mlflow.MlflowClient(mlflow_server)
    (run,) = client.search_runs([client.get_experiment_by_name("coin").experiment_id])
    assert run.data.metrics["nda"] == pytest.approx(results_of(tmp_path)["nda"]) and run.info.status == "FINISHED"
    assert run.data.params["code"] == "coin" and run.data.tags["job_type"] == "encode"
    logs = MLflow(uri=mlflow_server)
    ids = []
    for status in ("failed", "success"):
        settings = {"store": status}  # another one, which changes no result
        subject = Subject(name="again", job_type="train", config=settings, id="digits-0123456789")
        journal = logs.open(tmp_path, subject)
        ids.append(journal.logger.run_id)
        journal.close(status)
    assert ids[0] == ids[1] and client.get_run(ids[0]).info.status == "FINISHED", "a killed run goes on"


def test_a_server_that_is_not_there_gets_one_line(digits_run, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    finished = run_script("encode.py", "logger=mlflow", "logger.uri=http://127.0.0.1:9", f"hydra.run.dir={tmp_path}")
    assert finished.code == 2 and "logger.uri=http://127.0.0.1:9: MLflow cannot log there" in finished.err


def test_whatever_happens_a_journal_is_closed(tmp_path):
    closed = []

    class Noted(Journal):
        def close(self, status):
            closed.append(status)

    with pytest.raises(ZeroDivisionError), Noted():
        1 / 0  # noqa: B018
    with Noted():
        pass
    assert closed == ["failed", "success"]


def test_only_the_first_rank_keeps_a_journal(tmp_path, monkeypatch):
    monkeypatch.setattr("coin.lab.loggers.is_first", lambda: False)
    journal = Csv().open(tmp_path, Subject(name="x", job_type="encode"))
    journal.logger.log_metrics({"nda": 1.0})
    journal.close("success")
    assert not list(tmp_path.iterdir())


def test_a_log_that_fails_never_costs_a_run(digits_run, tmp_path, monkeypatch):
    def full(*args, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lightning.pytorch.loggers.CSVLogger.save", full)
    finished = run_script("encode.py", "logger=csv", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0 and (tmp_path / "results.json").is_file()
    assert finished.out.count("warning: the log stopped") == 1


def test_results_are_kept_before_the_log_is_told(digits_run, tmp_path, monkeypatch):
    def killed(*args):
        assert (tmp_path / "results.json").is_file()
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "told", killed)
    with pytest.raises(KeyboardInterrupt):
        run_script("encode.py", "logger=csv", f"hydra.run.dir={tmp_path}")


def test_experts_that_were_named_have_an_experiment_of_their_own_and_all_of_it_is_logged(digits_run, tmp_path):
    finished = run_script("encode.py", "experts=[digits_splits]", f"hydra.run.dir={tmp_path}")
    assert finished.code == 0 and "warning" not in finished.out, finished.out
    (run,) = offline_runs(tmp_path)
    assert run.config["experiment"] == results_of(tmp_path)["experiment"] == "digits_splits"
    assert run.summary["phase"] == "done" and "nda" in run.summary


def test_an_address_with_a_password_is_written_nowhere(digits_run, tmp_path):
    uri = f"sqlite:///{tmp_path}/runs.db?password=hunter2"
    finished = run_script(
        "encode.py", "-m", "code=average", "logger=mlflow", f"logger.uri='{uri}'", f"hydra.sweep.dir={tmp_path / 's'}"
    )
    assert finished.code == 0, finished.err
    assert not [line for line in finished.out.splitlines() if "hunter2" in line and "[HYDRA]" not in line]  # its echo
    assert without_secrets("http://me:hunter2@host:1/path?x=hunter2") == "http://host:1/path"
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file() and ".hydra" not in path.parts and path.name != "multirun.yaml":  # Hydra's own
            assert b"hunter2" not in path.read_bytes(), path
