"""The error and the cost of estimating the Fisher with random probes, against the exact one.

    python -m benchmarks.probes

A ResNet-50 at 32 px with 10, 100 and 1000 outputs. The error is ‖F_probes − F‖ / ‖F‖, the mean
over all parameter tensors, and the error of the coded weights it leads to when two experts are averaged with it, as a
share of the experts' distance. Writes results/fisher/probes.md.
"""

import time
from pathlib import Path

import torch

from benchmarks.fisher import inputs_for, network_for, trained
from coin.codes import fisher_average
from coin.fisher import Directions, Exact, Probes, diagonal_fisher


def flat(params: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in params.values()])


def main() -> None:
    lines = ["| outputs K | samples | directions | s | Fisher's error | coded weights' error |", "|---:" * 6 + "|"]
    for outputs, samples in ((10, 100), (100, 16), (1000, 4)):
        networks = [network_for("resnet50", outputs, 32) for _ in range(2)]
        torch.manual_seed(2)
        for p in trained(networks[1]).values():
            p.data += 0.05 * p.data.std().nan_to_num(1.0) * torch.randn_like(p)
        inputs, params = inputs_for(samples, 32), [dict(trained(n)) for n in networks]
        params = [{k: p.detach() for k, p in found.items()} for found in params]

        def treat(directions: Directions, networks=networks, inputs=inputs, params=params):
            start = time.perf_counter()
            fishers = [diagonal_fisher(network, [inputs], directions) for network in networks]
            seconds = time.perf_counter() - start
            damping = 1e-2 * float(flat(fishers[0]).mean())
            return seconds, fishers[0], flat(fisher_average(params, fishers, [0.5, 0.5], damping))

        seconds, fisher, coded = treat(Exact())
        lines.append(f"| {outputs} | {samples} | {outputs}, exact | {seconds:.1f} | | |")
        spread = (flat(params[0]) - flat(params[1])).norm()
        for probes in (1, 3, 10, 30):
            if probes < outputs:
                took, estimate, approximate = treat(Probes(probes))
                each = [float((estimate[k] - f).norm() / f.norm()) for k, f in fisher.items()]
                errors = (sum(each) / len(each), (approximate - coded).norm() / spread)
                lines.append(
                    f"| {outputs} | {samples} | {probes} probes | {took:.1f} | {errors[0]:.3f} | {errors[1]:.4f} |"
                )
        print("\n".join(lines[-5:]), flush=True)
    Path("results/fisher").mkdir(parents=True, exist_ok=True)
    Path("results/fisher/probes.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
