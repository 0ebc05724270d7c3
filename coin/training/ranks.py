"""Which process of a distributed run this is, and which device is its own.

Launchers number their tasks (RANK, SLURM_PROCID, …) whether or not these work together, so the environment's number
counts only where the Trainer's strategy is a distributed one, which `check_trainer` finds out and settles here. Until
then, and without a Trainer, a process is the first and only one of its own run.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

_rank: int | None = None  # None: a run of its own


def settle(rank: int | None) -> None:
    """Before anything speaks: this process is that rank of a distributed run, or (None) a run of its own."""
    global _rank
    _rank = rank
    rank_zero_only.rank = rank or 0  # type: ignore[attr-defined]  # Lightning's loggers ask this, and it has read the environment when imported
    if rank is not None:
        run_name()


def is_distributed() -> bool:
    return _rank is not None or initialized()


def is_first() -> bool:
    """Rank 0 alone locks, writes files, logs and speaks. A run on one device is rank 0."""
    return torch.distributed.get_rank() == 0 if initialized() else not _rank


def initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def run_name() -> str:
    """The same in all ranks of a run, and in no other run: what launched it has numbered it, or rank 0 names it, before
    Lightning starts the others with its environment."""
    if "COIN_RUN" not in os.environ:
        numbers = (
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "SLURM_RESTART_COUNT",
            "TORCHELASTIC_RUN_ID",
            "MASTER_ADDR",
            "MASTER_PORT",
        )
        known = "-".join(os.environ[number] for number in numbers if number in os.environ)
        os.environ["COIN_RUN"] = re.sub(r"[^A-Za-z0-9.-]", "_", known) or uuid.uuid4().hex
    name = os.environ["COIN_RUN"]
    return name if len(name) <= 100 else hashlib.sha256(name.encode()).hexdigest()  # it is part of file names


def device_of_job(trainer: Mapping[str, Any], job: int | None = None) -> Any:
    """What to give for trainer.devices: jobs that run side by side on one machine, or tasks that srun or torchrun
    started there, take its GPUs in turn."""
    if job is None:
        numbers = [os.environ[key] for key in ("LOCAL_RANK", "SLURM_LOCALID") if key in os.environ]
        job = int(numbers[0]) if numbers and numbers[0].isdigit() else 0
    count = torch.cuda.device_count()
    one = str(trainer.get("devices")) == "1" and trainer.get("strategy") in (None, "auto")
    if trainer.get("accelerator") not in ("gpu", "cuda") or not one or trainer.get("num_nodes", 1) != 1 or count < 2:
        return trainer.get("devices")
    return [job % count]
