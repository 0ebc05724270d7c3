"""Which process of a distributed run this is."""

from lightning.pytorch.utilities import rank_zero_only


def is_first() -> bool:
    """Rank 0 alone locks, writes files, logs and speaks. A run on one device is rank 0."""
    return getattr(rank_zero_only, "rank", 0) == 0
