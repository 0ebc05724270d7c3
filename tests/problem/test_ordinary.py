"""Networks as people have them: each is coded and decoded, or one sentence says why not."""

import copy

import cases
import pytest
import torch
from torch import nn

import coin
from coin.codes import Average, Coin, CoinKfac, Matched, RegMean, TaskArithmetic
from coin.decoders import Ridge
from coin.fisher import Probes
from coin.metrics import agreement, coding_loss, divergence
from coin.parameters import load, trainable
from coin.problem.coding import Coding

CODES = [Average(), Coin(0.01), CoinKfac(0.01), TaskArithmetic(0.5), RegMean(0.9), RegMean(0.9, convolutions=True)]
CODES += [Matched(scale=1.0)]


class TiedLinears(nn.Module):
    """Two Linear layers with one weight, and a third of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.fc = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.fc(torch.tanh(self.second(torch.tanh(self.first(x)))))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(input=torch.relu(self.body(x)))


class OneAtATime(nn.Module):
    """Convolves unbatched images, in a loop."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2, 3)

    def forward(self, x):
        return torch.stack([self.fc(self.conv(image).mean((1, 2))) for image in x])


def weight_norm(kind):
    def make():
        return nn.Sequential(kind(nn.Linear(5, 6)), nn.Tanh(), nn.Linear(6, 3))

    return make


VECTORS, IMAGES = torch.randn(24, 5), torch.randn(24, 1, 6, 6)
NETWORKS = {
    "tied linears": (TiedLinears, VECTORS),
    "tied embedding": (cases.Tied, torch.randint(0, 6, (24, 4))),
    "weight_norm": (weight_norm(nn.utils.parametrizations.weight_norm), VECTORS),
    "spectral_norm": (weight_norm(nn.utils.parametrizations.spectral_norm), VECTORS),
    "by keyword": (ByKeyword, VECTORS),
    "one at a time": (OneAtATime, IMAGES),
    "no linear layer": (lambda: nn.Sequential(nn.Conv2d(1, 3, 6), nn.Flatten()), IMAGES),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), cases.Head(4)), IMAGES),
    "even padding": (lambda: nn.Sequential(nn.Conv2d(1, 4, 2, padding="same"), cases.Head(4)), IMAGES),
}


def experts_of(make):
    torch.manual_seed(0)
    base = make().eval()
    found = [copy.deepcopy(base) for _ in range(2)]
    for expert in found:
        for p in expert.parameters():
            p.data += 0.02 * torch.randn_like(p)
    return base, found


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{type(code).__name__}{getattr(code, 'convolutions', '')}")
@pytest.mark.parametrize("name", NETWORKS)
def test_ordinary_networks_are_coded_and_decoded(name, code):
    make, inputs = NETWORKS[name]
    base, found = experts_of(make)
    coded = coin.encode(found, inputs.split(8), code=code, base=base)
    with torch.no_grad():
        decoded = coin.decode(coded(inputs), {1: found[1](inputs)}, (0.5, 0.5), 0)
        error = (decoded - found[0](inputs)).norm() / (found[0](inputs) - found[1](inputs)).norm()
    assert error < (1.5 if name in ("tied embedding", "spectral_norm") else 0.5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_network_that_torch_cannot_copy_is_refused_in_a_sentence():
    found = [weight_norm(nn.utils.weight_norm)() for _ in range(2)]
    with pytest.raises(ValueError, match=r"use torch\.nn\.utils\.parametrizations\.weight_norm"):
        coin.encode(found, [VECTORS])


@pytest.mark.parametrize("name", ["by keyword", "tied linears", "weight_norm"])
def test_features_of_ordinary_networks(name):
    make, inputs = NETWORKS[name]
    _, found = experts_of(make)
    answer = coin.WithFeatures(found[0])(inputs)
    torch.testing.assert_close(answer[:, :3], found[0](inputs))
    assert answer.shape[1] > 3
    fitted = coin.fit_decoder(Ridge(features=True), coin.encode(found, [inputs]), found, [inputs])
    assert torch.isfinite(fitted.decode(answer, {1: found[1](inputs)}, 0)).all()


def test_a_shared_weight_is_averaged_where_a_layer_alone_cannot_say_what_it_should_be():
    base, found = experts_of(TiedLinears)
    problem = Coding(found, (0.7, 0.3), [VECTORS], base=base)
    average = Average().encode(problem)["first.weight"]
    for code in (RegMean(0.9), Matched(scale=1.0)):
        torch.testing.assert_close(code.encode(problem, **code.candidates()[0])["first.weight"], average)


def test_a_state_dict_with_shared_weights_is_loaded():
    network = TiedLinears()
    other = load(TiedLinears(), network.state_dict())
    for name, value in trainable(network).items():
        assert torch.equal(trainable(other)[name], value)


class Tokens(nn.Module):
    """A row of outputs for every token."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(x)


@pytest.mark.parametrize("code", [*CODES, Coin(0.01, fisher=Probes(2))], ids=lambda code: type(code).__name__)
def test_a_row_of_outputs_for_every_token_is_refused(code):
    base, found = experts_of(Tokens)
    with pytest.raises(ValueError, match=r"\(\d, 7, 3\) for \d samples, expected \(samples, outputs\)"):
        coin.encode(found, [torch.randn(8, 7, 5)], code=code, base=base)
    with pytest.raises(ValueError, match="one row a sample"):
        coin.fit_decoder(Ridge(), found[0], found, [torch.randn(8, 7, 5)])


@pytest.mark.parametrize("outputs", ["scalar", "object"])
def test_other_outputs_are_refused(outputs):
    class Odd(nn.Linear):
        def forward(self, x):
            made = super().forward(x)
            return made.sum() if outputs == "scalar" else {"answer": made}

    _, found = experts_of(lambda: Odd(5, 3))
    with pytest.raises(ValueError, match=r"expected (\(samples, outputs\)|one tensor of outputs)"):
        coin.encode(found, [VECTORS], code=Average())


def test_outputs_that_would_be_broadcast_are_refused():
    one, many, tokens = torch.randn(1, 3), torch.randn(8, 3), torch.randn(8, 4, 3)
    for bad in (one, tokens, many[:, :1]):
        with pytest.raises(ValueError, match="all must"):
            coin.decode(many, {1: bad}, (0.5, 0.5), 0)
        with pytest.raises(ValueError, match="cannot be compared"):
            divergence(many, bad)
        with pytest.raises(ValueError, match="cannot be compared"):
            agreement(many, bad)
        with pytest.raises(ValueError, match="cannot be compared"):
            coding_loss(many, [many, bad], (0.5, 0.5))


def test_a_damping_beside_a_code_is_refused():
    _, found = experts_of(ByKeyword)
    for damping in (0.5, 1e-2):
        with pytest.raises(ValueError, match="give one of the two"):
            coin.encode(found, [VECTORS], damping=damping, code=Coin(0.1))
    coin.encode(found, [VECTORS], code=Coin(0.1))
    coin.encode(found, [VECTORS], damping=0.5)
