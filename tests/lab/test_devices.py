"""Everything a code computes is computed where the experts are. No GPU is needed: fake CUDA tensors have no values, but
an operation that mixes devices fails on them as on real ones."""

import pytest
import torch
from torch import nn

from coin import parameters
from coin.batch import Batch
from coin.codes import Average, Coin, TaskArithmetic, fisher_average
from coin.codes.layers import own_layers
from coin.codes.matched import LeastMove
from coin.codes.regmean import gram_matrices, scale_off_diagonal
from coin.decoders import Analytic
from coin.decoders.maps import Choice, FittedLinear
from coin.decoding import decode
from coin.problem.coding import Coding
from coin.problem.moved import Moved


def network(device="cpu"):
    return nn.Sequential(nn.Conv2d(3, 4, 3, device=device), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3, device=device))


def coding_on_cuda(monkeypatch, **settings):
    monkeypatch.setattr(parameters, "check_alike", lambda *args, **settings: None)  # these read values
    monkeypatch.setattr(parameters, "check_origin", lambda *args: None)
    base, found = network(), [network("cuda") for _ in range(2)]
    # samples, labels and the base network come from the CPU
    labels, owners = torch.zeros(8, dtype=torch.long), torch.zeros(8, dtype=torch.long)
    return Coding(found, None, [torch.randn(8, 3, 6, 6)], base=base, labels=labels, owners=owners, **settings)


@pytest.mark.parametrize(
    "code", [Average(), TaskArithmetic(0.5), Coin(0.1), Coin(0.1, scale=1.5)], ids=lambda c: type(c).__name__
)
def test_codes_compute_on_the_experts_device_whatever_is_kept_elsewhere(code, fake, monkeypatch):
    def compute_fisher(network, batches, directions):
        assert all(batch.device.type == "cuda" for batch in batches)
        return {name: torch.rand(p.shape) for name, p in parameters.trainable(network).items()}  # as read from a file

    problem = coding_on_cuda(monkeypatch, compute_fisher=compute_fisher)
    coded = code.encode(problem, **code.candidates()[0])
    assert {value.device.type for value in coded.values()} == {"cuda"}


def test_answers_are_on_the_experts_device(fake, monkeypatch):
    problem = coding_on_cuda(monkeypatch, compute_outputs=lambda network, batches: torch.randn(8, 3))
    answers = problem.answers(problem.asked([Average().encode(problem)]))
    assert {f.device.type for f in [*answers.coded, *answers.experts.values()]} == {"cuda"}
    assert problem.owners.device.type == problem.labels.device.type == "cuda"
    fitted = Analytic().fit(answers)
    assert fitted.held_out(0).device.type == "cuda"


def test_gram_matrices_are_made_on_the_device(fake):
    found = gram_matrices(network("cuda"), [torch.randn(8, 3, 6, 6, device="cuda")], convolutions=True)
    assert {scale_off_diagonal(gram, 0.9).device.type for gram in found.values()} == {"cuda"} and len(found) == 2


@pytest.mark.parametrize("rows", [5, 50])
def test_least_moves_are_added_up_on_the_device(rows, fake):
    move = LeastMove(rows, offset=True)
    move.add(torch.randn(rows, 10, device="cuda"), torch.randn(rows, 3, device="cuda"))
    assert (move.kept[0][0] if move.few else move.gram).device.type == "cuda"


def test_inputs_of_matched_layers_are_moved_about_on_the_device(fake):
    inputs = Moved(Batch.of(torch.randn(4, 3, 10, 10, device="cuda")))
    assert inputs[torch.arange(4)].device.type == "cuda"
    assert len(own_layers(network())) == 2


def test_a_decoder_from_a_file_decodes_where_the_answers_are(fake):
    fitted = FittedLinear(((0.5, 0.5),), 3, 3, False, {(0, True): Choice(1.0, 1.0, 1.0)})
    fitted.maps[(0,), (1,), (0,)] = torch.randn(6, 3), torch.randn(3)
    answer, other = (torch.randn(8, 3, device="cuda") for _ in "ab")
    assert fitted.decode(answer, {1: other}, 0).device.type == "cuda"
    assert decode(answer, {1: other}, (0.5, 0.5), 0).device.type == "cuda"


def test_mixed_devices_are_what_these_tests_would_see(fake):
    params = [{"w": torch.randn(3, device="cuda")}] * 2
    with pytest.raises(RuntimeError, match="device"):
        torch.add(params[0]["w"], torch.randn(3))
    fishers = [{"w": torch.rand(3, device="cuda")}] * 2
    assert fisher_average(params, fishers, (0.5, 0.5), 0.1)["w"].device.type == "cuda"
