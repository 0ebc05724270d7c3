"""Small coding problems in float64."""

import copy

import torch
from torch import nn

from coin.problem.coding import Coding


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
