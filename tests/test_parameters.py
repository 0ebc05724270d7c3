import copy

import pytest
import torch
from torch import nn

from coin import parameters


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def frozen_network():
    made = network()
    made[1].requires_grad_(False)
    return made


def test_trainable_and_frozen_part_the_network():
    made = frozen_network()
    theta, rest = parameters.trainable(made), parameters.frozen(made)
    assert set(theta) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert set(theta) | set(rest) == set(made.state_dict())


def test_load_refuses_what_does_not_fit_and_writes_nothing():
    made = frozen_network()
    before = copy.deepcopy(made.state_dict())
    with pytest.raises(ValueError, match=r"0\.weight \(9, 9\).*has \(4, 3\)"):
        parameters.load(made, {"2.bias": torch.ones(2), "0.weight": torch.ones(9, 9)})
    with pytest.raises(ValueError, match="nonsense"):
        parameters.load(made, {"nonsense": torch.ones(2)})
    assert all(torch.equal(before[key], value) for key, value in made.state_dict().items())


def test_weighted_sum():
    a, b = {"x": torch.tensor([1.0, 2.0])}, {"x": torch.tensor([3.0, 6.0])}
    assert torch.equal(parameters.weighted_sum([a, b], [0.25, 0.75])["x"], torch.tensor([2.5, 5.0]))
    assert torch.equal(a["x"], torch.tensor([1.0, 2.0]))


def test_unlike_networks_are_refused_by_name():
    first = frozen_network()
    other = copy.deepcopy(first)
    parameters.check_alike([first, other])
    other[1].running_mean += 1
    with pytest.raises(ValueError, match=r"left and right differ in tensors that were not trained: 1\.running_mean"):
        parameters.check_alike([first, other], ["left", "right"])
    with pytest.raises(ValueError, match="different architectures"):
        parameters.check_alike([first, nn.Linear(3, 2)])
    with pytest.raises(ValueError, match="different architectures"):  # other tensors trained
        parameters.check_alike([first, network()])
    for bad in (float("nan"), float("inf")):
        other = copy.deepcopy(first)
        other[2].bias.data[0] = bad
        with pytest.raises(ValueError, match=r"expert 1 has NaN or infinite weights in 2\.bias"):
            parameters.check_alike([first, other])
    with pytest.raises(ValueError, match="nothing to code"):
        parameters.check_alike([first.requires_grad_(False)])
