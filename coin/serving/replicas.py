"""A server: one thread and a FIFO of its own. A job that is cancelled before it has begun is dropped."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coin.serving.loopback import stay_on_loopback
from coin.serving.workers import Worker


class Replica:
    """What Ray Serve runs in a process of its own, and starts again when that has died.

    Its methods are coroutines: a synchronous one would run in a thread that no cancel stops. Jobs queue here and not in
    Ray's router, which backs off by 25 ms and more from a server that is full.
    """

    def __init__(self, worker: Worker, local: bool = True):
        if local:
            stay_on_loopback()
        worker.open()
        self.worker, self.delay = worker, 0.0
        self.thread = ThreadPoolExecutor(1)

    async def answer(self, number: int, model: str, inputs: np.ndarray) -> np.ndarray:
        job = self.thread.submit(self.work, number, model, inputs)
        return await asyncio.wrap_future(job)  # cancelling it cancels the job

    def work(self, number: int, model: str, inputs: np.ndarray) -> np.ndarray:
        time.sleep(self.delay)
        return self.worker.answer(number, model, inputs)

    async def ping(self) -> int:
        return os.getpid()

    async def slow(self, seconds: float) -> None:
        """From now on every job takes that much longer."""
        self.delay = seconds

    async def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
