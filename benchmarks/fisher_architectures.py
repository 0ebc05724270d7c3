"""The exact Fisher of public architectures, small and with random weights: what goes by rule, and is it right?

    pip install -e '.[text]' timm
    python -m benchmarks.fisher_architectures [NAME …]

Parameters by rule, by rule after work that is done once for all samples (`coin.fisher.shared`), and by the general
path; the error in float64 against the loop of one backward pass a sample and output, in the worst parameter; and how
many times longer that loop takes in float32 (small networks: a ratio of overheads more than of arithmetic). Writes
results/fisher/architectures.md.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision.models as tv
import transformers as hf
from torch import Tensor, nn

from coin.batch import Batch
from coin.fisher import DiagonalFisher

OUTPUTS = 3
BERT = dict(vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=24, num_labels=OUTPUTS, pad_token_id=0)  # fmt: skip
VIT = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
)


def text(name: str, **settings: Any) -> Callable[[], nn.Module]:
    """A classifier of Hugging Face's, by the beginning of its classes' names."""
    config, network = getattr(hf, f"{name}Config"), getattr(hf, f"{name}ForSequenceClassification")
    return lambda: network(config(**settings))


def pictures(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=OUTPUTS, **settings)


def clip() -> nn.Module:
    words = dict(hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=60)
    return hf.CLIPForImageClassification(hf.CLIPConfig(text_config=words, vision_config=VIT, num_labels=OUTPUTS))


def wav2vec() -> nn.Module:
    return hf.Wav2Vec2ForSequenceClassification(
        hf.Wav2Vec2Config(
            hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8),
            conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
            classifier_proj_size=8, num_labels=OUTPUTS,
        )
    )  # fmt: skip


NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "transformers BERT, eager": ("text", text("Bert", **BERT, attn_implementation="eager")),
    "transformers BERT, SDPA": ("text", text("Bert", **BERT, attn_implementation="sdpa")),
    "transformers DistilBERT": ("text", text("DistilBert", vocab_size=60, dim=24, n_layers=2, n_heads=2, hidden_dim=32,
                                             max_position_embeddings=24, num_labels=OUTPUTS)),
    "transformers ELECTRA": ("text", text("Electra", **BERT, embedding_size=16)),
    "transformers RoBERTa": ("text", text("Roberta", **BERT)),
    "transformers ALBERT": ("text", text("Albert", **BERT, embedding_size=16)),
    "transformers MPNet": ("text", text("MPNet", **BERT)),
    "transformers DeBERTa v2": ("text", text("DebertaV2", **BERT, relative_attention=True, position_buckets=4,
                                             pos_att_type=["c2p", "p2c"])),
    "transformers GPT-2": ("text", text("GPT2", vocab_size=60, n_embd=24, n_layer=2, n_head=2, n_positions=24,
                                        num_labels=OUTPUTS, pad_token_id=0)),
    "transformers wav2vec 2": ("sound", wav2vec),
    "transformers CLIP, vision": ("pixels", clip),
    "transformers ViT": ("pixels", lambda: hf.ViTForImageClassification(hf.ViTConfig(**VIT, num_labels=OUTPUTS))),
    "timm ViT": ("image", pictures("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2,
                                   num_heads=2)),
    "timm DeiT 3": ("image", pictures("deit3_small_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2,
                                      num_heads=2)),
    "timm EVA-02": ("image", pictures("eva02_tiny_patch14_224", img_size=32, patch_size=8, embed_dim=24, depth=2,
                                      num_heads=2)),
    "timm Swin": ("image", pictures("swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=8,
                                    depths=(2, 1), num_heads=(2, 2))),
    "timm MLP-Mixer": ("image", lambda: timm.models.MlpMixer(OUTPUTS, 32, patch_size=8, num_blocks=2, embed_dim=24)),
    "timm ConvNeXt V2": ("image", pictures("convnextv2_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16))),
    "timm EfficientNet": ("image", pictures("efficientnet_b0")),
    "torchvision ResNet-18": ("image", lambda: tv.resnet18(num_classes=OUTPUTS)),
    "torchvision ViT": ("image", lambda: tv.VisionTransformer(32, 8, 2, 2, 24, 32, num_classes=OUTPUTS)),
    "torchvision Swin": ("image", lambda: tv.SwinTransformer([4, 4], 8, [2, 1], [2, 2], [4, 4], num_classes=OUTPUTS)),
    "torchvision MobileNet V3": ("image", lambda: tv.mobilenet_v3_small(num_classes=OUTPUTS)),
}  # fmt: skip


def batch_for(kind: str, samples: int = 6) -> dict[str, Tensor] | Tensor:
    if kind == "text":
        ids = torch.randint(1, 60, (samples, 12))
        mask = (torch.arange(12) < 7 + torch.arange(samples).unsqueeze(1) % 6).long()
        return {"input_ids": ids * mask, "attention_mask": mask}
    if kind == "sound":
        return {"input_values": torch.randn(samples, 400)}
    images = torch.randn(samples, 3, 32, 32)
    return {"pixel_values": images} if kind == "pixels" else images


def made(make: Callable[[], nn.Module]) -> nn.Module:
    """In eval mode, frozen BatchNorm with sane statistics, and nothing at zero, where gradients would be as well."""
    network = make().eval()
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.requires_grad_(False)
    for p in network.parameters():
        if p.ndim > 1 and not p.any():
            nn.init.normal_(p, std=0.2)
    return network


def loop(network: nn.Module, batch: Batch) -> dict[str, Tensor]:
    params = {name: p for name, p in network.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    for sample in batch.parts(1):
        for output in sample.ask(network).flatten():
            found = torch.autograd.grad(output, list(params.values()), retain_graph=True, allow_unused=True)
            for total, gradient in zip(sums.values(), found, strict=True):
                if gradient is not None:
                    total.addcmul_(gradient, gradient)
    return {name: total / len(batch) for name, total in sums.items()}


def worst(ours: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """Relative; what cancels altogether is measured by the largest parameter."""
    noise = 1e-24 * max(float(value.norm()) for value in truth.values())
    return max(float((ours[name] - value).norm() / (value.norm() + noise)) for name, value in truth.items())


def seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def row(name: str, kind: str, make: Callable[[], nn.Module]) -> str:
    torch.manual_seed(0)
    network, batch = made(make), Batch.of(batch_for(kind))
    many = Batch.of(batch_for(kind, 24))
    slow = seconds(lambda: loop(network, many)) / len(many)
    fast = seconds(lambda: DiagonalFisher(network).update(many)) / len(many)
    network.double()
    exact = batch.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    fisher = DiagonalFisher(network)
    fisher.update(exact)
    plan, error = fisher.plan, worst(fisher.compute(), loop(network, exact))
    assert plan is not None
    shared = [name for name in plan.layouts if name in plan.shared]
    counts = f"{len(plan.layouts) - len(shared)} | {len(shared)} | {len(plan.general)}"
    return f"| {name} | {counts} | {error:.0e} | {slow / fast:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    hf.logging.set_verbosity_error()
    lines = [
        "| architecture | by rule | made once for all samples | general path | error | loop / ours |",
        "|---|" + "---:|" * 5,
    ]
    for name in parser.parse_args().names:
        try:
            lines.append(row(name, *NETWORKS[name]))
        except Exception as error:
            lines.append(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:100]} | | | | |")
        print(lines[-1], flush=True)
    Path("results/fisher").mkdir(parents=True, exist_ok=True)
    Path("results/fisher/architectures.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
