"""python -m coin.report DIR    tables and figures from any folder of runs

Where DIR holds runs/NAME/…, such as results/paper, each NAME gets a report of its own, and DIR/README.md is brought
up to date with what it quotes of them.
"""

import argparse
from pathlib import Path

from coin.console import console, one_line_errors
from coin.report.write import fill, write_all, write_report


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m coin.report", description="Tables and figures from a folder of runs."
    )
    parser.add_argument("folder", type=Path, help="a folder with results.json files anywhere below it, or with runs/")
    parser.add_argument(
        "--out", type=Path, help="where to write them (default: the folder itself, or NAME for runs/NAME)"
    )
    parser.add_argument("--fill", type=Path, metavar="PAGE", help="a Markdown page that quotes what is written")
    arguments = parser.parse_args()
    with one_line_errors():
        if not arguments.folder.is_dir():
            raise ValueError(f"{arguments.folder}: no such folder; give one with results.json files below it")
        if (arguments.folder / "runs").is_dir() and not arguments.out:
            written = write_all(arguments.folder, console)
        else:
            written = write_report(arguments.folder, arguments.out or arguments.folder, console)
        if arguments.fill and not fill(arguments.fill):
            raise ValueError(f"--fill {arguments.fill}: it quotes nothing; mark a place: <!-- quote FILE -->")
        for path in written:
            console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
