import copy

import lightning as L
import pytest
import reference
import torch
from torch import nn

import coin
from coin import parameters
from coin.averaging import Weighing, mean_of
from coin.codes import Average, Coin, CoinKfac, Matched, RegMean, TaskArithmetic, fisher_average
from coin.codes.distillation import Distillation
from coin.coding import Coding
from coin.decoding import decode
from coin.fisher import Exact, Likelihood, diagonal_fisher
from coin.kronecker import kronecker_factors
from coin.tuning import Tuner


def experts(count=2, seed=0, make=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))):
    torch.manual_seed(seed)
    base = make().double()
    found = [copy.deepcopy(base) for _ in range(count)]
    for expert in found:
        for p in expert.parameters():
            p.data += 0.3 * torch.randn_like(p)
    return base, found


def coding(count=2, beta=None, **settings):
    base, found = experts(count, **settings)
    inputs = torch.randn(20, 4, dtype=torch.float64)
    labels = torch.stack([e(inputs) for e in found]).mean(0).argmax(1)
    owners = torch.arange(20) % count
    return Coding(found, beta, [inputs], base=base, labels=labels, owners=owners)


def random_fishers(params, seed=0):
    torch.manual_seed(seed)
    return [{k: torch.rand_like(v) for k, v in p.items()} for p in params]


@pytest.mark.parametrize("beta", [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
def test_fisher_average_is_the_closed_form(beta):
    params = coding(3).params
    fishers = random_fishers(params)
    ours = fisher_average(params, fishers, beta, 0.01)
    truth = reference.fisher_average(params, fishers, beta, 0.01)
    for name in truth:
        torch.testing.assert_close(ours[name], truth[name])


def test_fisher_average_of_more_than_a_chunk_in_any_memory_layout():
    torch.manual_seed(0)
    params = [{"w": torch.randn(70, 50, 5, 5).to(memory_format=torch.channels_last)} for _ in range(2)]
    fishers = [{"w": torch.rand(70, 50, 5, 5)} for _ in range(2)]
    f, t = [x["w"] + 0.1 for x in fishers], [x["w"] for x in params]
    truth = (0.3 * f[0] * t[0] + 0.7 * f[1] * t[1]) / (0.3 * f[0] + 0.7 * f[1])
    torch.testing.assert_close(fisher_average(params, fishers, [0.3, 0.7], 0.1)["w"], truth)


def test_equal_fishers_make_coin_the_average():
    problem = coding(3, [0.5, 0.3, 0.2])
    fishers = random_fishers(problem.params)[:1] * 3
    average = Average().encode(problem)
    for name, value in fisher_average(problem.params, fishers, problem.beta, 0.1).items():
        torch.testing.assert_close(value, average[name])


def test_large_damping_makes_coin_the_average():
    problem = coding(2, [0.7, 0.3])
    average = Average().encode(problem)
    for name, value in Coin(1e12).encode(problem, damping=1e12).items():
        torch.testing.assert_close(value, average[name])


@pytest.mark.parametrize("code", [Coin(0.01), Average()])
def test_one_expert_codes_to_itself(code):
    problem = coding(1, [1.0])
    for name, value in Tuner().tune(code, problem).params.items():
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


def test_tuning_picks_the_best_and_breaks_ties_by_the_coding_loss():
    problem = coding(2)
    tuned = Tuner().tune(Coin(), problem)
    assert len(tuned.candidates) == 6
    assert tuned.score.nda == max(c["nda"] for c in tuned.candidates)
    tied = [c["coding_loss"] for c in tuned.candidates if c["nda"] == tuned.score.nda]
    assert tuned.score.coding_loss == min(tied)
    assert tuned.hyperparameters["damping"] in Coin().grid


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
    assert not torch.equal(first.params["0.weight"], second.params["0.weight"])


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
    with pytest.raises(ValueError, match="leave the labels out"):
        coin.encode(found, [(inputs, inputs)])


ALL = [
    Average(),
    TaskArithmetic(),
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
    assert parameters.shapes(tuned.params) == parameters.shapes(problem.params[0])
    assert all(torch.isfinite(p).all() for p in tuned.params.values())
    best = max(c["nda"] for c in tuned.candidates)
    assert tuned.score.nda == best
    assert tuned.score.coding_loss == min(c["coding_loss"] for c in tuned.candidates if c["nda"] == best)


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


def test_regmean_is_the_closed_form_on_a_linear_model():
    problem = coding(3, [0.5, 0.3, 0.2], make=lambda: nn.Linear(4, 3))
    x = problem.batches[0]
    gram = x.T @ x / len(x)
    scaled = 0.4 * gram + 0.6 * torch.diag(gram.diagonal())
    left = sum(b * scaled for b in problem.beta)
    right = sum(b * scaled @ p["weight"].T for b, p in zip(problem.beta, problem.params, strict=True))
    ours = RegMean().encode(problem, factor=0.4)
    torch.testing.assert_close(ours["weight"], torch.linalg.solve(left, right).T)
    torch.testing.assert_close(ours["bias"], Average().encode(problem)["bias"])


def test_regmean_weights_layers_by_their_own_inputs():
    problem = coding(2, [0.6, 0.4])
    x = problem.batches[0]
    hidden = [torch.tanh(e[0](x)) for e in problem.experts]
    grams = [0.9 * h.T @ h / len(h) + 0.1 * torch.diag((h.T @ h / len(h)).diagonal()) for h in hidden]
    left = sum(b * g for b, g in zip(problem.beta, grams, strict=True))
    right = sum(b * g @ p["2.weight"].T for b, g, p in zip(problem.beta, grams, problem.params, strict=True))
    ours = RegMean().encode(problem, factor=0.9)
    torch.testing.assert_close(ours["2.weight"], torch.linalg.solve(left, right).T)


def test_regmean_averages_the_weights_of_inputs_that_no_sample_has():
    problem = coding(2, [0.6, 0.4], make=lambda: nn.Linear(4, 3))
    problem.batches[0][:, 2] = 0
    ours, average = RegMean().encode(problem, factor=0.9)["weight"], Average().encode(problem)["weight"]
    assert torch.equal(ours[:, 2], average[:, 2])


@pytest.mark.parametrize("padding", [1, "same"])
def test_regmean_over_convolutions_is_least_squares_on_unfolded_inputs(padding):
    conv = dict(kernel_size=3, padding=padding, bias=False)
    problem = coding(
        2, [0.6, 0.4], make=lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, **conv), nn.Flatten())
    )
    x = nn.functional.unfold(problem.batches[0].view(-1, 1, 2, 2), 3, padding=1)
    rows = x.transpose(1, 2).reshape(-1, 9)
    gram = rows.T @ rows / len(rows)
    scaled = 0.5 * gram + 0.5 * torch.diag(gram.diagonal())
    right = sum(b * scaled @ p["1.weight"].view(2, 9).T for b, p in zip(problem.beta, problem.params, strict=True))
    truth = torch.linalg.pinv(scaled) @ right
    ours = RegMean(convolutions=True).encode(problem, factor=0.5)["1.weight"].view(2, 9)
    used = gram.diagonal() > 0  # weights that meet only padding do not matter
    torch.testing.assert_close(ours[:, used], truth.T[:, used], rtol=1e-5, atol=1e-6)
    average = Average().encode(problem)["1.weight"].view(2, 9)
    torch.testing.assert_close(RegMean().encode(problem, factor=0.5)["1.weight"].view(2, 9), average)


def test_distillation_learns_the_ensemble_and_leaves_a_history():
    problem = coding(2)
    code = Distillation(epochs=30, learning_rate=1e-2)
    before = problem.loss(problem.base_params)
    tuned = Tuner().tune(code, problem)
    losses = [point["coding_loss"] for point in code.history]
    assert len(losses) == 30 and losses[-1] < losses[0] < before
    assert tuned.score.coding_loss == pytest.approx(losses[-1])
    again = Tuner().tune(Distillation(epochs=30, learning_rate=1e-2), problem)
    assert all(torch.equal(value, again.params[name]) for name, value in tuned.params.items())
    closer = Distillation(epochs=1, learning_rate=1e-9, start="average")
    average = Average().encode(problem)
    for name, value in closer.encode(problem).items():
        torch.testing.assert_close(value, average[name], atol=1e-6, rtol=1e-6)


def test_students_are_trained_in_mixed_precision_with_clipped_gradients():
    """Fused optimizers refuse the two together."""

    def trainer(**settings):
        return L.Trainer(accelerator="cpu", precision="bf16-mixed", gradient_clip_val=1.0, **settings)

    base, found = experts(2)
    networks = [network.float() for network in (base, *found)]
    code = Distillation(epochs=1, learning_rate=1e-2, trainer=trainer)
    coded = coin.encode(networks[1:], [torch.randn(20, 4)], code=code, base=networks[0])
    assert any(not torch.equal(a, b) for a, b in zip(coded.parameters(), base.parameters(), strict=True))


def test_distillation_leaves_batch_norm_alone():
    make = lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))  # noqa: E731
    base, found = experts(2, make=make)
    for network in [base, *found]:
        network[1].load_state_dict(base[1].state_dict())
        network[1].requires_grad_(False)
        network.eval()
    inputs = torch.randn(20, 4, dtype=torch.float64)
    coded = coin.encode(found, [inputs], code=Distillation(epochs=2, learning_rate=1e-2), base=base)
    for key, value in base[1].state_dict().items():
        assert torch.equal(coded[1].state_dict()[key], value)
    assert not torch.equal(coded[0].weight, base[0].weight)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TaskArithmetic(-1), "code.scale=-1"),
        (lambda: RegMean(1.5), "from 0 to 1"),
        (lambda: Distillation(epochs=0), "at least 1"),
        (lambda: Distillation(start="nowhere"), "base, average or a code"),
        (lambda: Distillation(learning_rate=0), "must be positive"),
        (lambda: Coin(grid=[]), "empty grid"),
        (lambda: TaskArithmetic(grid=[]), "empty grid"),
        (lambda: RegMean(grid=[]), "empty grid"),
        (lambda: Distillation(folds=5).check(4), "only 4 samples"),
        (lambda: Tuner(folds=5).check(Coin(), 8, experts=2), "too few for an expert"),
        (lambda: Tuner().check(Matched(folds=5), 8, experts=2), "too few for an expert"),
        (lambda: Matched(folds=1), "code.folds=1"),
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


@pytest.mark.parametrize("balance", ["none", "network", "layer"])
@pytest.mark.parametrize("relative", [False, True])
def test_weighed_fishers_are_what_they_say(balance, relative):
    problem = coding(3, [0.5, 0.3, 0.2])
    fishers = [{k: 10.0**i * f for k, f in fisher.items()} for i, fisher in enumerate(random_fishers(problem.params))]
    weighed = [{k: f.clone() for k, f in fisher.items()} for fisher in fishers]
    if balance == "network":
        means = [torch.cat([f.flatten() for f in fisher.values()]).mean() for fisher in fishers]
        target = sum(b * m for b, m in zip(problem.beta, means, strict=True))
        weighed = [{k: f * target / m for k, f in fisher.items()} for fisher, m in zip(fishers, means, strict=True)]
    for name in fishers[0]:
        if balance == "layer":
            target = sum(b * f[name].mean() for b, f in zip(problem.beta, fishers, strict=True))
            for fisher, own in zip(weighed, fishers, strict=True):
                fisher[name] = own[name] * target / own[name].mean()
        if relative:
            level = sum(b * f[name].mean() for b, f in zip(problem.beta, weighed, strict=True))
            for fisher in weighed:
                fisher[name] = fisher[name] / level
    truth = reference.fisher_average(problem.params, weighed, problem.beta, 0.1)
    sizes = {name: f.numel() for name, f in fishers[0].items()}
    scales = Weighing(balance, relative).scales([mean_of(f) for f in fishers], sizes, problem.beta)
    for name, value in fisher_average(problem.params, fishers, problem.beta, 0.1, scales).items():
        torch.testing.assert_close(value, truth[name])


def test_kronecker_factors_are_exact_where_every_sample_is_alike():
    """With one sample, the Fisher of a Linear layer is A ⊗ G; summed over K outputs as the factors are."""
    problem = coding(2)
    x = problem.batches[0][:1]
    factors = kronecker_factors(problem.experts[0], [x])
    params = [p for p in problem.experts[0].parameters()]
    rows = [torch.autograd.grad(y, params, retain_graph=True) for y in problem.experts[0](x)[0].split(1)]
    for i, name in ((0, "0.weight"), (2, "2.weight")):
        jacobian = torch.stack([row[i].T.flatten() for row in rows])  # columns before outputs: A ⊗ G
        torch.testing.assert_close(torch.kron(factors[f"{name}/A"], factors[f"{name}/G"]), jacobian.T @ jacobian)


def test_kronecker_factors_of_a_convolution_are_the_expansion_over_positions():
    make = lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2, padding=1), nn.Tanh(), nn.Flatten())  # noqa: E731
    problem = coding(2, make=make)
    network, x = problem.experts[0], problem.batches[0]
    factors = kronecker_factors(network, x.split(7))
    patches = nn.functional.unfold(x.view(-1, 1, 2, 2), 2, padding=1).transpose(1, 2).reshape(-1, 4)
    torch.testing.assert_close(factors["1.weight/A"], patches.T @ patches / len(x))
    hidden = network[1](network[0](x)).detach().requires_grad_()
    outputs = network[2:](hidden)
    gram = torch.zeros(2, 2, dtype=x.dtype)
    for k in range(outputs.shape[1]):
        (grad,) = torch.autograd.grad(outputs[:, k].sum(), hidden, retain_graph=True)
        rows = grad.permute(0, 2, 3, 1).reshape(-1, 2)
        gram += rows.T @ rows
    torch.testing.assert_close(factors["1.weight/G"], gram / (9 * len(x)))


def test_kronecker_factors_of_a_linear_layer_over_images_with_channels_last():
    make = lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Linear(2, 3), nn.Flatten())  # noqa: E731
    problem = coding(2, make=make)
    factors = kronecker_factors(problem.experts[0], problem.batches)
    torch.testing.assert_close(factors["1.weight/G"], torch.eye(3, dtype=torch.float64))


def test_kronecker_factors_are_of_the_directions_asked_for():
    problem = coding(2, make=lambda: nn.Linear(4, 3))
    x, network = problem.batches[0], problem.experts[0]
    p = network(x).detach().softmax(1)
    truth = sum(torch.diag(row) - torch.outer(row, row) for row in p) / len(x)
    torch.testing.assert_close(kronecker_factors(network, [x], Likelihood())["weight/G"], truth)
    exact, likelihood = (CoinKfac(0.01, fisher=f).encode(problem, damping=0.01) for f in (Exact(), Likelihood()))
    assert not torch.allclose(exact["weight"], likelihood["weight"])


def test_kfac_solves_the_block_systems():
    problem = coding(2, [0.6, 0.4])
    ours = CoinKfac(iterations=200).encode(problem, damping=0.1)
    factors = [kronecker_factors(e, problem.batches) for e in problem.experts]
    for name in ("0.weight", "2.weight"):
        left, right = 0, 0
        for b, f, p in zip(problem.beta, factors, problem.params, strict=True):
            block = torch.kron(f[f"{name}/G"], f[f"{name}/A"])
            block = b * (block + 0.1 * torch.eye(len(block), dtype=block.dtype))
            left, right = left + block, right + block @ p[name].flatten()
        truth = torch.linalg.solve(left, right).view_as(ours[name])
        torch.testing.assert_close(ours[name], truth, rtol=1e-4, atol=1e-6)
    plain = Coin().encode(problem, damping=0.1)
    torch.testing.assert_close(ours["2.bias"], plain["2.bias"])


def test_refining_never_ends_worse_than_it_began_on_unseen_samples():
    problem = coding(2)
    start = Coin(0.01)
    code = Distillation(epochs=4, learning_rate=1e-3, start=start, folds=2)
    refined = code.encode(problem)
    losses = [point["unseen_loss"] for point in code.history]
    assert len(losses) == 5 and [p["epoch"] for p in code.history] == [0, 1, 2, 3, 4]
    if min(losses) == losses[0]:
        assert all(torch.equal(v, start.encode(problem, damping=0.01)[k]) for k, v in refined.items())
    ruinous = Distillation(epochs=2, learning_rate=10.0, start=start, folds=2)
    for name, value in ruinous.encode(problem).items():  # every epoch makes it worse, so none is done
        assert torch.equal(value, start.encode(problem, damping=0.01)[name])


def test_cross_validation_judges_candidates_by_samples_they_were_not_made_from():
    problem = coding(2)
    tuned = Tuner("divergence", folds=3).tune(Coin(), problem)
    count = sum(map(len, problem.batches))
    fold = torch.arange(count) % 3
    losses = []
    for k in range(3):
        seen, unseen = problem.part(torch.where(fold != k)[0]), problem.part(torch.where(fold == k)[0])
        fishers = [reference.diagonal_fisher(e, seen.batches) for e in problem.experts]
        params = reference.fisher_average(problem.params, fishers, problem.beta, 1e-5)
        losses.append(unseen.score(unseen.answers(params)).divergence)
    assert tuned.candidates[0]["divergence"] == pytest.approx(sum(losses) / 3)
    best = min(tuned.candidates, key=lambda c: c["divergence"])
    assert tuned.hyperparameters["damping"] == best["damping"]
    whole = Coin().encode(problem, damping=best["damping"])
    assert all(torch.equal(value, whole[name]) for name, value in tuned.params.items())
    with pytest.raises(ValueError, match="too few"):
        Tuner(folds=count).tune(Coin(), problem)


@pytest.mark.parametrize("criterion", ["coding_loss", "divergence"])
def test_tuning_without_labels(criterion):
    problem = coding(2)
    problem.labels = None
    tuned = Tuner(criterion).tune(Coin(), problem)
    assert getattr(tuned.score, criterion) == min(c[criterion] for c in tuned.candidates)


def test_a_fold_that_diverges_does_not_choose_the_epochs(monkeypatch):
    problem = coding(2)
    code = Distillation(epochs=2, learning_rate=1e-3, start=Coin(0.01), folds=2)
    monkeypatch.setattr(code, "unseen_losses", lambda coding, start: [[1.0, float("nan"), 2.0], [1.0, 0.1, 2.0]])
    refined = code.encode(problem)
    assert code.chosen == {"damping": 0.01, "epochs": 0}
    assert all(torch.equal(v, Coin().encode(problem, damping=0.01)[k]) for k, v in refined.items())
    other = Distillation(epochs=1, start="average", folds=2)
    other.encode(problem)
    assert set(other.chosen) == {"epochs"} and not Average().chosen  # nobody else's
    with pytest.raises(ValueError, match="only 20 samples"):
        Distillation(start=Coin(0.01), folds=50).encode(problem)


def test_kronecker_factors_where_an_activation_works_in_place():
    def make(inplace):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=inplace), nn.Linear(5, 3)).double()

    x = torch.randn(9, 4, dtype=torch.float64)
    plain, in_place = (kronecker_factors(make(inplace), [x]) for inplace in (False, True))
    for key, value in plain.items():
        torch.testing.assert_close(in_place[key], value)


def test_ties_without_labels_go_to_the_lowest_coding_loss():
    problem = coding(
        2, make=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    )  # one class: no divergence
    problem.labels = None
    tuned = Tuner("divergence").tune(Coin(), problem)
    assert tuned.score.coding_loss == min(c["coding_loss"] for c in tuned.candidates)
