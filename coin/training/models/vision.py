"""Networks that read images, by their names in torchvision and timm."""

import importlib
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from coin.training.data.images import ImageData
from coin.training.data.sets import Data
from coin.training.models.foundation import Model, downloaded


@dataclass
class Named(Model):
    """A network by its `name`. One that reads images of one size only, as a ViT does, is made for `image_size`."""

    name: str = ""
    image_size: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"model.name={self.name}: must be the name of a network; for example {self.example}")
        super().__post_init__()

    example = "vit_b_16"

    @property
    def head(self) -> str:
        """The last Linear layer."""
        with torch.device("meta"):
            modules = self.architecture(2).named_modules()
        linears = [name for name, module in modules if isinstance(module, nn.Linear)]
        if not linears:
            raise ValueError(
                f"model.name={self.name}: has no Linear layer, so no head for classes; choose a classifier"
            )
        return f"{linears[-1]}."

    def check(self, data: Data) -> None:
        super().check(data)
        assert isinstance(data, ImageData)
        wanted = self.reads_size()
        if wanted and wanted != data.image_size:
            raise ValueError(
                f"{data.name} has images of {data.image_size} px, and model {self.name} reads {wanted}; "
                f"set data.image_size={wanted}"
            )

    def reads_size(self) -> int | None:
        """The one size of images that it reads, if there is one."""
        return self.image_size


@dataclass
class Torchvision(Named):
    """Any classifier of torchvision's, with its ImageNet weights where the machine has or gets them."""

    name: str = "vit_b_16"
    weights: str | None = "imagenet"
    has_imagenet = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = torchvision.models.list_models(module=torchvision.models)
        if self.name not in known and type(self) is Torchvision:
            raise ValueError(f"model.name={self.name}: torchvision has no such classifier; it has {', '.join(known)}")

    def reads_size(self) -> int | None:
        return (self.image_size or 224) if self.name.startswith("vit_") else None

    def architecture(self, num_classes: int) -> nn.Module:
        sized = {"image_size": self.reads_size()} if self.reads_size() else {}
        network: nn.Module = torchvision.models.get_model(self.name, weights=None, num_classes=num_classes, **sized)
        return network

    def imagenet(self) -> dict[str, Tensor]:
        return downloaded(torchvision.models.get_model_weights(self.name).IMAGENET1K_V1)

    def state_dict(self) -> dict[str, Tensor]:
        state = super().state_dict()
        size = self.reads_size()
        if size is None or "encoder.pos_embedding" not in state:
            return state
        patch = state["conv_proj.weight"].shape[-1]
        fitted: dict[str, Tensor] = torchvision.models.vision_transformer.interpolate_embeddings(size, patch, state)
        return fitted


@dataclass
class SmallViT(Torchvision):
    """A ViT-S of torchvision's code, for which it has no weights."""

    name: str = "vit_small"
    weights: str | None = "none"
    patch: int = 16
    layers: int = 12
    heads: int = 6
    width: int = 384
    has_imagenet = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reads_size() % self.patch or self.width % self.heads:  # type: ignore[operator]
            raise ValueError(
                f"model.patch={self.patch}, model.heads={self.heads}: patches must divide the image of "
                f"{self.reads_size()} px, heads the width of {self.width}"
            )

    def architecture(self, num_classes: int) -> nn.Module:
        sizes: dict[str, Any] = {"hidden_dim": self.width, "mlp_dim": 4 * self.width, "num_classes": num_classes}
        sizes |= {"image_size": self.reads_size(), "patch_size": self.patch, "num_heads": self.heads}
        network: nn.Module = torchvision.models.VisionTransformer(num_layers=self.layers, **sizes)
        return network


@dataclass
class Timm(Named):
    """Any classifier of timm's; `weights` are none or the path of a state dict in its names."""

    name: str = "vit_small_patch14_dinov2"
    weights: str | None = "none"
    example = "vit_small_patch14_dinov2"

    def architecture(self, num_classes: int) -> nn.Module:
        sized = {"img_size": self.image_size} if self.image_size else {}
        try:
            network: nn.Module = timm().create_model(self.name, num_classes=num_classes, **sized)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ValueError(
                f"model.name={self.name}: timm makes no such network of images of {self.image_size or 'its own'} px "
                f"({' '.join(str(error).split())[:80]}); see timm.list_models(), or leave model.image_size=null"
            ) from error
        return network

    def state_dict(self) -> dict[str, Tensor]:
        state = super().state_dict()
        with torch.device("meta"):
            network: Any = self.architecture(2)
        if "pos_embed" in state and state["pos_embed"].shape != network.pos_embed.shape:
            grid, before = network.patch_embed.grid_size, network.num_prefix_tokens
            before = 0 if getattr(network, "no_embed_class", False) else before
            size = importlib.import_module("timm.layers").resample_abs_pos_embed
            state = {**state, "pos_embed": size(state["pos_embed"], new_size=list(grid), num_prefix_tokens=before)}
        return state


def timm() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise ValueError("model=timm needs the library of that name: pip install -e '.[timm]'") from error
