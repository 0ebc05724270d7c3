"""Performs what flights decide: asks servers, decodes, cancels, and watches who is alive. On asyncio."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coin.serving.deadlines import Deadline
from coin.serving.flight import Action, Cancel, Finish, Flight, Send, Tower, Wake
from coin.serving.policies import CODED, DECODED, DROPPED, Call, Policy

Dead = tuple[type[Exception], ...]
Decode = Callable[[dict[str, torch.Tensor], str], torch.Tensor]  # of the answers, for who is missing


@dataclass
class Answer:
    outputs: Mapping[str, np.ndarray]  # {expert: rows}
    sources: Mapping[str, str]
    servers: Sequence[str]  # that answered
    seconds: float


class Unanswered(Exception):
    """Nobody answered in time."""


class Router:
    """`servers` are handles of Ray Serve by name; a call ends in one of the `dead` errors when its server has died.

    A handle's response is no Future, and cancelling the task around it does not cancel the request, so responses are
    kept and cancelled themselves; after a kill, calls wait for the restart, so nothing is awaited without a limit.
    """

    def __init__(
        self,
        policy: Policy,
        servers: Mapping[str, Any],
        decode: Decode,
        dead: Dead,
        percentile: float = 95.0,
        patience: float = 10.0,
    ):
        self.tower = Tower(policy, lambda: Deadline(percentile))
        self.servers, self.decode, self.dead, self.patience = servers, decode, dead, patience
        self.gone: Dead = (asyncio.TimeoutError, *dead)
        self.asked = 0
        self.background: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """From now on every server is asked whether it lives."""
        for name in self.servers:
            self.keep(self.pulse(name))

    def keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def pulse(self, name: str, every: float = 0.5, limit: float = 2.0) -> None:
        while True:
            response = self.servers[name].ping.remote()
            try:
                await asyncio.wait_for(waited(response), limit)
                self.tower.down.discard(name)
            except self.gone:
                response.cancel()
                self.tower.down.add(name)
            await asyncio.sleep(every)

    async def ask(self, wanted: Sequence[str], inputs: np.ndarray) -> Answer:
        number, self.asked = self.asked, self.asked + 1
        journey = Journey(self, self.tower.flight(number, wanted), inputs)
        try:
            end = await asyncio.wait_for(journey.run(), self.patience)
        except asyncio.TimeoutError:
            raise Unanswered(f"nobody answered within {self.patience:g} s") from None
        finally:
            journey.leave()
        seconds = time.monotonic() - journey.start
        servers = [call.server for call in end.answered]
        return Answer(self.outputs(end, journey.answers), end.sources, servers, seconds)

    def outputs(self, end: Finish, answers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = {}
        for name, source in end.sources.items():
            if source == DECODED:
                there = {model: torch.from_numpy(rows.copy()) for model, rows in answers.items() if model != name}
                found[name] = self.decode(there, name).numpy()
            elif source != DROPPED:
                found[name] = answers[name if name in answers else CODED]
        return found

    async def show(self, inputs: np.ndarray) -> np.ndarray | None:
        """What the coded network says of inputs that others have answered, if it is alive."""
        if CODED not in self.servers or CODED in self.tower.down:
            return None
        response = self.servers[CODED].answer.remote(0, CODED, inputs)
        try:
            found: np.ndarray = await asyncio.wait_for(waited(response), self.patience)
            return found
        except self.gone:
            response.cancel()
            return None


class Journey:
    """A flight that is performed."""

    def __init__(self, router: Router, flight: Flight, inputs: np.ndarray):
        self.router, self.flight, self.inputs = router, flight, inputs
        self.loop = asyncio.get_running_loop()
        self.start = time.monotonic()  # the loop's own clock may tick in milliseconds
        self.events: asyncio.Queue[tuple[Call | None, Any]] = asyncio.Queue()
        self.responses: dict[Call, Any] = {}
        self.answers: dict[str, np.ndarray] = {}
        self.alarm: asyncio.TimerHandle | None = None

    async def run(self) -> Finish:
        end = self.perform(self.flight.begin(self.start))
        while end is None:
            call, outcome = await self.events.get()
            end = self.perform(self.react(call, outcome, time.monotonic()))
        return end

    def react(self, call: Call | None, outcome: Any, now: float) -> list[Action]:
        if call is None:
            return self.flight.woken(now)
        self.responses.pop(call, None)
        if isinstance(outcome, self.router.dead):
            return self.flight.died(call, now)
        if isinstance(outcome, Exception):
            raise outcome
        self.answers[call.model] = outcome
        return self.flight.answered(call, now)

    def perform(self, actions: list[Action]) -> Finish | None:
        for action in actions:
            if isinstance(action, Send):
                call = action.call
                handle = self.router.servers[call.server]
                self.responses[call] = handle.answer.remote(self.flight.number, call.model, self.inputs)
                self.router.keep(self.follow(call, self.responses[call]))
            elif isinstance(action, Cancel):
                self.responses.pop(action.call).cancel()
            elif isinstance(action, Wake):
                wait = action.at - time.monotonic()
                self.alarm = self.loop.call_later(wait, self.events.put_nowait, (None, None))
            elif isinstance(action, Finish):
                return action
        return None

    async def follow(self, call: Call, response: Any) -> None:
        try:
            outcome = await response
        except Exception as error:
            outcome = error
        if self.responses.get(call) is response:  # not cancelled
            self.events.put_nowait((call, outcome))

    def leave(self) -> None:
        """Nobody waits any longer."""
        if self.alarm:
            self.alarm.cancel()
        for response in self.responses.values():
            response.cancel()
        self.responses.clear()


async def waited(response: Any) -> Any:
    return await response
