import copy

import pytest
import torch
from problems import coding
from torch import nn

from coin.codes import Dare, Isotropic, TaskArithmetic, TaskSingularVectors, Ties
from coin.parameters import weighted_sum
from coin.problem.coding import Coding

ALL = [Ties(keep=0.5), TaskSingularVectors(), Isotropic(), Dare(drop=0)]


def of_images(count=2, beta=None):
    """Convolutions with kernels, a tensor of one row, biases."""
    make = lambda: nn.Sequential(  # noqa: E731
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 6, 2), nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)
    )
    return coding(count, beta, make=make)


def task_vectors(problem):
    return [weighted_sum([params, problem.base_params], [1, -1]) for params in problem.params]


def delta(code, problem):
    coded = code.encode(problem, scale=1.0)
    return weighted_sum([coded, problem.base_params], [1, -1])


def same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name])


@pytest.mark.parametrize("code", ALL, ids=lambda code: type(code).__name__)
def test_the_scale_scales_what_is_merged_and_one_merge_serves_all_scales(code, monkeypatch):
    problem, calls = of_images(3, [0.5, 0.3, 0.2]), []
    before = copy.deepcopy([expert.state_dict() for expert in problem.experts])
    real = type(code).merged
    monkeypatch.setattr(type(code), "merged", lambda *args: calls.append(1) or real(*args))
    once = delta(code, problem)
    coded = code.encode(problem, scale=0.3)
    same(coded, weighted_sum([problem.base_params, once], [1, 0.3]))
    assert len(calls) == 1
    for expert, state in zip(problem.experts, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in expert.state_dict().items())
    problem.beta = (0.2, 0.3, 0.5)
    delta(code, problem)
    assert len(calls) == 2, "other weights, another merge"


@pytest.mark.parametrize("code", [Ties(keep=1.0), TaskSingularVectors(), Dare(drop=0)], ids=lambda c: type(c).__name__)
def test_one_expert_codes_to_itself(code):
    problem = of_images(1)
    same(code.encode(problem, scale=1.0), problem.params[0])


@pytest.mark.parametrize("code", ALL, ids=lambda code: type(code).__name__)
def test_permuting_the_experts_with_their_weights_changes_nothing(code):
    problem, order = of_images(3, [0.5, 0.3, 0.2]), [2, 0, 1]
    other = Coding(
        [problem.experts[i] for i in order], [problem.beta[i] for i in order], problem.batches, base=problem.base
    )
    same(code.encode(problem, scale=0.7), code.encode(other, scale=0.7))


def test_identical_experts_stay_what_they_are():
    one = of_images(1)
    twice = Coding([one.experts[0], copy.deepcopy(one.experts[0])], (0.7, 0.3), one.batches, base=one.base)
    own = task_vectors(one)[0]
    same(delta(Ties(keep=1.0), twice), own)
    same(delta(Dare(drop=0), twice), weighted_sum([own], [2]))
    same(delta(Isotropic(), twice), {n: v * (2 if n in MATRICES else 1) for n, v in delta(Isotropic(), one).items()})
    found = delta(TaskSingularVectors(), twice)
    for name, value in own.items():  # half the rank each, and it is the same half
        matrix = value.reshape(len(value), -1)
        if name in MATRICES:
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
            matrix = u[:, : len(s) // 2] * s[: len(s) // 2] @ vh[: len(s) // 2]
        torch.testing.assert_close(found[name].reshape(matrix.shape), matrix)


MATRICES = ("1.weight", "3.weight")  # of_images: the last layer has one output


def test_experts_that_move_nothing_are_merged_to_nothing():
    problem = of_images(1)
    still = Coding([copy.deepcopy(problem.base) for _ in range(2)], None, problem.batches, base=problem.base)
    for code in (*ALL, Dare()):
        same(code.encode(still, scale=1.0), problem.base_params)


@pytest.mark.parametrize("beta", [None, [0.5, 0.3, 0.2]])
def test_ties_is_its_definition_element_by_element(beta):
    problem, keep = of_images(3, beta), 0.4
    vectors = task_vectors(problem)
    total = sum(value.numel() for value in vectors[0].values())
    trimmed = []
    for vector in vectors:
        every = sorted((abs(float(x)) for value in vector.values() for x in value.flatten()), reverse=True)
        least = every[round(keep * total) - 1]
        trimmed.append([float(x) * (abs(float(x)) >= least) for value in vector.values() for x in value.flatten()])
    wanted = []
    for column in zip(*trimmed, strict=True):
        mass = sum(b * x for b, x in zip(problem.beta, column, strict=True))
        agreeing = [(b, x) for b, x in zip(problem.beta, column, strict=True) if x * mass > 0]
        wanted.append(sum(b * x for b, x in agreeing) / sum(b for b, _ in agreeing) if agreeing else 0.0)
    found = torch.cat([value.flatten() for value in delta(Ties(keep=keep), problem).values()])
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=found.dtype))
    if beta is None:  # the published one has no weights
        plain = [[x for x in column if x * sum(column) > 0] for column in zip(*trimmed, strict=True)]
        means = [sum(column) / len(column) if column else 0.0 for column in plain]
        torch.testing.assert_close(found, torch.tensor(means, dtype=found.dtype))


def test_where_signs_balance_the_majority_of_the_network_decides():
    vectors = [{"a": torch.tensor([1.0, 2.0, 3.0])}, {"a": torch.tensor([-1.0, 2.0, -1.0])}]
    assert Ties(keep=1.0).merged(vectors, (0.5, 0.5))["a"].tolist() == [1, 2, 3]


def test_dare_drops_at_random_and_is_right_on_average():
    torch.manual_seed(0)
    first, second = ({"a": torch.randn(100, 200, dtype=torch.float64)} for _ in range(2))

    def merged(drop, seed=0):
        return Dare(drop=drop, seed=seed).merged([copy.deepcopy(v) for v in (first, second)], (0.7, 0.3))["a"]

    whole = merged(0)
    torch.testing.assert_close(whole, 1.4 * first["a"] + 0.6 * second["a"])
    found = merged(0.9)
    assert torch.equal(found, merged(0.9)) and not torch.equal(found, merged(0.9, seed=1))
    alone, other = 14 * first["a"], 6 * second["a"]
    for value in (torch.zeros_like(found), alone, other, alone + other):  # which were dropped: both, one, none
        assert torch.isclose(found, value).any()
    cases = torch.stack([torch.isclose(found, v) for v in (torch.zeros_like(found), alone, other, alone + other)])
    assert cases.any(0).all()
    shares = cases.double().mean((1, 2))
    torch.testing.assert_close(shares, torch.tensor([0.81, 0.09, 0.09, 0.01]).double(), atol=0.01, rtol=0)
    mean = torch.stack([merged(0.5, seed) for seed in range(200)]).mean(0)
    assert (mean - whole).norm() < 0.12 * whole.norm()  # 1 / √200 of what one drop of one half adds


def test_dare_with_nothing_dropped_is_task_arithmetic():
    problem = of_images(3, [0.5, 0.3, 0.2])
    same(Dare(drop=0).encode(problem, scale=0.4), TaskArithmetic().encode(problem, scale=0.4))


@pytest.mark.parametrize("beta", [None, [0.5, 0.3, 0.2]])
def test_tsv_is_its_definition_layer_by_layer(beta):
    problem = coding(3, beta, make=lambda: nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 6)))
    vectors, found = task_vectors(problem), delta(TaskSingularVectors(), problem)
    for name, value in found.items():
        if name.endswith("bias"):
            torch.testing.assert_close(value, sum(b * v[name] for b, v in zip(problem.beta, vectors, strict=True)))
            continue
        rank, left, middle, right = min(value.shape) // 3, [], [], []
        for b, vector in zip(problem.beta, vectors, strict=True):
            matrix = vector[name]
            values, directions = torch.linalg.eigh(matrix.T @ matrix)
            for k in range(1, rank + 1):
                v = directions[:, -k]
                left.append(matrix @ v / values[-k].sqrt())
                middle.append(3 * b * values[-k].sqrt())
                right.append(v)
        u, v = torch.stack(left, 1), torch.stack(right, 1)
        # the nearest orthonormal columns to u are u (uᵀu)^(−1/2)
        torch.testing.assert_close(value, whitened(u) @ torch.diag(torch.stack(middle)) @ whitened(v).T)


def whitened(u):
    values, directions = torch.linalg.eigh(u.T @ u)
    return u @ directions @ torch.diag(values**-0.5) @ directions.T


@pytest.mark.parametrize("beta", [None, [0.5, 0.3, 0.2]])
def test_isotropic_gives_every_direction_of_the_sum_the_mean_size(beta):
    problem = of_images(3, beta)
    vectors, found = task_vectors(problem), delta(Isotropic(), problem)
    for name, value in found.items():
        mean = sum(b * v[name] for b, v in zip(problem.beta, vectors, strict=True))
        if name not in MATRICES:
            torch.testing.assert_close(value, mean)
            continue
        total, value = 3 * mean.reshape(len(mean), -1), value.reshape(len(value), -1)
        small = total if len(total) <= total.shape[1] else total.T
        values, directions = torch.linalg.eigh(small @ small.T)
        flat = directions @ torch.diag(values**-0.5) @ directions.T @ small * values.sqrt().mean()
        torch.testing.assert_close(value, flat if len(total) <= total.shape[1] else flat.T)


def test_directions_that_no_expert_moved_in_stay_still():
    """Their singular vectors are any, so they are left out where the official code takes whatever it gets."""
    vectors = [{"a": torch.zeros(4, 5, dtype=torch.float64)} for _ in range(2)]
    for vector in vectors:
        vector["a"][:2] = torch.randn(2, 5, dtype=torch.float64)
    for code in (Isotropic(), TaskSingularVectors()):
        found = code.merged(vectors, (0.5, 0.5))["a"]
        assert found[:2].abs().min() > 0 and found[2:].abs().max() < 1e-12
