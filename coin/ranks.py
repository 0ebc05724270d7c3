"""Which process of a distributed run this is, and which device is its own."""

import os
import re
import uuid
from collections.abc import Mapping

import torch
from lightning.pytorch.utilities import rank_zero_only


def is_first() -> bool:
    """Rank 0 alone locks, writes files, logs and speaks. A run on one device is rank 0."""
    return getattr(rank_zero_only, "rank", 0) == 0


def run_name() -> str:
    """The same in all ranks of a run, and in no other run: what launched it has numbered it, or rank 0 names it, before
    Lightning starts the others with its environment."""
    if "COIN_RUN" not in os.environ:
        numbers = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
        known = "-".join(os.environ[number] for number in numbers if number in os.environ)
        os.environ["COIN_RUN"] = re.sub(r"[^A-Za-z0-9.-]", "_", known) or uuid.uuid4().hex
    return os.environ["COIN_RUN"]


def device_of_job(trainer: Mapping, job: int) -> int | list[int] | str:
    """Jobs that run side by side on one machine take its GPUs in turn."""
    count = torch.cuda.device_count()
    if trainer["accelerator"] != "gpu" or trainer["devices"] != 1 or count < 2:
        return trainer["devices"]
    return [job % count]
