"""The exact Fisher of this checkout and of an older one, in turns: what a change costs.

python -m benchmarks.fisher_before CHECKOUT [--turns 4]    writes results/fisher/before.md
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CASES = [("resnet50", 32, 200), ("resnet50", 224, 8), ("vit_tiny", 224, 32)]


def seconds(checkout: Path, network: str, pixels: int, samples: int) -> tuple[float, float]:
    """Of the faster of two rounds in a process of its own, and of its plan."""
    call = [sys.executable, "-m", "benchmarks.fisher", "--one", "ours", network, str(pixels), str(samples), "10", "2"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(call, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["seconds"], found.get("plan_seconds", 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    lines = [
        "| network | px | P | s before | s now | now / before | of it plan |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in CASES:
        turns = [
            [seconds(root, *case) for root in (arguments.checkout.resolve(), HERE)] for _ in range(arguments.turns)
        ]
        before, now = ([turn[i][0] for turn in turns] for i in (0, 1))
        ratio = statistics.median(n / b for b, n in zip(before, now, strict=True))
        plan = statistics.median(turn[1][1] / turn[1][0] for turn in turns)
        said = [", ".join(f"{s:.2f}" for s in side) for side in (before, now)]
        network, pixels, samples = case
        lines.append(f"| {network} | {pixels} | {samples} | {said[0]} | {said[1]} | {ratio:.3f} | {100 * plan:.1f} % |")
        print(lines[-1], flush=True)
    (HERE / "results" / "fisher" / "before.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
