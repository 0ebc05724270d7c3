"""The simulator against what can be computed by hand: Lindley's recursion, order statistics, a death."""

from itertools import pairwise

import numpy as np
import pytest

from coin.serving.deadlines import Deadline
from coin.serving.faults import Episode, Faults, Kill, Trace, random_kills
from coin.serving.policies import CODED, Coded, Copies, Dropping, Merged, Plain
from coin.serving.simulate import Hardware, Simulation
from coin.serving.traffic import Traffic

NAMES = ("a", "b", "c")
SERVICE = np.array([0.008, 0.01, 0.012, 0.02])


def simulated(policy, traffic, faults=None, **settings):
    trace = Trace(faults or Faults(), SERVICE, traffic.queries, traffic.seed)
    simulation = Simulation(policy, traffic.schedule(policy.experts), trace, **settings)
    return simulation.run(), trace


def test_a_queue_is_lindleys_recursion():
    traffic = Traffic(rate=150, queries=4000)
    outcomes, trace = simulated(Plain(NAMES), traffic)
    free, expected = dict.fromkeys(NAMES, 0.0), []
    for number, (arrival, (name,)) in enumerate(traffic.schedule(NAMES)):
        free[name] = max(free[name], arrival) + trace.seconds(name, number)
        expected.append(free[name] - arrival)
    assert np.allclose(outcomes.latencies, expected) and outcomes.calls == 4000 and outcomes.failed == 0


@pytest.mark.parametrize(
    "policy, rank", [(Plain(NAMES), 2), (Dropping(NAMES), 1), (Coded(NAMES), 2), (Merged(NAMES), 0)]
)
def test_an_idle_cluster_answers_at_an_order_statistic(policy, rank):
    """All of N; all but one of N; N of N + 1; the coded server's own."""
    traffic = Traffic(rate=1e-4, queries=200, ensembles=1.0)
    patient = {"deadline": lambda: Deadline(initial=1.0, enough=10**6, window=10**6)}
    outcomes, trace = simulated(policy, traffic, Faults(0.1, 10.0), **patient)
    times = [[trace.seconds(server, number) for server in policy.holdings()] for number in range(200)]
    assert np.allclose(outcomes.latencies, np.sort(times, 1)[:, rank])


def test_a_message_takes_its_time_both_ways():
    traffic = Traffic(rate=1e-4, queries=50)
    outcomes, trace = simulated(Plain(NAMES), traffic, hardware=Hardware(delays=np.array([0.004])))
    own = [trace.seconds(wanted[0], n) for n, (_, wanted) in enumerate(traffic.schedule(NAMES))]
    assert np.allclose(outcomes.latencies, np.array(own) + 0.004)


def test_the_same_faults_befall_all_policies():
    traffic = Traffic(rate=1e-4, queries=300)
    faults = Faults(0.05, 10.0)
    plain, _ = simulated(Plain(NAMES), traffic, faults)
    coded, _ = simulated(Coded(NAMES), traffic, faults)
    fast = coded.inexact == 0
    assert np.allclose(plain.latencies[fast], coded.latencies[fast])
    assert coded.percentile(99.9) < plain.percentile(99.9)


def test_a_killed_expert_costs_no_query_and_hardly_any_time():
    traffic = Traffic(rate=60, queries=3000)
    faults = Faults(kills=(Kill("a", 20.0),))
    plain, _ = simulated(Plain(NAMES), traffic, faults)
    coded, _ = simulated(Coded(NAMES), traffic, faults)
    assert plain.failed == coded.failed == 0
    assert plain.latencies.max() > 1.3, "whoever asked just then waits for the restart"
    assert coded.latencies.max() < 0.4
    during = (coded.arrivals > 20) & (coded.arrivals < 21.5)
    wanted = np.array([name == "a" for _, (name,) in traffic.schedule(NAMES)])
    assert coded.inexact[during & wanted].mean() > 0.95, "while it is dead it is decoded"
    after = coded.arrivals > 25
    assert coded.inexact[after & wanted].mean() < 0.2, "and later it answers again"


def test_a_dead_coded_server_costs_nothing():
    traffic = Traffic(rate=60, queries=2000, ensembles=1.0)
    outcomes, _ = simulated(Coded(NAMES), traffic, Faults(kills=(Kill(CODED, 10.0),)))
    assert outcomes.failed == 0 and outcomes.latencies.max() < 0.4


def test_an_episode_a_slow_machine_and_a_model_to_load():
    slow = Episode("a", start=10.0, seconds=5.0, factor=10.0)
    traffic = Traffic(rate=1, queries=30, skew=1e9)
    outcomes, trace = simulated(Plain(NAMES), traffic, Faults(episodes=(slow,)))
    within = (outcomes.arrivals >= 10) & (outcomes.arrivals < 14.5)
    assert outcomes.latencies[within].min() > 0.079 and outcomes.latencies[outcomes.arrivals < 9].max() < 0.03
    spare = Copies(NAMES, copies={name: ["spare"] for name in NAMES})
    hurried = {"deadline": lambda: Deadline(initial=1e-6, enough=10**6, window=10**6)}
    slow_spare = Hardware(loading={"spare": 0.5}, speed={"spare": 0.1})
    traffic = Traffic(rate=1e-3, queries=40)
    outcomes, trace = simulated(
        spare, traffic, Faults(episodes=(Episode("a", 0, 1e9, 1e3),)), hardware=slow_spare, **hurried
    )
    for number, (_, (name,)) in enumerate(traffic.schedule(NAMES)):
        if name == "a":
            short = trace.seconds("spare", number) * 0.1
            assert any(np.isclose(outcomes.latencies[number], short + t, atol=2e-6) for t in (0, 0.5))


def test_what_is_cancelled_before_it_begins_is_not_done():
    traffic = Traffic(rate=1e-4, queries=100, ensembles=1.0)
    outcomes, _ = simulated(Coded(NAMES), traffic)
    assert outcomes.calls == 400
    busy, _ = simulated(Coded(NAMES), Traffic(rate=200, queries=4000, ensembles=1.0))
    assert busy.calls < 16000 and busy.failed == 0


def test_traffic_is_what_it_says():
    traffic = Traffic(rate=50, queries=20000, ensembles=0.25, skew=3.0, moving=10.0, seed=1)
    found = list(traffic.schedule(NAMES))
    assert found == list(traffic.schedule(NAMES)) and found != list(
        Traffic(50, 20000, 0.25, 3.0, 10.0, 2).schedule(NAMES)
    )
    assert abs(found[-1][0] - 400) < 20
    assert abs(np.mean([len(wanted) == 3 for _, wanted in found]) - 0.25) < 0.02
    second = [wanted[0] for arrival, wanted in found if 10 <= arrival < 20 and len(wanted) == 1]
    assert abs(np.mean([name == "b" for name in second]) - 0.6) < 0.1, "the favourite has moved"


def test_kills_come_about_when_they_should():
    kills = random_kills(NAMES, every=20, until=600, seed=0)
    assert len(kills) == 29 and kills == random_kills(NAMES, 20, 600, 0)
    assert all(10 < b.at - a.at < 30 for a, b in pairwise(kills))


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Faults(probability=2), "between 0 and 1"),
        (lambda: Faults(factor=0), "positive"),
        (lambda: Faults(pareto=1.0), "above 1"),
        (lambda: Trace(Faults(), np.array([]), 5), "at least one"),
        (lambda: Traffic(rate=0, queries=1), "positive"),
        (lambda: Traffic(rate=1, queries=1, moving=0), "positive seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
