"""How large the Fishers of a store are, layer by layer, beside the grid of dampings λ.

    python -m benchmarks.fisher_sizes STORE [--out results/paper/fisher_sizes]

COIN weighs a parameter by F + λ: where F is far below λ in all experts, it is plainly averaged, and where F is far
above, λ does not matter. Takes one Fisher of every expert with the most common architecture, and writes table.md (the
share of each part of the network whose F is above λ) and layers.png (quantiles of F along the network).
"""

import argparse
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from coin.codes import Coin
from coin.lab.store import Artifact, Store
from coin.problem.digests import digest_of
from coin.report.tables import marked_down

GRID = tuple(Coin().grid)


def fishers_of(store: Path) -> dict[str, dict[str, Tensor]]:
    """One exact Fisher, on all samples of some draw, of every expert that was fine-tuned whole."""
    experts = {}
    for expert in artifacts(store, "experts"):
        tensors = expert.tensors()
        experts[digest_of(*(tensors[key] for key in sorted(tensors)))] = expert.path.name
    chosen: dict[str, Artifact] = {}
    for artifact in artifacts(store, "fishers"):
        recipe = artifact.recipe
        plain = set(recipe["trainer"]) <= {"precision"} and "rows" not in recipe and recipe["directions"] == "Exact()"
        if plain and recipe["expert"] in experts:
            chosen.setdefault(experts[recipe["expert"]], artifact)
    usual = Counter(str(artifact.recipe["architecture"]) for artifact in chosen.values()).most_common(1)
    if not chosen:
        raise SystemExit(f"error: {store} holds no Fishers of experts; run encode.py code=coin with store={store}")
    return {
        name.rsplit("-", 1)[0]: in_order(artifact.tensors())
        for name, artifact in chosen.items()
        if str(artifact.recipe["architecture"]) == usual[0][0]
    }


def artifacts(store: Path, kind: str) -> list[Artifact]:
    folder = store / kind
    return [Store.read(path) for path in sorted(folder.glob("[!.]*"))] if folder.is_dir() else []


def in_order(fisher: dict[str, Tensor]) -> dict[str, Tensor]:
    """As a ResNet computes: files have names in alphabetical order, and so the head before the layers."""
    return dict(sorted(fisher.items(), key=lambda item: (item[0].startswith("fc"), item[0])))


def part(layer: str) -> str:
    """layer3.2.conv1.weight belongs to layer3."""
    return layer.split(".")[0]


def table(fishers: dict[str, dict[str, Tensor]]) -> str:
    rows = []
    first = next(iter(fishers.values()))
    for name in dict.fromkeys(map(part, first)):
        values = torch.cat([f.flatten() for own in fishers.values() for layer, f in own.items() if part(layer) == name])
        count = len(values) // len(fishers)
        shares = [f"{100 * float((values > damping).double().mean()):.3g}" for damping in GRID]
        rows.append([name, f"{count:,}", f"{float(values.median()):.1e}", f"{float(values.mean()):.1e}", *shares])
    header = ["part", "parameters", "median F", "mean F", *(f"% above λ = {damping:g}" for damping in GRID)]
    return marked_down(header, rows)


def figure(fishers: dict[str, dict[str, Tensor]], path: Path) -> None:
    drawn, axis = plt.subplots(figsize=(9, 4.5))
    layers = [name for name, f in next(iter(fishers.values())).items() if f.ndim > 1]
    for i, (name, own) in enumerate(fishers.items()):
        quantiles = torch.stack([quantile(own[layer]) for layer in layers]).clamp(min=1e-12)
        axis.plot(quantiles[:, 1], color=f"C{i % 10}", label=name)
        axis.fill_between(range(len(layers)), quantiles[:, 0], quantiles[:, 2], color=f"C{i % 10}", alpha=0.1)
    for damping in GRID:
        axis.axhline(damping, color="grey", linewidth=0.7, linestyle="--")
        axis.annotate(f"λ = {damping:g}", (len(layers), damping), fontsize=7, va="bottom")
    starts = [i for i, layer in enumerate(layers) if i == 0 or part(layer) != part(layers[i - 1])]
    axis.set_xticks(starts, [part(layers[i]) for i in starts], rotation=45)
    axis.set_xlim(-1, len(layers) + 4)
    axis.set_yscale("log")
    axis.set_ylim(1e-7, 1e4)
    axis.set_ylabel("F of a weight: median, 10 % and 90 %")
    axis.set_xlabel("layer, from the input to the head")
    axis.legend(fontsize=7, loc="upper center", ncols=3)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)


def quantile(values: Tensor) -> Tensor:
    ordered = values.flatten().sort().values  # torch.quantile refuses tensors of this size
    return ordered[[int(q * (len(ordered) - 1)) for q in (0.1, 0.5, 0.9)]]


def main() -> None:
    parser = argparse.ArgumentParser(description="The sizes of a store's Fishers beside the dampings.")
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/paper/fisher_sizes"))
    arguments = parser.parse_args()
    fishers = fishers_of(arguments.store)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(table(fishers))
    figure(fishers, arguments.out / "layers.png")
    print((arguments.out / "table.md").read_text())


if __name__ == "__main__":
    main()
