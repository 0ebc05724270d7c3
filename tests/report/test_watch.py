"""The page while a sweep runs: real jobs that finish, fail and are killed, seen in a real browser."""

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from browser import browser, column, tab, until  # noqa: F401 (fixtures)
from conftest import ROOT, run_script

from benchmarks.processes import Process
from coin.report.jobs import LOCK, hold, is_running, release, unfinished
from coin.report.page import content, write_page
from coin.report.watch import server


@contextmanager
def served(folder):
    with server(folder) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/"
        finally:
            serving.shutdown()
            thread.join()


def sweep(place, folder, *words):
    """A process in `place`, where what it prints is left too: not in the project."""
    arguments = ["-m", f"hydra.sweep.dir={folder}", "logger=csv", "save_coded=false", *words]
    return Process(ROOT / "encode.py", arguments, place, os.environ)


def states(tab):  # noqa: F811
    return sorted(zip(column(tab, "code"), column(tab, "P"), column(tab, "state"), strict=True))


def test_runs_are_seen_as_they_run_finish_fail_and_die(digits_run, tab, tmp_path):  # noqa: F811
    folder = tmp_path / "sweep"
    folder.mkdir()
    with served(folder) as address:
        tab.goto(address)
        tab.wait_for_selector("#by-code .nothing")
        assert "no runs yet" in tab.inner_text("#summary")
        tab.evaluate("window.same = true")  # gone if the page were loaded again
        first = sweep(tmp_path, folder, "code=average", "samples=50,1,60")
        assert first.wait(120) == 1, "one of three fails"
        summary = "document.querySelector('#summary').textContent"
        until(tab, f"{summary}.startsWith('3 runs (2 finished, 1 failed)')", True)
        assert states(tab) == [("average", "1", "failed"), ("average", "50", "finished"), ("average", "60", "finished")]
        tab.click("#rows tr[data-state=failed] td.open button")
        assert "at least one sample each" in tab.inner_text("#details pre.error")
        tab.keyboard.press("Escape")

        tab.click("th[data-key=samples] button")
        tab.click("th[data-key=samples] button")
        tab.click("#choices details[data-key=state] summary")
        tab.check("#choices input[value=finished]")
        slow = sweep(tmp_path, folder / "second", "code=distillation", "code.epochs=100000")
        until(tab, f"{summary}.includes('1 running')", True)
        assert column(tab, "P") == ["60", "50"], "the order and the filter have stayed"
        assert tab.evaluate("document.activeElement.value") == "finished", "and so has the focus"
        tab.check("#choices input[value=running]")
        assert ("distillation", "200", "running") in states(tab)
        os.killpg(slow.pid, signal.SIGKILL)
        slow.wait(30)
        until(tab, f"{summary}.includes('1 interrupted')", True)

        tab.uncheck("#choices input[value=running]")
        assert sweep(tmp_path, folder, "code=average", "samples=50,1,60,70").wait(120) == 1
        until(tab, "document.querySelectorAll('#rows tr').length", 3)
        assert column(tab, "P") == ["70", "60", "50"], "what has come is in its place"
        until(tab, "document.querySelectorAll('#by-seconds .points .point').length", 3)
        assert tab.evaluate("window.same") is True
        text = tab.inner_text("#news")
        assert "follows the folder" in text
    until(tab, "document.querySelector('#news').textContent.includes('has ended')", True)
    tab.goto(write_page(folder, tmp_path).as_uri())  # and from disk
    assert "1 failed, 1 interrupted" in tab.inner_text("#summary") and "running" not in tab.inner_text("#summary")


def job(folder, name="encode", **choices):
    """What Hydra leaves of a job."""
    (folder / ".hydra").mkdir(parents=True)
    names = {"code": "coin", "decoder": "analytic", "experiment": "digits", **choices}
    told = {"job": {"config_name": name}, "runtime": {"choices": names}, "overrides": {"task": ["code=coin", "+x=1"]}}
    (folder / ".hydra" / "hydra.yaml").write_text(f"hydra: {told}")
    (folder / ".hydra" / "config.yaml").write_text("{seed: 3, samples: 40}")
    return folder


def test_whether_a_job_runs_is_what_its_lock_says(tmp_path):
    def state():
        return [item["state"] for item in unfinished(tmp_path)]

    folder = job(tmp_path / "a")
    job(tmp_path / "training", name="train")
    assert state() == ["unfinished"] and is_running(folder) is None
    hold(folder)
    assert state() == ["running"] and content(tmp_path)["runs"][0]["command"].startswith(
        "python encode.py code=coin x=1"
    )
    release(folder)
    assert state() == ["unfinished"] and not (folder / LOCK).exists()
    (folder / LOCK).touch()  # whoever held it is dead
    assert state() == ["interrupted"]
    (folder / "error.txt").write_text("out of luck\n")
    assert state() == ["failed"] and unfinished(tmp_path)[0]["error"] == "out of luck"
    (folder / "error.txt").unlink()
    (folder / "results.json").write_text("{}")
    assert state() == []


def test_a_folder_that_cannot_be_locked_costs_no_run(tmp_path):
    hold(tmp_path / "absent")
    release(tmp_path / "absent")
    assert is_running(tmp_path / "absent") is None


def get(address, **headers):
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20)


def test_the_server_answers_this_machine_about_this_folder_alone(tmp_path):
    job(tmp_path / "sweep" / "a")
    (tmp_path / "secret").write_text("x")
    with served(tmp_path / "sweep") as address:
        assert address.startswith("http://127.0.0.1:")
        for path in ("secret", "../secret", "a/.hydra/config.yaml"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(address + path)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(address, Host="elsewhere.example")  # a name that somebody made lead here
        text = get(address + "data.json").read().decode()
        stamp = text.split('"stamp":"')[1].split('"')[0]
        assert get(f"{address}data.json?since={stamp}").read() == b"null", "no news"
        job(tmp_path / "sweep" / "b")
        assert get(f"{address}data.json?since={stamp}").read() != b"null"


def test_a_damaged_file_is_said_and_the_rest_stays(tmp_path, tab):  # noqa: F811
    job(tmp_path / "a")
    with served(tmp_path) as address:
        tab.goto(address)
        until(tab, "document.querySelectorAll('#rows tr').length", 1)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "results.json").write_text("{nonsense")
        until(tab, "document.querySelector('#news').textContent.includes('is no results.json of a run')", True)
        assert tab.locator("#rows tr").count() == 1
        (tmp_path / "b" / "results.json").unlink()
        until(tab, "document.querySelector('#news').textContent.includes('follows the folder')", True)


def test_the_command_ends_by_itself_and_with_ctrl_c(tmp_path):
    done = run_script("coin.report", str(tmp_path), "--watch", "--for", "0.3")
    assert done.code == 0 and "at http://127.0.0.1:" in done.out, done.err
    command = [sys.executable, "-u", "-m", "coin.report", str(tmp_path), "--watch"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split(" at ")[1].split()[0]
        assert b"<!doctype html>" in get(address).read(100)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0 and "the watch has ended" in out and not err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch", "--port", "nonsense"], "--port nonsense: must be a number"),
        (["--watch", "--port", "70000"], "--port 70000: must be between 1 and 65535"),
        (["--watch", "--for", "-1"], "--for -1: must be a positive number of seconds"),
        (["--watch", "--out", "x"], "--watch writes nothing"),
        (["--port", "8000"], "--port and --for are of --watch"),
    ],
)
def test_bad_words_get_one_line(words, said, tmp_path):
    done = run_script("coin.report", str(tmp_path), *words)
    assert done.code == 2 and done.err.startswith(f"error: {said}") and done.err.count("\n") == 1


def test_no_folder_and_a_taken_port_get_one_line(tmp_path):
    done = run_script("coin.report", str(tmp_path / "absent"), "--watch")
    assert done.code == 2 and "no such folder" in done.err and done.err.count("\n") == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_script("coin.report", str(tmp_path), "--watch", "--port", port)
        assert done.code == 2 and done.err.startswith(f"error: --port {port}: Address already in use; give another")
