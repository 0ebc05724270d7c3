"""A sweep of sweeps/ for W&B's own agents: the same grid, and every job in the folder that a multirun would give it.

coin-sweep table1 > table1.yaml && wandb sweep table1.yaml    then, on every host: wandb agent ENTITY/PROJECT/SWEEP
"""

import argparse
import math
from contextlib import suppress
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from coin.cli.configs import SWEEPS
from coin.lab.console import one_line_errors


def main() -> None:
    parser = argparse.ArgumentParser("coin-sweep", description="A sweep as a file for `wandb sweep`.")
    parser.add_argument("name", help=f"one of {', '.join(names())}")
    parser.add_argument("overrides", nargs="*", help="for every job, such as trainer=gpu store=DIR")
    arguments = parser.parse_args()
    with one_line_errors():
        print(yaml.safe_dump(wandb_sweep(arguments.name, arguments.overrides), sort_keys=False, width=120), end="")


def names() -> list[str]:
    return sorted(path.stem for path in SWEEPS.glob("*.yaml"))


def wandb_sweep(name: str, overrides: list[str] | None = None) -> dict[str, Any]:
    """What `wandb sweep` reads. An agent runs `coin-encode sweeps=NAME hydra.mode=RUN` with one choice of the grid."""
    if name not in names():
        raise ValueError(f"there is no sweep {name}; there are {', '.join(names())}")
    grid = yaml.safe_load((SWEEPS / f"{name}.yaml").read_text())["hydra"]["sweeper"]["params"]
    return {
        "name": name,
        "program": "coin-encode",
        "method": "grid",
        "metric": {"name": "nda", "goal": "maximize"},
        "command": [
            "${env}",
            "${program}",
            f"sweeps={name}",
            "hydra.mode=RUN",
            *(overrides or []),
            "${args_no_hyphens}",
        ],
        "parameters": {key: {"values": values(key, value)} for key, value in grid.items()},
    }


def values(key: str, value: Any) -> list[str | int | float]:
    """Numbers where W&B would write them as they are written here: 200, 0.1; else texts: a folder is named for them."""
    override = OverridesParser.create().parse_override(f"{key}={value}")
    texts = list(map(str, override.sweep_string_iterator())) if override.is_sweep_override() else [str(value)]
    return [as_number(text) for text in texts]


def as_number(text: str) -> str | int | float:
    for kind in (int, float):
        with suppress(ValueError):
            if str(kind(text)) == text and math.isfinite(kind(text)):
                return kind(text)
    return text


if __name__ == "__main__":
    main()
