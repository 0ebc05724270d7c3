import copy
import warnings

import cases
import pytest
import reference
import torch
from reference import relative_error
from torch import nn

from coin.batch import Batch
from coin.fisher import DiagonalFisher, Exact, Likelihood, Probes, diagonal_fisher
from coin.fisher.layout import Layout
from coin.fisher.products import Direct, Pairs, pairs_is_cheaper

RANDOM_SHAPES = {"conv1d": 8, "conv2d": 8, "conv3d": 8}


@pytest.mark.parametrize(("name", "seed"), [(n, s) for n in cases.CASES for s in range(RANDOM_SHAPES.get(n, 1))])
def test_exact_on_every_kind_of_layer(name, seed):
    network, inputs = cases.make(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch on padding="same" with an even kernel
        ours = diagonal_fisher(network, [inputs])
    assert relative_error(ours, reference.diagonal_fisher(network, [inputs])) < 1e-9


@pytest.mark.parametrize(
    ("name", "general"),
    [
        ("resnet18", set()),
        ("vit", set()),
        ("attention", set()),
        ("attention_seq_first", set()),
        ("twice", set()),
        ("frames_by_frame", set()),
        ("tied", set()),
        ("odd", {"up.weight", "up.bias", "bilinear.weight"}),
        ("cross_attention", set()),
        ("positions", set()),
        ("relative_positions", set()),
        ("token_mixing", set()),
        ("response_norm", set()),
        ("split_biases", set()),
        ("weight_norm", set()),
        ("repeated", set()),
    ],
)
def test_only_what_no_rule_knows_takes_the_slow_path(name, general):
    network, inputs = cases.make(name)
    fisher = DiagonalFisher(network)
    fisher.update(inputs)
    assert set(fisher.plan.general) == general


@pytest.mark.parametrize("name", ["norms", "attention_seq_first", "frames_by_frame", "odd"])
def test_neither_batch_size_nor_memory_matters(name):
    network, inputs = cases.make(name)
    whole = diagonal_fisher(network, [inputs])
    assert relative_error(diagonal_fisher(network, inputs.split(1)), whole) < 1e-12
    assert relative_error(diagonal_fisher(network, [inputs[:3], inputs[3:]]), whole) < 1e-12
    tight = DiagonalFisher(network, memory=1)
    tight.update(inputs)
    assert relative_error(tight.compute(), whole) < 1e-12


ORDERS = [(6,), (1, 6), (6, 1), (3, 7), (2, 5, 2), (12, 4)]
# Their rows follow the data or the number of samples, or lie in no regular way: these may take the general path.
IRREGULAR = {"flipped", "rolled", "frames shuffled apart", "another way for odd batches", "another way for other data",
             "sorted by contents", "sorted, put back", "sorted by a matrix", "activations as a table", "pads",
             "packed by a mask", "dispatched to slots", "recurrent, packed", "tied apart", "experts"}  # fmt: skip


def general_and_error(network, batches):
    """The parameters that took the general path in any batch, and the error against the loop."""
    fisher, general = DiagonalFisher(network), set()
    for inputs in batches:
        fisher.update(inputs)
        general |= set(fisher.plan.general)
    return general, relative_error(fisher.compute(), reference.diagonal_fisher(network, batches))


@pytest.mark.parametrize("name", cases.MISLEADING)
def test_no_layout_misleads(name):
    for sizes in ORDERS:
        general, error = general_and_error(*cases.misleading(name, sizes))
        assert error < 1e-9, sizes
        assert name in IRREGULAR or not general, sizes


@pytest.mark.parametrize("name", cases.MISLEADING)
@pytest.mark.parametrize("first", ["equal", "zero", "negative"])
def test_no_first_batch_misleads(name, first):
    """Samples that are alike, or have hardly any gradient, prove little for those that follow."""
    network, (few, many, more) = cases.misleading(name, (7, 7, 4), seed=1)
    few = {"equal": few[:1].repeat(7, 1, 1, 1), "zero": 0 * few, "negative": -few.abs()}[first]
    assert general_and_error(network, [few, many, more])[1] < 1e-9


def gated(counts, seed):
    """Inputs whose first so many tokens have a positive gate."""
    x = torch.randn(len(counts), 12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    positive = torch.arange(12)[None] < torch.tensor(counts)[:, None]
    x[..., 0] = torch.where(positive, x[..., 0].abs(), -x[..., 0].abs())
    return x.view(-1, 3, 4, 5)


@pytest.mark.parametrize("name", ["packed by a mask", "dispatched to slots", "experts"])
@pytest.mark.parametrize(
    "later", [(3, 3, 2, 4, 3, 3, 3, 3, 3), (3, 3, 3, 2, 3, 4, 3, 3, 3), (5, 1, 3, 2, 4, 3, 1, 5, 3)]
)
def test_rows_that_move_with_the_data_while_no_shape_changes(name, later):
    network, _ = cases.misleading(name, ())
    for first in (3, 12):
        batches = [gated([first] * 9, 0), gated(later, 1), gated([first] * 9, 2)]
        assert general_and_error(network, batches)[1] < 1e-9


class Sequence(nn.Module):
    """Sequence first, of any length, in one dimension or two."""

    def __init__(self, flat):
        super().__init__()
        self.first, self.second, self.fc, self.flat = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3), flat

    def forward(self, x):
        steps = x.transpose(0, 1)
        y = self.second(torch.tanh(self.first(steps.reshape(-1, 5) if self.flat else steps)))
        return self.fc(y.view(*steps.shape[:2], 6).mean(0))


@pytest.mark.parametrize("lengths", [(1, 6), (6, 1), (4, 1, 6, 4), (2, 3)])
@pytest.mark.parametrize("flat", [True, False])
def test_batches_of_other_lengths(lengths, flat):
    torch.manual_seed(0)
    network = Sequence(flat).double()
    for samples in (1, 2, 4, 6):
        batches = [torch.randn(samples, length, 5, dtype=torch.float64) for length in lengths]
        general, error = general_and_error(network, batches)
        assert error < 1e-9 and not general


def test_a_batch_as_large_as_every_other_dimension():
    torch.manual_seed(0)
    for order in [(0, 1, 2), (1, 0, 2)]:
        network = nn.Sequential(Permuted(order), nn.Linear(5, 5), nn.Tanh(), Permuted(order, back=True), nn.Flatten(),
                                nn.Linear(25, 3)).double()  # fmt: skip
        general, error = general_and_error(network, [torch.randn(5, 5, 5, dtype=torch.float64) for _ in range(2)])
        assert error < 1e-9 and not general


class Permuted(nn.Module):
    def __init__(self, order, back=False):
        super().__init__()
        self.order = tuple(order.index(d) for d in range(3)) if back else order

    def forward(self, x):
        return x.permute(self.order)


def test_a_wrong_layout_is_found_by_its_witnesses():
    """Whatever a plan says: witnesses decide, and for the very batch that shows it."""
    network, batches = cases.misleading("frames first, reads all", (6, 6))
    truth = reference.diagonal_fisher(network, batches)
    fisher = DiagonalFisher(network)
    fisher.update(batches[0])
    assert fisher.plan.layouts["first.weight"] == fisher.plan.layouts["second.weight"] == [Layout(0, outer=3)]
    fisher.plan.layouts["first.weight"] = fisher.plan.layouts["second.weight"] = [Layout(0)]
    fisher.update(batches[1])
    assert {"first.weight", "second.weight"} == set(fisher.plan.general)
    assert relative_error(fisher.compute(), truth) < 1e-9


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


class Own(nn.Module):
    """Frames first, with an operation of its own."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(Double.apply(self.body(x.permute(1, 0, 2, 3)))[0].mean(1))


def test_operations_of_ones_own():
    torch.manual_seed(0)
    general, error = general_and_error(Own().double(), [torch.randn(n, 3, 4, 5).double() for n in (5, 1, 6)])
    assert error < 1e-9 and not general


def test_a_gradient_that_cancels_is_no_disagreement():
    """The bias of attention's keys has a gradient of rounding errors only, in a batch others than alone."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.fc = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.fc(((self.query(x) @ self.key(x).mT).softmax(2) @ x).mean(1))

    torch.manual_seed(0)
    fisher = DiagonalFisher(Attention())
    fisher.update(torch.randn(20, 30, 16))
    assert not fisher.plan.general


@pytest.mark.parametrize("positions", [1, 2, 5, 16])
@pytest.mark.parametrize("groups", [1, 3])
def test_direct_and_pairs_agree(positions, groups):
    torch.manual_seed(positions)
    inputs = torch.randn(4, positions, groups, 5, dtype=torch.float64)
    gradients = [torch.randn(4, positions, groups, 7, dtype=torch.float64) for _ in range(3)]
    truth = sum(torch.einsum("ntgc,ntgo->ngco", inputs, g).square().sum(0) for g in gradients)
    for way in (Direct, Pairs):
        squares = way(lambda: inputs)
        for g in gradients:
            squares.add(g)
        torch.testing.assert_close(squares.result(), truth)


def test_the_cost_model_prefers_pairs_for_few_positions():
    assert pairs_is_cheaper(1, 10, 2048, 512)
    assert pairs_is_cheaper(4, 10, 2304, 256)
    assert not pairs_is_cheaper(256, 10, 147, 64)
    assert not pairs_is_cheaper(3136, 10, 64, 64)


def test_frozen_parameters_are_left_out_and_come_back_unchanged():
    network, inputs = cases.make("norms")
    network[1].requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    ours = diagonal_fisher(network, [inputs])
    assert not any(name.startswith("1.") for name in ours)
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    assert network[0].weight.requires_grad and not network[1].weight.requires_grad


def test_frozen_batch_norm_is_still_itself():
    network, inputs = cases.make("norms")
    network[1].requires_grad_(False)
    plain = nn.BatchNorm2d(4, affine=False).double().eval()
    for changed in (network, nn.Sequential(network[0], plain, *network[2:])):
        assert relative_error(diagonal_fisher(changed, [inputs]), reference.diagonal_fisher(changed, [inputs])) < 1e-9


def test_probes_are_unbiased_and_do_not_depend_on_the_batches():
    network, inputs = cases.make("mlp")
    exact = diagonal_fisher(network, [inputs], Exact())
    many = diagonal_fisher(network, [inputs], Probes(4000))
    assert relative_error(many, exact) < 0.05
    few = diagonal_fisher(network, [inputs], Probes(20))
    assert relative_error(few, exact) > relative_error(many, exact)
    assert relative_error(diagonal_fisher(network, inputs.split(1), Probes(20)), few) < 1e-12
    assert relative_error(diagonal_fisher(network, [inputs.flip(0)], Probes(20)), few) < 1e-12
    with pytest.raises(ValueError, match="must be at least 1"):
        Probes(0)


@pytest.mark.parametrize("name", ["mlp", "norms", "odd"])
def test_the_likelihoods_fisher_is_that_of_the_log_probabilities(name):
    """Σ_k p_k (∂ log p_k)², sample by sample and class by class."""
    network, inputs = cases.make(name)
    params = {n: p for n, p in network.named_parameters() if p.requires_grad}
    truth = {n: torch.zeros_like(p) for n, p in params.items()}
    for x in inputs.split(1):
        logs = network(x).log_softmax(1)[0]
        for log in logs:
            gradients = torch.autograd.grad(log, list(params.values()), retain_graph=True, allow_unused=True)
            for n, g in zip(truth, gradients, strict=True):
                truth[n] += 0 if g is None else log.exp().detach() * g.square() / len(inputs)
    assert relative_error(diagonal_fisher(network, [inputs], Likelihood()), truth) < 1e-9


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_probes_of_samples_that_are_single_numbers(dtype):
    torch.manual_seed(0)
    network = nn.Sequential(Cast(), nn.Embedding(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    whole = diagonal_fisher(network, [inputs], Probes(2000))
    assert relative_error(whole, reference.diagonal_fisher(network, [inputs])) < 0.2
    assert relative_error(diagonal_fisher(network, inputs.split(1), Probes(2000)), whole) < 1e-12
    assert relative_error(diagonal_fisher(network, [inputs]), reference.diagonal_fisher(network, [inputs])) < 1e-9


class Cast(nn.Module):
    def forward(self, x):
        return x.long()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_the_same_sample_has_the_same_probes_wherever_it_lies(dtype):
    x = (torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    outputs = torch.zeros(4, 6)
    truth = list(Probes(3).of(Batch.of(x), outputs))
    scattered = torch.stack([x, x], -1)[..., 0]
    last = x.contiguous(memory_format=torch.channels_last)
    for same in (scattered, last, x.transpose(0, 3).contiguous().transpose(0, 3)):
        assert all(torch.equal(a, b) for a, b in zip(Probes(3).of(Batch.of(same), outputs), truth, strict=True))
    alone = [list(Probes(3).of(Batch.of(x[i : i + 1]), outputs[:1])) for i in range(4)]
    assert all(torch.equal(alone[i][k][0], truth[k][i]) for i in range(4) for k in range(3))
    column = x[:, 0, 0, :1].T.contiguous().T  # one number a sample, and strides that no view of bytes likes
    assert len(list(Probes(3).of(Batch.of(column), outputs))) == 3


def test_probes_take_the_slow_path_too():
    network, inputs = cases.make("odd")
    exact = diagonal_fisher(network, [inputs])
    assert relative_error(diagonal_fisher(network, [inputs], Probes(2000)), exact) < 0.2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_accumulates_in_float32(dtype):
    network, inputs = cases.make("norms", dtype=torch.float32)
    truth = diagonal_fisher(network, [inputs])
    low = diagonal_fisher(copy.deepcopy(network).to(dtype), [inputs.to(dtype)])
    assert all(value.dtype == torch.float32 for value in low.values())
    assert relative_error(low, truth) < 0.1
    with torch.autocast("cpu", torch.bfloat16):
        mixed = DiagonalFisher(network)
        mixed.update(inputs)
    assert not mixed.plan.general
    assert relative_error(mixed.compute(), truth) < 0.1


def test_state_dict_resumes():
    network, inputs = cases.make("mlp")
    first, second = DiagonalFisher(network), DiagonalFisher(network)
    first.update(inputs[:2])
    second.load_state_dict(first.state_dict())
    second.update(inputs[2:])
    assert relative_error(second.compute(), diagonal_fisher(network, [inputs])) < 1e-12


class Routed(nn.Module):
    """A computation that depends on the data."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(self.a(x))


def test_a_computation_that_depends_on_the_data():
    network = Routed().double()
    batches = [torch.ones(2, 3, dtype=torch.float64), -torch.ones(2, 3, dtype=torch.float64)]
    assert relative_error(diagonal_fisher(network, batches), reference.diagonal_fisher(network, batches)) < 1e-9


class MixesSamples(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x - x.mean(0))


class MixesAndNoRuleKnows(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3))

    def forward(self, x):
        return (x - x.mean(0)) @ torch.linalg.matrix_exp(self.matrix)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(nn.functional.dropout(x, 0.5, training=True))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.out(torch.utils.checkpoint.checkpoint(self.fc, x.requires_grad_(), use_reentrant=True))


class Tuple(nn.Linear):
    def forward(self, x):
        return (super().forward(x),)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).train(), r"1 is BatchNorm in train mode.*\.eval\(\)"),
        (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train(), r"1 has active dropout \(0\.5\)"),
        (MixesSamples(), "differently alone than in a batch"),
        (MixesAndNoRuleKnows(), "differently alone than in a batch"),
        (Noisy(), "draws random numbers"),
        (Checkpointed(), "activation checkpointing"),
        (Tuple(3, 3), "returns tuple"),
        (nn.Sequential(nn.Linear(3, 3), nn.Flatten(0)), r"expected \(samples, outputs\)"),
        (nn.Sequential(nn.Linear(3, 3), nn.Unflatten(1, (3, 1))), r"returns \(\d, 3, 1\).*one row a sample"),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), r"returns \(\d,\).*one row a sample"),
        (nn.Linear(3, 3).requires_grad_(False), "no parameter of the network requires gradients"),
    ],
)
def test_what_cannot_be_treated_exactly_is_refused(network, words):
    with pytest.raises(ValueError, match=words):
        diagonal_fisher(network, [torch.randn(4, 3)])


def test_no_batches_are_refused():
    with pytest.raises(ValueError, match="at least one batch"):
        diagonal_fisher(nn.Linear(3, 3), [])
