"""The memory of matched layers: the peak beside the networks, at any image size and number of samples.

    python -m benchmarks.matched_memory [--pixels 32 64 224] [--samples 200 400]

Every cell is a process of its own: two experts of a ResNet-50, one fit, the peak of its resident memory beyond what
networks and samples took before. Writes results/matched_memory.md.
"""

import argparse
import copy
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
import torchvision

from coin.codes import Matched
from coin.codes.lockstep import schedule_for
from coin.problem.coding import Coding
from coin.problem.moved import Moved


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB


def problem(pixels: int, samples: int, count: int = 2) -> Coding:
    torch.manual_seed(0)
    base = torchvision.models.resnet50(num_classes=10).eval().to(memory_format=torch.channels_last)
    for module in base.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.requires_grad_(False)
            module.weight.fill_(0.5)  # a random network's outputs would explode
    experts = [copy.deepcopy(base) for _ in range(count)]
    for expert in experts:
        for parameter in expert.parameters():
            if parameter.requires_grad:
                parameter.data += 0.02 * parameter.data.std() * torch.randn_like(parameter)
    inputs = torch.randn(samples, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
    return Coding(experts, None, inputs.split(100), base=base)


def measure(pixels: int, samples: int) -> str:
    coding = problem(pixels, samples)
    with torch.no_grad():
        coding.experts[0](coding.batches[0][:2])  # what torch itself needs to begin
    before, start = peak(), time.perf_counter()
    Matched().encode(coding, scale=1.5, strength=1.0)
    seconds, used = time.perf_counter() - start, peak() - before
    schedule = schedule_for(coding.experts[0], Moved.copies_of(coding.batches, 3), 4 << 30, 2)
    first, last = (list(schedule.steps.values())[i] for i in (0, -2))
    drawn = [step.positions / step.all_positions for step in schedule.steps.values()]
    return (
        f"| {pixels} | {samples} | {used:.2f} | {seconds:.0f} | {first.samples} to {last.samples} of {4 * samples} | "
        f"{100 * min(drawn):.2g} to {100 * max(drawn):.3g} % | {len(schedule.parts)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, nargs="+", default=[32, 64, 224])
    parser.add_argument("--samples", type=int, nargs="+", default=[200])
    parser.add_argument("--cell", action="store_true", help="measure one cell in this process")
    arguments = parser.parse_args()
    if arguments.cell:
        print(measure(arguments.pixels[0], arguments.samples[0]))
        return
    lines = [
        "| pixels | samples | peak beside networks, GiB | seconds | images, first layer to last | positions | parts |",
        "|---" + "|---:" * 6 + "|",
    ]
    for pixels in arguments.pixels:
        for samples in arguments.samples:
            cell = ["-m", "benchmarks.matched_memory", "--cell", "--pixels", str(pixels), "--samples", str(samples)]
            done = subprocess.run([sys.executable, *cell], check=True, text=True, stdout=subprocess.PIPE)
            lines.append(done.stdout.strip().splitlines()[-1])
            print(lines[-1], flush=True)
    Path("results/matched_memory.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
