"""Half precision: everything is computed in single or better, and rounded once."""

import copy

import pytest
import torch
from problems import experts
from torch import nn

import coin
from coin.codes import Average, Coin, CoinKfac, Matched, RegMean, TaskArithmetic, fisher_average
from coin.decoders import Answers, Ridge
from coin.decoding import decode
from coin.parameters import trainable, weighted_sum
from coin.problem.coding import Coding

HALVES = [torch.bfloat16, torch.float16]
CODES = {
    "average": Average(),
    "coin": Coin(0.01),
    "coin_scaled": Coin(0.01, scale=1.5, balance="layer"),
    "coin_kfac": CoinKfac(0.01),
    "task_arithmetic": TaskArithmetic(1 / 3),  # θ_0 + 1/3 Σ (θ_i − θ_0)
    "regmean": RegMean(0.9),
    "matched": Matched(scale=1.0),
}


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def problem_of(found, base, dtype):
    torch.manual_seed(1)
    inputs = torch.randn(30, 4).to(dtype)
    return Coding([copy.deepcopy(e).to(dtype) for e in found], None, [inputs], base=copy.deepcopy(base).to(dtype))


def encoded(code, problem):
    """What the coded network holds in the end."""
    return trainable(problem.network(code.encode(problem, **code.candidates()[0])))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CODES)
def test_three_equal_experts_code_to_themselves(name, dtype):
    code = Coin(0.01, balance="layer") if name == "coin_scaled" else CODES[name]
    base, (expert,) = experts(1, make=network)
    problem = problem_of([expert] * 3, base, dtype)
    found = encoded(code, problem)
    for key, value in problem.params[0].items():
        last_bit = torch.finfo(dtype).eps * value.abs() + 1e-6
        assert ((found[key].float() - value).abs() <= last_bit).all(), key


@pytest.mark.parametrize("dtype", HALVES, ids=str)
# of RegMean and K-FAC the statistics are of layers' inputs, which are rounded within the network
@pytest.mark.parametrize("name", [name for name in CODES if name not in ("coin_kfac", "regmean")])
def test_half_precision_is_the_double_precision_code_rounded_once(name, dtype):
    base, found = experts(3, make=network)
    half = problem_of(found, base, dtype)
    double = Coding(
        [copy.deepcopy(e).double() for e in half.experts],
        None,
        [half.batches[0].double()],
        base=copy.deepcopy(half.base).double(),
    )
    # the same Fishers: those of half-precision networks are as rough as their gradients
    fishers = double.fishers()
    half.compute_fisher = lambda network, *_: {k: v.float() for k, v in fishers[half.experts.index(network)].items()}
    ours, truth = encoded(CODES[name], half), encoded(CODES[name], double)
    for key, value in truth.items():
        once = 0.51 * torch.finfo(dtype).eps * 2 * value.abs() + 2e-4 * value.abs().max()
        assert ((ours[key].double() - value).abs() <= once).all(), key


def test_small_fishers_in_half_precision_leave_no_nan():
    params = [{"w": torch.full((3,), float(i), dtype=torch.float16)} for i in (1, 2)]
    fishers = [{"w": torch.full((3,), 1e-9)}, {"w": torch.full((3,), 3e-9)}]
    found = fisher_average(params, fishers, (0.5, 0.5), 1e-12)["w"]
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), torch.full((3,), 1.75), rtol=1e-2, atol=0)


def test_a_weighted_sum_of_many_is_rounded_once():
    torch.manual_seed(0)
    params = [{"w": torch.randn(500).bfloat16()} for _ in range(20)]
    truth = sum(p["w"].double() / 20 for p in params)
    found = weighted_sum(params, [1 / 20] * 20)["w"]
    assert ((found.double() - truth).abs() <= 0.51 * torch.finfo(torch.bfloat16).eps * truth.abs() + 1e-7).all()


def test_decoding_is_rounded_once():
    torch.manual_seed(0)
    answers = [torch.randn(50, 3).bfloat16() for _ in range(5)]
    beta = [0.2] * 5
    truth = (answers[0].double() - sum(0.2 * f.double() for f in answers[1:])) / 0.2
    found = decode(answers[0], {i: answers[i] for i in range(1, 5)}, beta, 0)
    assert found.dtype == torch.bfloat16
    assert ((found.double() - truth).abs() <= 0.51 * torch.finfo(torch.bfloat16).eps * truth.abs() + 1e-5).all()


def test_a_ridge_decoder_of_half_precision_answers_is_that_of_the_same_in_double():
    torch.manual_seed(0)
    own = [torch.randn(60, 3).bfloat16() for _ in range(2)]
    coded = (0.5 * own[0].float() + 0.5 * own[1].float() + 0.3 * torch.randn(60, 3)).bfloat16()
    half = Ridge().fit(Answers([coded], dict(enumerate(own)), ((0.5, 0.5),)))
    double = Ridge().fit(Answers([coded.double()], {i: f.double() for i, f in enumerate(own)}, ((0.5, 0.5),)))
    found, truth = half.decode(coded, {1: own[1]}, 0), double.decode(coded.double(), {1: own[1].double()}, 0)
    assert found.dtype == torch.bfloat16
    assert ((found.double() - truth).abs() <= 0.51 * torch.finfo(torch.bfloat16).eps * truth.abs() + 1e-5).all()


def test_half_precision_networks_of_ones_own():
    base, found = experts(2, make=network)
    found = [e.bfloat16() for e in found]
    batches = [torch.randn(20, 4).bfloat16()]
    coded = coin.encode(found, batches, code=Matched(), base=base.bfloat16(), decoder=Ridge(features=True))
    assert {p.dtype for p in coded.parameters()} == {torch.bfloat16}
    fitted = coin.fit_decoder(Ridge(features=True), coded, found, batches)
    answer = coin.WithFeatures(coded)(batches[0])
    assert torch.isfinite(fitted.decode(answer, {1: found[1](batches[0])}, 0)).all()
