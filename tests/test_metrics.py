import pytest
import torch

from coin.metrics import (
    NormalizedDecodingAccuracy,
    coding_loss,
    margin,
    nda_among,
    nda_compute,
    nda_update,
    spread,
)


def one_hot(labels):
    return torch.nn.functional.one_hot(torch.tensor(labels), 3).float()


def test_nda_is_the_ratio_of_two_accuracies():
    metric = NormalizedDecodingAccuracy()
    metric.update(one_hot([0, 1, 2, 0]), one_hot([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2]))  # 2 and 3 right
    metric.update(one_hot([1]), one_hot([1]), torch.tensor([1]))
    assert float(metric.compute()) == pytest.approx(100 * 3 / 4)
    metric.reset()
    metric.update(one_hot([1]), one_hot([0]), torch.tensor([1]))
    assert torch.isnan(metric.compute()), "undefined, not infinitely good"


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="samples, classes"):
        NormalizedDecodingAccuracy().update(torch.zeros(2, 3), torch.zeros(3, 3), torch.zeros(3))


def test_coding_loss_by_hand():
    # N = 2, β = (0.5, 0.5): β̄ = (4 + 4) / 2 = 4; one sample is off by (1, 0), the other by nothing
    experts = [torch.zeros(2, 2), torch.zeros(2, 2)]
    assert coding_loss(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), experts, (0.5, 0.5)) == pytest.approx(4 / 2 * 1 / 2)


def worker(rank, ranks, file, decoded, expert, target, result):
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    metric = NormalizedDecodingAccuracy()
    metric.update(decoded[rank::ranks], expert[rank::ranks], target[rank::ranks])
    result[rank] = float(metric.compute())
    torch.distributed.destroy_process_group()


def test_nda_under_ddp_is_that_of_one_process(tmp_path):
    torch.manual_seed(0)
    decoded, expert, target = torch.randn(31, 3), torch.randn(31, 3), torch.randint(0, 3, (31,))
    result = torch.zeros(2, dtype=torch.float64).share_memory_()
    arguments = (2, tmp_path / "rendezvous", decoded, expert, target, result)
    torch.multiprocessing.spawn(worker, arguments, nprocs=2)
    alone = NormalizedDecodingAccuracy()
    alone.update(decoded, expert, target)
    assert result.tolist() == [pytest.approx(float(alone.compute()))] * 2


def test_nda_among_some_classes_ignores_the_others():
    expert = torch.tensor([[9.0, 0, 1, 0], [0, 0, 9, 5], [9.0, 0, 1, 2]])
    decoded = torch.tensor([[2.0, 9, 1, 9], [9, 0, 5, 9], [1.0, 9, 2, 0]])  # taken for classes 1, 0 and 1
    target = torch.tensor([0, 2, 0])
    assert float(nda_compute(*nda_update(decoded, expert, target))) == 0
    assert nda_among(torch.tensor([0, 2]), decoded, expert, target) == pytest.approx(100 / 3)
    assert nda_among(torch.tensor([0, 1, 2, 3]), decoded, expert, target) == 0


def test_margins_and_spreads():
    outputs = torch.tensor([[3.0, 1, 0], [0, 5, 4], [2, 2, 8]])
    assert margin(outputs) == 2
    assert spread(outputs + 7) == pytest.approx(float(outputs.var(1, correction=0).mean()) ** 0.5)
