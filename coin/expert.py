"""Experts: a foundation model fine-tuned on one data set with BatchNorm frozen."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from coin import parameters
from coin.data.images import Batch, ImageData
from coin.models import Model, batch_norms, freeze_batch_norm, network_of, read_state_dict
from coin.store import Artifact, Made, Store, digest_of


@dataclass
class Expert:
    """A network, the data it is an expert of, and a digest that stands for its weights."""

    name: str
    network: nn.Module
    data: ImageData
    digest: str


MakeTrainer = Callable[..., L.Trainer]


@dataclass
class FineTuning:
    """The paper's recipe for an expert: AdamW on the cross-entropy."""

    epochs: int
    learning_rate: float = 1e-5
    weight_decay: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"finetune.epochs={self.epochs}: must be at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"finetune.learning_rate={self.learning_rate}: must be positive")
        if not self.weight_decay >= 0:
            raise ValueError(f"finetune.weight_decay={self.weight_decay}: must not be negative")


class ExpertModule(L.LightningModule):
    """Fine-tunes `network`; its BatchNorm layers, affine and statistics, stay as they are bit by bit."""

    def __init__(self, network: nn.Module, num_classes: int, learning_rate: float = 1e-5, weight_decay: float = 0.1):
        super().__init__()
        self.network = freeze_batch_norm(network)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.accuracy = MulticlassAccuracy(num_classes, average="micro")

    def train(self, mode: bool = True) -> "ExpertModule":
        super().train(mode)
        for module in batch_norms(self.network):
            module.eval()  # running statistics are neither used up to date nor updated
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        if self.trainer.world_size > 1:
            # ranks may hold one sample more or less; DDP averages over ranks, the batch's mean is over samples
            counts = self.all_gather(torch.tensor(float(len(labels)), device=self.device))
            loss = loss * len(labels) * self.trainer.world_size / counts.sum()
        self.log("train/loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        self.accuracy.update(self(images), labels)
        self.log("test/accuracy", self.accuracy, on_epoch=True, prog_bar=True, batch_size=len(labels))

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = [p for p in self.network.parameters() if p.requires_grad]
        return torch.optim.AdamW(params, lr=self.learning_rate, weight_decay=self.weight_decay)


def obtain_expert(
    store: Store,
    model: Model,
    base: Artifact,
    data: ImageData,
    finetune: FineTuning,
    make_trainer: MakeTrainer,
    trainer_recipe: dict,
    logger: Callable[..., object] | None = None,
    train_missing: bool = True,
) -> Artifact:
    """The expert this recipe makes, from the store or by fine-tuning it now, continuing where a kill stopped it."""
    name = f"{data.name}-{data.split}-{model.name}"
    recipe = {
        "base": base.key,
        "data": data.recipe(),
        "batch_size": data.batch_size,
        "finetune": asdict(finetune),
        "trainer": trainer_recipe,
    }
    if not train_missing and store.find("experts", name, recipe) is None:
        raise ValueError(
            f"there is no expert {store.locate('experts', name, recipe)} and train_missing=false; "
            "make it with train.py, or set train_missing=true"
        )

    def make(scratch: Path) -> Made:
        start = time.perf_counter()
        L.seed_everything(finetune.seed, verbose=False)
        data.seed = finetune.seed
        module = ExpertModule(
            network_of(model, base.tensors(), data.num_classes),
            data.num_classes,
            finetune.learning_rate,
            finetune.weight_decay,
        )
        checkpoint = ModelCheckpoint(scratch, filename="last", save_top_k=1, monitor=None, enable_version_counter=False)
        trainer = make_trainer(
            max_epochs=finetune.epochs,
            callbacks=[checkpoint],
            logger=logger(name=f"train-{name}", job_type="train", config=recipe) if logger else False,
            default_root_dir=scratch,
        )
        module.train()  # Lightning keeps the mode it finds
        last = scratch / "last.ckpt"
        trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None, weights_only=True)
        if trainer.interrupted:
            raise KeyboardInterrupt
        accuracy = 100 * float(trainer.callback_metrics["test/accuracy"])
        tensors = {key: value for key, value in module.network.state_dict().items()}
        parameters.check_finite(tensors, f"the expert {name}")
        return tensors, {"accuracy": accuracy, "seconds": round(time.perf_counter() - start, 2)}

    return store.obtain("experts", name, recipe, make)


def load_expert(name: str, path: str | Path, model: Model, base: Artifact, data: ImageData) -> Expert:
    """An expert from a folder of a store, or from a state dict (.safetensors, or .pth read without unpickling)."""
    path = Path(path)
    if path.is_dir():
        artifact = Store.read(path)
        if artifact.recipe.get("base") != base.key:
            raise ValueError(
                f"expert {name} ({path}) was fine-tuned from the base model {artifact.recipe.get('base')}, the "
                f"experiment's is {base.key}; experts that are coded together share one base model"
            )
        tensors = artifact.tensors()
    elif path.is_file():
        tensors = read_state_dict(path, f"experts.{name}.path={path}")
    else:
        raise ValueError(f"experts.{name}.path={path}: no such file or folder; give an expert's folder or state dict")
    network = freeze_batch_norm(model.blank(data.num_classes))
    missing = [key for key in network.state_dict() if key not in tensors]
    if missing:
        raise ValueError(f"expert {name} ({path}) lacks {parameters.listing(missing)}; is it of another architecture?")
    parameters.check_finite(tensors, f"expert {name} ({path})")
    try:
        parameters.load(network, tensors)
    except ValueError as error:
        raise ValueError(f"expert {name} ({path}): {error}; is it of another architecture?") from error
    return Expert(name, network.eval(), data, digest_of(*(tensors[key] for key in sorted(tensors))))


# Arguments of the Trainer that say where and how it runs, not what comes out of it beyond float rounding.
PLACES = {
    "accelerator", "devices", "num_nodes", "strategy", "logger", "callbacks", "default_root_dir", "profiler",
    "enable_progress_bar", "enable_model_summary", "enable_checkpointing", "log_every_n_steps", "deterministic",
    "benchmark", "num_sanity_val_steps", "use_distributed_sampler", "check_val_every_n_epoch", "inference_mode",
}  # fmt: skip


def trainer_recipe(settings: dict) -> dict:
    """The Trainer's arguments that change the weights, such as the precision: part of an expert's recipe."""
    return {key: value for key, value in settings.items() if key not in PLACES and not key.startswith("_")}
