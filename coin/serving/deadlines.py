"""How long an expert is waited for: a percentile of its own latency, learnt online."""

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass
class Deadline:
    """Of one expert. Until enough has been seen it is `initial`.

    A call that is cancelled after the deadline counts with the time it had been waited for: its latency would have been
    longer still, so slow calls do not vanish from the percentile because somebody else was faster.
    """

    percentile: float = 95.0
    initial: float = 0.1  # seconds
    window: int = 400  # latencies that are remembered
    enough: int = 20
    seen: deque[float] = field(default_factory=deque, repr=False)
    current: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.percentile < 100:
            raise ValueError(f"percentile={self.percentile}: must lie between 0 and 100")
        if not (0 < self.initial < math.inf and self.enough > 0 and self.window >= self.enough):
            raise ValueError(
                f"initial={self.initial}, enough={self.enough}, window={self.window}: give positive numbers, "
                "the window at least as large as what is enough"
            )
        self.current = self.initial
        self.count = 0

    def observe(self, seconds: float) -> None:
        self.seen.append(seconds)
        if len(self.seen) > self.window:
            self.seen.popleft()
        self.count += 1
        if (
            self.count >= self.enough and self.count % self.enough == 0
        ):  # sorting each time would cost more than it tells
            ordered = sorted(self.seen)
            self.current = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * self.percentile / 100) - 1)]
