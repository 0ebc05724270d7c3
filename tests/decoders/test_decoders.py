"""Decoders: the ridge against refitting, the features against the network, and all of them through one interface."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import coin
from coin.decoders import Alone, Analytic, Answers, Direct, Ridge, from_tensors
from coin.decoders.maps import block_scales
from coin.decoders.regression import Regression
from coin.decoding import decode
from coin.metrics import divergence

NAMES = ("analytic", "ridge", "features", "alone", "alone without features", "direct")
ALL = [Analytic(), Ridge(), Ridge(features=True), Alone(), Alone(features=False), Direct()]


def answers(n=3, samples=40, classes=4, features=0, beta=None, owners=True, noise=0.3):
    torch.manual_seed(0)
    beta = beta or [1 / n] * n
    experts = [torch.randn(samples, classes, dtype=torch.float64) for _ in range(n)]
    coded = sum(b * f for b, f in zip(beta, experts, strict=True))
    coded = 0.8 * coded + noise * torch.randn_like(coded)
    coded = torch.cat([coded, torch.randn(samples, features, dtype=torch.float64)], 1)
    owned = torch.arange(samples) * n // samples if owners else None
    return Answers([coded], dict(enumerate(experts)), (tuple(beta),), owned)


def regressors(given, missing):
    return torch.cat([given.coded[0], *given.others(missing).values()], 1)


@pytest.mark.parametrize("features", [0, 60])  # fewer and more columns than samples
def test_leave_one_out_is_what_refitting_without_each_sample_gives(features):
    given = answers(features=features)
    x, wanted = regressors(given, 1), given.experts[1]
    weights = torch.where(given.owners == 1, 1.0, 0.3).double()
    own = given.owners == 1
    strength = 0.5
    fit = Regression(x, wanted, weights)
    held_out = fit.held_out(strength)
    kept = (x - (weights[:, None] * x).sum(0) / weights.sum()) * weights.sqrt()[:, None]
    ridge = strength * kept.square().sum() / len(x)
    for i in range(0, len(x), 7):
        rest = torch.arange(len(x)) != i
        design = torch.cat([x[rest], torch.ones(len(x) - 1, 1, dtype=x.dtype)], 1)
        penalty = ridge * torch.eye(design.shape[1], dtype=x.dtype)
        penalty[-1, -1] = 0  # the intercept is free
        weighted = design.T * weights[rest]
        solution = torch.linalg.solve(weighted @ design + penalty, weighted @ wanted[rest])
        torch.testing.assert_close(held_out[i], x[i] @ solution[:-1] + solution[-1], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(fit.error(strength, own), float((held_out - wanted)[own].square().sum(1).mean()))


def test_samples_of_weight_zero_are_predicted_without_them():
    given = answers()
    x, wanted, own = regressors(given, 0), given.experts[0], given.owners == 0
    fit = Regression(x, wanted, own.double())
    weight, bias = fit.solution(0.1)
    torch.testing.assert_close(fit.held_out(0.1)[~own], x[~own] @ weight + bias)


@pytest.mark.parametrize("decoder", ALL[:3], ids=NAMES[:3])
def test_a_fitted_decoder_never_does_worse_on_held_out_samples_than_the_formula(decoder):
    given = answers(features=5 if decoder.features else 0)
    fitted = decoder.fit(given)
    for i in range(3):
        own = given.owners == i
        plain = decode(given.coded[0][:, :4], given.others(i), given.generator[0], i)
        error = (fitted.held_out(i) - given.experts[i])[own].square().sum(1).mean()
        assert error <= (plain - given.experts[i])[own].square().sum(1).mean() + 1e-12
        assert fitted.decode(given.coded[0], given.others(i), i).shape == (40, 4)


def test_the_ridge_decoder_undoes_what_is_linear():
    """A coded network that errs by a linear map of what is known is decoded exactly."""
    given = answers(noise=0)
    given.coded = [given.coded[0] @ torch.randn(4, 4, dtype=torch.float64) + 0.5]
    fitted = Ridge(strengths=[1e-10]).fit(given)
    for i in range(3):
        torch.testing.assert_close(
            fitted.decode(given.coded[0], given.others(i), i), given.experts[i], atol=1e-5, rtol=1e-5
        )
    assert all(fitted.map((0,), tuple(sorted({0, 1, 2} - {i})), i)[0].shape == (12, 4) for i in range(3))


def test_with_nothing_to_gain_there_is_no_correction():
    given = answers(noise=0)
    given.coded = [sum(b * f for b, f in zip(given.generator[0], given.experts.values(), strict=True))]
    fitted = Ridge().fit(given)
    for i in range(3):
        decoded = fitted.decode(given.coded[0], given.others(i), i)
        torch.testing.assert_close(decoded, given.experts[i], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("owners", [True, False])
def test_one_expert_and_no_owners(owners):
    given = answers(n=1, owners=owners)
    for decoder in (Analytic(), Ridge()):
        assert decoder.fit(given).decode(given.coded[0], {}, 0).shape == (40, 4)


def test_blocks_get_the_same_size():
    x = torch.cat([torch.randn(50, 3) * 100, torch.randn(50, 20) * 0.01], 1).double()
    scaled = x * block_scales(x.var(0, correction=0), 3, 0.5)
    sizes = [float((part - part.mean(0)).square().sum(1).mean().sqrt()) for part in (scaled[:, :3], scaled[:, 3:])]
    assert sizes == pytest.approx([1, 0.5])


def test_features_are_what_the_last_layer_reads():
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    answer = coin.WithFeatures(network)(x)
    torch.testing.assert_close(answer[:, :3], network(x))
    torch.testing.assert_close(answer[:, 3:], network[:2](x))
    with pytest.raises(ValueError, match="does not end in a Linear layer"):
        coin.WithFeatures(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))(x.float())


@pytest.mark.parametrize("decoder", ALL, ids=NAMES)
def test_decoders_for_people_with_their_own_networks(decoder):
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    experts = [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)) for _ in range(2)]
    batches = [torch.randn(20, 4) for _ in range(4)]
    coded = coin.encode(experts, batches, code=coin.codes.Coin(scale=None), base=base, decoder=decoder)
    fitted = coin.fit_decoder(decoder, coded, experts, batches)
    x = torch.randn(9, 4)
    answer = coin.WithFeatures(coded)(x) if decoder.features else coded(x)
    decoded = fitted.decode(answer, {1: experts[1](x)}, missing=0)
    assert decoded.shape == (9, 3)
    if isinstance(decoder, Analytic):
        torch.testing.assert_close(decoded, coin.decode(coded(x), {1: experts[1](x)}, [0.5, 0.5], 0))


def test_divergence():
    a = torch.randn(6, 4)
    assert divergence(a, a + 3) == pytest.approx(0, abs=1e-6)  # probabilities do not know a common shift
    even, sure = torch.zeros(1, 2), torch.tensor([[100.0, 0.0]])
    assert divergence(even, sure) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ridge(strengths=[]), "at least one"),
        (lambda: Ridge(strengths=[0.0]), "all positive"),
        (lambda: Ridge(foreign=[2.0]), "from 0 to 1"),
        (lambda: Ridge(shares=[-1.0]), "all positive"),
    ],
)
def test_bad_options_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("decoder", ALL[1:], ids=NAMES[1:])
def test_a_decoder_comes_back_from_its_tensors(decoder, tmp_path):
    given = answers(features=6)
    fitted = decoder.fit(given)
    save_file(fitted.tensors(), tmp_path / "decoder.safetensors")
    again = from_tensors(load_file(tmp_path / "decoder.safetensors"))
    for i in range(3):
        wanted = fitted.decode(given.coded[0], given.others(i), i)
        torch.testing.assert_close(again.decode(given.coded[0], given.others(i), i), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="not the tensors of a decoder"):
        from_tensors({"x": torch.ones(1)})


def test_a_single_sample_is_no_evidence_for_a_correction():
    given = answers(n=2, samples=2)
    fitted = Ridge(foreign=[0.0]).fit(given)
    assert fitted.choice(0, True) is None and fitted.choice(1, True) is None


def test_a_decoder_is_fitted_on_the_network_it_is_given():
    torch.manual_seed(0)
    experts = [nn.Linear(4, 3) for _ in range(2)]
    batches = [torch.randn(30, 4)]
    coded = nn.Linear(4, 3).requires_grad_(False)
    fitted = coin.fit_decoder(Analytic(), coded, experts, batches)
    torch.testing.assert_close(fitted.answers.coded[0][:, :3], coded(batches[0]))


@pytest.mark.parametrize("features", [False, True])
def test_alone_looks_at_the_coded_network_only_and_is_its_own_least_squares_fit(features):
    """Against the normal equations of [f_c; φ_c; 1] for one strength, all samples of equal weight."""
    given = answers(n=2, features=6, owners=False)
    own = zip((1, -1), given.experts.values(), strict=True)
    given.experts = {i: sign * 2 * given.coded[0][:, :4] + 0.1 * f for i, (sign, f) in enumerate(own)}
    decoder = Alone(features=features, strengths=[1.0], shares=[1.0])
    fitted = decoder.fit(given)
    assert decoder.calls(3) == 1 and Ridge().calls(3) == 3 and Direct().calls(3) == 1
    x = given.coded[0] if features else given.coded[0][:, :4]
    centred = (x - x.mean(0)) * block_scales(x.var(0, correction=0), 4, 1.0)
    ridge = centred.square().sum() / len(x)
    for i, expert in given.experts.items():
        wanted = expert - given.coded[0][:, :4]
        gram = centred.T @ centred + ridge * torch.eye(x.shape[1], dtype=x.dtype)
        weight = torch.linalg.solve(gram, centred.T @ (wanted - wanted.mean(0)))
        got = fitted.decode(given.coded[0], {}, i)
        torch.testing.assert_close(got, given.coded[0][:, :4] + centred @ weight + wanted.mean(0), rtol=1e-9, atol=1e-9)
        nonsense = {j: torch.full_like(expert, torch.nan) for j in range(2)}
        assert torch.equal(fitted.decode(given.coded[0], nonsense, i), got), "whoever else is missing"


def test_direct_is_the_coded_networks_own_answer():
    given = answers(features=2)
    fitted = Direct().fit(given)
    for i in range(3):
        torch.testing.assert_close(fitted.decode(given.coded[0], {}, i), given.coded[0][:, :4])
        torch.testing.assert_close(fitted.held_out(i), given.coded[0][:, :4])
    with pytest.raises(ValueError, match="experts 0 to 2"):
        fitted.decode(given.coded[0], {}, 3)
