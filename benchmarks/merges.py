"""The seconds that merges without data take: Δ of N task vectors of a ResNet-50.

    python -m benchmarks.merges [--experts 2 5 10] [--threads 2]

Experts are random: the time does not depend on what they learned. Writes results/merges.md.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.matched_memory import problem
from coin.codes import Dare, Isotropic, TaskArithmetic, TaskSingularVectors, Ties


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    codes = {"task_arithmetic": TaskArithmetic(), "dare": Dare(), "ties": Ties()}
    codes |= {"iso": Isotropic(), "tsv": TaskSingularVectors()}
    lines = ["| seconds with N experts | " + " | ".join(map(str, arguments.experts)) + " |"]
    lines.append("|---" + "|---:" * len(arguments.experts) + "|")
    cells: dict[str, list[str]] = {name: [] for name in codes}
    for count in arguments.experts:
        coding = problem(32, 2, count)
        for name, code in codes.items():
            start = time.perf_counter()
            code.encode(coding, scale=1.0)
            cells[name].append(f"{time.perf_counter() - start:.1f}")
            print(name, count, cells[name][-1], flush=True)
    lines += [f"| {name} | " + " | ".join(seconds) + " |" for name, seconds in cells.items()]
    Path("results/merges.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
