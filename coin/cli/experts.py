"""The experts of a config: whole data sets, or parts of one.

    experts=[mnist,fashion_mnist,cifar10]    three data sets, whole
    experts=cifar10_splits splits=5          five experts of two classes each: split1 … split5
    experts.split1.path=PATH                 a setting of one expert
    finetune.epochs=1 data.batch_size=64     settings of all of them

Every data set of conf/data is an option of the group `experts`, whole or split; its fine-tuning recipe comes with it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

SOURCE = "coin.lab.artifacts.Source"
OPEN = "hydra/open"  # mappings that take keys which no file names: experts.split7.path
PLACE = ("root", "image_size", "longest", "train", "test")  # what all experts take from `data`, where it is theirs
SHARED = {
    "data": ("batch_size",),
    "finetune": ("epochs", "learning_rate", "weight_decay", "batch_norm"),
}  # null: each one's own


def register(data: Mapping[str, Collection[str]]) -> None:
    """The group `experts`, from the data sets and what each can be told."""
    store = ConfigStore.instance()
    mapping = OmegaConf.create({}, flags={"struct": False})
    store.store(group=OPEN, name="mapping", node=mapping)
    for name in sorted(data):
        recipe = [{"/data@data": name}, {"/finetune@finetune": name}, "_self_"]
        place = {key: f"${{data.{key}}}" for key in PLACE if key in data[name]}
        for option, splits in ((name, 1), (f"{name}_splits", "${splits}")):
            node = {"defaults": recipe, "_target_": SOURCE, "path": None, "splits": splits, "data": place}
            store.store(group="experts", name=option, package=f"experts.{name}", node=node)


def expand(config: DictConfig, overrides: Collection[str] = ()) -> DictConfig:
    """The config with every expert by itself, {name: {data, finetune, path}}, and nothing left to be split.

    What an override says of one expert (`overrides` are their keys) counts more than what is said of all.
    """
    config = config.copy()
    told: dict[str, Any] = OmegaConf.to_container(config.experts, resolve=True)  # type: ignore[assignment]
    for name, spec in told.items():
        inner = {f".{k}": spec[k] for k in ("data", "finetune") if k in spec} if isinstance(spec, dict) else {"": spec}
        for key, value in inner.items():
            if not isinstance(value, dict):
                raise ValueError(
                    f"experts.{name}{key}={value}: has settings of its own, such as experts.{name}.path=PATH or "
                    f"experts.{name}.finetune.epochs=1"
                )
    sets = {name: spec for name, spec in told.items() if "_target_" in spec}
    whole = {name for name, spec in sets.items() if spec.pop("splits") == 1}
    if not sets:
        raise ValueError("experts=[]: there are no experts; name data sets, such as experts=[mnist,cifar10]")
    if config.splits is not None and checked(config.splits) and len(whole) == len(sets):
        raise ValueError(f"splits={config.splits}: these experts are whole data sets; split one: experts=NAME_splits")
    experts: dict[str, Any] = {}
    for name, spec in sets.items():
        for key in ("data", "finetune"):
            for setting in SHARED[key]:
                said = config[key][setting]
                if said is not None and f"experts.{name}.{key}.{setting}" not in overrides:
                    spec[key][setting] = said
        parts = 1 if name in whole else checked(config.splits)
        for part in range(1, parts + 1) if parts > 1 else ():
            labels = {"labels": f"{part}/{parts}"}
            experts[f"{name if len(sets) > 1 else 'split'}{part}"] = {**spec, "data": {**spec["data"], **labels}}
        if parts == 1:
            experts[name] = spec
    unknown = [name for name in told if name not in sets and name not in experts]
    if unknown:
        raise ValueError(f"experts.{unknown[0]}: there is no such expert; these are {', '.join(experts)}")
    own = {name: given(spec) for name, spec in told.items() if name not in sets}
    config.splits = None
    config.experts = OmegaConf.create(experts, flags={"struct": False})
    config.experts.merge_with(own)
    return config


def checked(splits: Any) -> int:
    if splits is None:
        return 2
    if not isinstance(splits, int) or isinstance(splits, bool) or splits < 2:
        raise ValueError(f"splits={splits}: must be a whole number, at least 2; a whole data set is experts=NAME")
    return splits


def given(spec: Any) -> Any:
    """Without what is null: a part of the data set keeps its classes."""
    return {key: given(value) for key, value in spec.items() if value is not None} if isinstance(spec, dict) else spec
