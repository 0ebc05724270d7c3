"""What a server does with a job: runs a network, or, for measurements, takes as long as a trace says."""

import abc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from coin.lab.coded import load, load_expert
from coin.serving.faults import Trace
from coin.serving.policies import CODED


class Worker(abc.ABC):
    """Travels to its server's process and is opened there."""

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def answer(self, number: int, model: str, inputs: np.ndarray) -> np.ndarray:
        """What `model` says of the inputs of query `number`, a row a sample."""


@dataclass
class Network(Worker):
    """An expert of an encode run, or its coded network, on one thread."""

    folder: Path
    name: str

    def open(self) -> None:
        torch.set_num_threads(1)
        self.network = load(self.folder).network if self.name == CODED else load_expert(self.folder, self.name)

    def answer(self, number: int, model: str, inputs: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            outputs: np.ndarray = self.network(torch.from_numpy(inputs.copy())).numpy()
        return outputs


@dataclass
class Drawn(Worker):
    """Real outputs of before, after a time drawn from a trace: a machine of its own, on a machine that is shared.

    `inputs` are the numbers of the samples in `outputs`. Episodes count from when the server was opened.
    """

    server: str
    trace: Trace
    outputs: Mapping[str, np.ndarray]  # {model: rows}
    loading: float = 0.0  # seconds to load another model than the last
    speed: float = 1.0
    start: float = field(default_factory=time.time)
    model: str = ""

    def open(self) -> None:
        self.trace.seconds(self.server, 0)  # all of them are drawn now

    def answer(self, number: int, model: str, inputs: np.ndarray) -> np.ndarray:
        seconds = self.trace.seconds(self.server, number % self.trace.queries, time.time() - self.start) * self.speed
        if model != self.model:
            seconds += self.loading
            self.model = model
        time.sleep(seconds)
        rows: np.ndarray = self.outputs[model][inputs]
        return rows
