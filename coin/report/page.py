"""A page: all runs of a folder as one HTML file with tables and charts to sort, filter and click.

What it shows is one JSON of runs and cells; what it does is in the plain files of `coin/report/web`, and Plotly's
script comes from its package. Nothing is loaded from elsewhere, and no text of a run is executed: the page's own policy
names the scripts that may run.
"""

import base64
import hashlib
import html
import json
import shlex
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from coin.report.cells import Cell, cells_of
from coin.report.figures import AXES
from coin.report.jobs import unfinished
from coin.report.runs import Run, defined, located, read_json, replace

WEB = files("coin.report") / "web"
SCRIPTS = ("looks.js", "marks.js", "panels.js", "charts.js", "table.js", "details.js", "page.js")


def write_page(folder: Path, out: Path) -> Path:
    """report.html of all runs below `folder`; it is there whole or not at all."""
    path = out / "report.html"
    replace(path, page(content(folder)))
    return path


def page(data: dict[str, Any], live: bool = False) -> str:
    """The whole of it as text. A live one asks its server for news."""
    scripts = [get_plotlyjs(), "\n".join(["'use strict';", *((WEB / name).read_text() for name in SCRIPTS)])]
    if any("</script" in script.lower() for script in scripts):
        raise RuntimeError("a script that ends its own element cannot stand inside a page")
    return Template((WEB / "page.html").read_text()).substitute(
        title=html.escape(data["title"]),
        allowed=" ".join(f"'sha256-{digest(script)}'" for script in scripts),
        style=(WEB / "page.css").read_text(),
        live=json.dumps(live),
        data=as_json(data),
        plotly=scripts[0],
        script=scripts[1],
    )


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def as_json(data: dict[str, Any]) -> str:
    """With no < in it, so that no text can end the element that holds it."""
    return json.dumps(defined(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def content(folder: Path) -> dict[str, Any]:
    """Runs and cells as the page shows them. Of runs with one seed the last counts, as in the tables."""
    read = located(folder)
    where = {id(run): path for path, run in read}
    cells = cells_of([run for _, run in read])
    runs = [shown(run, cell, i, where[id(run)]) for i, cell in enumerate(cells) for run in cell.runs]
    jobs = [{"settings": {}, **job, "command": command(job["run"])} for job in unfinished(folder)]
    return {
        "title": "/".join(folder.resolve().parts[-2:]),
        "axes": AXES,
        "cells": [told(cell) for cell in cells],
        "runs": [*runs, *jobs],
        "superseded": len(read) - len(runs),
    }


def told(cell: Cell) -> dict[str, Any]:
    """What is common to its runs; means are the page's to compute, of the runs that a reader has not filtered away."""
    papers = [cell.paper(i) for i in range(len(cell.experts))]
    return {"variant": cell.variant, "paper": cell.paper(), "papers": papers}


def shown(run: Run, cell: Cell, number: int, path: Path) -> dict[str, Any]:
    """A finished run: its settings are those that vary among the runs, then what its tuner chose."""
    found = {"state": "finished", "cell": number, "run": run, "command": command(run)}
    found |= {"seconds": run["seconds"]["encode"] + run["seconds"].get("statistics", 0)}
    found |= {"settings": {**cell.variant, **run.get("hyperparameters", {})}}
    loose = path.name == "results.json"
    return found | {"folder": str(path.parent if loose else path), "config": read_json(path.with_name("config.json"))}


def command(run: Run) -> str:
    """What repeats it. A job of a sweep is told as the sweep told it, so that it finds its own folder again."""
    told = dict(run.get("overrides", {}))
    if "sweeps" in told:
        told["hydra.mode"] = "RUN"
    else:
        names = ("code", "decoder", "seed") if "experts" in told else ("experiment", "code", "decoder", "seed")
        told |= {key: run[key] for key in names if key in run and key not in told}
    return shlex.join(["python", "encode.py", *(f"{key}={value}" for key, value in told.items())])
