"""The grid that policies are compared on: who they are at N experts, what befalls them, and a cell of the simulator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coin.serving.faults import Episode, Faults, Kill, Trace
from coin.serving.policies import CODED, Coded, Copies, Dropping, Merged, Plain, Policy
from coin.serving.simulate import Hardware, Outcomes, Simulation
from coin.serving.traffic import Traffic

QUANTILES = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95)
SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured on a real machine, in seconds."""

    service: np.ndarray  # of a forward of one query
    delays: np.ndarray = field(
        default_factory=lambda: np.array([0.0])
    )  # of a query through the engine, without service
    loading: float = 0.1  # of a model, for a spare that holds one at a time
    small: float = 0.2  # a small backup's time as a share of an expert's
    restart: float = 1.5


def names_of(count: int) -> tuple[str, ...]:
    width = len(str(count))
    return tuple(f"split{i + 1:0{width}d}" for i in range(count))


def policies(experts: Sequence[str], ensembles: bool) -> dict[str, Policy]:
    """By the names of the tables. Those that answer a mean only are for ensembles."""
    spare = {name: ["spare"] for name in experts}
    found: dict[str, Policy] = {
        "none": Plain(experts),
        "replica of one": Copies(experts, {experts[0]: [f"{experts[0]} again"]}, balanced=True),
        "spare, all models": Copies(experts, spare),
        "spare, loading": Copies(experts, spare),
        "small backup": Copies(experts, {name: ["backup"] for name in experts}, approximate=True),
        "coded, at once": Coded(experts, proactive=("ensemble", "routed")),
        "coded, late": Coded(experts, proactive=()),
        "pairs": Copies(experts, {name: [f"{name} again"] for name in experts}, balanced=True),
    }
    means: dict[str, Policy] = {"drop the last": Dropping(experts), "merged alone": Merged(experts)}
    return found | means if ensembles else found


def hardware(name: str, measured: Measured) -> Hardware:
    loading = {"spare": measured.loading} if name == "spare, loading" else {}
    return Hardware(delays=measured.delays, restart=measured.restart, loading=loading, speed={"backup": measured.small})


def faults(experts: Sequence[str], seconds: float) -> dict[str, Faults]:
    """Each befalls every policy in the same way; what is killed or slow is so in the middle of the run."""
    found = {"no faults": Faults()}
    for percent in (0.1, 0.5, 1, 2, 5):
        for factor in (3, 10):
            found[f"{percent:g} % ×{factor}"] = Faults(percent / 100, factor)
    found["Pareto 2.5"] = Faults(pareto=2.5)
    found["one slow for 5 s"] = Faults(episodes=(Episode(experts[0], seconds / 2, 5.0, 10.0),))
    found["expert killed"] = Faults(kills=(Kill(experts[0], seconds / 2),))
    helpers = (CODED, "spare", "backup", f"{experts[0]} again")
    found["helper killed"] = Faults(kills=tuple(Kill(name, seconds / 2) for name in helpers))
    return found


@dataclass(kw_only=True)
class Cell:
    """A policy under a fault at a load; `load` is how busy each expert would be without faults."""

    policy: str
    fault: str
    experts: int = 2
    ensembles: bool = True
    load: float = 0.4
    skew: float = 1.0
    moving: float | None = None
    queries: int = 17_000  # of each seed

    def rate(self, measured: Measured) -> float:
        """Queries a second: of routed ones, each expert gets its share."""
        return self.load / float(measured.service.mean()) * (1 if self.ensembles else self.experts)

    def traffic(self, measured: Measured, seed: int) -> Traffic:
        told = {"ensembles": float(self.ensembles), "skew": self.skew, "moving": self.moving, "seed": seed}
        return Traffic(self.rate(measured), self.queries, **told)  # type: ignore[arg-type]

    def chosen(self) -> Policy:
        return policies(names_of(self.experts), self.ensembles)[self.policy]

    def trace(self, measured: Measured, seed: int) -> Trace:
        seconds = self.queries / self.rate(measured)
        return Trace(faults(names_of(self.experts), seconds)[self.fault], measured.service, self.queries, seed)

    def simulate(self, measured: Measured, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
        """All that tables and figures need, over all seeds together."""
        found = []
        for seed in seeds:
            policy, traffic = self.chosen(), self.traffic(measured, seed)
            machines = hardware(self.policy, measured)
            schedule = traffic.schedule(policy.experts)
            found.append(Simulation(policy, schedule, self.trace(measured, seed), machines).run())
        return {"tier": "T3", **vars(self), "seeds": len(seeds), **costs(self.policy, self.chosen()), **summary(found)}


def costs(name: str, policy: Policy) -> dict[str, Any]:
    """Machines, and models in memory; a spare that loads on demand holds one, a small backup counts as nothing."""
    held = policy.holdings()
    helper = {"spare, loading": 1, "small backup": 0}.get(name)
    memory = sum(len(models) for models in held.values())
    return {"machines": len(held), "memory": len(policy.experts) + helper if helper is not None else memory}


def summary(outcomes: Sequence[Outcomes]) -> dict[str, Any]:
    """In milliseconds. Of a query that was never answered the latency is infinite."""
    latencies = 1000 * np.concatenate([np.nan_to_num(found.latencies, nan=math.inf) for found in outcomes])
    count = len(latencies)
    return {
        "answered": int(np.isfinite(latencies).sum()),
        "failed": sum(found.failed for found in outcomes),
        "inexact": float(np.mean(np.concatenate([found.inexact for found in outcomes]))),
        "calls": sum(found.calls for found in outcomes) / count,
        "quantiles": {f"{q:g}": round(float(np.percentile(latencies, q)), 3) for q in QUANTILES},
    }


def tail(cell: Mapping[str, Any]) -> float:
    """p99.9 − p50."""
    return float(cell["quantiles"]["99.9"] - cell["quantiles"]["50"])
