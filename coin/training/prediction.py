"""A network's outputs and Fisher over samples in memory, through a Trainer: any device, any number of them."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from coin.batch import Batch, Plain
from coin.fisher import Directions
from coin.parameters import Parameters
from coin.training.data.sets import Batches
from coin.training.fisher_callback import FisherCallback
from coin.training.trainers import MakeTrainer


class Inputs(Dataset[Plain]):
    """Prepared inputs, or raw ones with what prepares a batch of them, on the device that reads it."""

    def __init__(self, inputs: Plain | Batch, transform: Callable[[Tensor], Plain] | None = None):
        self.inputs, self.transform = inputs, transform

    def __len__(self) -> int:
        return len(Batch.of(self.inputs))

    def __getitem__(self, indices: Any) -> Plain:
        return Batch.of(self.inputs)[indices].trimmed().plain


class InputData(L.LightningDataModule):
    """Inputs in order; each rank gets its slice of every global batch."""

    def __init__(self, inputs: Inputs, batch_size: int):
        super().__init__()
        self.inputs, self.batch_size = inputs, batch_size

    def predict_dataloader(self) -> DataLoader[Plain]:
        assert self.trainer is not None
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        batches = Batches(len(self.inputs), self.batch_size, rank=rank, ranks=ranks)
        return DataLoader(self.inputs, sampler=batches, batch_size=None)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Plain:
        return self.inputs.transform(batch) if self.inputs.transform else batch


class Predictor(L.LightningModule):
    """Keeps the outputs of every batch, in the order of the samples, on every rank.

    The network is no submodule, for Lightning would move it to the device and back at each call: it goes there once.
    """

    def __init__(self, network: nn.Module, keep_outputs: bool = True):
        super().__init__()
        self.asked, self.keep_outputs = (network.eval(),), keep_outputs
        self.rows: list[Tensor] = []

    def setup(self, stage: str) -> None:
        self.asked[0].to(self.trainer.strategy.root_device)

    def predict_step(self, batch: Plain, batch_idx: int) -> None:
        if self.keep_outputs:
            self.rows.append(Batch.of(batch).ask(self.asked[0]).float().cpu())

    def outputs(self) -> Tensor:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return torch.cat(self.rows)
        ranks: list[list[Tensor]] = [[] for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(ranks, self.rows)
        batches = []
        for parts in zip(*ranks, strict=True):  # rank r has rows r, r + ranks, … of each global batch
            whole = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1])
            for rank, part in enumerate(parts):
                whole[rank :: len(ranks)] = part
            batches.append(whole)
        return torch.cat(batches)


class Asking:
    """Asks networks about inputs, all with one Trainer.

    Not in inference mode: what is moved or computed in it could not be trained, or differentiated, afterwards.
    """

    def __init__(self, make_trainer: MakeTrainer):
        self.make_trainer = make_trainer

    @cached_property
    def trainer(self) -> L.Trainer:
        return self.make_trainer(logger=False, enable_checkpointing=False, inference_mode=False)

    @property
    def device(self) -> torch.device:
        return self.trainer.strategy.root_device

    def outputs(self, network: nn.Module, inputs: Inputs, batch_size: int = 250) -> Tensor:
        """The network's outputs (samples, classes) in float32."""
        module = Predictor(network)
        self.trainer.predict(module, datamodule=InputData(inputs, batch_size), return_predictions=False)
        return module.outputs()

    def fisher(
        self, network: nn.Module, inputs: Inputs, directions: Directions | None = None, batch_size: int = 100
    ) -> Parameters:
        """The diagonal Fisher of the network's outputs over these inputs."""
        callback = FisherCallback(network, directions)
        module = Predictor(network, keep_outputs=False)
        self.trainer.callbacks.append(callback)  # type: ignore[attr-defined]
        try:
            self.trainer.predict(module, datamodule=InputData(inputs, batch_size), return_predictions=False)
        finally:
            self.trainer.callbacks.remove(callback)  # type: ignore[attr-defined]
        assert callback.fisher is not None
        return callback.fisher
