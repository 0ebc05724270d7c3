import json
import os
import time

import pytest
import torch

from benchmarks.processes import SERVER
from coin.lab.store import Store
from coin.training.ranks import run_name


def made(value=1.0):
    return lambda scratch: ({"x": torch.full((3,), value)}, {"accuracy": value})


def test_made_once_and_told_apart_by_its_recipe(tmp_path):
    store, calls = Store(tmp_path), []

    def make(scratch):
        calls.append(scratch)
        return made()(scratch)

    first = store.obtain("experts", "a", {"seed": 0}, make)
    again = store.obtain("experts", "a", {"seed": 0}, make)
    other = store.obtain("experts", "a", {"seed": 1}, make)
    assert len(calls) == 2
    assert first.path == again.path != other.path
    assert first.path.name.startswith("a-")
    assert torch.equal(again.tensors()["x"], torch.ones(3)) and again.facts == {"accuracy": 1.0}
    record = json.loads((first.path / "record.json").read_text())
    assert record["recipe"] == {"seed": 0} and record["versions"]["torch"] == torch.__version__
    assert not calls[0].exists()


def test_a_failure_leaves_nothing_that_looks_finished_and_keeps_the_scratch(tmp_path):
    store = Store(tmp_path)

    def fail(scratch):
        (scratch / "checkpoint").write_text("half")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        store.obtain("experts", "a", {}, fail)
    assert store.find("experts", "a", {}) is None

    def resume(scratch):
        assert (scratch / "checkpoint").read_text() == "half"
        return made()(scratch)

    assert store.obtain("experts", "a", {}, resume).path.is_dir()
    visible = [p.name for p in (tmp_path / "experts").iterdir() if not p.name.startswith(".")]
    assert len(visible) == 1


@pytest.mark.parametrize("damage", ["flip", "truncate", "no json", "bad json"])
def test_a_damaged_artifact_is_refused_by_name(tmp_path, damage):
    store = Store(tmp_path)
    path = store.obtain("experts", "a", {}, made()).path
    tensors, record = path / "tensors.safetensors", path / "record.json"
    raw = tensors.read_bytes()
    if damage == "flip":
        tensors.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "truncate":
        tensors.write_bytes(raw[:-4])
    elif damage == "no json":
        record.unlink()
    else:
        record.write_text("{")
    with pytest.raises(ValueError, match=path.name):
        store.obtain("experts", "a", {}, made())


def slow(root, log):
    def make(scratch):
        with open(log, "a") as file:
            file.write("made\n")
        time.sleep(0.5)
        return made()(scratch)

    Store(root).obtain("experts", "a", {}, make)


def hang(root, started):
    def make(scratch):
        started.touch()
        time.sleep(600)

    Store(root).obtain("experts", "a", {}, make)


def test_two_processes_make_it_once(tmp_path):
    both = [SERVER.Process(target=slow, args=(tmp_path, tmp_path / "log")) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_killed_owner_does_not_block_the_next(tmp_path):
    process = SERVER.Process(target=hang, args=(tmp_path, tmp_path / "started"))
    process.start()
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    os.kill(process.pid, 9)
    process.join()
    assert Store(tmp_path).obtain("experts", "a", {}, made()).path.is_dir()


def names(environment, found):
    launched = ("COIN_RUN", "SLURM", "MASTER", "TORCHEL")
    for key in [key for key in os.environ if key.startswith(launched)]:
        del os.environ[key]
    os.environ.update(environment)
    found.put((run_name(), run_name()))


def test_ranks_of_a_run_name_it_alike_and_runs_differently():
    def name(**environment):
        found = SERVER.SimpleQueue()
        process = SERVER.Process(target=names, args=(environment, found))
        process.start()
        process.join()
        first, second = found.get()
        assert first == second
        return first

    assert name() != name()
    assert name(COIN_RUN="a") == "a", "Lightning hands rank 0's environment on"
    assert name(SLURM_JOB_ID="7", SLURM_STEP_ID="0") == name(SLURM_JOB_ID="7", SLURM_STEP_ID="0") == "7-0"


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", ".hidden", "", "a\\b", "/etc/passwd", "a..b"])
def test_names_cannot_leave_the_store(tmp_path, name):
    with pytest.raises(ValueError, match="cannot name an artifact"):
        Store(tmp_path).obtain("experts", name, {}, made())
    with pytest.raises(ValueError, match="cannot name an artifact"):
        Store(tmp_path).obtain(name, "a", {}, made())
    assert not list(tmp_path.iterdir())


def test_a_damaged_artifact_that_is_derived_is_made_again(tmp_path, capsys):
    store = Store(tmp_path)
    path = store.obtain("fishers", "a", {}, made()).path
    (path / "tensors.safetensors").write_bytes(b"nonsense")
    again = store.obtain("fishers", "a", {}, made(), derived=True)
    assert torch.equal(again.tensors()["x"], torch.ones(3))
    assert "damaged; it is computed again" in capsys.readouterr().out


def test_the_second_of_two_writers_without_locks_takes_what_the_first_made(tmp_path):
    store = Store(tmp_path)
    first = store.obtain("fishers", "a", {}, made())
    store.write(first.path, {"x": torch.ones(3)}, {"kind": "fishers", "name": "a", "recipe": {}, "facts": {}})
    assert store.find("fishers", "a", {}).facts == {"accuracy": 1.0}
    assert not [p for p in (tmp_path / "fishers").iterdir() if p.name.endswith(".new")]


@pytest.mark.parametrize("change", [{"recipe": {"seed": 1}}, {"kind": "bases"}])
def test_a_record_of_something_else_is_refused(tmp_path, change):
    store = Store(tmp_path)
    path = store.obtain("experts", "a", {"seed": 0}, made()).path
    record = json.loads((path / "record.json").read_text())
    (path / "record.json").write_text(json.dumps({**record, **change}))
    with pytest.raises(ValueError, match="that of something else"):
        store.obtain("experts", "a", {"seed": 0}, made())


def test_what_a_killed_writer_left_is_cleaned_up(tmp_path):
    store = Store(tmp_path)
    path = store.locate("experts", "a", {})
    left = path.parent / f".{path.name}.new"
    left.mkdir(parents=True)
    (left / "tensors.safetensors").write_bytes(b"half")
    store.obtain("experts", "a", {}, made())
    assert not left.exists()


def test_tied_weights_are_kept_under_both_names(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    network[1].weight = network[0].weight
    tensors = Store(tmp_path).obtain("experts", "a", {}, lambda scratch: (network.state_dict(), {})).tensors()
    assert torch.equal(tensors["0.weight"], network[0].weight) and torch.equal(tensors["1.weight"], network[0].weight)
