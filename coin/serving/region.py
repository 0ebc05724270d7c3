"""Which demands a cluster can serve at all: its service-rate region. Every server does μ jobs a second.

With N experts and one more server, demand λ (queries a second for each expert) is feasible

    nothing more              iff  λ_i ≤ μ
    a replica of expert 1     iff  λ_1 ≤ 2 μ and the other λ_i ≤ μ
    coded, others asked too   iff  some R in [0, μ] has ½ Σ (λ_i + R − μ)⁺ ≤ R
    coded, alone              iff  Σ (λ_i − μ)⁺ ≤ μ
    a spare with all models   iff  Σ (λ_i − μ)⁺ ≤ μ

The third: of expert i's queries a rate r_i is decoded, R = Σ r_i in all, each at the cost of one job of the coded
server and of every other expert, so expert i does λ_i − r_i + (R − r_i) ≤ μ: r_i ≥ ½ (λ_i + R − μ)⁺, and R ≤ μ.
The fourth: a decoded query costs one job of the coded server and nobody else's. So expert i does λ_i − r_i ≤ μ, that is
r_i ≥ (λ_i − μ)⁺, and Σ r_i ≤ μ. A spare that holds all N models has the same region, with N times the memory and exact
answers; what is not alone pays for memory with the others' time.
"""

from collections.abc import Callable, Sequence

import numpy as np

Region = Callable[[Sequence[float], float], bool]


def plain(demand: Sequence[float], rate: float) -> bool:
    return max(demand) <= rate


def replica(demand: Sequence[float], rate: float) -> bool:
    return demand[0] <= 2 * rate and all(d <= rate for d in demand[1:])


def alone(demand: Sequence[float], rate: float) -> bool:
    return sum(max(d - rate, 0.0) for d in demand) <= rate


def others_too(demand: Sequence[float], rate: float) -> bool:
    """½ Σ (λ_i + R − μ)⁺ − R is convex and piecewise linear in R, so a corner or an end has its least value."""
    corners = [0.0, rate, *(rate - d for d in demand if 0 < rate - d < rate)]
    return min(sum(max(d + r - rate, 0.0) for d in demand) / 2 - r for r in corners) <= 1e-12 * rate


REGIONS: dict[str, Region] = {"none": plain, "replica": replica, "coded, others too": others_too, "coded, alone": alone}


def boundary(region: Region, directions: np.ndarray, rate: float = 1.0) -> np.ndarray:
    """How far one can go in each direction, by bisection: the points of the region's edge, a row a direction."""
    found = []
    for direction in directions:
        low, high = 0.0, 4 * rate * len(direction) / direction.max()
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if region(list(middle * direction), rate) else (low, middle)
        found.append(low * direction)
    return np.array(found)
