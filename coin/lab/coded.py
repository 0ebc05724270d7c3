"""What an encode run leaves of a coded network: its tensors, what they are of, and the decoder that was fitted to it.

coded.safetensors      all tensors of the network; in its metadata, as JSON, the architecture and its classes, how
                       images are prepared, the experts' names and data, the coding weights, and what made it
coded2.safetensors     the same of a second coded network, where there are several
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
from coin.generator import Generator
from coin.lab.store import Store, save_tensors
from coin.parameters import Parameters
from coin.problem.digests import digest_of
from coin.problem.features import WithFeatures
from coin.training.models import model_of, network_of, read_state_dict

KEY = "coin"  # of the metadata


@dataclass
class Coded:
    """Coded networks that answer as their decoder wants them to, outputs and any features behind them."""

    networks: Sequence[nn.Module]
    decoder: Fitted
    experts: Sequence[str]
    generator: Generator
    facts: Mapping[str, Any]  # all that the file says of it

    @property
    def network(self) -> nn.Module:
        """The one coded network, or the first."""
        return self.networks[0]

    @property
    def beta(self) -> tuple[float, ...]:
        return self.generator[0]

    @property
    def names(self) -> list[str]:
        """Of the coded networks: "coded", or "coded1", "coded2", …"""
        return names_of(len(self.networks))

    def decode(self, answers: Mapping[str, Tensor], missing: str) -> Tensor:
        """f̂ of expert `missing` from {expert's name, or "coded" ("coded1", … of several): what it answered}, whatever
        has arrived."""
        if missing not in self.experts:
            raise ValueError(f"missing={missing}: the experts are {', '.join(self.experts)}")
        unknown = [name for name in answers if name not in self.experts and name not in self.names]
        if unknown:
            raise ValueError(f"{unknown[0]} answered; known are {', '.join([*self.names, *self.experts])}")
        coded = {r: answers[name] for r, name in enumerate(self.names) if name in answers}
        if not coded:
            raise ValueError(
                f"the coded network has not answered, so nothing can be decoded; add its answer as '{self.names[0]}'"
            )
        number = {name: i for i, name in enumerate(self.experts)}
        others = {number[name]: answer for name, answer in answers.items() if name in number and name != missing}
        return self.decoder.decode(coded, others, number[missing])


def names_of(coded: int) -> list[str]:
    return ["coded"] if coded == 1 else [f"coded{r}" for r in range(1, coded + 1)]


def files_of(coded: int) -> list[str]:
    return ["coded.safetensors", *(f"coded{r}.safetensors" for r in range(2, coded + 1))]


def save(folder: Path, networks: Sequence[Parameters], decoder: Parameters, facts: Mapping[str, Any]) -> None:
    facts = {**facts, "fitted": bool(decoder)}
    if decoder:
        save_tensors(folder / "decoder.safetensors", decoder)
    for name, network in zip(files_of(len(networks)), networks, strict=True):
        save_tensors(folder / name, network, {KEY: json.dumps(facts, sort_keys=True)})


def load(folder: str | Path) -> Coded:
    """What `python encode.py` left in a folder, ready to decode; nothing that a file holds is executed."""
    path = Path(folder) / "coded.safetensors"
    tensors, facts = read(path)
    if KEY not in facts:
        raise ValueError(f"{path} does not say what network it is of: it is of an older version; run encode.py again")
    facts = json.loads(facts[KEY])
    if "generator" not in facts:
        raise ValueError(f"{path} is of an older version; run encode.py again")
    generator = tuple(tuple(row) for row in facts["generator"])
    fitted: Fitted = FittedAnalytic(generator, facts["num_classes"])
    if facts["fitted"]:
        fitted = from_tensors(read(path.with_name("decoder.safetensors"))[0])
    states = [tensors, *(read(path.with_name(name))[0] for name in files_of(len(generator))[1:])]
    networks = [network_of(model_of(facts["model"]), state, facts["num_classes"]) for state in states]
    if facts["features"]:
        networks = [WithFeatures(network).eval() for network in networks]
    return Coded(networks, fitted, [expert["name"] for expert in facts["experts"]], generator, facts)


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
