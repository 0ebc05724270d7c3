"""Open-loop traffic: when each query arrives and what it wants, whatever the servers do. Seeded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Traffic:
    """Poisson arrivals. A query wants all experts with probability `ensembles`, otherwise one of them.

    `skew`: how many times likelier the favourite expert is than each other; it is the first one, or with `moving`
    seconds the next one every so often.
    """

    rate: float  # queries a second
    queries: int
    ensembles: float = 0.0
    skew: float = 1.0
    moving: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.queries > 0 and self.skew > 0 and 0 <= self.ensembles <= 1):
            raise ValueError(f"{self}: rate, queries and skew must be positive, ensembles a probability")
        if self.moving is not None and not self.moving > 0:
            raise ValueError(f"moving={self.moving}: give positive seconds, or None for a favourite that stays")

    def arrivals(self) -> np.ndarray:
        """Seconds from the start."""
        rng = np.random.default_rng([self.seed, 1])
        return np.cumsum(rng.exponential(1 / self.rate, self.queries))

    def schedule(self, experts: Sequence[str]) -> Iterator[tuple[float, tuple[str, ...]]]:
        """(arrival, wanted experts) of each query."""
        rng, names = np.random.default_rng([self.seed, 2]), tuple(experts)
        whole = rng.random(self.queries) < self.ensembles
        # the favourite is 0; the others are counted from it
        weights = np.array([self.skew, *([1.0] * (len(names) - 1))])
        chosen = rng.choice(len(names), self.queries, p=weights / weights.sum())
        for arrival, all_of_them, place in zip(self.arrivals(), whole, chosen, strict=True):
            favourite = int(arrival // self.moving) if self.moving else 0
            yield float(arrival), names if all_of_them else (names[(favourite + place) % len(names)],)
