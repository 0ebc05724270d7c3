"""What W&B costs an encode run: the same run with all of it on, without, and by an older checkout, in turns.

python -m benchmarks.logging [--old CHECKOUT] [--turns 5]    writes results/logging.md

Whole commands, from start to end, with experts, Fishers and outputs of test images in the store already, or (the second
experiment) with everything but the experts to be computed.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
RUNS = {
    "digits, all in the store": (["experiment=digits"], ()),
    "ResNet-50 at 32 px, P = 200, experts in the store": (
        ["model=resnet50", "model.weights=none", "data.image_size=32", "trainer.max_steps=1"],
        ("fishers", "outputs"),
    ),
}


def seconds(checkout: Path, store: Path, command: list[str], logger: str, fresh: tuple[str, ...]) -> float:
    for kind in fresh:
        shutil.rmtree(store / kind, ignore_errors=True)
    call = [sys.executable, "encode.py", *command, f"store={store}", f"logger={logger}"]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "WANDB_MODE": "offline"}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            [*call, f"hydra.run.dir={folder}"], cwd=checkout, env=environment, capture_output=True, text=True
        )
        took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="another checkout, to be measured beside")
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    sides = {"W&B": (HERE, "wandb"), "CSV": (HERE, "csv")}
    if arguments.old:
        sides["W&B, the older checkout"] = (arguments.old.resolve(), "wandb")
    lines = [
        f"| run | {' | '.join(f'{name}, s' for name in sides)} | {' | '.join(f'W&B / {n}' for n in [*sides][1:])} |"
    ]
    lines.append("|---|" + "---:|" * (2 * len(sides) - 1))
    with tempfile.TemporaryDirectory() as folder:
        for run, (command, fresh) in RUNS.items():
            store = Path(folder) / run.split(",")[0].replace(" ", "_")
            seconds(HERE, store, command, "csv", ())  # makes the experts
            turns = [
                [seconds(*side[:1], store, command, side[1], fresh) for side in sides.values()]
                for _ in range(arguments.turns)
            ]
            medians = [statistics.median(times) for times in zip(*turns, strict=True)]
            ratios = [statistics.median(turn[0] / turn[i] for turn in turns) for i in range(1, len(sides))]
            told = [f"{m:.2f}" for m in medians] + [f"{ratio:.3f}" for ratio in ratios]
            lines.append(f"| {run} | {' | '.join(told)} |")
            print(lines[-1], flush=True)
    told = f"Medians of {arguments.turns} turns. `python -m benchmarks.logging --old CHECKOUT`\n\n"
    (HERE / "results" / "logging.md").write_text(
        "# What logging costs an encode run\n\n" + told + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
