"""Fine-tunes one expert and keeps it in the store.

python train.py data=cifar10 data.labels=[0,1,2,3,4] model=resnet50
"""

import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from coin.cli.configs import CONF, built, own_device
from coin.lab.artifacts import Workshop
from coin.lab.console import Problems, check_switches, one_line_errors, quiet, say
from coin.training.checkpoints import check_minutes
from coin.training.trainers import check_swept

os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


def main() -> None:
    with one_line_errors():
        run()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def run(config: DictConfig) -> None:
    quiet()
    with one_line_errors():
        settings = HydraConfig.get()
        if settings.mode == RunMode.MULTIRUN:
            check_swept(instantiate(config.trainer))
        own_device(config)
        problems = Problems()  # all of them before anything is trained
        workshop = problems.attempt(built, Workshop, config)
        finetune = problems.attempt(instantiate, config.finetune)
        data = problems.attempt(instantiate, config.data)
        if data:
            problems.attempt(data.setup)
            if workshop:
                problems.attempt(workshop.model.check, data)
        problems.attempt(check_minutes, config.checkpoint_minutes)
        problems.attempt(check_switches, config, ("compile",))
        problems.check()
        assert workshop is not None and data is not None
        workshop.folder = Path(settings.runtime.output_dir)
        expert = workshop.expert(workshop.base(data.num_classes), data, finetune)
        say(f"expert: {expert.path}  (test accuracy {expert.facts['accuracy']:.2f} %)")
