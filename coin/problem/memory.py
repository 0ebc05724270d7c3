"""The one cache in memory: what a process has read or computed, for whoever asks next."""

import os
from collections import OrderedDict
from collections.abc import Callable

from coin.parameters import Parameters, size_of

Found = tuple[Parameters, float]  # tensors, and the seconds it took to compute them, whenever that was


class Memory:
    """Up to `limit` bytes of tensors, by default a quarter of the machine's memory and at most 4 GiB.

    What was asked for least recently goes first.
    """

    def __init__(self, limit: int | None = None):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limit = min(4 << 30, total // 4) if limit is None else limit
        self.kept: OrderedDict[str, Found] = OrderedDict()

    def recall(self, key: str, make: Callable[[], Found]) -> Found:
        if key not in self.kept:
            self.kept[key] = make()
        self.kept.move_to_end(key)
        while len(self.kept) > 1 and sum(size_of(tensors) for tensors, _ in self.kept.values()) > self.limit:
            self.kept.popitem(last=False)
        return self.kept[key]
