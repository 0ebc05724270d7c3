"""What is built, as the JSON that W&B is sent, and the sending of it."""

import json
from typing import Any

import wandb
from wandb_workspaces.reports.v2.interface import PanelGrid

from coin.dashboard.baseline import paper_runs
from coin.dashboard.page import report
from coin.dashboard.workspace import workspace
from coin.lab.console import console


def as_json(entity: str, project: str, with_paper: bool = True) -> str:
    """Workspace, report and the paper's runs as they would be sent; nobody is asked for anything."""
    view, page = workspace(entity, project)._to_model(), report(entity, project, with_paper)._to_model()
    built = {
        "workspace": {"name": view.display_name, "spec": plain(view.spec)},
        "report": {"title": page.display_name, "description": page.description, "spec": plain(page.spec)},
        "paper": [run.told() for run in paper_runs()] if with_paper else [],
    }
    return numbered(built)


def plain(spec: Any) -> Any:
    return json.loads(spec.model_dump_json(by_alias=True, exclude_none=True))


def numbered(built: dict[str, Any]) -> str:
    """With ids in the order of their appearance: W&B's are drawn at random, and are told apart by nothing else."""
    text = json.dumps(built, indent=1, ensure_ascii=False) + "\n"
    for number, name in enumerate(dict.fromkeys(ids({key: built[key] for key in ("workspace", "report")})), start=1):
        text = text.replace(name, f"id-{number}")
    return text


def ids(part: Any) -> list[str]:
    if isinstance(part, list):
        return [name for item in part for name in ids(item)]
    if not isinstance(part, dict):
        return []
    own = [part[key] for key in ("__id__", "id") if isinstance(part.get(key), str) and part[key]]
    return [*own, *(name for item in part.values() for name in ids(item))]


def send(entity: str, project: str, with_paper: bool = True) -> None:
    """W&B itself says where the report and the workspace are then."""
    try:
        api = wandb.Api()
        if with_paper:
            known = [run.id for run in api.runs(f"{entity}/{project}", filters={"jobType": "paper"})]
            missing = paper_runs(known)
            if missing:
                console.print(f"adding {len(missing)} runs of job type paper, a number of the paper each")
            for run in missing:
                run.log(project, entity, mode="online")
        page = report(entity, project, with_paper)
        for grid in (block for block in page.blocks if isinstance(block, PanelGrid)):
            for runset in grid.runsets:  # with a project, its number is looked up: not where there is no login
                runset.entity, runset.project = entity, project
        page.save()  # refuses a project that is not there, before anything is saved
        workspace(entity, project).save()
    except Exception as error:
        if not type(error).__module__.startswith("wandb"):
            raise
        said = " ".join(str(error).split())  # no login, no right, no network: its errors have no class in common
        raise ValueError(f"{entity}/{project}: W&B says: {said} (see what would be sent with --json FILE)") from error
