"""Codes the experts of an experiment and reports how well each is decoded.

python encode.py experiment=digits code=coin
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from coin import report
from coin.cli.configs import CONF, built, own_device
from coin.cli.experts import expand
from coin.lab.console import SHORTAGE, USER_ERROR, display, one_line_errors, quiet, say
from coin.lab.experiment import Experiment, Run
from coin.problem.memory import Memory
from coin.training.trainers import check_swept

Keep = Callable[[dict[str, Any]], None]
MEMORY = Memory()  # shared by the jobs of a sweep
os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


def main() -> None:
    MEMORY.kept.clear()  # of another command in the same process
    try:
        with one_line_errors():
            run()
    finally:
        display.close()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="encode")
def run(config: DictConfig) -> None:
    quiet()
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    swept = settings.runtime.choices["sweeps"] is not None  # an agent runs the jobs of a sweep one by one
    if settings.mode == RunMode.MULTIRUN or swept:
        with one_line_errors():  # of the whole sweep: no job could run
            check_swept(instantiate(config.trainer))
        with report.job_of_sweep(folder) as job:
            config = expand(config, overrides())
            job.config = settings_of(config)
            own_device(config)
            if not job.done(lambda: experiment(config).contents()):
                encode(config, folder, job.finish, job.id)
        if (
            job.failed and settings.mode != RunMode.MULTIRUN
        ):  # who started it has to know; a multirun says it at its end
            sys.exit(USER_ERROR if job.failed == "known" else SHORTAGE)
        return
    with one_line_errors():
        config = expand(config, overrides())
        own_device(config)
        results = encode(config, folder, partial(report.write_results, folder))
        say(report.run_table(results))
        say(f"results: {folder}")


def encode(config: DictConfig, folder: Path, keep: Keep, job: str | None = None) -> dict[str, Any]:
    """What a config describes, done and kept; as a `job` of a sweep, it goes on as the same run when it was killed."""
    settings = HydraConfig.get()
    names = {key: settings.runtime.choices[key] for key in ("experiment", "code", "decoder", "tuning", "model")}
    names["experiment"] = report.experiment_name(names["experiment"], overrides())
    run = Run(
        folder=folder,
        names=names,
        settings=settings_of(config),
        keep=lambda results: keep({**results, "overrides": overrides()}),
        sweep=settings.runtime.choices["sweeps"] or (Path(settings.sweep.dir).name if job else None),
        group=settings.sweep.dir if job else None,
        id=job,
    )
    return experiment(config).run(run, MEMORY)


def settings_of(config: DictConfig) -> dict[str, Any]:
    """All of them but where it is logged: a server's address may hold a password."""
    told: Any = OmegaConf.to_container(config, resolve=True)
    return {key: value for key, value in told.items() if key != "logger"}


def overrides() -> dict[str, str]:
    task = HydraConfig.get().overrides.task
    told = dict(override.lstrip("+~").split("=", 1) for override in task if "=" in override)
    return {key: value for key, value in told.items() if not key.startswith("logger.")}


def experiment(config: DictConfig) -> Experiment:
    """What a config describes; its keys are the fields of an Experiment, and those that others refer to."""
    return built(Experiment, config)
