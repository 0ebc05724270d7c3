"""Which servers a query is sent to, and what a set of answers is good for.

A policy is asked three things of a query that wants the outputs of some experts: the calls to make at once, those to
make in a hurry (after the deadline, or when a server has died), and, of the answers that are there, what each wanted
output would be: exact, decoded, … or nothing yet. It knows no clock, socket or thread: `coin.serving.flight` drives it,
for the router and for the simulator alike.

    Plain      every expert by itself                                  N machines
    Copies     other servers hold copies: a replica, a spare, pairs    N + 1 … 2N
    Coded      one more server, whose answer decodes a missing one     N + 1
    Dropping   of an ensemble, the last one to answer is left out      N
    Merged     the coded network's own answer stands for the mean      1
"""

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

EXACT, DECODED, APPROXIMATE, DROPPED = "exact", "decoded", "approximate", "dropped"
CODED = "coded"  # the name of the coded network, and of its server


@dataclass(frozen=True)
class Call:
    """One job for one server: to run one of the models it holds."""

    server: str
    model: str


Sources = Mapping[str, str]  # {wanted expert: where its output comes from}


@dataclass
class Policy(abc.ABC):
    experts: Sequence[str]

    def __post_init__(self) -> None:
        if not self.experts or len(set(self.experts)) != len(self.experts):
            raise ValueError(f"experts {list(self.experts)}: give at least one, each name once")

    @abc.abstractmethod
    def holdings(self) -> dict[str, tuple[str, ...]]:
        """{server: the models it holds}: what the policy costs in machines and memory."""

    def first(self, wanted: Sequence[str], number: int) -> list[Call]:
        """The calls made at once for the query of this number."""
        return own(wanted)

    def later(self, wanted: Sequence[str], missing: Sequence[str]) -> list[Call]:
        """The calls made in a hurry, while these experts' outputs are missing."""
        return []

    @abc.abstractmethod
    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        """What the answers are good for, None as long as it is not enough."""


def own(names: Sequence[str]) -> list[Call]:
    """Each asked at its own server."""
    return [Call(name, name) for name in names]


@dataclass
class Plain(Policy):
    def holdings(self) -> dict[str, tuple[str, ...]]:
        return {name: (name,) for name in self.experts}

    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        there = {call.model for call in answered}
        return dict.fromkeys(wanted, EXACT) if there.issuperset(wanted) else None


@dataclass
class Copies(Policy):
    """`copies` says which further servers hold a copy of an expert; the first of them to answer counts.

    `balanced`: queries take an expert's servers in turn, and the others in a hurry; otherwise its own server is first.
    `approximate`: the further servers hold something smaller that answers less well.
    """

    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    balanced: bool = False
    approximate: bool = False

    def holdings(self) -> dict[str, tuple[str, ...]]:
        held = {name: [name] for name in self.experts}
        for name, servers in self.copies.items():
            for server in servers:
                held.setdefault(server, []).append(name)
        return {server: tuple(models) for server, models in held.items()}

    def servers(self, name: str) -> list[str]:
        return [name, *self.copies.get(name, ())]

    def first(self, wanted: Sequence[str], number: int) -> list[Call]:
        if not self.balanced:
            return own(wanted)
        return [Call(servers[number % len(servers)], name) for name in wanted for servers in [self.servers(name)]]

    def later(self, wanted: Sequence[str], missing: Sequence[str]) -> list[Call]:
        return [Call(server, name) for name in missing for server in self.servers(name)]

    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        found = {call.model: APPROXIMATE for call in answered if self.approximate and call.server != call.model}
        found |= {call.model: EXACT for call in answered if not self.approximate or call.server == call.model}
        return {name: found[name] for name in wanted} if found.keys() >= set(wanted) else None


@dataclass
class Coded(Policy):
    """The coded network's answer stands in for one that is missing.

    `alone`: the decoder looks at the coded answer only (one call, any number missing); otherwise at all other experts
    too. `proactive` names the kinds of queries whose coded call is made at once: ensembles, and single experts.
    """

    alone: bool = True
    proactive: Collection[str] = ("ensemble",)  # of ensemble, routed

    def __post_init__(self) -> None:
        super().__post_init__()
        if CODED in self.experts:
            raise ValueError(f"an expert is called {CODED}, which is the coded network's name; rename it")
        unknown = set(self.proactive) - {"ensemble", "routed"}
        if unknown:
            raise ValueError(f"proactive={sorted(unknown)}: the kinds of queries are ensemble and routed")

    def holdings(self) -> dict[str, tuple[str, ...]]:
        return {name: (name,) for name in (*self.experts, CODED)}

    def decoding(self, wanted: Sequence[str], missing: Collection[str]) -> list[Call]:
        """The calls whose answers decode what is missing."""
        others = () if self.alone else tuple(name for name in self.experts if name not in missing)
        return own((CODED, *others))

    def first(self, wanted: Sequence[str], number: int) -> list[Call]:
        kind = "ensemble" if len(wanted) > 1 else "routed"
        extra = self.decoding(wanted, wanted[:1]) if kind in self.proactive else []
        return [*own(wanted), *(call for call in extra if call.model not in wanted)]

    def later(self, wanted: Sequence[str], missing: Sequence[str]) -> list[Call]:
        return self.decoding(wanted, missing)

    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        there = {call.model for call in answered}
        missing = [name for name in wanted if name not in there]
        most = len(wanted) if self.alone and hurried else 1
        if missing and (len(missing) > most or not set(self.decoding(wanted, missing)) <= set(answered)):
            return None
        return {name: DECODED if name in missing else EXACT for name in wanted}


@dataclass
class Dropping(Plain):
    """For ensembles whose mean is wanted: the mean of all but the last to answer."""

    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        there = {call.model for call in answered}
        missing = [name for name in wanted if name not in there]
        if len(missing) > (len(wanted) > 1):
            return None
        return {name: DROPPED if name in missing else EXACT for name in wanted}


@dataclass
class Merged(Policy):
    """For ensembles whose mean is wanted: f_c ≈ Σ β_i f_i, one call and one machine."""

    def holdings(self) -> dict[str, tuple[str, ...]]:
        return {CODED: (CODED,)}

    def first(self, wanted: Sequence[str], number: int) -> list[Call]:
        return own((CODED,))

    def sources(self, wanted: Sequence[str], answered: Collection[Call], hurried: bool) -> Sources | None:
        return dict.fromkeys(wanted, DECODED) if answered else None
