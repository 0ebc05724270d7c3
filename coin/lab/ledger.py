"""The ledger of a run: what it asked of its experts, from memory, the store or computed now, and its seconds."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coin.lab.artifacts import Expert
from coin.lab.display import Advance
from coin.lab.journal import Journal, Kept
from coin.lab.store import Made, Store
from coin.parameters import Parameters, size_of
from coin.problem.memory import Memory
from coin.problem.recipes import Recipe, lasts

# What is kept in the store, for other runs: it is dearer to compute than to read. Whoever mends how one of these is
# computed gives it the next version, so that what the old way made is not taken for what the new one makes.
KEPT = {"fishers": 2, "outputs": 2, "students": 2, "parities": 1}
PHASES = {"outputs": "outputs", "answers": "evaluate"}  # that a kind counts towards; "statistics" if none


@dataclass(kw_only=True)
class Ledger:
    """Seconds count towards this run whenever they were spent, so that runs can be compared."""

    store: Store
    setting: Recipe  # what else an expert's outputs depend on: the architecture, the Trainer's precision
    memory: Memory = field(default_factory=Memory)
    journal: Journal = field(default_factory=Journal)
    seconds: dict[str, float] = field(default_factory=dict)
    statistics: int = 0  # bytes of Fishers, Gram matrices and the like
    computing: float = field(default=0.0, init=False)  # seconds spent in this run on what is remembered
    asked_for: set[str] = field(default_factory=set, init=False, repr=False)

    def remember(
        self, kind: str, experts: Sequence[Expert], recipe: Recipe, compute: Callable[[], Parameters]
    ) -> Parameters:
        """Something about experts: computed once for all codes, decoders, candidates and, if KEPT, runs."""
        who = experts[0].digest if len(experts) == 1 else [expert.digest for expert in experts]
        recipe = {"version": KEPT.get(kind), "expert": who, **self.setting, **recipe}
        key = json.dumps([kind, recipe], sort_keys=True)

        def timed() -> tuple[Parameters, float]:
            start, before = time.perf_counter(), self.computing
            made = compute()
            took = time.perf_counter() - start - (self.computing - before)  # without what was remembered on the way
            self.computing += took
            return made, took

        def make(scratch: Path) -> Made:
            made, took = timed()
            return made, {"seconds": round(took, 3)}

        name = "-".join(f"{expert.data.name}-{expert.data.split}" for expert in experts)
        stored = kind in KEPT and lasts(recipe)

        def find() -> tuple[Parameters, float]:
            if not stored:
                return timed()
            found = self.store.obtain(kind, name, recipe, make, derived=True)
            return found.tensors(), found.facts["seconds"]

        tensors, took = self.memory.recall(key, find)
        if key not in self.asked_for:
            self.asked_for.add(key)
            if stored and kind == "fishers":
                path = self.store.locate(kind, name, recipe)
                self.journal.used(Kept("fisher", name, path.name.rpartition("-")[2], path, recipe))
            phase = PHASES.get(kind, "statistics")
            self.statistics += size_of(tensors) * (phase == "statistics")
            self.spent(phase, took)
        return tensors

    @contextmanager
    def phase(self, name: str) -> Iterator[Advance]:
        start, before = time.perf_counter(), self.computing
        with self.journal.phase(name) as advance:
            yield advance
        # what is remembered is counted by itself
        self.spent(name, time.perf_counter() - start - (self.computing - before))

    def spent(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = round(self.seconds.get(phase, 0.0) + seconds, 3)
