"""Networks that mislead about which rows belong to which sample: by rule or generally, and the error in float64.

    python -m benchmarks.fisher_layouts [--old DIR]

The table of tests/cases.py, and a sequence-first network with batches of other lengths, each against the loop of one
backward pass a sample and output, over several orders of batch sizes. `--old` names another checkout to be measured
beside. Writes results/fisher/layouts.md.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent.parent
ORDERS = [(6,), (1, 6), (6, 1), (3, 7), (2, 5, 2), (12, 4)]
LENGTHS = "sequence first, of length 1, then 6"


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.fc = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.tanh(self.first(x.transpose(0, 1).reshape(-1, 5))))
        return self.fc(y.view(x.shape[1], len(x), 6).mean(0))


def of_two_lengths() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    return Sequence().double(), [torch.randn(4, length, 5, dtype=torch.float64) for length in (1, 6)]


def measure(network: nn.Module, batches: list[Tensor]) -> tuple[float, int, int]:
    """The relative error in the worst parameter, and in how many batches of how many something went generally."""
    import reference

    from coin.fisher import DiagonalFisher

    fisher, general = DiagonalFisher(network), 0
    for inputs in batches:
        fisher.update(inputs)
        general += bool(fisher.plan.general)
    ours, truth = fisher.compute(), reference.diagonal_fisher(network, batches)
    error = max(float((ours[k] - v).norm() / (v.norm() + 1e-300)) for k, v in truth.items())
    return error, general, len(batches)


def rows() -> dict[str, dict]:
    sys.path.insert(0, str(HERE / "tests"))
    import cases

    warnings.simplefilter("ignore")
    found: dict[str, dict] = {}
    runs = {name: [cases.misleading(name, sizes) for sizes in ORDERS] for name in cases.MISLEADING}
    for name, pairs in {LENGTHS: [of_two_lengths()], **runs}.items():
        row = {"error": 0.0, "general": 0, "batches": 0, "failed": 0}
        for network, batches in pairs:
            try:
                error, general, count = measure(network, batches)
            except (RuntimeError, IndexError):
                row["failed"] += 1
                continue
            row = {"error": max(row["error"], error), "general": row["general"] + general,
                   "batches": row["batches"] + count, "failed": row["failed"]}  # fmt: skip
        found[name] = row
    return found


def path(row: dict) -> str:
    if not row["general"]:
        return "by rule"
    return (
        "generally"
        if row["general"] == row["batches"]
        else f"generally in {row['general']} of {row['batches']} batches"
    )


def worst(row: dict) -> str:
    failed = f"{row['failed']} of {len(ORDERS)} orders end in a traceback" if row["failed"] else ""
    return ", ".join(filter(None, [f"{row['error']:.0e}" if row["batches"] else "", failed]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="another checkout, to be measured beside")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(rows()))
        return
    new, old = rows(), None
    if arguments.old:
        call = [sys.executable, str(Path(__file__).resolve()), "--one"]
        settings = {**os.environ, "PYTHONPATH": str(arguments.old.resolve())}
        done = subprocess.run(call, cwd=arguments.old, env=settings, capture_output=True, text=True, check=True)
        old = json.loads(done.stdout.strip().splitlines()[-1])
    lines = [
        "| network | treated | error |" + (" error before |" if old else ""),
        "|---|---|---:|" + "---:|" * bool(old),
    ]
    for name, row in new.items():
        lines.append(f"| {name} | {path(row)} | {worst(row)} |" + (f" {worst(old[name])} |" if old else ""))
    out = HERE / "results/fisher/layouts.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    main()
