"""Students: networks that are trained to say what they are told to of inputs, by squared loss, BatchNorm frozen."""

from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from coin import parameters
from coin.batch import Batch, Plain
from coin.parameters import Parameters
from coin.problem.statistics import batch_norms
from coin.training.data.sets import Batches
from coin.training.prediction import Inputs
from coin.training.trainers import MakeTrainer, Trainers

Point = dict[str, float]  # what is told of an epoch
Lesson = tuple[list[Plain], Tensor]  # inputs of each source, not prepared, and what to say of all of them

default_trainer = Trainers({"accelerator": "auto", "devices": 1, "enable_model_summary": False})


class Lessons(Dataset[Lesson]):
    """Inputs of several sources, one after the other, and what a student shall say of them; indexed by a list."""

    def __init__(self, sources: Sequence[Inputs], target: Tensor):
        self.sources, self.target = sources, target
        self.ends = torch.tensor([len(source) for source in sources]).cumsum(0)

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, numbers: list[int]) -> Lesson:
        chosen = torch.tensor(numbers, dtype=torch.long)
        source = torch.bucketize(chosen, self.ends, right=True)
        parts = [chosen[source == k] for k in range(len(self.sources))]
        starts = [0, *self.ends.tolist()]
        inputs = [s[part - start] for s, part, start in zip(self.sources, parts, starts, strict=False)]
        return inputs, self.target[torch.cat(parts)]


class StudentData(L.LightningDataModule):
    """Lessons in batches, prepared on the device; each rank gets its slice of every batch."""

    def __init__(self, sources: Sequence[Inputs], target: Tensor, batch_size: int, seed: int):
        super().__init__()
        self.lessons, self.batch_size, self.seed = Lessons(sources, target), batch_size, seed

    def train_dataloader(self) -> DataLoader[Lesson]:
        assert self.trainer is not None
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        batches = Batches(len(self.lessons), self.batch_size, self.seed, rank, ranks)
        return DataLoader(self.lessons, sampler=batches, batch_size=None)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> tuple[Plain, Tensor]:
        inputs, target = batch
        pairs = list(zip(inputs, self.lessons.sources, strict=True))
        there = [pair for pair in pairs if len(Batch.of(pair[0]))] or pairs[:1]  # a rank may have none of a small last
        return Batch.joined(source.transform(x) if source.transform else x for x, source in there).plain, target


class Student(L.LightningModule):
    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        weight_decay: float,
        scores: Callable[[nn.Module], Point] = lambda network: {},
    ):
        super().__init__()
        self.network, self.learning_rate, self.weight_decay, self.scores = network, learning_rate, weight_decay, scores
        self.history: list[Point] = []

    def train(self, mode: bool = True) -> "Student":
        super().train(mode)
        for module in batch_norms(self.network):
            module.eval()
        return self

    def training_step(self, batch: tuple[Plain, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        errors: Tensor = (Batch.of(inputs).ask(self.network) - target).square().sum(1)
        loss = errors.mean() if len(errors) else errors.sum()  # a rank may have no sample of a small last batch
        if self.trainer.world_size > 1:
            # DDP averages over ranks, the batch's mean is over samples
            count = torch.as_tensor(self.all_gather(torch.tensor(float(len(errors)), device=self.device))).sum()
            loss = errors.sum() * self.trainer.world_size / count
        self.log("distillation/loss", loss, prog_bar=True, on_step=False, on_epoch=True, batch_size=len(target))
        return loss

    def on_train_epoch_end(self) -> None:
        self.eval()
        with torch.no_grad():
            found = self.scores(self.network)
        self.train()
        self.history.append(found)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = [p for p in self.network.parameters() if p.requires_grad]
        fused = not self.trainer.gradient_clip_val  # in mixed precision the two exclude each other
        return torch.optim.AdamW(params, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)


def train_student(
    student: Student,
    data: StudentData,
    epochs: int,
    make_trainer: MakeTrainer | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> Parameters:
    """Its parameters after so many epochs."""
    make = make_trainer or default_trainer
    plain = {"logger": False, "enable_checkpointing": False, "callbacks": list(callbacks)}
    trainer = make(max_epochs=epochs, max_steps=-1, **plain)
    student.train()
    trainer.fit(student, datamodule=data)
    if trainer.interrupted:
        raise KeyboardInterrupt
    return {name: p.clone() for name, p in parameters.trainable(student.network.eval()).items()}


def check_training(epochs: int, batch_size: int, learning_rate: float, weight_decay: float) -> None:
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"code.epochs={epochs}, code.batch_size={batch_size}: must be at least 1")
    if not learning_rate > 0 or not weight_decay >= 0:
        raise ValueError(f"code.learning_rate={learning_rate}: must be positive, the weight decay not negative")
