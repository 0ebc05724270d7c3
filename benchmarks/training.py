"""A fine-tuning epoch through Lightning against the same loop in plain PyTorch.

    python -m benchmarks.training [--images 2560] [--rounds 3]

ResNet-18 at 32 px, AdamW, frozen BatchNorm, batch 128, the same data in the same order. The two take turns; the ratio
is of their fastest rounds. Writes results/training.json.
"""

import argparse
import json
import time
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F

from coin.lab.console import quiet
from coin.training.batch_norm import freeze_batch_norm
from coin.training.data.images import ImageData, Images
from coin.training.expert import ExpertModule, FineTuning
from coin.training.models import ResNet


class Synthetic(ImageData):
    name = "synthetic"

    def __init__(self, images: int):
        super().__init__()
        self.images = images

    def load(self, train: bool) -> Images:
        generator = torch.Generator().manual_seed(int(train))
        images = torch.randint(0, 256, (self.images, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Images(images, torch.arange(self.images) % 10)


def lightning_epoch(data: Synthetic) -> float:
    module = ExpertModule(ResNet(depth=18, weights="none").build(10), 10, FineTuning(1)).train()
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, limit_val_batches=0, num_sanity_val_steps=0,
                        logger=False, enable_checkpointing=False, enable_progress_bar=True, enable_model_summary=False,
                        use_distributed_sampler=False, deterministic=True)  # fmt: skip
    start = time.perf_counter()
    trainer.fit(module, datamodule=data)
    return time.perf_counter() - start


def plain_epoch(data: Synthetic) -> float:
    network = freeze_batch_norm(ResNet(depth=18, weights="none").build(10))
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-5, weight_decay=0.1)
    assert data.train_set is not None
    mean = torch.tensor(data.mean).view(1, 3, 1, 1)
    std = torch.tensor(data.std).view(1, 3, 1, 1)
    start = time.perf_counter()
    order = torch.randperm(len(data.train_set), generator=torch.Generator().manual_seed(0))
    for indices in order.split(128):
        images = data.train_set.images[indices].float().div_(255).sub_(mean).div_(std)
        loss = F.cross_entropy(
            network(images.contiguous(memory_format=torch.channels_last)), data.train_set.labels[indices]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    quiet()
    data = Synthetic(arguments.images)
    data.setup()
    plain_epoch(data)  # warms caches and thread pools
    rounds = [(plain_epoch(data), lightning_epoch(data)) for _ in range(arguments.rounds)]
    plain, ours = (min(times) for times in zip(*rounds, strict=True))
    result = {"images": arguments.images, "plain_seconds": plain, "lightning_seconds": ours, "ratio": ours / plain,
              "rounds": rounds, "threads": torch.get_num_threads(), "torch": torch.__version__}  # fmt: skip
    Path("results").mkdir(exist_ok=True)
    Path("results/training.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"plain {plain:.2f} s, Lightning {ours:.2f} s, ratio {ours / plain:.3f}")


if __name__ == "__main__":
    main()
