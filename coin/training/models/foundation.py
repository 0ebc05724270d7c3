"""Foundation models θ_0: an architecture, where its weights come from, and a freshly initialised, seeded head.

A model config is one of these dataclasses; `weights` is `none` (seeded initialisation), `imagenet` (torchvision's
own weights), `rotations` (pre-trained here, see `coin.training.pretraining`) or the path of a state dict.
"""

import abc
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torchvision
from safetensors.torch import load_file
from torch import Tensor, nn

from coin import parameters
from coin.problem.recipes import Recipe
from coin.training.batch_norm import freeze_batch_norm
from coin.training.data.sets import Data
from coin.training.models.small_resnet import SmallResNet


@dataclass
class Model(abc.ABC):
    """A recipe for θ_0. Subclasses add their hyperparameters as fields."""

    weights: str | None = "none"
    seed: int = 0
    head_scale: float = 1.0  # of the fresh head: the larger, the less the body has to move for the same outputs
    has_imagenet = False  # whether torchvision has weights for it
    reads = "images"  # the unit of data that it is for

    def __post_init__(self) -> None:
        if not (isinstance(self.head_scale, int | float) and 0 < self.head_scale < math.inf):
            raise ValueError(f"model.head_scale={self.head_scale}: must be a positive number; 1 is the usual head")
        self.weights = "none" if self.weights is None else str(self.weights)
        self.check_weights()

    def check_weights(self) -> None:
        if self.weights == "imagenet" and not self.has_imagenet:
            raise ValueError(
                f"model.weights=imagenet: torchvision has none for {self.name}; use none, rotations or a path"
            )
        if self.weights not in ("none", "imagenet", "rotations") and not Path(str(self.weights)).is_file():
            raise ValueError(
                f"model.weights={self.weights}: no such file; use imagenet, none, rotations "
                "or the path of a state dict (.pth or .safetensors)"
            )

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Short and readable; part of file names."""

    @property
    @abc.abstractmethod
    def head(self) -> str:
        """Prefix of the classification head's tensors: they are never taken from a file."""

    @abc.abstractmethod
    def architecture(self, num_classes: int) -> nn.Module:
        """A freshly initialised network, from torch's global random state."""

    def imagenet(self) -> dict[str, Tensor]:
        """The state dict that weights=imagenet means, downloaded where it is not there yet."""
        raise NotImplementedError(f"torchvision has no weights for {self.name}")

    def check(self, data: Data) -> None:
        """Refuses data that it cannot read."""
        if data.unit != self.reads:
            raise ValueError(
                f"{data.name} is made of {data.unit}, and model {self.name} reads {self.reads}; "
                "choose a model for them: model=hf_text reads sentences, all others images"
            )

    def recipe(self) -> Recipe:
        """What determines θ_0, as plain data: a file counts by its contents, not by its name."""
        fields = {"architecture": self.name, **vars(self)}
        if self.head_scale == 1:
            del fields["head_scale"]  # what was made before it existed keeps its name
        files = weight_files(Path(str(self.weights)))
        if files:
            contents = hashlib.sha256()
            for file in files:
                contents.update(file.read_bytes())
            fields["weights"] = f"sha256:{contents.hexdigest()}"
        return fields

    def shape(self) -> Recipe:
        """What determines the function besides the tensors."""
        return {key: value for key, value in self.recipe().items() if key not in ("weights", "seed", "head_scale")}

    def facts(self) -> dict[str, Any]:
        """What `model_of` makes the same architecture from."""
        return {"class": type(self).__name__, **{k: v for k, v in vars(self).items() if k != "weights"}}

    def blank(self, num_classes: int) -> nn.Module:
        """The architecture with its seeded initialisation."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = self.architecture(num_classes)
        for name, parameter in network.named_parameters():
            if name.startswith(self.head):
                parameter.data *= self.head_scale
        # channels_last is several times faster for small images on a CPU, and the tensor cores' layout on a GPU
        return network.to(memory_format=torch.channels_last)

    def build(self, num_classes: int) -> nn.Module:
        """The network with a seeded head and, unless they are still to be pre-trained, its weights."""
        network = self.blank(num_classes)
        if self.weights not in ("none", "rotations"):
            load_backbone(network, self.state_dict(), self.head, f"model.weights={self.weights}")
        return network

    def state_dict(self) -> dict[str, Tensor]:
        if self.weights == "imagenet":
            return self.imagenet()
        return read_state_dict(Path(str(self.weights)), f"model.weights={self.weights}")


@dataclass
class Small(Model):
    """The small BatchNorm ResNet for 8 to 32 px."""

    width: int = 16
    weights: str | None = "rotations"
    head = "fc."

    @property
    def name(self) -> str:
        return "small_resnet"

    def architecture(self, num_classes: int) -> nn.Module:
        return SmallResNet(num_classes, self.width)


@dataclass
class ResNet(Model):
    """torchvision's ResNet. `stride_in_1x1` moves the stride of a bottleneck from its 3×3 to its first 1×1
    convolution: ResNet v1, which some public checkpoints are (torchvision's own are v1.5)."""

    depth: int = 50
    weights: str | None = "imagenet"
    stride_in_1x1: bool = False
    head = "fc."
    has_imagenet = True

    def __post_init__(self) -> None:
        if self.depth not in (18, 34, 50, 101, 152):
            raise ValueError(f"model.depth={self.depth}: torchvision has ResNets of depth 18, 34, 50, 101 and 152")
        if self.stride_in_1x1 and self.depth < 50:
            raise ValueError(f"model.stride_in_1x1=true: a ResNet-{self.depth} has no 1×1 bottleneck; use false")
        super().__post_init__()

    @property
    def name(self) -> str:
        return f"resnet{self.depth}" + ("_v1" if self.stride_in_1x1 else "")

    def architecture(self, num_classes: int) -> nn.Module:
        made = torchvision.models.get_model(f"resnet{self.depth}", weights=None, num_classes=num_classes)
        if self.stride_in_1x1:
            for stage in (made.layer2, made.layer3, made.layer4):
                stage[0].conv1.stride, stage[0].conv2.stride = stage[0].conv2.stride, stage[0].conv1.stride
        network: nn.Module = made
        return network

    def imagenet(self) -> dict[str, Tensor]:
        return downloaded(torchvision.models.get_model_weights(f"resnet{self.depth}").IMAGENET1K_V1)


def downloaded(weights: Any) -> dict[str, Tensor]:
    """The state dict of torchvision's weights."""
    try:
        state: dict[str, Tensor] = weights.get_state_dict(progress=True, check_hash=True)
        return state
    except OSError as error:
        raise ValueError(
            f"model.weights=imagenet: cannot download {weights.url} ({error}); "
            "give the path of a state dict instead: model.weights=PATH"
        ) from error


def model_of(facts: Mapping[str, Any]) -> Model:
    """The architecture that `Model.facts` told of; its class is one of ours, nothing else is imported."""
    known = {kind.__name__: kind for kind in subclasses(Model)}  # type: ignore[type-abstract]
    if facts["class"] not in known:
        raise ValueError(f"the network is a {facts['class']}, which this version does not know; known: {sorted(known)}")
    return known[facts["class"]](weights="none", **{key: facts[key] for key in facts if key != "class"})


def subclasses(kind: type[Model]) -> list[type[Model]]:
    return [found for direct in kind.__subclasses__() for found in (direct, *subclasses(direct))]


def weight_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder that hold weights."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin"))


def read_state_dict(path: Path, what: str) -> dict[str, Tensor]:
    """A dictionary of named tensors; nothing in the file is ever executed."""
    try:
        state = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # torch raises all kinds, depending on where the damage is
        kind = "a .safetensors file" if path.suffix == ".safetensors" else "a .pth file of tensors alone"
        raise ValueError(
            f"{what}: cannot be read as a state dict ({type(error).__name__}); it must be {kind}, complete"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{what}: holds no state dict (a dictionary of named tensors)")
    return state


def network_of(model: Model, tensors: dict[str, Tensor], num_classes: int) -> nn.Module:
    """The network with these tensors: BatchNorm frozen, in eval mode."""
    return parameters.load(freeze_batch_norm(model.blank(num_classes)), tensors).eval()


def load_backbone(network: nn.Module, state: dict[str, Tensor], head: str, what: str) -> None:
    """Loads everything but the head, and refuses a file that lacks or misfits a tensor."""
    wanted = {name: value for name, value in network.state_dict().items() if not name.startswith(head)}
    missing = [name for name in wanted if name not in state]
    misfits = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in state and state[name].shape != value.shape
    ]
    if missing or misfits:
        lacks = f"lacks {parameters.listing(missing)}" if missing else ""
        holds = f"holds {parameters.listing(misfits)}" if misfits else ""
        raise ValueError(f"{what}: {' and '.join(filter(None, (lacks, holds)))}; is it of another architecture?")
    chosen = {name: state[name] for name in wanted}
    parameters.check_finite(chosen, what)
    parameters.load(network, chosen)
