"""The saved workspace: all runs of a project in sections, from the result back to the experts."""

from typing import Any

from wandb_workspaces.workspaces import (
    RunsetSettings,
    Section,
    SectionLayoutSettings,
    Workspace,
    WorkspaceSettings,
)

from coin.dashboard import panels
from coin.dashboard.runs import COLUMNS
from coin.report import paper


def workspace(entity: str, project: str) -> Workspace:
    by_code = panels.nda_by("code", "NDA by code", panels.place(0, 2))
    by_experiment = panels.nda_by("experiment", "NDA by experiment", panels.place(1, 2))
    numbers = panels.paper_numbers(panels.place(0, 1), *paper.EXPERIMENTS)
    return Workspace(
        entity=entity,
        project=project,
        name="COIN",
        sections=[
            section("NDA by code and experiment", by_code, by_experiment),
            section("NDA against λ and P", *panels.nda_against()),
            section("Cost against NDA", *panels.costs()),
            section("Experts' fine-tuning", *panels.curves()),
            section("How well each expert is decoded", panels.table("experts")),
            section("Comparisons of sweeps", panels.table("table")),
            section("The paper's numbers", numbers),
        ],
        settings=WorkspaceSettings(max_runs=panels.ALL),
        runset_settings=RunsetSettings(
            filters="Metric('JobType') != 'paper'",  # the workspace has one run set: averages would be with the paper's
            pinned_columns=["run:displayName", "run:jobType", *COLUMNS["encode"]],
        ),
    )


def section(name: str, *shown: Any) -> Section:
    """All panels in one row."""
    return Section(
        name=name,
        panels=list(shown),
        is_open=True,
        layout_settings=SectionLayoutSettings(columns=len(shown), rows=1),
    )
