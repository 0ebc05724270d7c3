"""python -m coin.report DIR    tables and figures from any folder of runs"""

import argparse
from pathlib import Path

from coin.console import console, one_line_errors
from coin.report.write import write_report


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m coin.report", description="Tables and figures from a folder of runs."
    )
    parser.add_argument("folder", type=Path, help="a folder with results.json files anywhere below it")
    parser.add_argument("--out", type=Path, help="where to write them (default: the same folder)")
    arguments = parser.parse_args()
    with one_line_errors():
        if not arguments.folder.is_dir():
            raise ValueError(f"{arguments.folder}: no such folder; give one with results.json files below it")
        for path in write_report(arguments.folder, arguments.out or arguments.folder, console):
            console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
