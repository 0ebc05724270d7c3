"""What it costs to encode again after β, λ or one expert changed, against a memory copy of the bytes involved.

    python -m benchmarks.reencode [--experts 2] [--rounds 5]

ResNet-50 size, Fishers already there. The bytes involved are N experts, N Fishers and one coded network; the copy
reads and writes as many. The two take turns; the ratio is of their fastest rounds. Writes results/reencode.json.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torchvision

from coin.codes import fisher_average
from coin.parameters import trainable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    shapes = {k: p.shape for k, p in trainable(torchvision.models.resnet50(num_classes=10)).items()}

    def random() -> dict[str, torch.Tensor]:
        return {name: torch.rand(shape) for name, shape in shapes.items()}

    params, fishers = ([random() for _ in range(arguments.experts)] for _ in "pf")
    operands = [*params, *fishers, random()]
    beta = [1 / arguments.experts] * arguments.experts

    def copy() -> float:
        start = time.perf_counter()
        kept = [{name: tensor.clone() for name, tensor in operand.items()} for operand in operands]
        seconds = time.perf_counter() - start
        del kept
        return seconds

    def encode() -> float:
        start = time.perf_counter()
        fisher_average(params, fishers, beta, 0.01)
        return time.perf_counter() - start

    copy(), encode()
    rounds = [(copy(), encode()) for _ in range(arguments.rounds)]
    copying, encoding = (min(times) for times in zip(*rounds, strict=True))
    size = sum(t.numel() * 4 for operand in operands for t in operand.values()) / 2**20
    result = {"experts": arguments.experts, "mib": size, "copy_seconds": copying, "encode_seconds": encoding,
              "ratio": encoding / copying, "rounds": rounds}  # fmt: skip
    Path("results").mkdir(exist_ok=True)
    Path("results/reencode.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{size:.0f} MiB: copy {copying:.3f} s, encode {encoding:.3f} s, ratio {encoding / copying:.2f}")


if __name__ == "__main__":
    main()
