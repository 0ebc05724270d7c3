import json

import pytest
import torch
from safetensors.torch import save_file
from sentences import tiny_bert

from coin.problem.statistics import batch_norms
from coin.training.batch_norm import freeze_batch_norm
from coin.training.data import TREC, Digits
from coin.training.models import HfText, ResNet, Small, SmallViT, Timm, Torchvision, model_of, network_of


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


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (Torchvision("none", name="vit_b_16", image_size=32), "heads.head."),
        (Torchvision("none", name="convnext_tiny"), "classifier.2."),
        (SmallViT(layers=2, width=24, heads=2, image_size=32), "heads.head."),
        (Timm("none", name="vit_tiny_patch16_224", image_size=32), "head."),
        (Timm("none", name="convnext_atto"), "head.fc."),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_networks_by_their_names_have_a_head_of_k_outputs(model, head):
    if isinstance(model, Timm):
        pytest.importorskip("timm", reason="pip install -e '.[timm]'")
    assert model.head == head
    network = model.build(7).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 7)
    trained = dict(network_of(model, network.state_dict(), 7).named_parameters())
    assert all(p.requires_grad for p in trained.values())  # LayerNorms too
    assert torch.equal(model_of(model.facts()).build(7).state_dict()[f"{head}weight"], trained[f"{head}weight"])


def test_a_vit_of_another_size_gets_its_positions_from_those_of_the_file(tmp_path):
    small = dict(layers=1, width=8, heads=2, patch=4)
    torch.save(SmallViT(image_size=32, **small).build(5).state_dict(), tmp_path / "vit.pth")
    network = SmallViT(str(tmp_path / "vit.pth"), image_size=16, **small).build(10)
    assert network.encoder.pos_embedding.shape == (1, 17, 8)
    timm = pytest.importorskip("timm", reason="pip install -e '.[timm]'")
    torch.save(timm.create_model("test_vit", img_size=64).state_dict(), tmp_path / "timm.pth")
    assert Timm(str(tmp_path / "timm.pth"), name="test_vit", image_size=32).build(3).pos_embed.shape[1] == 5


def test_networks_that_are_not_there_or_read_other_images_are_refused():
    with pytest.raises(ValueError, match=r"model\.name=vgg99: torchvision has no such classifier"):
        Torchvision("none", name="vgg99")
    with pytest.raises(
        ValueError, match=r"digits has images of 8 px, and model vit_b_16 reads 224; set data\.image_size=224"
    ):
        Torchvision("none").check(Digits())
    with pytest.raises(ValueError, match="patches must divide"):
        SmallViT(image_size=30)
    pytest.importorskip("timm", reason="pip install -e '.[timm]'")
    with pytest.raises(ValueError, match=r"model\.name=nothing: timm makes no such network"):
        Timm("none", name="nothing").build(3)


def test_an_encoder_keeps_all_of_its_folder_but_the_head(bert):
    from transformers import AutoModel

    model = HfText(str(bert))
    network, truth = model.build(5), AutoModel.from_pretrained(bert)
    own = network.state_dict()
    assert all(torch.equal(own[f"body.{k}"], v) for k, v in truth.state_dict().items() if not k.startswith("pooler"))
    assert network.head.weight.shape == (5, 16) and not any("pooler" in name for name in own)
    again = model_of(json.loads(json.dumps(model.facts()))).build(5)
    assert torch.equal(again.head.weight, network.head.weight) and again.state_dict().keys() == own.keys()
    short, long = torch.tensor([[2, 5, 3]]), torch.tensor([[2, 5, 3, 0], [2, 9, 8, 3]])
    alone = network.eval()(short, torch.ones_like(short))
    torch.testing.assert_close(network(long, torch.tensor([[1, 1, 1, 0], [1] * 4]))[:1], alone)


def test_encoders_that_do_not_fit_are_refused(bert, text_root, tmp_path):
    with pytest.raises(ValueError, match=r"model\.weights=.*: no folder of a Hugging Face model"):
        HfText(str(tmp_path))
    (tmp_path / "config.json").write_text((bert / "config.json").read_text())
    with pytest.raises(ValueError, match=r"holds no weights; model\.safetensors is missing"):
        HfText(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"noise")
    with pytest.raises(ValueError, match="cannot be read"):
        HfText(str(tmp_path)).build(3)
    other = tiny_bert(tmp_path / "other", words=["queen"])
    with pytest.raises(ValueError, match=r"has 22 tokens, and model\.weights=.* knows 21"):
        HfText(str(bert)).check(TREC(text_root, other))
    short = tiny_bert(tmp_path / "short", max_position_embeddings=5)
    with pytest.raises(ValueError, match=r"trec has a sentence of \d+ tokens, .* reads 5; cut them: data\.longest=5"):
        HfText(str(short)).check(TREC(text_root, short))
    HfText(str(short)).check(TREC(text_root, short, longest=5))
