"""The cluster as discrete events: one FIFO a server, the policy's own objects, a trace of service times and deaths.

A call reaches its server after a delay, waits its turn, takes what the trace says, and its answer travels back. A call
that is cancelled before it has begun is dropped; one that has begun is finished for nobody, as a network's forward is.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coin.serving.deadlines import Deadline
from coin.serving.faults import Trace
from coin.serving.flight import Action, Cancel, Finish, Flight, Send, Tower, Wake
from coin.serving.policies import EXACT, Call, Policy


@dataclass
class Outcomes:
    """What became of the queries, in the order of their numbers."""

    arrivals: np.ndarray
    latencies: np.ndarray  # seconds from the scheduled arrival; NaN: never answered
    inexact: np.ndarray  # the share of the wanted outputs that are not the expert's own
    calls: int = 0  # begun by a server, whether or not anybody waited for the answer

    def percentile(self, q: float) -> float:
        return float(np.nanpercentile(self.latencies, q))

    @property
    def failed(self) -> int:
        return int(np.isnan(self.latencies).sum())


@dataclass
class Machine:
    """A server: the jobs that wait, and the one that runs."""

    name: str
    waiting: deque["Job"] = field(default_factory=deque)
    running: "Job | None" = None
    up: bool = True
    model: str = ""  # the one it ran last


@dataclass(eq=False)
class Job:
    flight: Flight
    call: Call
    cancelled: bool = False


@dataclass(kw_only=True)
class Hardware:
    """What the trace does not say: how long a round trip (drawn), a restart and a change of models take."""

    delays: np.ndarray = field(default_factory=lambda: np.array([0.0]))
    restart: float = 1.5
    loading: Mapping[str, float] = field(default_factory=dict)  # {server: seconds to load another model than the last}
    speed: Mapping[str, float] = field(default_factory=dict)  # {server: how long its calls take, beside an expert's}


class Simulation:
    """`queries` are (arrival, wanted experts), by number."""

    def __init__(
        self,
        policy: Policy,
        queries: Iterable[tuple[float, Sequence[str]]],
        trace: Trace,
        hardware: Hardware | None = None,
        deadline: Callable[[], Deadline] = Deadline,
    ):
        self.tower, self.trace, self.hardware = Tower(policy, deadline), trace, hardware or Hardware()
        self.machines = {name: Machine(name) for name in policy.holdings()}
        self.queries = list(queries)
        self.jobs: dict[tuple[int, Call], Job] = {}
        self.events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.order = self.messages = 0
        self.delays = np.random.default_rng([trace.seed, 4]).choice(self.hardware.delays, 1 << 16).tolist()
        self.now = 0.0
        arrivals = np.array([arrival for arrival, _ in self.queries])
        self.outcomes = Outcomes(arrivals, np.full(len(arrivals), np.nan), np.zeros(len(arrivals)))

    def run(self) -> Outcomes:
        for kill in self.trace.faults.kills:
            if kill.server in self.machines:
                self.at(kill.at, self.kill, self.machines[kill.server])
        upcoming = iter(enumerate(self.queries))
        self.arrive_next(upcoming)
        while self.events:
            self.now, _, happen, what = heapq.heappop(self.events)
            happen(*what)
        return self.outcomes

    def at(self, time: float, happen: Callable[..., None], *what: object) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, happen, what))

    def delay(self) -> float:
        """Half a round trip."""
        self.messages += 1
        return float(self.delays[self.messages & 0xFFFF]) / 2

    def arrive_next(self, upcoming: Iterable[tuple[int, tuple[float, Sequence[str]]]]) -> None:
        for number, (arrival, wanted) in upcoming:
            return self.at(arrival, self.arrive, number, wanted, upcoming)

    def arrive(
        self, number: int, wanted: Sequence[str], upcoming: Iterable[tuple[int, tuple[float, Sequence[str]]]]
    ) -> None:
        flight = self.tower.flight(number, wanted)
        self.perform(flight, flight.begin(self.now))
        self.arrive_next(upcoming)

    def perform(self, flight: Flight, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                job = Job(flight, action.call)
                self.jobs[flight.number, action.call] = job
                self.at(self.now + self.delay(), self.reach, self.machines[action.call.server], job)
            elif isinstance(action, Cancel):
                self.at(self.now + self.delay(), self.drop, self.jobs.pop((flight.number, action.call)))
            elif isinstance(action, Wake):
                self.at(action.at, self.wake, flight)
            elif isinstance(action, Finish):
                self.finish(flight, action)

    def finish(self, flight: Flight, end: Finish) -> None:
        number = flight.number
        self.outcomes.latencies[number] = self.now - self.outcomes.arrivals[number]
        self.outcomes.inexact[number] = sum(s != EXACT for s in end.sources.values()) / len(end.sources)

    def wake(self, flight: Flight) -> None:
        self.perform(flight, flight.woken(self.now))

    def drop(self, job: Job) -> None:
        job.cancelled = True

    def reach(self, machine: Machine, job: Job) -> None:
        machine.waiting.append(job)
        self.serve(machine)

    def serve(self, machine: Machine) -> None:
        while machine.up and machine.running is None and machine.waiting:
            job = machine.waiting.popleft()
            if job.cancelled:
                continue
            machine.running = job
            self.outcomes.calls += 1
            name, number = machine.name, job.flight.number
            seconds = self.trace.seconds(name, number, self.now) * self.hardware.speed.get(name, 1.0)
            if job.call.model != machine.model:
                seconds += self.hardware.loading.get(name, 0.0)
                machine.model = job.call.model
            self.at(self.now + seconds, self.done, machine, job)

    def done(self, machine: Machine, job: Job) -> None:
        if machine.running is not job:
            return  # it was killed meanwhile
        machine.running = None
        self.at(self.now + self.delay(), self.answer, job)
        self.serve(machine)

    def answer(self, job: Job) -> None:
        self.jobs.pop((job.flight.number, job.call), None)
        self.perform(job.flight, job.flight.answered(job.call, self.now))

    def kill(self, machine: Machine) -> None:
        if not machine.up:
            return
        machine.up = False
        lost = [job for job in (machine.running, *machine.waiting) if job is not None and not job.cancelled]
        machine.running = None
        machine.waiting.clear()
        self.at(self.now + self.hardware.restart, self.revive, machine)
        for job in lost:
            self.jobs.pop((job.flight.number, job.call), None)
            self.perform(job.flight, job.flight.died(job.call, self.now))

    def revive(self, machine: Machine) -> None:
        machine.up, machine.model = True, ""
        self.tower.down.discard(machine.name)
        self.serve(machine)
