"""Which process of a distributed run this is, and which device is its own."""

from collections.abc import Mapping

import torch
from lightning.pytorch.utilities import rank_zero_only


def is_first() -> bool:
    """Rank 0 alone locks, writes files, logs and speaks. A run on one device is rank 0."""
    return getattr(rank_zero_only, "rank", 0) == 0


def device_of_job(trainer: Mapping, job: int) -> int | list[int] | str:
    """Jobs that run side by side on one machine take its GPUs in turn."""
    count = torch.cuda.device_count()
    if trainer["accelerator"] != "gpu" or trainer["devices"] != 1 or count < 2:
        return trainer["devices"]
    return [job % count]
