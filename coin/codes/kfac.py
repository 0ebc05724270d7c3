"""COIN with Kronecker-factored Fisher blocks instead of the diagonal: for a layer's weight, F ≈ A ⊗ G.

A is the second moment of what the weight multiplies, summed over positions, and G that of the gradients of each of the
K outputs by what it makes, averaged over positions: K-FAC's `expand`, exact over the outputs (or, with other directions
than the K one-hot ones, as these are).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from coin.batch import Batch, Plain
from coin.codes.layers import Layer, gram_of, in_use, made_of, own_layers, watched
from coin.codes.weighted import FisherCode, fisher_average, mean_of
from coin.fisher import Directions, Exact
from coin.parameters import Parameters
from coin.problem.coding import Coding
from coin.problem.recipes import recipe_of


@dataclass
class CoinKfac(FisherCode):
    """Every Linear and Conv2d weight solves Σ β_i (G_i W A_i + λ W) = Σ β_i (G_i W_i A_i + λ W_i) by conjugate
    gradients from the diagonal solution; all other parameters have that solution."""

    grid: Sequence[float] = (1e-5, 1e-3, 1e-1, 10.0, 1000.0)  # blocks are dearer than diagonals, and larger
    iterations: int = 10  # of conjugate gradients, from the diagonal solution

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 1:
            raise ValueError(f"code.iterations={self.iterations}: must be at least 1")

    def solution(self, coding: Coding, damping: float) -> Parameters:
        """One solution serves all scales."""
        tuned = ("damping", "grid", "scale", "scales")
        settings = {key: value for key, value in self.recipe().items() if key not in tuned}
        settings |= {"damping": damping, "beta": list(coding.beta)}
        everyone = range(len(coding.experts))
        return coding.kept("solutions", everyone, settings, lambda: self.solved(coding, damping))

    def solved(self, coding: Coding, damping: float) -> Parameters:
        fishers = coding.fishers(self.fisher)
        settings = {"directions": recipe_of(self.fisher)}

        def factors_of(expert: nn.Module) -> Parameters:
            return kronecker_factors(expert, coding.batches, self.fisher)

        factors = [
            coding.kept("kronecker", [i], settings, partial(factors_of, expert))
            for i, expert in enumerate(coding.experts)
        ]
        sizes = {name: f.numel() for name, f in fishers[0].items()}
        scales = self.weighing.scales([mean_of(f) for f in fishers], sizes, coding.beta)
        coded = fisher_average(coding.params, fishers, coding.beta, damping, scales)
        for key in factors[0]:
            if not key.endswith("/A"):
                continue
            name = key.removesuffix("/A")
            shape = coded[name].shape
            weights = [p[name].reshape(shape[0], -1) for p in coding.params]
            blocks = [
                (b * scale[name], f[key], f[f"{name}/G"])
                for b, scale, f in zip(coding.beta, scales, factors, strict=True)
            ]
            start = coded[name].reshape(shape[0], -1)
            solved = solve_block(blocks, weights, coding.beta, damping, start, iterations=self.iterations)
            coded[name] = solved.reshape(shape).contiguous()
        return coded


def kronecker_factors(network: nn.Module, batches: Iterable[Plain], directions: Directions | None = None) -> Parameters:
    """{weight name/A: (columns, columns), weight name/G: (outputs, outputs)} of every Linear and ungrouped Conv2d."""
    directions = directions or Exact()
    sums: Parameters = {}
    seen: list[tuple[str, Layer, GradientEdge]] = []  # where layer outputs of one batch are in the graph
    positions: dict[str, int] = {}
    samples, mask = 0, None

    def add(key: str, value: Tensor) -> None:
        sums[key] = sums[key].add_(value) if key in sums else value

    def see(name: str, layer: Layer, inputs: Tensor, output: Tensor) -> None:
        gram, count = gram_of(layer, inputs, mask)
        add(f"{name}/A", gram)
        positions[name] = positions.get(name, 0) + count
        # the edge, not the tensor: an in-place activation would take the tensor's place in the graph
        seen.append((name, layer, get_gradient_edge(output)))

    with watched(own_layers(network), see), torch.enable_grad():
        for batch in map(Batch.of, batches):
            seen.clear()
            mask = batch.mask
            outputs = batch.ask(network)
            samples += len(batch)
            made = [output for _, _, output in seen]
            if not made:
                continue  # no layer has a weight of its own
            weight = directions.weight(outputs.shape[1])
            for direction in directions.of(batch, outputs):
                grads = torch.autograd.grad(outputs, made, direction, retain_graph=True, allow_unused=True)
                for (name, layer, _), grad in zip(seen, grads, strict=True):
                    if grad is not None:
                        g = made_of(layer, grad)[in_use(layer, grad, mask)]
                        add(f"{name}/G", weight * (g.T @ g))
    return {
        key: total / (samples if key.endswith("/A") else positions[key.removesuffix("/G")])
        for key, total in sums.items()
        if f"{key[:-2]}/G" in sums
    }


@torch.no_grad()
def solve_block(
    blocks: Sequence[tuple[float, Tensor, Tensor]],
    weights: Sequence[Tensor],
    beta: Sequence[float],
    damping: float,
    start: Tensor,
    iterations: int,
    tolerance: float = 1e-5,
) -> Tensor:
    """Σ (b_i G_i W A_i + β_i λ W) = Σ (b_i G_i W_i A_i + β_i λ W_i) for W, from (b_i, A_i, G_i), by conjugate gradients
    preconditioned with the diagonal. Columns whose input is always zero keep their start: no sample says anything."""
    live = torch.stack([a.diagonal() for _, a, _ in blocks]).sum(0) > 0
    parts = [(b, a[live][:, live], g) for b, a, g in blocks]
    weights = [w[:, live] for w in weights]

    def apply(w: Tensor) -> Tensor:
        total = damping * sum(beta) * w
        for b, a, g in parts:
            total.add_(g @ (w @ a), alpha=b)
        return total

    right = torch.zeros_like(weights[0])
    for (b, a, g), own, share in zip(parts, weights, beta, strict=True):
        right += b * (g @ (own @ a)) + share * damping * own
    diagonal = damping * sum(beta) + sum(b * torch.outer(g.diagonal(), a.diagonal()) for b, a, g in parts)
    w = start[:, live].clone()
    residual = right - apply(w)
    limit = tolerance * float(residual.norm())
    z = residual / diagonal
    direction, inner = z.clone(), (residual * z).sum()
    for _ in range(iterations):
        if float(residual.norm()) <= limit or float(inner) <= 0:
            break
        image = apply(direction)
        step = inner / (direction * image).sum()
        w += step * direction
        residual -= step * image
        z = residual / diagonal
        inner, before = (residual * z).sum(), inner
        direction = z + (inner / before) * direction
    solved = start.clone()
    solved[:, live] = w
    return solved
