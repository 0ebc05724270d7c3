import pytest
import torch
from safetensors.torch import save_file

from coin.training.batch_norm import batch_norms, freeze_batch_norm
from coin.training.models import ResNet, Small


def test_the_head_is_seeded_and_the_backbone_comes_from_the_file(tmp_path):
    donor = Small(weights="none", seed=7).build(10)
    for suffix in ("pth", "safetensors"):
        path = tmp_path / f"donor.{suffix}"
        state = {k: v.contiguous() for k, v in donor.state_dict().items()}
        torch.save(state, path) if suffix == "pth" else save_file(state, path)
        network = Small(weights=str(path), seed=0).build(10)
        assert torch.equal(network.blocks[0].conv1.weight, donor.blocks[0].conv1.weight)
        assert torch.equal(network.fc.weight, Small(weights="none", seed=0).build(10).fc.weight)
        assert not torch.equal(network.fc.weight, donor.fc.weight)
        assert Small(weights=str(path)).build(4).fc.weight.shape == (4, 64)


def test_a_path_counts_by_its_contents(tmp_path):
    torch.save(Small(weights="none").build(10).state_dict(), tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes((tmp_path / "a.pth").read_bytes())
    torch.save(Small(weights="none", seed=1).build(10).state_dict(), tmp_path / "c.pth")
    a, b, c = (Small(weights=str(tmp_path / f"{n}.pth")).recipe() for n in "abc")
    assert a == b != c


def test_building_does_not_disturb_the_global_random_state():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Small(weights="none").build(10)
    assert torch.equal(torch.rand(3), expected)


def test_a_head_scaled_up_is_another_base_of_the_same_function():
    plain, large = Small(weights="none"), Small(weights="none", head_scale=5)
    a, b = plain.build(10).state_dict(), large.build(10).state_dict()
    assert all(torch.equal(b[name], 5 * a[name] if name.startswith("fc.") else a[name]) for name in a)
    assert "head_scale" not in plain.recipe() and plain.recipe() != large.recipe()
    assert plain.shape() == large.shape()
    for bad in (0, -1, float("nan"), "large"):
        with pytest.raises(ValueError, match=r"model\.head_scale=.*: must be a positive number"):
            Small(weights="none", head_scale=bad)


def test_weights_that_were_saved_on_a_gpu_are_read_without_one(tmp_path, monkeypatch):
    state = Small(weights="none").build(10).state_dict()
    with monkeypatch.context() as patched:
        patched.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")
        torch.save(state, tmp_path / "gpu.pth")
    network = Small(weights=str(tmp_path / "gpu.pth")).build(10)
    assert torch.equal(network.blocks[0].conv1.weight, state["blocks.0.conv1.weight"])


def test_imagenet_weights_are_fetched_only_to_build_with_them(monkeypatch):
    def refuse(self, **settings):
        raise OSError("no network")

    monkeypatch.setattr("torchvision.models.WeightsEnum.get_state_dict", refuse)
    model = ResNet(weights="imagenet", depth=18)
    assert model.recipe()["weights"] == "imagenet"
    with pytest.raises(ValueError, match=r"cannot download .*no network"):
        model.build(10)


class Malicious:
    def __reduce__(self):
        return (open, ("/tmp/coin-was-here", "w"))


def test_bad_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no such file; use imagenet, none, rotations or the path"):
        Small(weights=str(tmp_path / "absent.pth"))
    with pytest.raises(ValueError, match="torchvision has none"):
        Small(weights="imagenet")
    torch.save(Small(weights="none", width=8).build(10).state_dict(), tmp_path / "narrow.pth")
    with pytest.raises(ValueError, match=r"\(8, 3, 3, 3\) instead of \(16, 3, 3, 3\)"):
        Small(weights=str(tmp_path / "narrow.pth")).build(10)
    torch.save({"x": torch.ones(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="lacks"):
        Small(weights=str(tmp_path / "other.pth")).build(10)
    (tmp_path / "noise.pth").write_bytes(b"noise")
    with pytest.raises(ValueError, match="cannot be read"):
        Small(weights=str(tmp_path / "noise.pth")).build(10)
    torch.save({"x": Malicious()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="cannot be read"):
        Small(weights=str(tmp_path / "evil.pth")).build(10)
    state = Small(weights="none").build(10).state_dict()
    state["stem.0.weight"][0] = float("nan")
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(ValueError, match=r"NaN or infinite weights in stem\.0\.weight"):
        Small(weights=str(tmp_path / "nan.pth")).build(10)


def test_resnet_v1_has_its_stride_on_the_first_1x1():
    first, usual = (ResNet(weights="none", depth=50, stride_in_1x1=v1).architecture(10) for v1 in (True, False))
    assert first.layer2[0].conv1.stride == (2, 2) and first.layer2[0].conv2.stride == (1, 1)
    assert usual.layer2[0].conv1.stride == (1, 1) and usual.layer2[0].conv2.stride == (2, 2)
    assert first.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    for bad in ({"depth": 20}, {"depth": 18, "stride_in_1x1": True}):
        with pytest.raises(ValueError, match=r"torchvision has ResNets|no 1×1 bottleneck"):
            ResNet(weights="none", **bad)


def test_freezing_batch_norm():
    network = freeze_batch_norm(Small(weights="none").build(10))
    assert batch_norms(network)
    assert not any(p.requires_grad for m in batch_norms(network) for p in m.parameters())
    assert network.fc.weight.requires_grad
