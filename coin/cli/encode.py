"""Codes the experts of an experiment and reports how well each is decoded.

python encode.py experiment=digits code=coin
"""

import math
import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from coin import report
from coin.cli.configs import CONF
from coin.lab import loggers
from coin.lab.artifacts import contents_of, load_expert, obtain_base, obtain_expert, stretched
from coin.lab.console import Problems, check_switches, one_line_errors, quiet, say
from coin.lab.experiment import Experiment
from coin.lab.memory import Memory
from coin.lab.store import Store, save_tensors
from coin.problem.coding import check_beta
from coin.training.checkpoints import check_minutes
from coin.training.models import network_of
from coin.training.ranks import device_of_job, is_first
from coin.training.samples import draw
from coin.training.trainers import check_swept, check_trainer, place_of, trainer_recipe

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
    run_dir = Path(settings.runtime.output_dir)
    names = {group: settings.runtime.choices[group] for group in ("code", "decoder", "experiment")}
    overrides = dict(override.lstrip("+~").split("=", 1) for override in settings.overrides.task if "=" in override)
    swept, composed = settings.mode == RunMode.MULTIRUN, OmegaConf.to_container(config, resolve=True)
    if "devices" in config.trainer:
        number = settings.job.num if swept and "joblib" in settings.launcher._target_ else None
        config.trainer.devices = device_of_job(config.trainer, number)
    if swept:
        with one_line_errors():  # of the whole sweep: no job could run
            check_swept(instantiate(config.trainer))
        with report.job_of_sweep(run_dir, composed) as job:
            if not job.done(lambda: contents(config)):
                job.finish({**encode(config, names, run_dir, group=settings.sweep.dir), "overrides": overrides})
        return
    with one_line_errors():
        results = {**encode(config, names, run_dir), "overrides": overrides}
        report.write_results(run_dir, results)
        say(report.run_table(results))
        say(f"results: {run_dir}")


def encode(config: DictConfig, names: dict[str, str], run_dir: Path, group: str | None = None) -> dict:
    """One run: leaves coded.safetensors and a log in run_dir and returns what goes into results.json."""
    problems = Problems()  # all of them before anything is trained
    make_trainer = problems.attempt(lambda: check_trainer(instantiate(config.trainer)))
    coding_trainer = problems.attempt(instantiate, config.coding_trainer)
    code = problems.attempt(instantiate, config.code)
    decoder = problems.attempt(instantiate, config.decoder)
    tuner = problems.attempt(instantiate, config.tuning)
    model = problems.attempt(instantiate, config.model)
    pretraining = problems.attempt(instantiate, config.pretraining)
    minutes = problems.attempt(check_minutes, config.checkpoint_minutes)
    store = problems.attempt(Store, config.store)
    specs = problems.attempt(instantiate, config.experts, _convert_="all") or {}
    beta = problems.attempt(check_beta, config.beta, len(config.experts))
    data = [spec["data"] for spec in specs.values()]
    samples = problems.attempt(draw, data, config.samples, config.seed) if data else None
    if samples:
        if code:
            problems.attempt(code.check, len(samples.labels))
        if code and tuner:
            problems.attempt(tuner.check, code, len(samples.labels), len(data))
    problems.attempt(check_switches, config, ("train_missing", "save_coded", "compile"))
    if len({d.num_classes for d in data}) > 1:
        problems.add("experts that are coded together have the same classes; these have different numbers of them")
    if not (isinstance(config.stretch, int | float) and math.isfinite(config.stretch)):
        problems.add(f"stretch={config.stretch}: must be a number; 1 leaves the experts as they are")
    for name, spec in specs.items():
        if spec["path"] is not None and not Path(spec["path"]).exists():
            problems.add(f"experts.{name}.path={spec['path']}: no such file or folder; give an expert's or null")
    problems.check()

    make_logger = instantiate(config.logger, save_dir=str(run_dir), group=group)
    settings = OmegaConf.to_container(config, resolve=True)
    recipe = trainer_recipe(settings["trainer"])
    train = config.train_missing
    base = obtain_base(store, model, data[0].num_classes, pretraining, place_of(instantiate(config.trainer)), train)
    experts = []
    for name, spec in specs.items():
        path = spec["path"]
        if path is None:
            finetune = spec["finetune"]
            path = obtain_expert(
                store,
                model,
                base,
                spec["data"],
                finetune,
                make_trainer,
                recipe,
                make_logger,
                train,
                minutes,
                config.compile,
            ).path
        say(f"expert {name}: {path}")
        experts.append(load_expert(name, path, model, base, spec["data"]))
    base_network = network_of(model, base.tensors(), data[0].num_classes)
    if config.stretch != 1:
        experts = [stretched(expert, base_network, config.stretch) for expert in experts]
    setting = {"architecture": model.shape(), "trainer": trainer_recipe(coding_trainer.settings)}
    found, coded, fitted = Experiment(
        store, experts, base_network, code, decoder, tuner, beta, samples, config.seed, coding_trainer, setting, MEMORY
    ).run()
    results = {**names, **found, "contents": contents_of(model, pretraining, specs)}
    logger = make_logger(name="-".join(names.values()), job_type="encode", config=settings)
    for point in results.get("history", []):
        logger.log_metrics({f"epoch/{key}": value for key, value in point.items()}, step=point["epoch"])
    logger.log_metrics(loggers.flat_results(results))
    logger.finalize("success")
    if config.save_coded and is_first():
        save_tensors(run_dir / "coded.safetensors", coded)
        if fitted:
            save_tensors(run_dir / "decoder.safetensors", fitted)
    return results


def contents(config: DictConfig) -> dict[str, str]:
    """What lies where the config's paths point now."""
    model, pretraining = instantiate(config.model), instantiate(config.pretraining)
    return contents_of(model, pretraining, instantiate(config.experts, _convert_="all"))
