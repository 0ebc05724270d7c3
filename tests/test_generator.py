"""Generators: what is refused, how errors grow, and that the default is better than what comes to mind."""

import itertools
import math

import pytest
import torch

from coin.decoding import decode, recover
from coin.generator import amplification, best_generator, check_generator, patterns, recovery, worst


def test_one_coded_network_is_the_papers_beta():
    assert check_generator(None, None, None, 4) == ((0.25,) * 4,)
    assert check_generator(None, 1, [0.7, 0.3], 2) == ((0.7, 0.3),)
    assert amplification([[0.7, 0.3]], [0], [1]) == pytest.approx(1 / 0.3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, 2, None, 2), "coded=2: must be less than the 2 experts"),
        ((None, 0, None, 3), "coded=0: must be the number"),
        ((None, True, None, 3), "coded=True: must be"),
        ((None, 2, [0.5, 0.25, 0.25], 3), "give generator"),
        (([[0.5, 0.5, 0.0]], None, None, 3), r"generator\[0\].*every weight must be positive"),
        (([[0.5, 0.6, -0.1]], None, None, 3), "every weight must be positive"),
        (([[0.5, 0.5]], None, None, 3), "2 weights for 3 experts"),
        (([[0.5, 0.25, 0.2]], None, None, 3), "sum to 0.95"),
        (([0.5, 0.25, 0.25], None, None, 3), r"generator\[0\]=0.5: must be a list"),
        (("abc", None, None, 3), "must be a list of rows"),
        (([[0.2, 0.3, 0.5]], 2, None, 3), "coded=2, but generator has 1 rows"),
        (([[0.2, 0.3, 0.5]], None, [0.2, 0.3, 0.5], 3), "beta and generator are both given"),
        (([[0.2, 0.3, 0.5]] * 2, None, None, 3), "experts 1, 2 missing, coded networks 1, 2 do not tell them apart"),
        (([[0.2, 0.3, 0.5]] * 3, None, None, 3), "coded=3: must be less than the 3 experts"),
        (([[1 / 3, 1 / 3, 1 / 3], [0.2, 0.2, 0.6]], None, None, 3), "experts 1, 2 missing"),
    ],
)
def test_bad_generators_are_refused_by_name(given, words):
    with pytest.raises(ValueError, match=words):
        check_generator(*given)


@pytest.mark.parametrize(("coded", "experts"), [(2, 3), (2, 5), (3, 5)])
def test_the_default_is_positive_sums_to_one_and_keeps_errors_small(coded, experts):
    found = best_generator(coded, experts)
    assert all(b > 0 for row in found for b in row) and all(math.fsum(row) == pytest.approx(1) for row in found)
    random = torch.Generator().manual_seed(0)
    others = [torch.rand(coded, experts, generator=random, dtype=torch.float64) for _ in range(20)]
    assert worst(found) < min(worst((o / o.sum(1, keepdim=True)).tolist()) for o in others)
    assert experts <= worst(found) < (8 if coded == 3 else 3) * experts  # never below the bound
    assert check_generator(found, coded, None, experts) == found


def test_two_coded_networks_of_three_experts_are_each_others_mirror():
    """Up to 1e-3 of what a long search on another machine found: the worst error grows 5.30 times, the bound is 3."""
    first, second = best_generator(2, 3)
    assert first == pytest.approx(second[::-1], abs=2e-3)
    assert worst((first, second)) == pytest.approx(5.30, abs=0.02)


def test_any_n_answers_recover_the_rest_exactly_from_exact_coded_networks():
    experts, coded = 4, 2
    generator = best_generator(coded, experts)
    torch.manual_seed(0)
    outputs = {j: torch.randn(7, 3, dtype=torch.float64) for j in range(experts)}
    sums = {r: sum(generator[r][j] * outputs[j] for j in outputs) for r in range(coded)}
    tried = 0
    for answering, missing in patterns(coded, experts):
        others = {j: f for j, f in outputs.items() if j not in missing}
        for i in missing:
            found = recover({r: sums[r] for r in answering}, others, generator, i)
            torch.testing.assert_close(found, outputs[i], rtol=1e-9, atol=1e-9)
            tried += 1
    assert tried == 2 * 4 + 4 + 6 * 2


def test_recovering_is_the_papers_formula_for_one_and_the_least_squares_solution_for_several():
    torch.manual_seed(0)
    answer, others = torch.randn(5, 3), {1: torch.randn(5, 3), 2: torch.randn(5, 3)}
    beta = (0.5, 0.3, 0.2)
    torch.testing.assert_close(recover({0: answer}, others, [beta], 0), decode(answer, others, beta, 0))
    generator = best_generator(2, 3)
    coded = {r: torch.randn(5, 3, dtype=torch.float64) for r in range(2)}
    known = {2: torch.randn(5, 3, dtype=torch.float64), 1: torch.randn(5, 3, dtype=torch.float64)}
    left = torch.stack([coded[r] - sum(generator[r][j] * known[j] for j in known) for r in range(2)])
    column = torch.tensor([[generator[r][0]] for r in range(2)], dtype=torch.float64)
    truth = torch.linalg.lstsq(column, left.flatten(1)).solution.view(5, 3)
    torch.testing.assert_close(recover(coded, known, generator, 0), truth)


def test_more_missing_than_can_be_recovered_is_one_sentence():
    generator = best_generator(2, 4)
    rows = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="3 experts are missing and 2 coded networks answered"):
        recover({0: rows, 1: rows}, {3: rows}, generator, 0)
    with pytest.raises(ValueError, match="it must be one of the experts 0 to 3 that did not answer"):
        recover({0: rows}, {i: rows for i in range(4)}, generator, 0)
    with pytest.raises(ValueError, match="do not tell the missing experts 1, 2 apart"):
        recover({0: rows, 1: rows}, {2: rows}, [[0.2, 0.3, 0.5]] * 2, 0)


def test_amplification_is_how_much_noise_grows():
    generator = best_generator(2, 4)
    torch.manual_seed(0)
    noise = torch.randn(2, 200_000, dtype=torch.float64)
    for missing in itertools.combinations(range(4), 2):
        grown = (torch.tensor(recovery(generator, [0, 1], missing), dtype=torch.float64) @ noise).std(1).max()
        assert float(grown) == pytest.approx(amplification(generator, [0, 1], missing), rel=0.02)
