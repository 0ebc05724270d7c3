import torch
from problems import coding
from torch import nn

from coin.codes import Coin, CoinKfac
from coin.codes.kfac import kronecker_factors
from coin.fisher import Exact, Likelihood


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


def test_kronecker_factors_where_an_activation_works_in_place():
    def make(inplace):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=inplace), nn.Linear(5, 3)).double()

    x = torch.randn(9, 4, dtype=torch.float64)
    plain, in_place = (kronecker_factors(make(inplace), [x]) for inplace in (False, True))
    for key, value in plain.items():
        torch.testing.assert_close(in_place[key], value)
