"""Fine-tunes one expert and keeps it in the store.

python train.py data=cifar10 data.labels=[0,1,2,3,4] model=resnet50
"""

import os

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from coin.artifacts import obtain_base, obtain_expert, trainer_recipe
from coin.checkpoints import check_minutes
from coin.console import one_line_errors, quiet, say
from coin.expert import check_trainer
from coin.store import Store

os.environ["HYDRA_FULL_ERROR"] = "1"  # one_line_errors says it in one line


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config: DictConfig) -> None:
    quiet()
    with one_line_errors():
        train(config)


def train(config: DictConfig) -> None:
    run_dir = HydraConfig.get().runtime.output_dir
    store = Store(config.store)
    make_trainer = check_trainer(instantiate(config.trainer))
    model, data = instantiate(config.model), instantiate(config.data)
    data.setup()
    recipe = trainer_recipe(OmegaConf.to_container(config.trainer, resolve=True))
    base = obtain_base(store, model, data.num_classes, instantiate(config.pretraining), make_trainer, recipe)
    expert = obtain_expert(
        store,
        model,
        base,
        data,
        instantiate(config.finetune),
        make_trainer,
        recipe,
        instantiate(config.logger, save_dir=run_dir),
        checkpoint_minutes=check_minutes(config.checkpoint_minutes),
        compiled=config.compile,
    )
    say(f"expert: {expert.path}  (test accuracy {expert.facts['accuracy']:.2f} %)")


if __name__ == "__main__":
    with one_line_errors():
        main()
