"""Slowness and deaths, seeded: what befalls a call depends on the server and the query's number, and on no policy."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Episode:
    """A server that is slower for some seconds."""

    server: str
    start: float
    seconds: float
    factor: float


@dataclass(frozen=True)
class Kill:
    server: str
    at: float


@dataclass(frozen=True)
class Faults:
    probability: float = 0.0  # that a call is slow
    factor: float = 1.0  # how many times
    pareto: float | None = None  # every call takes this Pareto shape's draw (at least 1) times as long
    episodes: tuple[Episode, ...] = ()
    kills: tuple[Kill, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability}: must lie between 0 and 1")
        if self.factor <= 0 or any(episode.factor <= 0 for episode in self.episodes):
            raise ValueError(f"{self}: factors must be positive; 1 changes nothing")
        if self.pareto is not None and self.pareto <= 1:
            raise ValueError(f"pareto={self.pareto}: must be above 1, or the mean is infinite")


def random_kills(servers: Sequence[str], every: float, until: float, seed: int = 0) -> tuple[Kill, ...]:
    """One of the servers at about every so many seconds."""
    rng = np.random.default_rng([seed, 3])
    times = np.arange(every, until, every) + rng.uniform(-0.2, 0.2, len(np.arange(every, until, every))) * every
    return tuple(Kill(servers[int(rng.integers(len(servers)))], float(time)) for time in times)


@dataclass
class Trace:
    """How long each call takes: drawn from measured service times, times what the faults do to it."""

    faults: Faults
    service: np.ndarray  # measured seconds, to be drawn from
    queries: int
    seed: int = 0
    drawn: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not len(self.service) or not np.all(self.service > 0):
            raise ValueError("service: give at least one measured time, all positive")

    def seconds(self, server: str, number: int, now: float = 0.0) -> float:
        """Of the job for query `number` at a server, which begins `now` seconds after the start."""
        if server not in self.drawn:
            self.drawn[server] = self.draw(server)
        found = float(self.drawn[server][number])
        for episode in self.faults.episodes:
            if episode.server == server and 0 <= now - episode.start < episode.seconds:
                found *= episode.factor
        return found

    def draw(self, server: str) -> np.ndarray:
        rng = np.random.default_rng([self.seed, zlib.crc32(server.encode())])
        found = rng.choice(self.service, self.queries)
        slow = rng.random(self.queries) < self.faults.probability
        heavy = rng.pareto(self.faults.pareto or 2.0, self.queries) + 1  # drawn always: the same numbers follow
        return found * np.where(slow, self.faults.factor, 1.0) * (heavy if self.faults.pareto else 1.0)
