"""Fine-tunes one expert and keeps it in the store.

python train.py data=cifar10 data.labels=[0,1,2,3,4] model=resnet50
"""

import os

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from coin.cli.configs import CONF
from coin.lab.artifacts import obtain_base, obtain_expert
from coin.lab.console import Problems, check_switches, one_line_errors, quiet, say
from coin.lab.store import Store
from coin.training.checkpoints import check_minutes
from coin.training.ranks import device_of_job
from coin.training.trainers import check_swept, check_trainer, place_of, trainer_recipe

os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


def main() -> None:
    with one_line_errors():
        run()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def run(config: DictConfig) -> None:
    quiet()
    with one_line_errors():
        settings = HydraConfig.get()
        swept = settings.mode == RunMode.MULTIRUN
        if swept:
            check_swept(instantiate(config.trainer))
        job = settings.job.num if swept and "joblib" in settings.launcher._target_ else None
        if "devices" in config.trainer:
            config.trainer.devices = device_of_job(config.trainer, job)
        train(config)


def train(config: DictConfig) -> None:
    problems = Problems()  # all of them before anything is trained
    make_trainer = problems.attempt(lambda: check_trainer(instantiate(config.trainer)))
    store = problems.attempt(Store, config.store)
    model = problems.attempt(instantiate, config.model)
    pretraining = problems.attempt(instantiate, config.pretraining)
    finetune = problems.attempt(instantiate, config.finetune)
    minutes = problems.attempt(check_minutes, config.checkpoint_minutes)
    problems.attempt(check_switches, config, ("compile",))
    data = problems.attempt(instantiate, config.data)
    if data:
        problems.attempt(data.setup)
    problems.check()
    make_logger = instantiate(config.logger, save_dir=HydraConfig.get().runtime.output_dir)
    recipe = trainer_recipe(OmegaConf.to_container(config.trainer, resolve=True))
    base = obtain_base(store, model, data.num_classes, pretraining, place_of(instantiate(config.trainer)))
    expert = obtain_expert(
        store,
        model,
        base,
        data,
        finetune,
        make_trainer,
        recipe,
        make_logger,
        checkpoint_minutes=minutes,
        compiled=config.compile,
    )
    say(f"expert: {expert.path}  (test accuracy {expert.facts['accuracy']:.2f} %)")
