"""Regions against linear programs that say who does how much of what."""

import numpy as np
import pytest
from scipy.optimize import linprog

from coin.serving.region import alone, boundary, others_too, plain, replica


def program(demand, rate, cost_to_others):
    """Whether decoded rates r_i exist: the coded server does Σ r_i, expert i what is left and its part in decoding."""
    n = len(demand)
    loads = np.full((n, n), float(cost_to_others))
    np.fill_diagonal(loads, -1.0)
    a = np.vstack([np.ones(n), loads])
    b = np.array([rate, *(rate - d for d in demand)])
    return linprog(np.zeros(n), A_ub=a, b_ub=b + 1e-9, bounds=[(0, d) for d in demand]).status == 0


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("region, cost", [(alone, 0), (others_too, 1)])
def test_a_region_is_what_a_linear_program_finds(n, region, cost):
    rng = np.random.default_rng(n)
    for demand in rng.uniform(0, 2, (200, n)):
        margin = 1e-6
        if region(list(demand * (1 - margin)), 1.0) == region(list(demand * (1 + margin)), 1.0):  # not on the edge
            assert region(list(demand), 1.0) == program(demand, 1.0, cost), demand


def test_the_regions_contain_one_another():
    rng = np.random.default_rng(0)
    for demand in rng.uniform(0, 2.2, (300, 3)).tolist():
        assert plain(demand, 1.0) <= others_too(demand, 1.0) <= alone(demand, 1.0)
        assert plain(demand, 1.0) <= replica(demand, 1.0) <= alone(demand, 1.0)


def test_the_edge_is_where_it_should_be():
    edge = boundary(alone, np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert np.allclose(edge, [[2.0, 0.0], [1.5, 1.5]])
    assert np.allclose(boundary(others_too, np.array([[1.0, 0.0], [1.0, 1.0]])), [[2.0, 0.0], [1.0, 1.0]])
