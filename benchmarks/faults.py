"""Runs the faults a long experiment meets, on the digits, and says what was lost.

    python -m benchmarks.faults [--only WORDS]

Real processes, real signals, a real full file system where we may mount one. A fault is survived when the same command,
run again, ends with the very same weights or numbers as an undisturbed run, or, for damaged and hostile files, when it
is refused by name with nothing executed and nothing overwritten. Writes results/faults.md; tests/lab/test_faults.py
runs the same functions with fewer repetitions.
"""

import argparse
import contextlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.processes import ROOT, Limit, Process

TRAIN = ["data.labels=[0,1,2,3,4]", "data.batch_size=32", "finetune.epochs=12", "checkpoint_minutes=0.0001"]
ENCODE = ["finetune.epochs=3", "student_learning_rate=1e-3"]


@dataclass
class Outcome:
    """How often a fault was tried and survived, and in words what happened."""

    tried: int = 0
    survived: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, good: bool, note: str = "") -> None:
        self.tried += 1
        self.survived += good
        if note and note not in self.notes:
            self.notes.append(note)


class Place:
    """A folder of its own with a store in it, where the scripts are run as a shell would."""

    def __init__(self, folder: Path):
        self.folder, self.store = folder, folder / "store"
        folder.mkdir(parents=True, exist_ok=True)

    def start(
        self,
        script: str,
        *args: str,
        logger: str = "csv",
        limit: Limit | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_SILENT": "true", **(env or {})}
        return Process(
            ROOT / script, [*args, f"store={self.store}", f"logger={logger}"], self.folder, environment, limit
        )

    def run(self, script: str, *args: str, **settings) -> tuple[int, str]:
        process = self.start(script, *args, **settings)
        out, _ = process.communicate(timeout=600)
        return process.returncode, out

    def experts(self) -> dict[str, bytes]:
        """The bytes of every finished expert."""
        return {p.parent.name: p.read_bytes() for p in sorted(self.store.glob("experts/[!.]*/tensors.safetensors"))}

    def artifacts(self, kind: str) -> list[Path]:
        return sorted(p for p in self.store.glob(f"{kind}/[!.]*") if p.is_dir())

    def results(self) -> list[float]:
        """The NDA of every run of the place, in the order of their folders."""
        return [json.loads(p.read_text())["nda"] for p in sorted(self.folder.glob("outputs/**/results.json"))]


def wait_for(condition: Callable[[], bool], process: Process, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return True
        time.sleep(0.01)
    return False


def stop(process: Process, how: int) -> bool:
    """Sends the signal and waits for the end; whether it was the signal that ended it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    process.communicate()
    return process.returncode != 0


def undisturbed(folder: Path, train: Sequence[str] = TRAIN) -> tuple[Place, dict[str, bytes], float]:
    """A place with θ_0 in its store, the expert every disturbed training must end with, and how long one takes."""
    place = Place(folder)
    code, out = place.run("train.py", *train)
    assert code == 0, out
    experts = place.experts()
    record = json.loads(next(place.store.glob("experts/[!.]*/record.json")).read_text())
    return place, experts, record["facts"]["seconds"]


def killed_trainings(folder: Path, count: int, how: int, more: Sequence[str] = ()) -> Outcome:
    """Signals at random moments of a training; the same command goes on until it is done, then all begins anew."""
    outcome, train = Outcome(), [*TRAIN, *more]
    reference, truth, seconds = undisturbed(folder / "reference", train)
    place = Place(folder / "killed")
    shutil.copytree(reference.store / "bases", place.store / "bases")
    kills = 0
    while kills < count:
        process = place.start("train.py", *train)
        begun = wait_for(lambda: any(place.store.glob("experts/.*.unfinished")), process)
        if begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(0, 0.6 * seconds))
        if process.poll() is None:
            kills += stop(process, how)
        else:
            process.communicate()
        if place.experts():
            outcome_of(place, truth, outcome, kills)
            shutil.rmtree(place.store / "experts")
    while not place.experts():
        code, out = place.run("train.py", *train)
        assert code == 0, out
        outcome_of(place, truth, outcome, kills)
    good = outcome.survived == outcome.tried
    return Outcome(kills, kills if good else 0, [f"{outcome.tried} trained to the end, bit-identical" * good])


def outcome_of(place: Place, truth: dict[str, bytes], outcome: Outcome, kills: int) -> None:
    outcome.add(place.experts() == truth, f"differs after {kills} kills" if place.experts() != truth else "")


def killed_sweeps(folder: Path, count: int) -> Outcome:
    """A sweep that trains its experts and runs three codes, killed at random moments until it is done."""
    sweep = ["-m", "code=average,coin,distillation", "hydra.sweep.dir=outputs/sweep", *ENCODE]
    reference = Place(folder / "reference")
    start = time.monotonic()
    code, out = reference.run("encode.py", *sweep)
    assert code == 0, out
    seconds = time.monotonic() - start
    outcome, kills, round_number = Outcome(), 0, 0
    while kills < count:
        place = Place(folder / f"killed{round_number}")
        while True:
            process = place.start("encode.py", *sweep)
            if kills < count:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(random.uniform(0.3, 0.8) * seconds)
            if kills < count and process.poll() is None:
                kills += stop(process, signal.SIGKILL)
                continue
            out, _ = process.communicate()
            break
        same = place.results() == reference.results() and place.experts() == reference.experts()
        outcome.add(same, "" if same else out[-300:])
        round_number += 1
    return Outcome(
        kills, kills if outcome.survived == outcome.tried else 0, outcome.notes or ["same NDA, same experts"]
    )


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: float) -> Iterator[bool]:
    """A file system of this size at `folder`, where we may mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={int(megabytes * 1024)}k"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disks(folder: Path, count: int) -> Outcome:
    """The store's disk is full in the middle; with room again, the same command ends as if nothing had been."""
    outcome = Outcome()
    reference, truth, _ = undisturbed(folder / "reference")
    whole = sum(p.stat().st_size for p in (reference.store / "bases").rglob("*") if p.is_file()) / 2**20
    i = 0
    while outcome.tried < count:
        i += 1
        place = Place(folder / f"full{i}")
        room = whole * random.uniform(1.1, 4)
        with small_disk(place.store, room) as mounted:
            shutil.copytree(reference.store / "bases", place.store / "bases")
            limit = None if mounted else (resource.RLIMIT_FSIZE, 100_000)
            code, out = place.run("train.py", *TRAIN, limit=limit)
            half_written = bool(place.experts()) and place.experts() != truth
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=200m", str(place.store)], check=True)
            if code == 0:
                continue  # there was room enough: no fault, no try
            failed_clearly = code == 1 and "Traceback" not in out and ("space" in out or "too large" in out)
            again, text = place.run("train.py", *TRAIN)
            good = not half_written and again == 0 and place.experts() == truth and failed_clearly
            how = "a file system that is full" if mounted else "a limit on file sizes (no right to mount)"
            outcome.add(good, how if good else f"exit {code}, then {again}: {out[-300:]} {text[-300:]}")
    return outcome


def too_little_memory(folder: Path, count: int) -> Outcome:
    """The address space is limited to what an import needs and a little more."""
    outcome = Outcome()
    reference, truth, _ = undisturbed(folder / "reference")
    for i in range(count):
        place = Place(folder / f"memory{i}")
        shutil.copytree(reference.store / "bases", place.store / "bases")
        limit = int((2.2 + 0.4 * i) * 2**30)
        code, _ = place.run("train.py", *TRAIN, limit=(resource.RLIMIT_AS, limit))
        half_written = bool(place.experts()) and place.experts() != truth
        again, text = place.run("train.py", *TRAIN)
        good = code != 0 and not half_written and again == 0 and place.experts() == truth
        outcome.add(good, f"with {limit / 2**30:.1f} GiB it ended with {code}" if good else text[-300:])
    return outcome


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    path.write_bytes(raw)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])


def foreign_record(path: Path) -> None:
    """The record of something else: it does not match the tensors beside it."""
    record = json.loads((path.parent / "record.json").read_text())
    (path.parent / "record.json").write_text(json.dumps({**record, "sha256": "0" * 64}))


def no_record(path: Path) -> None:
    (path.parent / "record.json").write_text("{")


DAMAGES = (flip, truncate, foreign_record, no_record)


def damaged_derived(folder: Path, count: int) -> Outcome:
    """A Fisher or outputs in the store are damaged: computed again with a warning, and the numbers stay."""
    outcome = Outcome()
    place = Place(folder)
    code, out = place.run("encode.py", *ENCODE)
    assert code == 0, out
    truth = place.results()[0]
    for i in range(count):
        kind = ("fishers", "outputs")[i % 2]
        damage = DAMAGES[i % len(DAMAGES)]
        victim = random.choice(place.artifacts(kind))
        damage(victim / "tensors.safetensors")
        code, out = place.run("encode.py", *ENCODE)
        good = code == 0 and "computed again" in out and place.results()[-1] == truth
        outcome.add(good, "computed again with a warning, the same NDA" if good else f"{damage.__name__}: {out[-300:]}")
    return outcome


def damaged_experts(folder: Path, count: int) -> Outcome:
    """An expert or a base model in the store is damaged: refused by name, never trained over."""
    outcome = Outcome()
    place = Place(folder)
    code, out = place.run("encode.py", *ENCODE)
    assert code == 0, out
    kept = folder / "kept"
    shutil.copytree(place.store, kept)
    for i in range(count):
        kind = ("experts", "bases")[i % 2]
        victim = random.choice(place.artifacts(kind))
        DAMAGES[i % len(DAMAGES)](victim / "tensors.safetensors")
        before = (victim / "tensors.safetensors").read_bytes()
        code, out = place.run("encode.py", *ENCODE)
        unchanged = (victim / "tensors.safetensors").read_bytes() == before
        good = code == 2 and str(victim) in out and "damaged" in out and unchanged
        outcome.add(good, "refused by name, exit code 2, left as it was" if good else out[-300:])
        shutil.rmtree(place.store)
        shutil.copytree(kept, place.store)
    return outcome


class Hostile:
    """Unpickling it would create a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def hostile_pickles(folder: Path, count: int) -> Outcome:
    """Pickles that run code, as a checkpoint to resume from, as an expert and as weights of θ_0."""
    outcome = Outcome()
    reference, _, _ = undisturbed(folder / "reference")
    for i in range(count):
        place = Place(folder / f"hostile{i}")
        mark, planted = place.folder / "executed", place.folder / "planted.pth"
        if i % 2:
            planted.write_bytes(pickle.dumps(Hostile(mark)))
        else:
            torch.save({"state_dict": Hostile(mark)}, planted)
        if i % 3 == 0:
            shutil.copytree(reference.store / "bases", place.store / "bases")
            name = next((reference.store / "experts").glob("[!.]*")).name
            scratch = place.store / "experts" / f".{name}.unfinished"
            scratch.mkdir(parents=True)
            shutil.copy(planted, scratch / "last.ckpt")
            code, out = place.run("train.py", *TRAIN)
        elif i % 3 == 1:
            code, out = place.run("encode.py", f"experts.split1.path={planted}", *ENCODE)
        else:
            code, out = place.run("train.py", f"model.weights={planted}", *TRAIN)
        good = code == 2 and not mark.exists() and "Traceback" not in out
        outcome.add(good, "refused, nothing executed, exit code 2" if good else f"exit {code}: {out[-300:]}")
    return outcome


def taken_over(folder: Path, count: int) -> Outcome:
    """Two processes want one expert; the one that trains is killed, the other says it waits, and takes over."""
    outcome = Outcome()
    reference, truth, _ = undisturbed(folder / "reference")
    for i in range(count):
        place = Place(folder / f"two{i}")
        shutil.copytree(reference.store / "bases", place.store / "bases")
        first = place.start("train.py", *TRAIN)
        wait_for(lambda place=place: any(place.store.glob("experts/.*.unfinished")), first)
        os.killpg(first.pid, signal.SIGSTOP)  # it holds the lock for as long as we like
        second = place.start("train.py", *TRAIN)
        time.sleep(random.uniform(8, 12))
        stop(first, signal.SIGKILL)
        out, _ = second.communicate(timeout=300)
        good = second.returncode == 0 and "waiting" in out and place.experts() == truth
        outcome.add(good, "the other waited, with a message, and took over" if good else out[-300:])
    return outcome


def ten_at_once(folder: Path, count: int) -> Outcome:
    """Ten encodes of different codes and draws start together on one empty store."""
    outcome = Outcome()
    for i in range(count):
        place = Place(folder / f"ten{i}")
        runs = [[f"code={c}", f"seed={s}"] for s in range(5) for c in ("coin", "average")]
        started = [place.start("encode.py", *ENCODE, *run, f"hydra.run.dir=outputs/{n}") for n, run in enumerate(runs)]
        outs = [process.communicate(timeout=600)[0] for process in started]
        codes = [process.returncode for process in started]
        experts = len(place.experts())
        good = codes == [0] * 10 and experts == 2 and len(place.results()) == 10
        waited = sum("waiting" in out for out in outs)
        outcome.add(
            good, f"each of 2 experts trained once, {waited} of 10 said they wait" if good else str(outs)[-500:]
        )
    return outcome


def wandb_trouble(folder: Path, count: int) -> Outcome:
    """W&B's server cannot be reached, or its folder cannot be written to: a warning, and the run goes on."""
    outcome = Outcome()
    plain = Place(folder / "plain")
    code, out = plain.run("encode.py", *ENCODE)
    assert code == 0, out
    for i in range(count):
        place = Place(folder / f"wandb{i}")
        shutil.copytree(plain.store, place.store)
        unreachable = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
        blocked = place.folder / "outputs" / "run" / "wandb"
        if i % 2:
            blocked.parent.mkdir(parents=True)
            with small_disk(blocked, 0.004) as mounted:
                if not mounted:
                    blocked.rmdir()
                    blocked.write_text("a file where W&B wants its folder")
                code, out = place.run("encode.py", *ENCODE, "hydra.run.dir=outputs/run", logger="wandb")
        else:
            code, out = place.run("encode.py", *ENCODE, "hydra.run.dir=outputs/run", logger="wandb", env=unreachable)
        good = code == 0 and place.results() == plain.results() and "warning: W&B" in out
        outcome.add(good, "a warning, the same NDA" if good else f"exit {code}: {out[-400:]}")
    return outcome


FAULTS: dict[str, tuple[Callable[..., Outcome], int]] = {
    "SIGKILL at a random moment of a training": (lambda f, n: killed_trainings(f, n, signal.SIGKILL), 20),
    "SIGKILL while gradients are accumulated": (
        lambda f, n: killed_trainings(f, n, signal.SIGKILL, ["trainer.accumulate_grad_batches=3"]),
        5,
    ),
    "Ctrl-C at a random moment of a training": (lambda f, n: killed_trainings(f, n, signal.SIGINT), 5),
    "SIGTERM at a random moment of a training": (lambda f, n: killed_trainings(f, n, signal.SIGTERM), 5),
    "SIGKILL at a random moment of a sweep": (killed_sweeps, 8),
    "disk full while training": (full_disks, 6),
    "too little memory": (too_little_memory, 3),
    "two processes, one expert, the first dies": (taken_over, 3),
    "ten encodes at once on one store": (ten_at_once, 1),
    "damaged Fisher or outputs": (damaged_derived, 8),
    "damaged expert or base model": (damaged_experts, 8),
    "hostile pickle": (hostile_pickles, 6),
    "W&B unreachable or its disk full": (wandb_trouble, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name holds these words; writes no file")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    rows = []
    with tempfile.TemporaryDirectory() as top:
        for i, (name, (fault, count)) in enumerate(FAULTS.items()):
            if arguments.only not in name:
                continue
            found = fault(Path(top) / str(i), count)
            lost = "nothing" if found.survived == found.tried else "see notes"
            rows.append((name, found.tried, found.survived, lost, "; ".join(note for note in found.notes if note)))
            print(rows[-1], flush=True)
        if not arguments.only:
            from benchmarks import bad_inputs

            tried = bad_inputs.run_all(Path(top) / "bad")
            write(rows, tried)


def write(rows: list[tuple], tried: dict[str, list[tuple[str, bool, str]]]) -> None:
    lines = ["# Faults", "", "Made by `python -m benchmarks.faults`; nothing here is typed by hand.", ""]
    lines += ["| fault | tried | survived | lost | how |", "|---|---:|---:|---|---|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    total = sum(len(found) for found in tried.values())
    good = sum(ok for found in tried.values() for _, ok, _ in found)
    lines += ["", "## Bad inputs", "", f"{total} tried, {good} ended in one clear line and exit code 2.", ""]
    lines += ["| kind | tried | one line, exit code 2 | an example of the line |", "|---|---:|---:|---|"]
    for kind, found in tried.items():
        example = max((line for _, ok, line in found if ok), key=len, default="")[:160]
        lines.append(f"| {kind} | {len(found)} | {sum(ok for _, ok, _ in found)} | {example.replace('|', '/')} |")
    (ROOT / "results" / "faults.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
