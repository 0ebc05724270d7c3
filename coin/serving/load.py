"""Open-loop load on a service, from a process of its own: queries leave when they are due, whoever is still waiting.

python -m coin.serving.load http://127.0.0.1:8000 plan.json outcome.json

The plan is {"traffic": the fields of a Traffic, "experts": names, "inputs": [an image each, sent in turn], "labels"};
the outcome has, of each query, its scheduled arrival, its latency from then (null: it failed), source and status.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from coin.serving.traffic import Traffic


async def send(address: str, plan: dict[str, Any]) -> list[dict[str, Any]]:
    import aiohttp  # comes with Ray

    traffic, experts = Traffic(**plan["traffic"]), plan["experts"]
    outcomes: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def query(number: int, due: float, wanted: tuple[str, ...]) -> None:
            which = number % len(plan["inputs"])
            body: dict[str, Any] = {
                "inputs": [plan["inputs"][which]],
                "expert": wanted[0] if len(wanted) == 1 else "all",
            }
            if "labels" in plan:
                body["labels"] = [plan["labels"][which]]
            told: dict[str, Any] = {"arrival": due, "latency": None, "source": None, "status": 0, "wanted": len(wanted)}
            try:
                async with session.post(address + "/predict", json=body) as answer:
                    said = await answer.json()
                    told["status"] = answer.status
                    if answer.status == 200:
                        sources = said["source"] if isinstance(said["source"], dict) else {wanted[0]: said["source"]}
                        told["source"] = sorted(sources.values())
                        told["latency"] = time.monotonic() - start - due
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError):
                pass  # the status stays 0: nobody was there
            outcomes.append(told)

        start, tasks = time.monotonic() + 0.2, []
        for number, (due, wanted) in enumerate(traffic.schedule(experts)):
            await asyncio.sleep(max(0.0, start + due - time.monotonic()))
            tasks.append(asyncio.create_task(query(number, due, wanted)))
        await asyncio.gather(*tasks)
    return sorted(outcomes, key=lambda outcome: outcome["arrival"])


def main(address: str, plan: str, outcome: str) -> None:
    found = asyncio.run(send(address, json.loads(Path(plan).read_text())))
    Path(outcome).write_text(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("error: give the service's address, the plan and where to put the outcome")
    main(*sys.argv[1:])
