import copy

import pytest
import reference
import torch
from problems import coding, experts
from torch import nn

import coin
from coin import parameters
from coin.codes import (
    Average,
    Coin,
    CoinKfac,
    Dare,
    Isotropic,
    Matched,
    RegMean,
    TaskArithmetic,
    TaskSingularVectors,
    Ties,
)
from coin.decoding import decode
from coin.fisher import diagonal_fisher
from coin.problem.coding import Coding
from coin.problem.tuning import Tuner
from coin.training.distillation import Distillation


@pytest.mark.parametrize("code", [Coin(0.01), Average()])
def test_one_expert_codes_to_itself(code):
    problem = coding(1, [1.0])
    for name, value in Tuner().tune(code, problem).params[0].items():
        torch.testing.assert_close(value, problem.params[0][name])


@pytest.mark.parametrize("code", [Coin(0.01), Average()])
def test_permuting_the_experts_with_their_weights_changes_nothing(code):
    problem = coding(3, [0.5, 0.3, 0.2])
    order = [2, 0, 1]
    other = Coding([problem.experts[i] for i in order], [problem.beta[i] for i in order], problem.batches)
    first, second = (code.encode(p, **code.candidates()[0]) for p in (problem, other))
    for name in first:
        torch.testing.assert_close(first[name], second[name])


@pytest.mark.parametrize("beta", [None, [0.5, 0.3, 0.2]])
@pytest.mark.parametrize("code", [Coin(0.01), Average()])
def test_a_linear_network_decodes_exactly(code, beta):
    problem = coding(3, beta, make=lambda: nn.Linear(4, 3))
    tuned = Tuner().tune(code, problem)
    assert tuned.score.nda == 100
    assert tuned.score.coding_loss < 1e-20


def test_statistics_are_computed_once_for_all_candidates_and_beta_reuses_them():
    problem, computed = coding(2), []

    def counted(network, batches, directions):
        computed.append(network)
        return diagonal_fisher(network, batches, directions)

    problem.compute_fisher = counted
    first = Tuner().tune(Coin(scale=None), problem)
    problem.beta = (0.9, 0.1)
    second = Tuner().tune(Coin(scale=None), problem)
    assert computed == problem.experts, "one of each expert"
    assert not torch.equal(first.params[0]["0.weight"], second.params[0]["0.weight"])


def test_a_base_that_experts_were_not_fine_tuned_from_is_refused():
    def make():
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))

    base, found = experts(2, make=make)
    for network in found:
        network[1].load_state_dict(base[1].state_dict())
        network[1].requires_grad_(False)
    inputs = [torch.randn(20, 4, dtype=torch.float64)]
    coin.encode(found, inputs, code=TaskArithmetic(0.4), base=base)
    base[1].running_mean += 1
    with pytest.raises(ValueError, match=r"differs from the experts in tensors that were not trained: 1\.running_mean"):
        coin.encode(found, inputs, code=TaskArithmetic(0.4), base=base)
    with pytest.raises(ValueError, match="another architecture"):
        coin.encode(found, inputs, code=TaskArithmetic(0.4), base=nn.Linear(4, 3))


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "much"])
def test_bad_damping_is_refused(bad):
    with pytest.raises(ValueError, match="must be a positive number"):
        Coin(bad)


@pytest.mark.parametrize(
    ("beta", "words"),
    [
        ([0.5, 0.6], "sum to 1.1"),
        ([1.5, -0.5], "must be positive"),
        ([1.0, 0.0], "must be positive"),
        ([float("nan"), 0.5], "must be positive"),
        ([1.0], "1 weights for 2 experts"),
        (0.5, "must be a list"),
    ],
)
def test_bad_beta_is_refused(beta, words):
    with pytest.raises(ValueError, match=words):
        coding(2, beta)


def test_encode_for_people_with_their_own_networks():
    _, found = experts(3)
    inputs = torch.randn(30, 4, dtype=torch.float64)
    before = [copy.deepcopy(e.state_dict()) for e in found]
    beta = (0.5, 0.3, 0.2)
    coded = coin.encode(found, inputs.split(10), beta)
    decoded = decode(coded(inputs), {1: found[1](inputs), 2: found[2](inputs)}, beta, 0)
    assert decoded.shape == (30, 3)
    params = [parameters.trainable(e) for e in found]
    truth = reference.fisher_average(params, [reference.diagonal_fisher(e, [inputs]) for e in found], beta, 1e-2)
    for name, value in parameters.trainable(coded).items():
        torch.testing.assert_close(value, truth[name])
    for expert, state in zip(found, before, strict=True):
        assert all(torch.equal(state[k], v) for k, v in expert.state_dict().items())
    with pytest.raises(ValueError, match="no batches"):
        coin.encode(found, [])
    with pytest.raises(ValueError, match="no experts"):
        coin.encode([], [inputs])
    with pytest.raises(ValueError, match="a batch is str, expected a tensor of inputs"):
        coin.encode(found, ["inputs"])
    labelled = coin.encode(found, [(inputs, "labels")], beta)
    for name, value in parameters.trainable(labelled).items():
        torch.testing.assert_close(value, truth[name])


ALL = [
    Average(),
    TaskArithmetic(),
    Ties(),
    Dare(drop=0.5),
    TaskSingularVectors(),
    Isotropic(),
    RegMean(),
    RegMean(convolutions=True),
    Coin(),
    Coin(scale=None, balance="layer", relative=True),
    CoinKfac(),
    CoinKfac(scale=None, balance="network"),
    Matched(folds=0),
    Matched(folds=0, start=Coin(0.01)),
    Distillation(epochs=2),
    Distillation(epochs=2, start=Coin(), folds=2),
]


@pytest.mark.parametrize("code", ALL, ids=lambda code: type(code).__name__)
@pytest.mark.parametrize("beta", [None, [0.5, 0.3, 0.2]])
def test_every_code_takes_three_experts_and_unequal_weights(code, beta):
    problem = coding(
        3,
        beta,
        make=lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 3)),
    )
    tuned = Tuner().tune(code, problem)
    assert parameters.shapes(tuned.params[0]) == parameters.shapes(problem.params[0])
    assert all(torch.isfinite(p).all() for p in tuned.params[0].values())
    best = max(c["nda"] for c in tuned.candidates)
    assert tuned.score.nda == best
    lowest = min(c["coding_loss"] for c in tuned.candidates if c["nda"] == best)
    assert tuned.score.coding_loss == pytest.approx(lowest, rel=1e-9)


def test_task_arithmetic_with_one_nth_is_the_average():
    for beta in (None, [0.5, 0.3, 0.2]):
        problem = coding(3, beta)
        average = Average().encode(problem)
        for name, value in TaskArithmetic().encode(problem, scale=1 / 3).items():
            torch.testing.assert_close(value, average[name])


def test_task_arithmetic_is_the_papers_formula():
    problem = coding(2)
    base = problem.base_params
    for name, value in TaskArithmetic().encode(problem, scale=0.3).items():
        truth = base[name] + 0.3 * sum(p[name] - base[name] for p in problem.params)
        torch.testing.assert_close(value, truth)
    problem.base = None
    with pytest.raises(ValueError, match="needs the base network"):
        TaskArithmetic().encode(problem, scale=0.3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TaskArithmetic(-1), "code.scale=-1"),
        (lambda: Ties(0), "code.scale=0"),
        (lambda: Isotropic(grid=[]), "empty grid"),
        (lambda: Ties(keep=0), "code.keep=0"),
        (lambda: Ties(keep=20), "code.keep=20"),
        (lambda: Dare(drop=1), "code.drop=1"),
        (lambda: RegMean(1.5), "from 0 to 1"),
        (lambda: Distillation(epochs=0), "at least 1"),
        (lambda: Distillation(start="nowhere"), "base, average or a code"),
        (lambda: Distillation(learning_rate=0), "must be positive"),
        (lambda: Coin(grid=[]), "empty grid"),
        (lambda: TaskArithmetic(grid=[]), "empty grid"),
        (lambda: RegMean(grid=[]), "empty grid"),
        (lambda: Distillation(folds=5).check(4), "only 4 samples"),
        (lambda: Tuner(folds=5).check(Coin(), 8, experts=2), "too few for an expert"),
        (lambda: Tuner(folds=5).check(Distillation(start=Coin()), 8, experts=2), "too few for an expert"),
        (lambda: Tuner().check(Matched(folds=5), 8, experts=2), "too few for an expert"),
        (lambda: Matched(folds=1), "code.folds=1"),
        (lambda: Matched(judges=4), "code.judges=4: must be at most code.folds=3"),
        (lambda: Matched(shifts=-1), "code.shifts=-1"),
        (lambda: Matched(strength=0), "code.strength=0"),
        (lambda: Matched(scales=[]), "empty grid"),
        (lambda: Matched(start=Coin()), "nothing to tune"),
        (lambda: Matched(start="average"), "nothing to tune"),
    ],
)
def test_bad_hyperparameters_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_scaled_coin_goes_past_the_average_of_the_task_vectors():
    problem = coding(2)
    base, plain = problem.base_params, Coin().encode(problem, damping=0.01)
    for name, value in Coin(scale=None).encode(problem, damping=0.01, scale=1.5).items():
        torch.testing.assert_close(value, base[name] + 1.5 * (plain[name] - base[name]))
    assert len(Coin(scale=None).candidates()) == 30
    assert Coin(0.1, scale=1.5).candidates() == [{"damping": 0.1, "scale": 1.5}]
    problem.base = None
    with pytest.raises(ValueError, match="needs the base network"):
        Coin().encode(problem, damping=0.01, scale=1.5)
