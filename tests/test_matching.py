import copy

import cases
import pytest
import reference
import torch
from problems import coding, experts
from torch import nn

import coin
from coin.codes import Average, Coin, Matched
from coin.codes.matched import with_shifts
from coin.coding import Coding
from coin.decoders import Ridge
from coin.matching import layer_outputs, least_move, match_layers
from coin.parameters import load, trainable
from coin.tuning import Tuner


@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
@pytest.mark.parametrize("offset", [False, True])
def test_the_least_move_is_least_squares_with_a_ridge(shape, offset):
    torch.manual_seed(0)
    x, y = torch.randn(*shape, dtype=torch.float64) + 1, torch.randn(shape[0], 3, dtype=torch.float64)
    move, shift = least_move(x, y, 0.7, offset)
    ridge = 0.7 * (x - x.mean(0) if offset else x).square().sum() / len(x)
    free = move.clone().requires_grad_(), shift.clone().requires_grad_()
    loss = (x @ free[0] + free[1] - y).square().sum() + ridge * free[0].square().sum()
    slopes = torch.autograd.grad(loss, free)
    torch.testing.assert_close(slopes[0], torch.zeros_like(move), atol=1e-9, rtol=0)
    if offset:
        torch.testing.assert_close(slopes[1], torch.zeros_like(shift), atol=1e-9, rtol=0)
    else:
        assert not shift.any()


def strided():
    return nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=2), nn.ReLU(inplace=True), cases.Head(4))


def padded():
    return nn.Sequential(nn.Conv2d(2, 4, (3, 5), padding="same", bias=False), nn.Tanh(), cases.Head(4))


def residual():
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Conv2d(2, 2, 1), cases.Residual(body), cases.Residual(body[:1]), cases.Head(2))


def of_images(make, layers):
    def case(seed):
        torch.manual_seed(seed)
        network = make().double().eval()
        assert set(layers) <= set(layer_outputs(network, IMAGES))
        return network, IMAGES

    return case


IMAGES = torch.randn(6, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
CASES = {name: lambda seed, name=name: cases.make(name, seed) for name in ("mlp", "tokens_linear", "vit")}
CASES["many_leading_dims"] = lambda seed: cases.make("many_leading_dims", seed)
CASES["many_positions"] = lambda seed: cases.make("many_positions", seed)
CASES["strided"] = of_images(strided, ["0", "2.fc"])
CASES["padded"] = of_images(padded, ["0", "2.fc"])
CASES["residual"] = of_images(residual, ["0", "3.fc"])


@pytest.mark.parametrize("case", CASES)
def test_one_pass_is_as_one_layer_after_the_other(case):
    network, inputs = CASES[case](0)
    other, _ = CASES[case](1)
    wanted = layer_outputs(other, inputs)
    truth = copy.deepcopy(network)
    match_layers(network, inputs, wanted, 0.5)
    reference.match_layers(truth, inputs, wanted, 0.5)
    for name, value in trainable(truth).items():
        torch.testing.assert_close(trainable(network)[name], value)


def test_the_code_is_its_formula():
    base, found = experts(2, make=lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), cases.Head(3)))
    problem = Coding(found, (0.7, 0.3), IMAGES.split(4), base=base)
    code = Matched(scale=2.0, strength=0.5, start=Coin(0.01), shifts=2)
    inputs = with_shifts(IMAGES, 2)
    first, second, before = (layer_outputs(network, inputs) for network in (*found, base))
    wanted = {k: z + 2 * (0.7 * first[k] + 0.3 * second[k] - z) for k, z in before.items()}
    start = Coin().encode(problem, damping=0.01)
    truth = load(copy.deepcopy(base), {k: z + 2 * (start[k] - z) for k, z in problem.base_params.items()})
    reference.match_layers(truth, inputs, wanted, 0.5)
    for name, value in code.encode(problem, **code.candidates()[0]).items():
        torch.testing.assert_close(value, trainable(truth)[name])


def test_other_coding_weights_on_the_same_problem_are_another_target():
    problem, code = coding(2), Matched(scale=1.0)
    code.encode(problem, scale=1.0, strength=0.5)
    problem.beta = (0.9, 0.1)
    for name, value in Matched().encode(coding(2, (0.9, 0.1)), scale=1.0, strength=0.5).items():
        torch.testing.assert_close(code.encode(problem, scale=1.0, strength=0.5)[name], value)


def test_samples_of_different_shapes_are_refused():
    base, found = experts(2, make=lambda: nn.Sequential(nn.Conv2d(2, 3, 3), cases.Head(3)))
    problem = Coding(found, None, [IMAGES, IMAGES[..., 1:]], base=base)
    with pytest.raises(ValueError, match="one shape"):
        Matched().encode(problem, scale=1.0, strength=1.0)


def test_a_layer_called_by_keyword_stays_where_it_is():
    class Named(nn.Linear):
        def forward(self, x):
            return self.inner(input=super().forward(x))

    network = Named(4, 5)
    network.inner = nn.Linear(5, 3)
    assert set(layer_outputs(network, torch.randn(6, 4))) == {""}


def test_a_ridge_too_weak_to_solve_with_is_refused():
    with pytest.raises(ValueError, match="too weak"):
        least_move(torch.ones(40, 30), torch.randn(40, 3), 1e-9, False)


@pytest.mark.parametrize("case", ["twice", "tied"])
def test_weights_that_are_used_more_than_once_stay_where_they_are(case):
    network, inputs = cases.make(case)
    assert not layer_outputs(network, inputs)


def test_half_precision_is_solved_in_single():
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)).bfloat16()
    inputs = torch.randn(20, 4, dtype=torch.bfloat16)
    wanted = {name: value + 0.1 for name, value in layer_outputs(network, inputs).items()}
    before = network[2].bias.clone()
    match_layers(network, inputs, wanted, 1.0)
    assert network[2].weight.dtype == torch.bfloat16
    assert not torch.equal(network[2].bias, before)


def test_a_layer_that_nothing_reaches_keeps_its_weight():
    network = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    before = copy.deepcopy(network.state_dict())
    wanted = {"2": torch.ones(6, 2, dtype=torch.float64)}
    match_layers(network, torch.zeros(6, 4, dtype=torch.float64), wanted, 1.0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_one_expert_is_matched_already():
    problem = coding(1, [1.0])
    for name, value in Matched().encode(problem, scale=1.0, strength=0.3).items():
        torch.testing.assert_close(value, problem.params[0][name])


def test_a_strong_ridge_leaves_the_scaled_start():
    problem = coding(2, [0.7, 0.3])
    average = Average().encode(problem)
    for name, value in Matched().encode(problem, scale=2.0, strength=1e12).items():
        if not name.endswith("bias"):  # a bias is free
            torch.testing.assert_close(value, 2 * average[name] - problem.base_params[name])


def test_matching_comes_closer_to_the_experts_average_on_the_samples_than_its_start():
    problem = coding(2)
    start = problem.loss(Average().encode(problem))
    assert problem.loss(Matched().encode(problem, scale=1.0, strength=0.3)) < start / 2


def test_candidates_are_judged_by_samples_they_were_not_fitted_on():
    problem = coding(2)
    code = Matched(strength=None, scale=1.0, grid=[1e-6, 1.0])
    tuned = Tuner("divergence").tune(code, problem)
    asked = Tuner("divergence", folds=3).tune(code, problem)
    assert [c["divergence"] for c in tuned.candidates] == [c["divergence"] for c in asked.candidates]
    fitted = problem.score(problem.answers(code.encode(problem, scale=1.0, strength=1e-6)))
    assert fitted.divergence < tuned.candidates[0]["divergence"] / 2


def test_after_cross_validation_the_chosen_fit_is_made_once(monkeypatch):
    calls = []
    real = Matched.encode
    monkeypatch.setattr(Matched, "encode", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs))
    Tuner("divergence").tune(Matched(), coding(2))
    assert len(calls) == 3 * 3 + 1  # scales, folds, and the chosen one on all samples


def test_layers_are_asked_for_once_whatever_the_candidates(monkeypatch):
    calls = []
    import coin.codes.matched as matched

    real = matched.layer_outputs
    monkeypatch.setattr(matched, "layer_outputs", lambda *args: calls.append(1) or real(*args))
    Tuner("divergence").tune(Matched(folds=0), coding(2))
    assert len(calls) == 3  # two experts and the base


def test_images_are_matched_with_moved_copies_of_them():
    images = torch.arange(2 * 1 * 20 * 10, dtype=torch.float64).view(2, 1, 20, 10)
    more = with_shifts(images, 2)
    assert more.shape == (6, 1, 20, 10)
    assert torch.equal(more[:2], images)
    for i, copy_ in enumerate(more[2:]):
        middle = images[i % 2, :, 2:-2, 1:-1]
        assert any(
            torch.equal(copy_[:, 2 + down : 18 + down, 1 + right : 9 + right], middle)
            for down in range(-2, 3)
            for right in range(-1, 2)
        )
    assert not torch.equal(more[2:4], images)
    assert torch.equal(with_shifts(images, 2), more)
    assert with_shifts(images[:, 0], 2).shape == (2, 20, 10)  # no images
    assert with_shifts(images, 0) is images


@pytest.mark.parametrize("start", [None, Coin(0.01)])
def test_matched_for_people_with_their_own_networks(start):
    problem = coding(2)
    decoder = Ridge(features=True)
    coded = coin.encode(problem.experts, problem.batches, code=Matched(start=start), base=problem.base, decoder=decoder)
    fitted = coin.fit_decoder(decoder, coded, problem.experts, problem.batches)
    inputs = problem.batches[0]
    with torch.no_grad():
        answer = coin.WithFeatures(coded)(inputs)
        decoded = fitted.decode(answer, {1: problem.experts[1](inputs)}, missing=0)
        average = coin.decode(average_of(problem)(inputs), {1: problem.experts[1](inputs)}, problem.beta, 0)
        truth = problem.experts[0](inputs)
    assert (decoded - truth).norm() < (average - truth).norm() / 2


def average_of(problem):
    return coin.encode(problem.experts, problem.batches, code=Average())
