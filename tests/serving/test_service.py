"""A real service: `python serve.py` with its processes, asked over HTTP, watched in a browser, killed, and ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import browser, tab, until  # noqa: F401 (fixtures)
from conftest import ROOT, run_script

import coin
from coin.lab.coded import load_expert
from coin.serving.client import Client
from coin.training.data import Digits
from coin.training.data.images import prepared


@pytest.fixture(scope="module")
def folder(digits_run, tmp_path_factory):
    """An encode run whose decoder asks the coded network alone; its experts are in the store already."""
    made = tmp_path_factory.mktemp("served") / "run"
    done = run_script("encode.py", "code=average", "decoder=alone", "logger=csv", f"hydra.run.dir={made}")
    assert done.code == 0, done.err
    return made


def descendants(pid: int) -> set[int]:
    """Of a process: all that it has started, and those that these have."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone in the meantime
    found, waiting = set(), [pid]
    while waiting:
        parent = waiting.pop()
        children = {child for child, above in parents.items() if above == parent} - found
        found |= children
        waiting += children
    return found


def listening(pids: set[int]) -> set[str]:
    """The addresses, in hexadecimal, on which these processes wait for connections."""
    own = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                own.add(os.readlink(entry))
            except OSError:
                continue
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                found.add(words[1].split(":")[0])
    return found


@pytest.fixture(scope="module")
def service(folder, tmp_path_factory):
    """The demonstration in a place of its own, ended by Ctrl-C: nothing that it started is left."""
    place = tmp_path_factory.mktemp("service")
    words = [
        f"demonstration={folder}",
        "serve.port=0",
        f"hydra.run.dir={place}",
        "serve.seconds=240",
        "serve.learning=1",
    ]
    command = [sys.executable, "-u", str(ROOT / "serve.py"), *words]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("at http"):
                break
        else:
            pytest.fail("".join(lines))
        client = Client(re.search(r"http://[^/]+", line)[0])
        client.metrics = re.search(r"metrics at (\S+);", line)[1]
        client.pid = process.pid
        yield client
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and "the service has ended" in out, out
        limit = time.monotonic() + 20
        while left := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < limit, left
            time.sleep(0.1)


@pytest.fixture(scope="module")
def images():
    data = Digits(labels=[0, 1, 2, 3, 4])
    data.setup()
    return data.test_set[list(range(5))][0].numpy()


def test_it_answers_as_the_networks_do(service, folder, images):
    coded = coin.load(folder)
    ready = prepared(torch.from_numpy(images), **coded.facts["experts"][0]["preparation"])
    exact = {name: load_expert(folder, name)(ready).detach().numpy() for name in coded.experts}
    answer = service.predict(images, "split1")
    assert answer.source == "exact" and answer.servers == ["split1"] and answer.milliseconds > 0
    assert np.allclose(answer.outputs, exact["split1"], atol=1e-3)
    everybody = service.predict(images[:, 0], "all")
    assert set(everybody.source) == set(coded.experts) and len(everybody.servers) >= 2
    for name, source in everybody.source.items():
        if source == "exact":
            assert np.allclose(everybody.outputs[name], exact[name], atol=1e-3)


def test_all_its_ports_are_on_loopback(service):
    addresses = listening({service.pid, *descendants(service.pid)})
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert addresses and addresses <= loopback, addresses


def test_health_and_metrics(service, images):
    assert service.health() == {"split1": "up", "split2": "up", "coded": "up"}
    service.predict(images, "split1")
    limit = time.monotonic() + 20
    while "coin_answers" not in urllib.request.urlopen(service.metrics, timeout=20).read().decode():
        assert time.monotonic() < limit, "the metrics have not come"
        time.sleep(0.5)


def post(service, path, body, **headers):
    """The status and what was said."""
    headers = {"Content-Type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
    request = urllib.request.Request(service.address + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_bad_input_gets_one_sentence_and_the_servers_stay_up(service, images):
    for body, status in [
        (b"nonsense", 400),
        (b'{"inputs": [[[0]]], "expert": "nobody"}', 400),
        (b"x" * (5 << 20), 413),
    ]:
        code, said = post(service, "/predict", body)
        assert code == status and set(json.loads(said)) == {"error"}, said
    assert post(service, "/predict", b"{}", Content_Type="text/plain")[0] == 415
    assert post(service, "/nowhere", b"{}")[0] == 404 and post(service, "/health", b"{}")[0] == 405
    with pytest.raises(ValueError, match="must be one of split1, split2, or all"):
        service.predict(images, "split3")
    assert set(service.health().values()) == {"up"} and service.predict(images, "split2").source == "exact"


def token_of(service):
    page = urllib.request.urlopen(service.address + "/", timeout=20).read().decode()
    return re.search(r'<meta name="token" content="([^"]+)">', page)[1]


def test_admin_calls_want_the_pages_token_and_its_origin(service):
    token, order = token_of(service), json.dumps({"server": "split1", "milliseconds": 0}).encode()
    assert post(service, "/admin/slow", order, X_Token=token)[0] == 200
    assert post(service, "/admin/slow", order)[0] == 403
    assert post(service, "/admin/slow", order, X_Token="guess")[0] == 403
    assert post(service, "/admin/slow", order, X_Token=token, Origin="http://elsewhere.example")[0] == 403
    assert post(service, "/admin/slow", order, X_Token=token, Host="elsewhere.example")[0] == 403
    assert post(service, "/admin/kill", b'{"server": "router"}', X_Token=token)[0] == 400
    assert post(service, "/admin/slow", b'{"server": "split1"}', X_Token=token)[0] == 400


def test_kill_is_pressed_and_answers_are_decoded_until_the_expert_is_back(service, tab):  # noqa: F811
    tab.goto(service.address + "/")
    number = "Number(document.querySelector('#{}').textContent)"
    state = "document.querySelector('[data-server=split1] .state').textContent"
    until(tab, f"{number.format('exact')} > 10", True)
    before = tab.evaluate(number.format("decoded"))
    tab.click("[data-server=split1] .kill")
    until(tab, f"{number.format('decoded')} > {before + 5}", True)
    until(tab, state, "up")
    late = tab.evaluate(number.format("exact"))
    until(tab, f"{number.format('exact')} > {late + 20}", True)
    assert tab.evaluate(number.format("errors")) == 0
    assert float(tab.inner_text("#right-decoded").split()[0]) > 60

    tab.click("[data-server=split2] .slow-down")
    until(tab, "document.querySelector('[data-server=split2] .state').textContent", "slow by 400 ms")
    slow = tab.evaluate(number.format("decoded"))
    until(tab, f"{number.format('decoded')} > {slow + 5}", True)
    tab.click("[data-server=split2] .slow-down")
    until(tab, "document.querySelector('[data-server=split2] .state').textContent", "up")
    assert tab.evaluate(number.format("errors")) == 0
    assert tab.locator("#latencies .dot.decoded").count() > 5 and tab.locator("#tail .curve").count() > 0


def test_a_killed_router_comes_back_and_the_client_waits_for_it(service, images):
    (router,) = [
        pid for pid in descendants(service.pid) if "router" in Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    ]
    os.kill(router, signal.SIGKILL)
    assert service.predict(images, "split1").outputs.shape == (5, 10)
    assert set(service.health().values()) == {"up"}


@pytest.mark.parametrize(
    "words, said",
    [
        (["run=nowhere"], "no such file; give the folder of an encode run"),
        (["serve.port=99999"], "serve.port=99999: must be a number"),
        (["serve.admin=true", "serve.host=0.0.0.0"], "from this machine only"),
        (["serve.colour=red"], "colour"),
    ],
)
def test_bad_words_get_one_line(words, said, tmp_path):
    done = run_script("serve.py", *words, f"hydra.run.dir={tmp_path}")
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1 and done.err.startswith("error: "), (
        done.err
    )


def test_other_commands_do_not_import_ray():
    seen = "import sys, coin.cli.encode, coin.cli.train, coin.cli.serve; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", seen], cwd=ROOT).returncode == 0
