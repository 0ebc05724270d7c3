"""What choosing the scale of matched layers costs, and what it chooses: before, three folds of whole fits; now, drafts.

    COIN_DATA=DIR python -m benchmarks.matched_choice experiment=cifar10_splits [model=… model.weights=…]
                                                      [--threads 2] [--held-out 500]

For experts that are in the store already, P = 200, decoder=features, tuning=divergence, all in one process. The choice
is judged by other training images, never by test images. Writes results/matched_choice.md.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.error_parts import experts_of
from coin.codes import Matched
from coin.decoders import Ridge
from coin.lab.console import one_line_errors, quiet
from coin.problem.coding import Coding
from coin.problem.tuning import Tuned, Tuner
from coin.training.samples import Samples, draw


@dataclass
class Before(Matched):
    """As it was: candidates are fitted with all copies, for every fold."""

    judges: int = 0
    scales: Sequence[float] = (1.0, 1.5, 2.0)

    def draft(self) -> Matched:
        return self


def problem(overrides: Sequence[str], held_out: int) -> tuple[Coding, Coding]:
    """The problem of P samples, and the same experts with as many other training images each."""
    experts, base = experts_of(overrides)
    data = [expert.data for expert in experts]
    drawn, more = draw(data, 200, 0), draw(data, held_out * len(data), 1000)
    unseen = torch.tensor([not (drawn.inputs == x).flatten(1).all(1).any() for x in more.inputs])

    def coding(samples: Samples, rows: torch.Tensor) -> Coding:
        return Coding(
            [expert.network for expert in experts],
            None,
            samples.inputs[rows].split(100),
            base=base,
            owners=samples.owners[rows],
            decoder=Ridge(features=True),
        )

    return coding(drawn, torch.ones(len(drawn.labels), dtype=torch.bool)), coding(more, unseen)


def divergence_of(tuned: Tuned, other: Coding) -> float:
    answers = other.answers(other.asked(tuned.params))
    decoded = [tuned.decoder.decode(answers.arrived, answers.others(i), i) for i in range(len(other.experts))]
    return other.scored(answers, decoded).divergence


def forward_seconds(network: nn.Module, coding: Coding) -> float:
    """Of the P samples and three copies of each: the measure of this machine, today."""
    start = time.perf_counter()
    for _ in range(4):
        coding.run(network)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--held-out", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    quiet()
    with one_line_errors():
        coding, other = problem(arguments.overrides, arguments.held_out)
        coding.outputs(), other.outputs()
        lines = [
            "| | seconds | in forward passes | scale: divergence on what a fold left out | chosen | on other images |",
            "|---|---:|---:|---|---:|---:|",
        ]
        for name, code in (("before", Before()), ("now", Matched())):
            forward = forward_seconds(coding.experts[0], coding)
            start = time.perf_counter()
            tuned = Tuner("divergence").tune(code, coding)
            seconds = time.perf_counter() - start
            judged = ", ".join(f"{c['scale']:g}: {c['divergence']:.4f}" for c in tuned.candidates)
            scale = tuned.hyperparameters["scale"]
            found = divergence_of(tuned, other)
            lines.append(f"| {name} | {seconds:.0f} | {seconds / forward:.1f} | {judged} | {scale:g} | {found:.4f} |")
            print(lines[-1], flush=True)
    Path("results/matched_choice.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
