"""Codes the experts of an experiment and reports how well each is decoded.

    python encode.py experiment=digits code=coin
"""

import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from coin import loggers, report
from coin.console import console, one_line_errors, quiet
from coin.experiment import Experiment, write_results
from coin.expert import load_expert, obtain_expert, trainer_recipe
from coin.models import network_of
from coin.pretraining import obtain_base
from coin.store import Store

os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


@hydra.main(version_base="1.3", config_path="conf", config_name="encode")
def main(config: DictConfig) -> None:
    quiet()
    choices = HydraConfig.get().runtime.choices
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    results = encode(config, choices["experiment"], choices["code"], run_dir)
    console.print(report.run_table(results))
    console.print(f"results: {run_dir}")


def encode(config: DictConfig, experiment: str, code: str, run_dir: Path) -> dict:
    store, make_trainer = Store(config.store), instantiate(config.trainer)
    make_logger = instantiate(config.logger, save_dir=str(run_dir))
    model = instantiate(config.model)
    specs = instantiate(config.experts, _convert_="all")
    classes = {spec["data"].num_classes for spec in specs.values()}
    if len(classes) != 1:
        raise ValueError(f"the experts have {sorted(classes)} classes; experts that are coded together have the same")
    base = obtain_base(store, model, classes.pop(), instantiate(config.pretraining), make_trainer)
    experts = []
    for name, spec in specs.items():
        if spec["path"] is not None:
            experts.append(load_expert(name, spec["path"], model, base, spec["data"]))
            continue
        artifact = obtain_expert(
            store,
            model,
            base,
            spec["data"],
            spec["finetune"],
            make_trainer,
            trainer_recipe(OmegaConf.to_container(config.trainer, resolve=True)),
            make_logger,
            config.train_missing,
        )
        console.print(f"expert {name}: {artifact.path}")
        experts.append(load_expert(name, artifact.path, model, base, spec["data"]))
    run = Experiment(
        store,
        experts,
        network_of(model, base.tensors(), experts[0].data.num_classes),
        instantiate(config.code),
        config.beta,
        config.samples,
        config.seed,
        make_trainer,
    )
    found, coded = run.run()
    results = {"code": code, "experiment": experiment, **found}
    logger = make_logger(
        name=f"{code}-{experiment}", job_type="encode", config=OmegaConf.to_container(config, resolve=True)
    )
    logger.log_metrics(loggers.flat_results(results))
    logger.finalize("success")
    write_results(run_dir, results, coded if config.save_coded else None)
    return results


if __name__ == "__main__":
    with one_line_errors():
        main()
