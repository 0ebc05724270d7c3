"""python -m coin.dashboard ENTITY/PROJECT                 a saved W&B workspace and a W&B report of a project's runs
python -m coin.dashboard ENTITY/PROJECT --json FILE     what would be sent, without an account
"""

import argparse
import re
from pathlib import Path

from coin.lab.console import console, one_line_errors


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m coin.dashboard", description="A saved W&B workspace and a W&B report of a project of COIN runs."
    )
    parser.add_argument("project", metavar="ENTITY/PROJECT", help="a W&B user or team, and its project")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what would be sent there; send nothing")
    parser.add_argument("--no-paper", action="store_true", help="do not add the paper's numbers as 30 runs")
    arguments = parser.parse_args()
    with one_line_errors():
        entity, project = parts(arguments.project)
        try:
            from coin.dashboard import sending
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("wandb_workspaces"):
                raise
            raise ValueError("wandb-workspaces is not there; it is an extra: pip install 'coin[dashboard]'") from error
        if arguments.json:
            write(arguments.json, sending.as_json(entity, project, not arguments.no_paper))
            console.print(f"wrote {arguments.json}")
            return
        sending.send(entity, project, not arguments.no_paper)


def parts(name: str) -> tuple[str, str]:
    found = re.fullmatch(r"([A-Za-z0-9_.-]+)/([^/\\#?%:\s][^/\\#?%:]*)", name)
    if not found:
        raise ValueError(f"{name}: must be ENTITY/PROJECT, a W&B user or team and its project, such as me/coin")
    return found[1], found[2]


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ValueError(
            f"--json {path}: cannot be written ({error.strerror}); give a file in a folder that is there"
        ) from error


if __name__ == "__main__":
    main()
