"""BatchNorm's statistics in a coded network, where experts have trained them."""

import copy

import pytest
import torch
from torch import nn

import coin
from coin.codes import Average, Matched
from coin.problem.coding import Coding
from coin.problem.statistics import estimated, statistics_of


def trained(seed):
    """A network whose BatchNorm has seen other data than others'."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    torch.manual_seed(seed)
    for p in network.parameters():
        p.data += 0.1 * torch.randn_like(p)
    network(torch.randn(50, 4).double() + seed)
    return network.eval()


def inputs():
    return torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


def test_experts_that_differ_in_statistics_are_refused_unless_these_are_averaged():
    experts = [trained(1), trained(2)]
    with pytest.raises(ValueError, match=r"differ in tensors that were not trained: 1\.running_mean"):
        coin.encode(experts, [inputs()])
    before = copy.deepcopy(experts[0].state_dict())
    coded = coin.encode(experts, [inputs()], [0.7, 0.3], batch_statistics="average")
    one, two = (statistics_of(expert) for expert in experts)
    for name, value in statistics_of(coded).items():
        torch.testing.assert_close(value, 0.7 * one[name] + 0.3 * two[name])
    assert all(torch.equal(value, before[name]) for name, value in experts[0].state_dict().items())


@pytest.mark.parametrize("code", [Average(), Matched(scale=1.0)], ids=lambda code: type(code).__name__)
def test_statistics_of_the_samples_make_what_the_samples_make_in_train_mode(code):
    experts, x = [trained(1), trained(2)], inputs()
    problem = Coding(experts, None, [x], batch_statistics="samples")
    coded = copy.deepcopy(problem.network(code.encode(problem, **code.candidates()[0])))
    hidden = coded[0](x)
    torch.testing.assert_close(coded[1].running_mean, hidden.mean(0))
    torch.testing.assert_close(coded[1].running_var, hidden.var(0))  # unbiased, as torch keeps it
    assert not coded[1].training and coded[1].momentum == 0.1 and coded[1].num_batches_tracked is not None


def test_batches_count_by_their_samples_and_one_sample_says_nothing():
    network, x = trained(1), inputs()
    parts = [x[:30], x[30:39], x[39:]]
    found = estimated(network, parts)
    means = [network[0](part).mean(0) for part in parts[:2]]
    torch.testing.assert_close(found["1.running_mean"], (30 * means[0] + 9 * means[1]) / 39)
    with pytest.raises(ValueError, match="no batch of two samples or more"):
        estimated(network, [x[:1]])
