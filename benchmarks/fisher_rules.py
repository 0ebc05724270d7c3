"""Direct against pairs over a table of layers: what the cost model of coin.fisher.products rests on.

    python -m benchmarks.fisher_rules [--directions 10]

Milliseconds a sample of the layers of a ResNet-50 at 32 and at 224 px and of a ViT, both ways, and which one the cost
model takes. Writes results/fisher/rules.md.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from coin.fisher.products import Direct, Pairs, Squares, pairs_is_cheaper

# positions, columns, outputs
LAYERS = {
    "ResNet-50, 32 px": [(256, 147, 64), (64, 64, 64), (64, 576, 64), (64, 64, 256), (64, 256, 64), (16, 1152, 128),
                         (16, 128, 512), (16, 512, 128), (4, 2304, 256), (4, 256, 1024), (4, 1024, 256), (1, 4608, 512),
                         (1, 512, 2048), (1, 2048, 512)],
    "ResNet-50, 224 px": [(3136, 64, 64), (784, 1152, 128), (196, 2304, 256), (196, 1024, 256), (49, 4608, 512),
                          (49, 2048, 512)],
    "ViT, 17 and 197 tokens": [(17, 192, 576), (17, 192, 768), (197, 192, 576), (197, 768, 192)],
}  # fmt: skip


def milliseconds(way: type[Squares], inputs: Tensor, gradients: list[Tensor]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        squares = way(lambda: inputs)
        for gradient in gradients:
            squares.add(gradient)
        squares.result()
        times.append(time.perf_counter() - start)
    return 1000 * min(times) / len(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directions", type=int, default=10)
    directions = parser.parse_args().directions
    lines = ["| network | positions | columns | outputs | direct ms | pairs ms | the model takes |", "|---" * 7 + "|"]
    for network, layers in LAYERS.items():
        for positions, columns, outputs in layers:
            samples = 64 if positions <= 256 and "32" in network else 4
            inputs = torch.randn(samples, positions, 1, columns)
            gradients = [torch.randn(samples, positions, 1, outputs) for _ in range(directions)]
            direct = milliseconds(Direct, inputs, gradients)
            affordable = positions <= 256 and positions**2 * samples * max(columns, outputs) < 2**30
            pairs = milliseconds(Pairs, inputs, gradients) if affordable else float("nan")
            taken = "pairs" if pairs_is_cheaper(positions, directions, columns, outputs) else "direct"
            lines.append(f"| {network} | {positions} | {columns} | {outputs} | {direct:.2f} | {pairs:.2f} | {taken} |")
            print(lines[-1], flush=True)
    Path("results/fisher").mkdir(parents=True, exist_ok=True)
    Path("results/fisher/rules.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
