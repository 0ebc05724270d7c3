"""Base models and experts as artifacts of the store: found there, or made now and kept."""

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import lightning as L
from torch import nn

from coin import parameters
from coin.lab.console import display
from coin.lab.display import Advance
from coin.lab.journal import Journal, Kept, Subject
from coin.lab.loggers import Logs
from coin.lab.store import Artifact, Made, Store, shortened
from coin.problem.digests import digest_of
from coin.problem.recipes import Recipe
from coin.training.batch_norm import Mode, freeze_batch_norm
from coin.training.checkpoints import AtomicCheckpointIO, check_readable, checkpoints
from coin.training.data.sets import Data
from coin.training.expert import ExpertModule, FineTuning
from coin.training.models import Model, network_of, read_state_dict
from coin.training.pretraining import TURNS, RotationModule, Rotations
from coin.training.progress import Progress
from coin.training.trainers import MakeTrainer, on_one_device, trainer_recipe


@dataclass
class Expert:
    """A network, the data it is an expert of, and a digest that stands for its weights."""

    name: str
    network: nn.Module
    data: Data
    digest: str
    path: Path  # where it lies


@dataclass(kw_only=True)
class Workshop:
    """Makes base models and experts of one model, or finds them in the store; a killed training goes on here."""

    store: Store
    model: Model
    pretraining: Rotations
    trainer: MakeTrainer
    logger: Logs | None = None
    folder: Path | None = None  # of the run, for its logs
    train_missing: bool = True
    checkpoint_minutes: float = 5
    compile: bool = False

    def base(self, num_classes: int) -> Artifact:
        """θ_0, from the store, or built (and, for weights=rotations, pre-trained in float32) now."""
        model, pretraining = self.model, self.pretraining
        recipe = {"model": model.recipe(), "num_classes": num_classes}
        name = shortened(f"{model.name}-{model_origin(model)}")
        if model.weights == "rotations":
            recipe |= {"pretraining": pretraining.recipe(), "trainer": {"precision": "32-true"}}
            self.check_there("bases", name, recipe)

        def make(scratch: Path) -> Made:
            network = model.build(num_classes)
            if model.weights != "rotations":
                return network.state_dict(), {}
            start = time.perf_counter()
            usual = replace(model, head_scale=1.0)
            body = usual.build(max(num_classes, TURNS))  # its own head; θ_0 gets the fresh one
            L.seed_everything(pretraining.seed, verbose=False)
            pretraining.data.seed = pretraining.seed
            # BatchNorm's statistics are those of whole batches
            plain = {"logger": False, "enable_checkpointing": False, "limit_val_batches": 0}
            with display.row(f"pre-training {name}") as advance:
                trainer = on_one_device(self.trainer)(
                    max_epochs=pretraining.epochs, callbacks=[Progress(advance)], **plain
                )
                trainer.fit(RotationModule(body, pretraining.learning_rate), datamodule=pretraining.data)
            if trainer.interrupted:
                raise KeyboardInterrupt
            learned = {k: v for k, v in body.state_dict().items() if not k.startswith(model.head)}
            network.load_state_dict(learned, strict=False)
            facts = {
                "rotation_accuracy": 100 * float(trainer.callback_metrics["pretrain/accuracy"]),
                "seconds": round(time.perf_counter() - start, 2),
            }
            return network.state_dict(), facts

        return self.store.obtain("bases", name, recipe, make, alone=True)

    def expert(self, base: Artifact, data: Data, finetune: FineTuning) -> Artifact:
        """The expert that is fine-tuned from this base, on these data, by this recipe."""
        name = shortened(f"{data.name}-{data.split}-{self.model.name}")
        recipe = {
            "base": base.key,
            "data": data.recipe(),
            "batch_size": data.batch_size,
            "finetune": finetune.recipe(),
            "trainer": trainer_recipe(getattr(self.trainer, "settings", {})),
        }
        self.check_there("experts", name, recipe)

        def make(scratch: Path) -> Made:
            with display.row(f"fine-tuning {name}") as advance:
                return train(scratch, advance)

        def train(scratch: Path, advance: Advance) -> Made:
            start = time.perf_counter()
            journal = self.journal(name, key, recipe)
            opened.append(journal)
            L.seed_everything(finetune.seed, verbose=False)
            data.seed = finetune.seed
            network = network_of(self.model, base.tensors(), classes_of(base))
            module = ExpertModule(network, classes_of(base), finetune)
            if self.compile:
                module.network.compile()
            last = scratch / "last.ckpt"
            if last.is_file():
                check_readable(last)
            trainer = self.trainer(
                max_epochs=finetune.epochs,
                callbacks=[*checkpoints(scratch, self.checkpoint_minutes), Progress(advance)],
                plugins=[AtomicCheckpointIO()],
                logger=journal.logger,
                default_root_dir=scratch,
            )
            module.train()  # Lightning keeps the mode it finds
            trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None, weights_only=True)
            if trainer.interrupted:
                raise KeyboardInterrupt
            tensors = module.network.state_dict()
            try:
                parameters.check_finite(tensors, f"the expert {name}")
            except ValueError:
                last.unlink(missing_ok=True)  # nobody wants to continue from there
                raise
            if "test/accuracy" not in trainer.callback_metrics or trainer.max_steps != -1:
                # a training that was killed after its last epoch, or that ended within one
                trainer.validate(module, datamodule=data, verbose=False)
            accuracy = 100 * float(trainer.callback_metrics["test/accuracy"])
            return tensors, {"accuracy": accuracy, "seconds": round(time.perf_counter() - start, 2)}

        key, opened = self.store.locate("experts", name, recipe).name, list[Journal]()
        try:
            found = self.store.obtain("experts", name, recipe, make)
        except BaseException:
            for journal in opened:
                journal.close("failed")
            raise
        for journal in opened:  # of the training, if there was one
            journal.used(kept("base", base))
            journal.made(kept("expert", found))
            journal.close("success")
        return found

    def journal(self, name: str, key: str, recipe: Recipe) -> Journal:
        """Of a training, which goes on as the same run when it was killed and is started again."""
        if self.logger is None or self.folder is None:
            return Journal()
        names = {"model": self.model.name, "data": recipe["data"]["name"], "seed": recipe["finetune"]["seed"]}
        config = {**names, "labels": recipe["data"]["labels"], "settings": recipe}
        tags = [names["data"], names["model"]]
        return self.logger.open(
            self.folder, Subject(name=f"train-{name}", job_type="train", config=config, tags=tags, id=key[-128:])
        )

    def check_there(self, kind: str, name: str, recipe: Recipe) -> None:
        if not self.train_missing and self.store.find(kind, name, recipe) is None:
            raise ValueError(
                f"there is no {self.store.locate(kind, name, recipe)} and train_missing=false; "
                "make it with train.py, or set train_missing=true"
            )


def kept(kind: Literal["base", "expert", "fisher"], artifact: Artifact) -> Kept:
    """A folder of the store as journals know it."""
    name, _, key = artifact.key.rpartition("-")
    return Kept(kind, name, key, artifact.path, {**artifact.recipe, **artifact.facts})


def classes_of(base: Artifact) -> int:
    """K: how many outputs a base model has, and so all its experts."""
    return int(base.recipe["num_classes"])


def model_origin(model: Model) -> str:
    named = model.weights in ("none", "imagenet", "rotations")
    return str(model.weights) if named else "".join(c if c.isalnum() else "_" for c in Path(str(model.weights)).stem)


def load_expert(
    name: str, path: str | Path, model: Model, base: Artifact, data: Data, *, batch_norm: Mode = "frozen"
) -> Expert:
    """An expert from a folder of a store, or from a state dict (.safetensors, or .pth read without unpickling)."""
    path = Path(path)
    if path.is_dir():
        artifact = Store.read(path)
        if artifact.recipe.get("base") != base.key:
            raise ValueError(
                f"expert {name} ({path}) was fine-tuned from the base model {artifact.recipe.get('base')}, the "
                f"experiment's is {base.key}; experts that are coded together share one base model"
            )
        tensors = artifact.tensors()
    elif path.is_file():
        tensors = read_state_dict(path, f"experts.{name}.path={path}")
    else:
        raise ValueError(f"experts.{name}.path={path}: no such file or folder; give an expert's folder or state dict")
    network = freeze_batch_norm(model.blank(classes_of(base)), batch_norm)
    missing = [key for key in network.state_dict() if key not in tensors]
    if missing:
        raise ValueError(f"expert {name} ({path}) lacks {parameters.listing(missing)}; is it of another architecture?")
    parameters.check_finite(tensors, f"expert {name} ({path})")
    try:
        parameters.load(network, tensors)
    except ValueError as error:
        raise ValueError(f"expert {name} ({path}): {error}; is it of another architecture?") from error
    return Expert(name, network.eval(), data, digest_of(*(tensors[key] for key in sorted(tensors))), path)


def stretched(expert: Expert, base: nn.Module, factor: float) -> Expert:
    """The expert θ_0 + factor (θ_i − θ_0): as if it had been fine-tuned less, or more, in the same direction."""
    own, origin = parameters.trainable(expert.network), dict(base.named_parameters())
    params = {name: origin[name].detach().lerp(value, factor) for name, value in own.items()}
    network = parameters.load(expert.network, params)
    return replace(expert, network=network, digest=digest_of(*network.state_dict().values()))


@dataclass
class Source:
    """Where an expert comes from: fine-tuned on its data, or read from a path."""

    data: Data
    finetune: FineTuning
    path: str | None = None

    def contents(self, name: str) -> dict[str, str]:
        """What lies where its paths point."""
        found = {f"experts.{name}.data.root": self.data.recipe()["contents"]}
        if self.path is not None:
            path = Path(self.path)
            file = path / "tensors.safetensors" if path.is_dir() else path
            found[f"experts.{name}.path"] = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
        return found
