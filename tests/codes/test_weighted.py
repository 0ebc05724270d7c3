import pytest
import reference
import torch
from problems import coding, random_fishers

from coin.codes import Average, Coin, fisher_average
from coin.codes.weighted import Weighing, mean_of


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
