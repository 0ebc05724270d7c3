"""What an encode run leaves of a coded network: its tensors, what they are of, and the decoder that was fitted to it.

coded.safetensors      all tensors of the network; in its metadata, as JSON, the architecture and its classes, how
                       images are prepared, the experts' names and data, β, and what made it
decoder.safetensors    the tensors of the decoder, where one was fitted
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from coin.decoders import Fitted, from_tensors
from coin.decoders.analytic import FittedAnalytic
from coin.lab.store import Store, save_tensors
from coin.parameters import Parameters
from coin.problem.digests import digest_of
from coin.problem.features import WithFeatures
from coin.training.models import model_of, network_of, read_state_dict

KEY = "coin"  # of the metadata


@dataclass
class Coded:
    """A coded network that answers as its decoder wants it to, outputs and any features behind them."""

    network: nn.Module
    decoder: Fitted
    experts: Sequence[str]
    beta: Sequence[float]
    facts: Mapping[str, Any]  # all that the file says of it

    def decode(self, answers: Mapping[str, Tensor], missing: str) -> Tensor:
        """f̂ of expert `missing` from {expert's name, or "coded": what it answered}."""
        if missing not in self.experts:
            raise ValueError(f"missing={missing}: the experts are {', '.join(self.experts)}")
        unknown = [name for name in answers if name not in self.experts and name != "coded"]
        if unknown:
            raise ValueError(f"{unknown[0]} answered; known are coded, {', '.join(self.experts)}")
        if "coded" not in answers:
            raise ValueError("the coded network has not answered, so nothing can be decoded; add its answer as 'coded'")
        number = {name: i for i, name in enumerate(self.experts)}
        others = {number[name]: answer for name, answer in answers.items() if name not in ("coded", missing)}
        return self.decoder.decode(answers["coded"], others, number[missing])


def save(folder: Path, network: Parameters, decoder: Parameters, facts: Mapping[str, Any]) -> None:
    facts = {**facts, "fitted": bool(decoder)}
    if decoder:
        save_tensors(folder / "decoder.safetensors", decoder)
    save_tensors(folder / "coded.safetensors", network, {KEY: json.dumps(facts, sort_keys=True)})


def load(folder: str | Path) -> Coded:
    """What `python encode.py` left in a folder, ready to decode; nothing that a file holds is executed."""
    path = Path(folder) / "coded.safetensors"
    tensors, facts = read(path)
    if KEY not in facts:
        raise ValueError(f"{path} does not say what network it is of: it is of an older version; run encode.py again")
    facts = json.loads(facts[KEY])
    fitted: Fitted = FittedAnalytic(facts["beta"], facts["num_classes"])
    if facts["fitted"]:
        fitted = from_tensors(read(path.with_name("decoder.safetensors"))[0])
    network = network_of(model_of(facts["model"]), tensors, facts["num_classes"])
    network = WithFeatures(network).eval() if facts["features"] else network
    return Coded(network, fitted, [expert["name"] for expert in facts["experts"]], facts["beta"], facts)


def load_expert(folder: str | Path, name: str) -> nn.Module:
    """An expert that a run has coded, from where it lay then; refused if it is another one by now."""
    facts = load(folder).facts
    known = {expert["name"]: expert for expert in facts["experts"]}
    if name not in known:
        raise ValueError(f"expert {name}: the experts are {', '.join(known)}")
    path = Path(known[name]["path"])
    if not path.exists():
        raise ValueError(f"expert {name} is not at {path} any longer; run encode.py again, or bring it back")
    tensors = Store.read(path).tensors() if path.is_dir() else read_state_dict(path, f"expert {name} ({path})")
    if digest_of(*(tensors[key] for key in sorted(tensors))) != known[name]["sha256"]:
        raise ValueError(f"expert {name} ({path}) is not the one that was coded; run encode.py again")
    return network_of(model_of(facts["model"]), tensors, facts["num_classes"])


def read(path: Path) -> tuple[Parameters, dict[str, str]]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give the folder of an encode run that had save_coded=true")
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); run encode.py again") from error
