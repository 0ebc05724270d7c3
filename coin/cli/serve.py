"""Serves what an encode run left behind: experts, coded network and router, each a process of its own, on Ray Serve.

python serve.py run=DIR
"""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from coin.cli.configs import CONF
from coin.lab.coded import load
from coin.lab.console import one_line_errors, quiet, say
from coin.serving.engine import service
from coin.serving.samples import samples_of
from coin.serving.settings import Serving

# the digits, with the decoder that asks the coded network alone
DEMONSTRATION = ["experiment=digits", "code=matched", "decoder=alone", "tuning=divergence", "logger=csv"]
os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


def main() -> None:
    with one_line_errors():
        run()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="serve")
def run(config: DictConfig) -> None:
    quiet()
    with one_line_errors():
        serving: Serving = instantiate(config.serve)
        folder = Path(config.run or config.demonstration).resolve()
        if config.run is None:
            demonstration(folder, config.store)
        if serving.admin is None:
            serving = replace(serving, admin=config.run is None and serving.is_local and serving.address is None)
        facts = load(folder).facts
        say(f"serving {folder}: starting the coded network and {len(facts['experts'])} experts")
        with (
            ended_by_signals() as ended,
            service(folder, serving, samples=samples_of(facts, config.data.root)) as served,
        ):
            say(f"at {served.address}/ (a page, /predict, /health); metrics at {served.metrics}; Ctrl-C ends it")
            ended.wait(serving.seconds)
        say("the service has ended")


def demonstration(folder: Path, store: str) -> None:
    """The encode run that is served where none is given; made once."""
    if (folder / "coded.safetensors").is_file():
        return
    say(f"there is no demonstration in {folder} yet: fine-tuning and coding two experts, under a minute")
    told = [*DEMONSTRATION, f"hydra.run.dir={folder}", f"store={store}"]
    made = subprocess.run([sys.executable, "-c", "from coin.cli.encode import main; main()", *told])
    if made.returncode:
        raise ValueError(
            f"the demonstration could not be made (exit code {made.returncode}); what was wrong stands above"
        )


class ended_by_signals:
    """An event that Ctrl-C and a polite kill set; whatever was started is ended by leaving the block."""

    def __enter__(self) -> threading.Event:
        self.event = threading.Event()
        self.before = {number: signal.signal(number, self.set) for number in (signal.SIGINT, signal.SIGTERM)}
        return self.event

    def set(self, number: int, frame: Any) -> None:
        self.event.set()  # a second one changes nothing: an end that is interrupted would leave processes behind

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
