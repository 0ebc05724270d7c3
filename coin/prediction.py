"""A network's outputs and Fisher over images in memory, through a Trainer: any device, any number of them."""

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from coin.data.images import Batches
from coin.expert import MakeTrainer
from coin.fisher import Directions
from coin.fisher_callback import FisherCallback
from coin.parameters import Parameters


class Inputs(Dataset):
    """Prepared inputs, or raw images with what prepares a batch of them."""

    def __init__(self, inputs: Tensor, transform=None):
        self.inputs, self.transform = inputs, transform

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, indices) -> Tensor:
        found = self.inputs[indices]
        return self.transform(found) if self.transform else found


class InputData(L.LightningDataModule):
    """Inputs in order; each rank gets its slice of every global batch."""

    def __init__(self, inputs: Inputs, batch_size: int):
        super().__init__()
        self.inputs, self.batch_size = inputs, batch_size

    def predict_dataloader(self) -> DataLoader:
        assert self.trainer is not None
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        batches = Batches(len(self.inputs), self.batch_size, rank=rank, ranks=ranks)
        return DataLoader(self.inputs, sampler=batches, batch_size=None)


class Predictor(L.LightningModule):
    """Keeps the outputs of every batch, in the order of the samples, on every rank."""

    def __init__(self, network: nn.Module, keep_outputs: bool = True):
        super().__init__()
        self.network, self.keep_outputs = network.eval(), keep_outputs
        self.rows: list[Tensor] = []

    def predict_step(self, batch: Tensor, batch_idx: int) -> None:
        if self.keep_outputs:
            self.rows.append(self.network(batch).float().cpu())

    def outputs(self) -> Tensor:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return torch.cat(self.rows).clone()
        ranks: list[list[Tensor]] = [[] for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(ranks, self.rows)
        batches = []
        for parts in zip(*ranks, strict=True):  # rank r has rows r, r + ranks, … of each global batch
            whole = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1])
            for rank, part in enumerate(parts):
                whole[rank :: len(ranks)] = part
            batches.append(whole)
        return torch.cat(batches)


def predict(make_trainer: MakeTrainer, network: nn.Module, inputs: Inputs, batch_size: int = 250) -> Tensor:
    """The network's outputs (samples, classes) in float32."""
    module = Predictor(network)
    make_trainer(logger=False, enable_checkpointing=False).predict(
        module, datamodule=InputData(inputs, batch_size), return_predictions=False
    )
    return module.outputs()


def fisher(
    make_trainer: MakeTrainer, network: nn.Module, inputs: Inputs, directions: Directions, batch_size: int = 100
) -> Parameters:
    """The diagonal Fisher of the network's outputs over these inputs."""
    callback = FisherCallback(network, directions)
    make_trainer(logger=False, enable_checkpointing=False, callbacks=[callback]).predict(
        Predictor(network, keep_outputs=False), datamodule=InputData(inputs, batch_size), return_predictions=False
    )
    assert callback.fisher is not None
    return callback.fisher
