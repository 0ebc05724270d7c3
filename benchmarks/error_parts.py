"""Where the error of a weight average arises, along the network: in the body, or in the head?

    python -m benchmarks.error_parts experiment=cifar10_splits [experiment=… …] [model=… model.weights=…]
                                     [--count 1000] [--out results/paper/error_parts]

If a network were linear in its weights, the average of weights would give the average of outputs. For experts that are
in the store already, and their plain average, on `count` test images of each: how far apart the experts are at the end
of every stage (in percent of the activations' size) → how far the average is from the middle of them (in percent of
that distance); and the NDA as it is, with a body that averages exactly, with a head that does. Writes table.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor, nn

from coin.cli.configs import CONF
from coin.cli.encode import experiment
from coin.cli.experts import expand
from coin.lab.artifacts import Expert
from coin.lab.console import one_line_errors, quiet
from coin.metrics import nda_compute, nda_update
from coin.parameters import load, trainable, weighted_sum
from coin.report.tables import marked_down
from coin.training.models import network_of


def experts_of(overrides: Sequence[str]) -> tuple[list[Expert], nn.Module]:
    """The experts that encode.py would fine-tune for these overrides, and a network to load their average into."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        planned = experiment(expand(compose("encode", [*overrides, "train_missing=false"])))
    workshop, classes = planned.workshop(), next(iter(planned.experts.values())).data.num_classes
    base = workshop.base(classes)
    experts = [planned.expert(workshop, base, name) for name in planned.experts]
    return experts, network_of(planned.model, base.tensors(), classes)


@torch.inference_mode()
def activations(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """What comes out of every child of the network, the head last; pooled features go by the name `features`."""
    seen: dict[str, list[Tensor]] = {}

    def keep(name: str):
        def hook(module: nn.Module, inputs: tuple, output: Tensor) -> None:
            if name == "fc":
                seen.setdefault("features", []).append(inputs[0].clone())
            seen.setdefault(name, []).append(output.clone())

        return hook

    named = [(name, child) for name, child in network.named_children() if name.startswith(("layer", "blocks", "fc"))]
    handles = [child.register_forward_hook(keep(name)) for name, child in named]
    for part in images.split(250):
        network(part)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(parts).flatten(1) for name, parts in seen.items()}


def parts_of(experts: Sequence[Expert], coded: nn.Module, count: int) -> tuple[dict[str, list[float]], list[float]]:
    """Movement and error of every stage, and three NDAs: the average's, with an exact body, with an exact head."""
    networks = [expert.network.eval() for expert in experts]
    load(coded, weighted_sum([trainable(network) for network in networks], [1 / 2, 1 / 2]))
    heads = [network.fc for network in networks]
    stages: dict[str, list[list[float]]] = {}
    ndas = []
    for i, expert in enumerate(experts):
        test = expert.data.test_set
        chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:count]
        images, labels = test[chosen]
        images = expert.data.transform(images)
        (first, second), found = (activations(network, images) for network in networks), activations(coded, images)
        for name in found:
            apart, middle = first[name] - second[name], (first[name] + second[name]) / 2
            sizes = float(apart.norm() / middle.norm()), float((found[name] - middle).norm() / apart.norm())
            stages.setdefault(name, []).append(list(sizes))
        own, other = (first, second) if i == 0 else (second, first)
        middle = (first["features"] + second["features"]) / 2
        exact_body = coded.fc(middle)
        slip = found["features"] - middle
        exact_head = (heads[0](first["features"] + slip) + heads[1](second["features"] + slip)) / 2
        outcomes = (found["fc"], exact_body, exact_head)
        ndas.append([nda(2 * outputs - other["fc"], own["fc"], labels) for outputs in outcomes])
    return {name: mean(rows) for name, rows in stages.items()}, mean(ndas)


def nda(decoded: Tensor, own: Tensor, labels: Tensor) -> float:
    return float(nda_compute(*nda_update(decoded, own, labels)))


def mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="+", help="of encode.py; experiment= as often as there are rows")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/paper/error_parts"))
    arguments = parser.parse_args()
    quiet()
    experiments = [o for o in arguments.overrides if o.startswith("experiment=")]
    shared = [o for o in arguments.overrides if o not in experiments]
    if not experiments:
        parser.error("give at least one experiment=NAME")
    rows, header = [], []
    for chosen in experiments:
        stages, ndas = parts_of(*experts_of([chosen, *shared]), arguments.count)
        header = ["experts", *stages, "NDA %", "with an exact body", "with an exact head"]
        told = [f"{100 * apart:.0f} → {100 * error:.0f}" for apart, error in stages.values()]
        rows.append([chosen.removeprefix("experiment="), *told, *(f"{value:.2f}" for value in ndas)])
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(marked_down(header, rows))
    print((arguments.out / "table.md").read_text())


if __name__ == "__main__":
    with torch.inference_mode(), one_line_errors():
        main()
