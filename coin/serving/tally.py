"""What a service has done so far, in numbers for its page: latencies of late, answers by source, how many are right."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from coin.serving.router import Answer

RECENT = 1500  # answers that the page draws


class Tally:
    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()  # by source
        self.refused = self.errors = 0
        self.seen: Counter[str] = Counter()  # labelled samples, by source
        self.right: Counter[str] = Counter()
        self.recent: deque[tuple[float, float, str]] = deque(maxlen=RECENT)  # when, milliseconds, source

    def answered(self, answer: Answer, labels: np.ndarray | None) -> None:
        sources = set(answer.sources.values())
        source = sources.pop() if len(sources) == 1 else "decoded"  # an ensemble of which some is
        self.answers[source] += 1
        self.recent.append((time.time(), round(1000 * answer.seconds, 2), source))
        if labels is not None and len(answer.sources) == 1:  # of an ensemble, most experts know nothing of the label
            rows = next(iter(answer.outputs.values()))
            self.seen[source] += len(labels)
            self.right[source] += int((rows.argmax(1) == labels).sum())

    def told(self, since: float, more: Mapping[str, Any]) -> dict[str, Any]:
        """With the answers after a moment."""
        return {
            "now": time.time(),
            "answers": self.answers,
            "refused": self.refused,
            "errors": self.errors,
            "labelled": {source: {"seen": self.seen[source], "right": self.right[source]} for source in self.seen},
            "recent": [entry for entry in self.recent if entry[0] > since],
            **more,
        }
