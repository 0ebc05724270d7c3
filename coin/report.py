"""Reports: results on disk, and as tables for people."""

import json
import os
from pathlib import Path

from rich.table import Table


def write_results(folder: Path, results: dict) -> None:
    """Written last and by one rename: where results.json is, the run is complete."""
    fresh = folder / ".results.json.new"
    fresh.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(fresh, folder / "results.json")


def run_table(results: dict) -> Table:
    """One run: how well each expert is decoded."""
    chosen = ", ".join(f"{k}={v:g}" for k, v in results["hyperparameters"].items())
    table = Table(title=f"{results['code']} on {results['experiment']}" + (f"  ({chosen})" if chosen else ""))
    table.add_column("expert")
    for column in ("accuracy %", "decoded accuracy %", "NDA %", "agreement %"):
        table.add_column(column, justify="right")
    for expert in results["experts"]:
        numbers = (expert["accuracy"], expert["decoded_accuracy"], expert["nda"], expert["agreement"])
        table.add_row(expert["name"], *(f"{number:.2f}" for number in numbers))
    table.add_section()
    means = [sum(e[k] for e in results["experts"]) / len(results["experts"])
             for k in ("accuracy", "decoded_accuracy", "nda", "agreement")]  # fmt: skip
    table.add_row("average", *(f"{mean:.2f}" for mean in means), style="bold")
    return table
