"""Decisions without a clock: each policy is told what happened and says what to do."""

import pytest

from coin.serving.deadlines import Deadline
from coin.serving.flight import Cancel, Finish, Send, Tower, Wake
from coin.serving.policies import (
    APPROXIMATE,
    CODED,
    DECODED,
    DROPPED,
    EXACT,
    Call,
    Coded,
    Copies,
    Dropping,
    Merged,
    Plain,
)

NAMES = ("a", "b", "c")
A, B, C, F_C = (Call(name, name) for name in (*NAMES, CODED))
SPARE = Copies(NAMES, copies={name: ["spare"] for name in NAMES})


def flight(policy, *wanted, number=0):
    return Tower(policy, lambda: Deadline(initial=0.1)).flight(number, wanted)


def finish(actions):
    (end,) = [action for action in actions if isinstance(action, Finish)]
    return dict(end.sources)


def test_a_routed_query_asks_its_expert_and_after_the_deadline_the_coded_network():
    query = flight(Coded(NAMES), "a")
    assert query.begin(1.0) == [Send(A), Wake(1.1)]
    assert query.woken(1.1) == [Send(F_C)]
    actions = query.answered(F_C, 1.12)
    assert actions[0] == Cancel(A) and finish(actions) == {"a": DECODED}
    assert query.answered(A, 1.2) == [], "the loser's answer comes too late"


def test_the_first_of_the_two_answers_wins():
    query = flight(Coded(NAMES), "a")
    query.begin(0.0)
    query.woken(0.1)
    actions = query.answered(A, 0.11)
    assert actions[0] == Cancel(F_C) and finish(actions) == {"a": EXACT}
    assert query.woken(0.2) == []


def test_a_decoder_that_looks_at_the_others_asks_them_too():
    query = flight(Coded(NAMES, alone=False), "a")
    query.begin(0.0)
    assert query.woken(0.1) == [Send(F_C), Send(B), Send(C)]
    assert query.answered(F_C, 0.2) == [] and query.answered(B, 0.2) == []
    assert finish(query.answered(C, 0.3)) == {"a": DECODED}


@pytest.mark.parametrize("alone", [True, False])
def test_an_ensemble_is_complete_with_all_answers_but_one(alone):
    query = flight(Coded(NAMES, alone=alone), *NAMES)
    assert [a.call for a in query.begin(0.0) if isinstance(a, Send)] == [A, B, C, F_C]
    assert query.answered(A, 0.01) == [] and query.answered(F_C, 0.02) == []
    actions = query.answered(C, 0.03)
    assert Cancel(B) in actions and finish(actions) == {"a": EXACT, "b": DECODED, "c": EXACT}


def test_an_ensemble_without_faults_is_exact():
    query = flight(Coded(NAMES), *NAMES)
    query.begin(0.0)
    for call in (A, B):
        assert query.answered(call, 0.01) == []
    assert finish(query.answered(C, 0.02)) == dict.fromkeys(NAMES, EXACT)


def test_in_a_hurry_the_coded_answer_alone_decodes_several():
    query = flight(Coded(NAMES), *NAMES)
    query.begin(0.0)
    assert query.answered(F_C, 0.01) == [], "before the deadline one is missing at most"
    assert finish(query.woken(0.1)) == dict.fromkeys(NAMES, DECODED)


def test_a_death_is_noticed_at_once_and_spares_the_next_query_the_wait():
    tower = Tower(Coded(NAMES))
    first = tower.flight(0, ("a",))
    first.begin(0.0)
    assert first.died(A, 0.01) == [Send(F_C)] and tower.down == {"a"}
    second = tower.flight(1, ("a",))
    assert second.begin(0.02) == [Send(F_C)], "nobody waits for the dead"
    tower.down.discard("a")
    assert tower.flight(2, ("a",)).begin(0.03)[0] == Send(A)


def test_where_nobody_is_left_the_dead_are_waited_for():
    tower = Tower(Coded(NAMES))
    query = tower.flight(0, ("a",))
    query.begin(0.0)
    query.died(A, 0.01)
    assert query.died(F_C, 0.02) == [Send(A), Send(F_C)]
    assert finish(query.answered(A, 2.0)) == {"a": EXACT} and tower.down == {CODED}


def test_without_redundancy_a_query_waits_for_its_expert_to_come_back():
    query = flight(Plain(NAMES), "a")
    assert query.begin(0.0) == [Send(A)]
    assert query.died(A, 0.1) == [Send(A)]
    assert finish(query.answered(A, 2.0)) == {"a": EXACT}


def test_a_spare_is_asked_for_what_is_missing_only():
    query = flight(SPARE, *NAMES)
    assert query.begin(0.0) == [Send(A), Send(B), Send(C), Wake(0.1)]
    query.answered(A, 0.01)
    query.answered(B, 0.01)
    assert query.woken(0.1) == [Send(Call("spare", "c"))]
    assert finish(query.answered(Call("spare", "c"), 0.12)) == dict.fromkeys(NAMES, EXACT)


def test_pairs_are_asked_in_turn_and_back_each_other_up():
    pairs = Copies(NAMES, copies={name: [f"{name}2"] for name in NAMES}, balanced=True)
    assert len(pairs.holdings()) == 6
    query = flight(pairs, "a", number=1)
    assert query.begin(0.0)[0] == Send(Call("a2", "a"))
    assert query.woken(0.1) == [Send(A)]


def test_a_small_backup_says_that_it_is_approximate():
    query = flight(Copies(NAMES, copies={name: ["small"] for name in NAMES}, approximate=True), "b")
    query.begin(0.0)
    query.woken(0.1)
    assert finish(query.answered(Call("small", "b"), 0.2)) == {"b": APPROXIMATE}


def test_policies_for_a_mean():
    query = flight(Dropping(NAMES), *NAMES)
    query.begin(0.0)
    assert query.answered(A, 0.01) == []
    assert finish(query.answered(B, 0.02)) == {"a": EXACT, "b": EXACT, "c": DROPPED}
    query = flight(Merged(NAMES), *NAMES)
    assert query.begin(0.0) == [Send(F_C)] and len(query.tower.policy.holdings()) == 1
    assert set(finish(query.answered(F_C, 0.02)).values()) == {DECODED}


def test_a_deadline_is_a_percentile_and_is_not_fooled_by_what_it_cancelled():
    deadline = Deadline(percentile=90, initial=5.0, enough=10, window=100)
    for i in range(100):
        deadline.observe(i / 100)
    assert deadline.current == pytest.approx(0.89)
    tower = Tower(Coded(NAMES), lambda: Deadline(percentile=90, initial=0.1, enough=10))
    for number in range(200):  # always slower than the deadline, and always cancelled
        query = tower.flight(number, ("a",))
        start = float(number)
        query.begin(start)
        at = start + tower.deadlines["a"].current
        query.woken(at)
        query.answered(F_C, at + 0.01)
    assert tower.deadlines["a"].current > 0.1, "it grows with what is seen to be slow"


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Plain(()), "at least one"),
        (lambda: Plain(("a", "a")), "each name once"),
        (lambda: Coded(("a", CODED)), "rename it"),
        (lambda: Coded(NAMES, proactive=["sometimes"]), "ensemble and routed"),
        (lambda: Deadline(percentile=100), "between 0 and 100"),
        (lambda: Deadline(initial=0), "positive numbers"),
        (lambda: Tower(Plain(NAMES)).flight(0, ("d",)), "the experts are a, b, c"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
