"""The door: what Ray Serve's proxy hands over, answered by the router."""

import asyncio
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from ray.util.metrics import Counter, Histogram
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from coin.lab.coded import load
from coin.serving.learning import Learner
from coin.serving.loopback import stay_on_loopback
from coin.serving.page import page
from coin.serving.policies import Policy
from coin.serving.requests import LIMIT, Query, Refused, json_of, query_of
from coin.serving.router import Answer, Router, Unanswered, waited
from coin.serving.settings import Serving, is_number
from coin.serving.tally import Tally
from coin.training.data.images import prepared


@dataclass
class Front:
    """What the door has to know; `samples` are images with labels that the page may send."""

    folder: Path  # of the encode run
    policy: Policy
    serving: Serving
    names: Sequence[str] = ()  # under which it is known, as Host headers say it
    token: str | None = None  # of the admin calls; None: there are none
    samples: Mapping[str, Any] = field(default_factory=dict)
    prepare: bool = True  # False: inputs are the numbers of cached outputs


class Ingress:
    def __init__(self, front: Front, servers: Mapping[str, Any]):
        if front.serving.address is None:
            stay_on_loopback()
        torch.set_num_threads(1)
        self.front, self.tally = front, Tally()
        coded = load(front.folder)
        self.facts = coded.facts
        self.learner = Learner(coded, front.serving.learning)
        self.router = Router(
            front.policy,
            servers,
            self.learner.decode,
            (RayActorError,),
            percentile=front.serving.percentile,
            patience=front.serving.patience,
        )
        self.counted = Counter("coin_answers", "answers by source", ("source",))
        self.timed = Histogram(
            "coin_milliseconds", "of an answer", [5, 10, 20, 50, 100, 200, 500, 1000, 5000], ("source",)
        )
        self.watching = False
        self.slowed: dict[str, float] = {}  # by admin calls, milliseconds

    async def __call__(self, request: Request) -> Response:
        if not self.watching:
            self.watching = True
            self.router.watch()
        routes = {
            ("GET", "/"): self.show_page,
            ("GET", "/health"): self.health,
            ("GET", "/stats"): self.stats,
            ("GET", "/samples"): self.samples,
            ("POST", "/predict"): self.predict,
        }
        if self.front.token is not None:
            routes |= {("POST", "/admin/slow"): self.slow, ("POST", "/admin/kill"): self.kill}
        try:
            path = request.url.path
            if (request.method, path) not in routes:
                known = [method for method, there in routes if there == path]
                raise Refused(405 if known else 404, f"{request.method} {path[:80]} is not known here")
            return await routes[request.method, path](request)
        except Refused as refusal:
            self.tally.refused += 1
            return JSONResponse({"error": str(refusal)}, refusal.status)
        except (Unanswered, BackPressureError) as error:
            self.tally.errors += 1
            return JSONResponse({"error": str(error)}, 503)

    async def predict(self, request: Request) -> Response:
        start = time.perf_counter()
        body = await body_of(request)
        named = dict(request.query_params)
        query = query_of(body, request.headers.get("content-type", ""), named, self.front.policy.experts)
        answer = await self.answer(query)
        milliseconds = 1000 * (time.perf_counter() - start)
        outputs = {name: rows.tolist() for name, rows in answer.outputs.items()}
        sources = dict(answer.sources)
        (name, *_) = query.wanted
        told = {
            "outputs": outputs if query.ensemble else outputs[name],
            "source": sources if query.ensemble else sources[name],
            "servers": [*answer.servers],
            "milliseconds": round(milliseconds, 3),
        }
        return JSONResponse(told)

    async def answer(self, query: Query) -> Answer:
        inputs = self.prepared(query) if self.front.prepare else query.inputs[:, 0, 0, 0].astype(int)
        answer = await self.router.ask(query.wanted, inputs)
        self.tally.answered(answer, query.labels)
        for source in answer.sources.values():
            self.counted.inc(tags={"source": source})
            self.timed.observe(1000 * answer.seconds, tags={"source": source})
        if self.learner.wants(answer):
            self.router.keep(self.learn(inputs, answer))
        return answer

    async def learn(self, inputs: np.ndarray, answer: Answer) -> None:
        """What the coded network would have said of it, beside what the expert did say."""
        coded = await self.router.show(inputs)
        if coded is not None:
            self.learner.saw(coded, answer)

    def prepared(self, query: Query) -> np.ndarray:
        preparations = [e["preparation"] for e in self.facts["experts"] if e["name"] in query.wanted]
        if any(other != preparations[0] for other in preparations):
            raise Refused(400, "these experts prepare their inputs differently; ask one of them at a time")
        return prepared(torch.from_numpy(query.inputs), **preparations[0]).numpy()

    async def show_page(self, request: Request) -> Response:
        self.check_host(request)
        return HTMLResponse(page(self.front.token), headers={"Cache-Control": "no-store", "X-Frame-Options": "DENY"})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"servers": self.states()})

    def states(self) -> dict[str, str]:
        return {name: "down" if name in self.router.tower.down else "up" for name in self.router.servers}

    async def stats(self, request: Request) -> Response:
        try:
            since = float(request.query_params.get("since", 0))
        except ValueError:
            raise Refused(400, "since must be a number of seconds") from None
        deadlines = {name: round(1000 * d.current, 2) for name, d in self.router.tower.deadlines.items()}
        more = {
            "servers": self.states(),
            "slowed": self.slowed,
            "deadlines": deadlines,
            "learning": self.learner.told(),
        }
        return JSONResponse(self.tally.told(since, more))

    async def samples(self, request: Request) -> Response:
        return JSONResponse(self.front.samples)

    async def slow(self, request: Request) -> Response:
        told = await self.admin(request)
        milliseconds = told.get("milliseconds")
        if not is_number(milliseconds) or not 0 <= milliseconds <= 60_000:
            raise Refused(400, f"milliseconds={str(milliseconds)[:60]}: must be a number from 0 to 60000")
        await asyncio.wait_for(waited(self.router.servers[told["server"]].slow.remote(milliseconds / 1000)), 5)
        self.slowed[told["server"]] = milliseconds
        return JSONResponse({"server": told["server"], "milliseconds": milliseconds})

    async def kill(self, request: Request) -> Response:
        told = await self.admin(request)
        try:
            await asyncio.wait_for(waited(self.router.servers[told["server"]].kill.remote()), 5)
        except (RayActorError, asyncio.TimeoutError):
            self.router.tower.down.add(told["server"])
        self.slowed.pop(told["server"], None)  # it comes back as it was made
        return JSONResponse({"server": told["server"]})

    async def admin(self, request: Request) -> dict[str, Any]:
        """From this machine, by this page, about one of the servers."""
        self.check_host(request)
        origin = request.headers.get("origin")
        host = request.client.host if request.client else ""
        if host not in ("127.0.0.1", "::1") or origin not in (None, *(f"http://{name}" for name in self.front.names)):
            raise Refused(403, "admin calls are answered to this machine and to the service's own page only")
        if not hmac.compare_digest(request.headers.get("x-token", "").encode(), str(self.front.token).encode()):
            raise Refused(403, "the header X-Token is not the token of the service's page")
        told = json_of(await body_of(request))
        if not isinstance(told.get("server"), str) or told["server"] not in self.router.servers:
            raise Refused(
                400, f"server={str(told.get('server'))[:60]}: must be one of {', '.join(self.router.servers)}"
            )
        return told

    def check_host(self, request: Request) -> None:
        """A name of another site that leads here is not to read the token."""
        if self.front.token is not None and request.headers.get("host") not in self.front.names:
            raise Refused(403, f"ask for it as http://{self.front.names[0]}/")


async def body_of(request: Request) -> bytes:
    """No more of it than is allowed is kept."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > LIMIT:
            raise Refused(413, f"the body is larger than {LIMIT >> 20} MiB; send fewer images at a time")
    return bytes(found)
