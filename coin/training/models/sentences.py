"""Hugging Face's encoders as classifiers of sentences: the mean over a sentence's tokens, and a Linear head."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coin.training.data.sentences import TextData
from coin.training.data.sets import Data
from coin.training.models.foundation import Model, weight_files

NO_ARCHITECTURE = ("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache")


class SentenceClassifier(nn.Module):
    """Asked by keyword, as Hugging Face's networks are; padding is no part of the mean."""

    def __init__(self, body: nn.Module, width: int, num_classes: int):
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, num_classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        tokens = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        outputs: Tensor = self.head((tokens * mask).sum(1) / mask.sum(1).clamp_min(1))
        return outputs


@dataclass
class HfText(Model):
    """An encoder from a folder that Hugging Face's `from_pretrained` reads; nothing is ever downloaded.

    `config` is what its config.json says, read from the folder unless given.
    """

    weights: str | None = None
    config: Mapping[str, Any] | None = None
    head = "head."
    reads = "sentences"

    def check_weights(self) -> None:
        folder = Path(str(self.weights))
        if self.config is None:
            try:
                self.config = json.loads((folder / "config.json").read_text())
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"model.weights={self.weights}: no folder of a Hugging Face model; give one with config.json, "
                    "model.safetensors and the tokenizer"
                ) from error
        if self.weights != "none" and not weight_files(folder):
            raise ValueError(f"model.weights={self.weights}: holds no weights; model.safetensors is missing")
        self.config = {key: value for key, value in self.config.items() if key not in NO_ARCHITECTURE}
        if "model_type" not in self.config:
            raise ValueError(f"model.weights={self.weights}: its config.json does not say a model_type")

    @property
    def name(self) -> str:
        made = self.made_config()
        return f"{made.model_type}_{made.num_hidden_layers}x{made.hidden_size}".replace("-", "_")

    @property
    def positions(self) -> int:
        """How many tokens a sentence may have."""
        made = self.made_config()
        most = int(getattr(made, "max_position_embeddings", 1 << 30))
        return most - made.pad_token_id - 1 if "roberta" in made.model_type else most  # it counts from there

    def check(self, data: Data) -> None:
        super().check(data)
        assert isinstance(data, TextData)
        words = int(self.made_config().vocab_size)
        if data.vocabulary > words:
            raise ValueError(
                f"data.tokenizer={data.folder}: has {data.vocabulary} tokens, and model.weights={self.weights} "
                f"knows {words}; take the model's own tokenizer"
            )
        if data.longest_sentence > self.positions:
            raise ValueError(
                f"{data.name} has a sentence of {data.longest_sentence} tokens, and model {self.name} reads "
                f"{self.positions}; cut them: data.longest={self.positions}"
            )

    def made_config(self) -> Any:
        assert self.config is not None
        settings = {key: value for key, value in self.config.items() if key != "model_type"}
        try:
            return transformers().AutoConfig.for_model(self.config["model_type"], **settings)
        except ValueError as error:
            raise ValueError(
                f"model.weights={self.weights}: transformers does not know the model_type {self.config['model_type']}"
            ) from error

    def architecture(self, num_classes: int) -> nn.Module:
        config = self.made_config()
        body = transformers().AutoModel.from_config(config, dtype=torch.float32)
        if getattr(body, "pooler", None) is not None:
            body.pooler = None  # the mean takes its place
        return SentenceClassifier(body, config.hidden_size, num_classes)

    def state_dict(self) -> dict[str, Tensor]:
        try:
            body, told = transformers().AutoModel.from_pretrained(
                self.weights, local_files_only=True, output_loading_info=True, dtype=torch.float32
            )
        except Exception as error:  # whatever its files make of it
            raise ValueError(
                f"model.weights={self.weights}: cannot be read ({' '.join(str(error).split())[:100]}); "
                "it must hold all of a Hugging Face model"
            ) from error
        made_up = set(told["missing_keys"])
        return {f"body.{name}": value for name, value in body.state_dict().items() if name not in made_up}


def transformers() -> Any:
    """Hugging Face's library, silent."""
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise ValueError("model=hf_text needs Hugging Face's transformers: pip install -e '.[text]'") from error
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library
