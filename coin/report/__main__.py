"""python -m coin.report DIR                             tables, figures and a page from any folder of runs
python -m coin.report DIR --watch                      the page while the runs come in, on this machine
python -m coin.report DIR --pack results/PAGE/NAME     keeps the runs below DIR in NAME/runs.jsonl
python -m coin.report results/PAGE                     a report for each NAME, and what PAGE/README.md quotes of them
"""

import argparse
from pathlib import Path
from typing import Any

from coin.lab.console import console, one_line_errors
from coin.report.quotes import fill
from coin.report.runs import pack
from coin.report.watch import watch
from coin.report.write import write_all, write_report


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m coin.report", description="Tables, figures and a page from a folder of runs."
    )
    parser.add_argument("folder", type=Path, help="a folder with results.json or runs.jsonl files anywhere below it")
    parser.add_argument("--out", type=Path, help="where to write them (default: beside runs.jsonl, or the folder)")
    parser.add_argument("--pack", type=Path, metavar="NAME", help="write no report; add the runs to NAME/runs.jsonl")
    parser.add_argument("--fill", type=Path, metavar="PAGE", help="a Markdown page that quotes what is written")
    parser.add_argument("--watch", action="store_true", help="write nothing; serve the page and keep it fresh")
    parser.add_argument("--port", metavar="N", help="of --watch (default: any that is free)")
    parser.add_argument("--for", dest="seconds", metavar="SECONDS", help="of --watch: ends by itself")
    arguments = parser.parse_args()
    folder = arguments.folder
    with one_line_errors():
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder; give one with results.json or runs.jsonl files below it")
        if arguments.watch:
            if arguments.out or arguments.pack or arguments.fill:
                raise ValueError("--watch writes nothing: give no --out, --pack or --fill with it")
            port, seconds = numeral("port", arguments.port, int) or 0, numeral("for", arguments.seconds, float)
            return watch(folder, console, port, seconds)
        if arguments.port is not None or arguments.seconds is not None:
            raise ValueError("--port and --for are of --watch; add it, or leave them out")
        if arguments.pack:
            if arguments.out or arguments.fill:
                raise ValueError("--pack writes no report: first pack, then make the report with --out or --fill")
            console.print(pack(folder, arguments.pack))
            return
        if any(folder.glob("*/runs.jsonl")) and not arguments.out:
            written = write_all(folder, console)
        else:
            written = write_report(folder, arguments.out or folder, console)
        if arguments.fill and not fill(arguments.fill):
            raise ValueError(f"--fill {arguments.fill}: it quotes nothing; mark a place: <!-- quote FILE -->")
        for path in written:
            console.print(f"wrote {path}")


def numeral(name: str, text: str | None, kind: type) -> Any:
    """argparse would say its usage too; bad input gets one line."""
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise ValueError(f"--{name} {text}: must be a number") from None


if __name__ == "__main__":
    main()
