"""How many jobs a sweep has, and what is said of them while it runs."""

import pickle
import time

import pytest
from hydra import compose, initialize_config_dir

from coin.cli.configs import CONF
from coin.cli.multirun import Multirun, Row, jobs_of
from coin.report.jobs import hold, release


@pytest.mark.parametrize(
    ("overrides", "jobs"),
    [(["sweeps=quickstart"], 6), (["sweeps=quickstart", "code=coin,average", "seed=0,1"], 4), (["sweeps=table1"], 54),
     (["sweeps=beta"], 10), (["samples=range(1,5)"], 4), (["code=coin"], 1)],
)  # fmt: skip
def test_jobs_are_counted(overrides, jobs):
    plain = [override for override in overrides if override.startswith("sweeps=")]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("encode", overrides=plain, return_hydra_config=True)
    config.hydra.overrides.task = overrides
    assert jobs_of(config) == jobs


def test_a_launcher_may_pickle_the_callback_while_its_row_is_drawn(tmp_path):
    callback = Multirun()
    callback.row = Row(tmp_path, 3)
    assert pickle.loads(pickle.dumps(callback)).row is None


def test_a_row_tells_what_lies_in_the_folder(tmp_path):
    for name in ("old", "new", "bad", "dead", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "results.json").touch()
    (tmp_path / "dead" / ".running").touch()  # nobody holds it
    hold(tmp_path / "runs")
    row = Row(tmp_path, 10)
    assert row.text() == "sweep: 1 of 10 done, 1 running, 0 failed"
    (tmp_path / "new" / "results.json").touch()
    (tmp_path / "bad" / "error.txt").touch()
    at = row.began + 60  # two of nine have ended within a minute: seven more take three and a half
    end = time.strftime("%H:%M", time.localtime(at + 210))
    assert row.text(at) == f"sweep: 2 of 10 done, 1 running, 1 failed, end about {end}"
    release(tmp_path / "runs")
    assert ", 0 running," in row.text(at)
