"""Measures coded serving beside its alternatives, and writes results/serving.

python -m benchmarks.serving measure       service times of a real network, in CPU seconds
python -m benchmarks.serving delays        what the engine itself takes (1 minute)
python -m benchmarks.serving simulate      T3: the whole grid in the simulator (half an hour on one core)
python -m benchmarks.serving engine        T2: some of its cells on Ray Serve, service times drawn (2 minutes each)
python -m benchmarks.serving networks      T1: the digits' real networks, a kill second by second
python -m benchmarks.serving learning      decoding accuracy against pairs seen
python -m benchmarks.serving hostile       1,000 malformed requests
python -m benchmarks.serving soak          10 minutes with a kill every 20 seconds
python -m benchmarks.serving report        tables and figures from what was measured

All but `measure`, `simulate`, `learning` and `report` want a machine with nothing else on it; all but the first and the
last want what `python serve.py` makes (outputs/serve/digits).
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coin.lab.coded import load, load_expert
from coin.serving.cells import Cell, Measured, hardware
from coin.serving.engine import Service, service
from coin.serving.faults import Faults, Kill, Trace, random_kills
from coin.serving.policies import CODED, Policy
from coin.serving.report import write
from coin.serving.samples import samples_of
from coin.serving.settings import Serving
from coin.serving.traffic import Traffic
from coin.serving.workers import Drawn, Worker
from coin.training.data.images import prepared
from coin.training.models import ResNet, Small

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "results" / "serving"
RUN = ROOT / "outputs" / "serve" / "digits"
QUIET = Serving(port=0, learning=0.0)
ROUTED, ENSEMBLES = (False, True)
SIMULATED = ("none", "replica of one", "spare, all models", "spare, loading", "small backup", "coded, at once",
             "coded, late", "pairs", "drop the last", "merged alone")  # fmt: skip
FAULTS = ("no faults", *(f"{p:g} % ×{f}" for p in (0.1, 0.5, 1, 2, 5) for f in (3, 10)), "Pareto 2.5",
          "one slow for 5 s", "expert killed", "helper killed")  # fmt: skip


def measure() -> None:
    """A forward of one 32 px image on one thread, and what it takes to load the network, in seconds of the CPU."""
    torch.set_num_threads(1)
    image = torch.randn(1, 3, 32, 32)
    big, small = ResNet(weights="none").build(10).eval(), Small(weights="none").build(10).eval()
    times = {name: forwards(network, image) for name, network in {"resnet50": big, "small_resnet": small}.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        torch.save(big.state_dict(), path)
        start = time.process_time()
        big.load_state_dict(torch.load(path, weights_only=True))
        loading = time.process_time() - start
    found = {
        "service": [round(t, 6) for t in times["resnet50"]],
        "small": round(float(np.median(times["small_resnet"]) / np.median(times["resnet50"])), 3),
        "loading": round(loading, 4),
        "network": "ResNet-50, one image of 32 px, one thread, CPU seconds",
    }
    (PAGE / "measured.json").write_text(json.dumps(found) + "\n")
    print({k: (len(v), round(float(np.median(v)), 5)) if isinstance(v, list) else v for k, v in found.items()})


def forwards(network: torch.nn.Module, image: torch.Tensor, count: int = 400) -> list[float]:
    found = []
    with torch.inference_mode():
        for _ in range(count + 20):
            start = time.process_time()  # not what other processes take
            network(image)
            found.append(time.process_time() - start)
    return found[20:]


def measured() -> Measured:
    told = json.loads((PAGE / "measured.json").read_text())
    return Measured(service=np.array(told["service"]), loading=told["loading"], small=told["small"])


def delays() -> None:
    """What a query takes through proxy, router and replica when there is nothing to compute."""
    cell = Cell(policy="none", fault="no faults", ensembles=ROUTED, queries=1000)
    found = run_engine(cell, Measured(service=np.array([1e-4])), Traffic(20.0, 1000))
    times = [round(o["latency"] - 1e-4, 6) for o in found[100:] if o["latency"] is not None]
    (PAGE / "delays.json").write_text(json.dumps(times) + "\n")
    print(np.percentile(times, [50, 99]))


def with_delays() -> Measured:
    return replace(measured(), delays=np.array(json.loads((PAGE / "delays.json").read_text())))


def simulate(most: float = 1e9) -> None:
    """The whole grid; then load, N, skewed and moving traffic. Goes on where it stopped, for at most so many cells."""
    cells = []
    for ensembles in (ENSEMBLES, ROUTED):
        policies = [name for name in SIMULATED if ensembles or name not in ("drop the last", "merged alone")]
        cells += [Cell(policy=p, fault=f, ensembles=ensembles) for f in FAULTS for p in policies]
        some = [p for p in policies if p not in ("spare, loading", "small backup")]
        cells += [
            Cell(policy=p, fault="1 % ×10", ensembles=ensembles, load=x) for x in (0.05, 0.1, 0.2, 0.6) for p in some
        ]
        cells += [Cell(policy=p, fault="0.5 % ×10", ensembles=ensembles, load=0.1) for p in some]
        for n, queries in ((4, 17_000), (10, 17_000), (100, 3_000)):
            cells += [
                Cell(policy=p, fault="1 % ×10", ensembles=ensembles, experts=n, queries=queries, load=x)
                for p in some
                for x in (0.1, 0.4)
                if not (n == 100 and x == 0.4)
            ]
    for moving in (None, 20.0):
        for fault in ("no faults", "1 % ×10"):
            cells += [Cell(policy=p, fault=fault, ensembles=ROUTED, skew=4.0, moving=moving) for p in SIMULATED[:8]]
    file = PAGE / "T3.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = [{key: told[key] for key in vars(cells[0])} for told in found]
    left = sorted((cell for cell in cells if vars(cell) not in done), key=lambda cell: cell.experts)
    for cell in left[: int(most)]:
        found.append(cell.simulate(measured()))
        keep(file.name, found)
    print(f"{len(found)} of {len(cells)} cells", flush=True)


def keep(name: str, found: Sequence[Mapping[str, Any]]) -> None:
    PAGE.mkdir(parents=True, exist_ok=True)
    (PAGE / name).write_text("".join(json.dumps(one) + "\n" for one in found))


def outputs() -> tuple[dict[str, np.ndarray], list[int]]:
    """What the digits' networks say of 200 test images, half of them each expert's own, and the labels."""
    coded = load(RUN)
    found, labels = samples_of(coded.facts, "data", 100), []
    images = torch.tensor([image for name in coded.experts for image in found[name]["inputs"]])
    ready = prepared(images, **coded.facts["experts"][0]["preparation"])
    labels = [label for name in coded.experts for label in found[name]["labels"]]
    with torch.inference_mode():
        networks = {CODED: coded.network} | {name: load_expert(RUN, name) for name in coded.experts}
        return {name: network(ready).numpy() for name, network in networks.items()}, labels


def drawn(policy: Policy, cell: Cell, known: Measured, trace: Trace) -> dict[str, Worker]:
    told, _ = outputs()
    machines = hardware(cell.policy, known)
    made: dict[str, Worker] = {}
    for server in policy.holdings():
        loading, speed = machines.loading.get(server, 0.0), machines.speed.get(server, 1.0)
        made[server] = Drawn(server, trace, told, loading=loading, speed=speed)
    return made


def run_engine(cell: Cell, known: Measured, traffic: Traffic) -> list[dict[str, Any]]:
    policy = cell.chosen()
    slow = Faults(cell.trace(known, 0).faults.probability, cell.trace(known, 0).faults.factor)
    workers = drawn(policy, cell, known, Trace(slow, known.service, traffic.queries, traffic.seed))
    with service(RUN, QUIET, policy, workers, prepare=False) as served:
        return sent(served, traffic, policy.experts, inputs=[[[i]] for i in range(200)])


def sent(served: Service, traffic: Traffic, experts: Sequence[str], **plan: Any) -> list[dict[str, Any]]:
    """By a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("plan.json", "outcome.json")]
        files[0].write_text(json.dumps({"traffic": asdict(traffic), "experts": [*experts], **plan}))
        subprocess.run(
            [sys.executable, "-m", "coin.serving.load", served.address, *map(str, files)], check=True, cwd=ROOT
        )
        found: list[dict[str, Any]] = json.loads(files[1].read_text())
        return found


def told_of(found: Sequence[Mapping[str, Any]], skip: int = 200) -> dict[str, Any]:
    """Percentiles without the first queries, in which deadlines are learnt and caches filled."""
    late = [np.inf if o["latency"] is None else 1000 * o["latency"] for o in found[skip:]]
    inexact = [np.mean([s != "exact" for s in o["source"]]) for o in found[skip:] if o["source"]]
    quantiles = {f"{q:g}": round(float(np.percentile(late, q)), 3) for q in (50, 75, 90, 95, 98, 99, 99.5)}
    failed = sum(o["latency"] is None for o in found)
    return {
        "answered": len(found) - failed,
        "failed": failed,
        "inexact": float(np.mean(inexact)),
        "quantiles": quantiles,
    }


def engine(*wanted: str) -> None:
    """T2, and the same cell in the simulator. Appends, so that cells can be run in short pieces."""
    known = with_delays()
    for word in wanted or ("ensemble:none", "ensemble:coded, at once", "routed:none", "routed:coded, late"):
        kind, policy, *rest = word.split(":")
        fault, load_ = (rest + ["1 % ×10", "0.2"][len(rest) :])[:2]
        cell = Cell(policy=policy, fault=fault, ensembles=kind == "ensemble", load=float(load_), queries=2500)
        traffic = cell.traffic(known, 0)
        result = {"tier": "T2", **vars(cell), "seeds": 1, **told_of(run_engine(cell, known, traffic))}
        twin = cell.simulate(known, (0, 1, 2))
        result["simulated"] = twin["quantiles"]
        with (PAGE / "T2.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(kind, policy, fault, load_, result["failed"], result["quantiles"], twin["quantiles"], flush=True)


def networks() -> None:
    """T1: real networks at low load; an expert is killed after 22 s, the coded server after 37 s."""
    found = samples_of(load(RUN).facts, "data", 100)
    first, *_ = experts = [*found]
    with service(RUN, Serving(port=0, admin=True)) as served:
        kill_at(served, (Kill(first, 22.5), Kill(CODED, 37.5)))
        outcome = sent(served, Traffic(20.0, 1300), experts, inputs=found[first]["inputs"])
    keep("T1.jsonl", outcome)
    print(told_of(outcome))


def kill_at(served: Service, kills: Sequence[Kill]) -> None:
    """Each in so many seconds from now, by the admin call of the service."""

    def kill(server: str) -> None:
        body = json.dumps({"server": server}).encode()
        headers = {"X-Token": str(served.token), "Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(served.address + "/admin/kill", body, headers), timeout=20)

    for planned in kills:
        timer = threading.Timer(planned.at, kill, [planned.server])
        timer.daemon = True
        timer.start()


def learning() -> None:
    """A decoder fitted on eight samples of each expert, and how many it gets right as pairs come in."""
    from coin.decoders import Alone, Answers
    from coin.serving.learning import Learner
    from coin.serving.router import Answer

    coded, (rows, labels), found = load(RUN), every_test_image(), []
    orders = {name: np.random.default_rng(0).permutation(len(labels[name])) for name in coded.experts}
    few = {name: orders[name][:8] for name in coded.experts}
    first = torch.cat([torch.from_numpy(rows[name][CODED][few[name]]) for name in coded.experts])
    experts = {
        i: torch.cat([torch.from_numpy(rows[name][other][few[name]]) for name in coded.experts])
        for i, other in enumerate(coded.experts)
    }
    owners = torch.arange(len(coded.experts)).repeat_interleave(8)
    coded.decoder = Alone().fit(Answers([first], experts, coded.generator, owners))
    learner = Learner(coded, 1.0)
    for name in coded.experts:
        own, order = rows[name], orders[name]
        seen, kept = order[8 : len(order) // 2], order[len(order) // 2 :]
        for count, i in enumerate([-1, *seen]):
            if i >= 0:
                answer = Answer({name: own[name][i : i + 1]}, {name: "exact"}, [name], 0.0)
                learner.saw(own[CODED][i : i + 1], answer)
            if count % 20 == 0 or count == len(seen):
                guess = learner.decode({CODED: torch.from_numpy(own[CODED][kept])}, name).numpy().argmax(1)
                right, agree = (float((guess == w).mean()) for w in (labels[name][kept], own[name][kept].argmax(1)))
                found.append({"expert": name, "pairs": count, "accuracy": right, "agreement": agree})
    keep("learning.jsonl", found)
    print(*found[:: max(1, len(found) // 10)], sep="\n")


def every_test_image() -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    coded = load(RUN)
    samples = samples_of(coded.facts, "data", 1000)
    found: dict[str, dict[str, np.ndarray]] = {}
    with torch.inference_mode():
        for expert in coded.facts["experts"]:
            name = expert["name"]
            ready = prepared(torch.tensor(samples[name]["inputs"]), **expert["preparation"])
            experts = {other: load_expert(RUN, other)(ready).numpy() for other in coded.experts}
            found[name] = {CODED: coded.network(ready).numpy(), **experts}
    return found, {name: np.array(samples[name]["labels"]) for name in samples}


def hostile(count: int = 1000) -> None:
    """Malformed requests of all kinds; after them every server is the process that it was before."""
    rng = random.Random(0)
    facts = load(RUN).facts
    good = json.dumps({"inputs": [[[0.0] * 8] * 8], "expert": facts["experts"][0]["name"]}).encode()
    statuses: dict[int, int] = {}
    with service(RUN, Serving(port=0, admin=True)) as served:
        for number in range(count):
            request = malformed(served.address, good, rng, number)
            try:
                status = urllib.request.urlopen(request, timeout=30).status
            except urllib.error.HTTPError as error:
                status = error.code
                assert "\n" not in error.read().decode()
            statuses[status] = statuses.get(status, 0) + 1
        health = json.load(urllib.request.urlopen(served.address + "/health"))["servers"]
        again = urllib.request.Request(served.address + "/predict", good, {"Content-Type": "application/json"})
        fine = urllib.request.urlopen(again).status
    result = {"requests": count, "statuses": statuses, "health": health, "a good one after them": fine}
    (PAGE / "hostile.json").write_text(json.dumps(result) + "\n")
    print(result)


def malformed(address: str, good: bytes, rng: random.Random, number: int) -> urllib.request.Request:
    kind = number % 10
    path, headers, body = "/predict", {"Content-Type": "application/json"}, good
    if kind == 0:
        body = good[: rng.randrange(len(good))]
    elif kind == 1:
        body = rng.randbytes(rng.randrange(2000))
    elif kind == 2:
        body = good.replace(b"0.0", rng.choice([b"NaN", b"1e999", b"-5", b"null", b'"x"', b"[]", b"{}", b"true"]), 1)
    elif kind == 3:
        body = good.replace(b'"split1"', rng.choice([b"1", b'"nobody"', b"null", b'"../../etc"', b'["split1"]']))
    elif kind == 4:
        body = b"[" * rng.randrange(1, 200_000)
    elif kind == 5:
        headers = {"Content-Type": rng.choice(["text/plain", "", "application/x-npy", "image/png"])}
    elif kind == 6:
        headers, body = {"Content-Type": "application/x-npy"}, b"\x93NUMPY" + rng.randbytes(rng.randrange(200))
        path = "/predict?expert=split1"
    elif kind == 7:
        path = rng.choice(["/predict/", "/%00", "/admin", "/../secret", "/" + "a" * 5000, "/admin/kill", "/admin/slow"])
    elif kind == 8:
        body = json.dumps(
            {"inputs": np.zeros([rng.randrange(1, 4) for _ in range(rng.randrange(6))]).tolist()}
        ).encode()
    else:
        body = b"x" * rng.randrange(4 << 20, 5 << 20) if number % 100 == 9 else good.replace(b"inputs", b"input")
    return urllib.request.Request(address + path, body, headers)


def soak(minutes: float = 10.0) -> None:
    """Real networks, 25 queries a second, a random kill every 20 s."""
    found = samples_of(load(RUN).facts, "data", 100)
    first, *_ = experts = [*found]
    with service(RUN, Serving(port=0, admin=True)) as served:
        kills = random_kills([*experts, CODED], 20.0, 60 * minutes)
        kill_at(served, kills)
        outcome = sent(served, Traffic(25.0, int(25 * 60 * minutes)), experts, inputs=found[first]["inputs"])
    result = {"minutes": minutes, "kills": len(kills), "sent": len(outcome), **told_of(outcome)}
    (PAGE / "soak.json").write_text(json.dumps(result) + "\n")
    print(result)


def report() -> None:
    write(PAGE)


COMMANDS = {f.__name__: f for f in (measure, delays, simulate, engine, networks, learning, hostile, soak, report)}

if __name__ == "__main__":
    PAGE.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(str(__doc__))
    words: list[Any] = sys.argv[2:]
    COMMANDS[sys.argv[1]](*(float(word) if word.replace(".", "").isdigit() else word for word in words))  # type: ignore[operator]
