"""Codes the experts of an experiment and reports how well each is decoded.

python encode.py experiment=digits code=coin
"""

import os
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
from coin.lab.console import one_line_errors, quiet, say
from coin.lab.experiment import Experiment, Run
from coin.problem.memory import Memory
from coin.training.trainers import check_swept

MEMORY = Memory()  # shared by the jobs of a sweep
os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


def main() -> None:
    MEMORY.kept.clear()  # of another command in the same process
    with one_line_errors():
        run()


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
            job.config = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
            own_device(config)
            if not job.done(lambda: experiment(config).contents()):
                job.finish(encode(config, folder, job.id))
        return
    with one_line_errors():
        config = expand(config, overrides())
        own_device(config)
        results = encode(config, folder)
        report.write_results(folder, results)
        say(report.run_table(results))
        say(f"results: {folder}")


def encode(config: DictConfig, folder: Path, job: str | None = None) -> dict[str, Any]:
    """What a config describes, done; as a `job` of a sweep, it goes on as the same run when it was killed."""
    settings = HydraConfig.get()
    names = {key: settings.runtime.choices[key] for key in ("experiment", "code", "decoder", "tuning", "model")}
    if "experts" in overrides():
        names["experiment"] = "+".join(config.experts)
    told: Any = OmegaConf.to_container(config, resolve=True)
    sweep = settings.runtime.choices["sweeps"] or (Path(settings.sweep.dir).name if job else None)
    run = Run(folder=folder, names=names, settings=told, sweep=sweep, group=settings.sweep.dir if job else None, id=job)
    return {**experiment(config).run(run, MEMORY), "overrides": overrides()}


def overrides() -> dict[str, str]:
    task = HydraConfig.get().overrides.task
    return dict(override.lstrip("+~").split("=", 1) for override in task if "=" in override)


def experiment(config: DictConfig) -> Experiment:
    """What a config describes; its keys are the fields of an Experiment, and those that others refer to."""
    return built(Experiment, config)
