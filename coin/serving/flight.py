"""One query on its way: events in (begun, answered, died, woken), actions out. No clock, socket or thread of its own.

The router performs the actions with Ray, the simulator with a heap of events; both drive these objects.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from coin.serving.deadlines import Deadline
from coin.serving.policies import Call, Policy, Sources


@dataclass(frozen=True)
class Send:
    call: Call


@dataclass(frozen=True)
class Cancel:
    call: Call


@dataclass(frozen=True)
class Wake:
    """Tell it when this moment has come."""

    at: float


@dataclass(frozen=True)
class Finish:
    sources: Sources
    answered: tuple[Call, ...]  # in the order of their coming


Action = Send | Cancel | Wake | Finish


class Tower:
    """What the queries of one policy share: the deadlines learnt, and which servers are down."""

    def __init__(self, policy: Policy, deadline: Callable[[], Deadline] = Deadline):
        self.policy = policy
        self.deadlines = {name: deadline() for name in policy.experts}
        self.down: set[str] = set()

    def flight(self, number: int, wanted: Sequence[str]) -> "Flight":
        unknown = [name for name in wanted if name not in self.policy.experts]
        if unknown or not wanted:
            raise ValueError(f"wanted={list(wanted)}: the experts are {', '.join(self.policy.experts)}")
        return Flight(self, number, wanted)


@dataclass
class Flight:
    tower: Tower
    number: int
    wanted: Sequence[str]
    hurried: bool = False
    finished: bool = False
    pending: dict[Call, float] = field(default_factory=dict)  # since when
    answers: list[Call] = field(default_factory=list)

    def begin(self, now: float) -> list[Action]:
        policy, down = self.tower.policy, self.tower.down
        calls = policy.first(self.wanted, self.number)
        self.hurried = any(call.server in down for call in calls)
        actions = self.ask((call for call in calls if call.server not in down), now)
        if self.hurried:
            return [*actions, *self.hurry(now)]
        if policy.later(self.wanted, self.wanted):
            actions.append(Wake(now + max(self.tower.deadlines[name].current for name in self.wanted)))
        return actions

    def answered(self, call: Call, now: float) -> list[Action]:
        since = self.pending.pop(call, None)
        self.tower.down.discard(call.server)
        if since is None:
            return []
        self.learn(call, now - since)
        self.answers.append(call)
        return self.conclude(now)

    def died(self, call: Call, now: float) -> list[Action]:
        """The call failed since its server is no more."""
        self.pending.pop(call, None)
        self.tower.down.add(call.server)
        if self.finished:
            return []
        self.hurried = True
        return self.conclude(now) or self.hurry(now)

    def woken(self, now: float) -> list[Action]:
        if self.finished:
            return []
        self.hurried = True
        return self.conclude(now) or self.hurry(now)

    def hurry(self, now: float) -> list[Action]:
        """Asks whoever can help and is up; where that is too little, those that are down too, when they come back."""
        policy = self.tower.policy
        there = {call.model for call in self.answers}
        missing = [name for name in self.wanted if name not in there]
        helpers = policy.later(self.wanted, missing)
        actions = self.ask((call for call in helpers if call.server not in self.tower.down), now)
        if policy.sources(self.wanted, [*self.answers, *self.pending], True) is None:
            actions += self.ask([*policy.first(self.wanted, self.number), *helpers], now)
        return actions

    def ask(self, calls: Iterable[Call], now: float) -> list[Action]:
        actions: list[Action] = []
        for call in calls:
            if call not in self.pending and call not in self.answers:
                self.pending[call] = now
                actions.append(Send(call))
        return actions

    def conclude(self, now: float) -> list[Action]:
        """The end, if what is there is enough; whoever has not answered is told to leave it."""
        sources = self.tower.policy.sources(self.wanted, self.answers, self.hurried)
        if self.finished or sources is None:
            return []
        self.finished = True
        for call, since in self.pending.items():
            if call.model in self.tower.deadlines and now - since > self.tower.deadlines[call.model].current:
                self.learn(call, now - since)
        left = [Cancel(call) for call in self.pending]
        self.pending.clear()
        return [*left, Finish(sources, tuple(self.answers))]

    def learn(self, call: Call, seconds: float) -> None:
        """Of experts at their own servers; a copy may be another machine."""
        if call.server == call.model and call.model in self.tower.deadlines:
            self.tower.deadlines[call.model].observe(seconds)
