import cases
import pytest
import reference
import torch
from problems import coding
from torch import nn

from coin.codes import Average, RegMean
from coin.codes.attention import opened, projection_of
from coin.codes.kfac import kronecker_factors
from coin.codes.regmean import gram_matrices


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


@pytest.mark.parametrize("case", ["attention", "attention_seq_first", "vit"])
def test_the_packed_projection_of_attention_is_a_layer_like_any_other(case):
    network, inputs = cases.make(case)
    grams, factors = gram_matrices(network, [inputs]), kronecker_factors(network, [inputs])
    with torch.no_grad():
        before = network(inputs)
    open_ = reference.with_open_attention(network)
    assert any("in_proj_weight" in name for name in grams)
    for ours, truth in ((grams, gram_matrices(open_, [inputs])), (factors, kronecker_factors(open_, [inputs]))):
        assert {name.replace("in_proj_", "in_proj.") for name in ours} == set(truth)
        for name, value in ours.items():
            torch.testing.assert_close(value, truth[name.replace("in_proj_", "in_proj.")])
    torch.testing.assert_close(open_(inputs), before)  # and nothing of it stays open


@pytest.mark.parametrize("masked", [None, "keys", "causal"])
def test_attention_computes_what_torchs_own_does(masked):
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(6, 2, batch_first=True).double().eval(), torch.randn(3, 4, 6).double()
    given = {"keys": {"key_padding_mask": torch.tensor([[False] * 4, [False] * 3 + [True], [False, True, True, True]])},
             "causal": {"attn_mask": torch.ones(4, 4).triu(1).bool()}}.get(masked, {})  # fmt: skip
    truth = attention(x, x, x, **given)
    with opened([projection_of(attention)]):
        ours = attention(x, x, x, **given)
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b)
    assert projection_of(nn.MultiheadAttention(6, 2, add_zero_attn=True)) is None
