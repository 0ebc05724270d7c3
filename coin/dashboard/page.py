"""The report: what a project of COIN runs shows, in the order in which one would ask."""

from typing import Any

from wandb_workspaces.reports.v2.interface import (
    H1,
    H2,
    Config,
    MarkdownBlock,
    PanelGrid,
    Report,
    RunsetGroup,
    RunsetGroupKey,
    TableOfContents,
)

from coin.dashboard import panels
from coin.dashboard.runs import has, of_kind
from coin.report import paper

PAPER = "the paper"
GREY = "#8c8c8c"  # the paper's bars, whatever the colours of the project's own


def report(entity: str, project: str, with_paper: bool = True) -> Report:
    """Nothing in it depends on what runs there are: those that come later appear in it."""
    return Report(
        entity=entity,
        project=project,
        title=f"COIN: {project}",
        description="How well a missing expert's answers are decoded, by which code, at what cost",
        width="fluid",
        blocks=[
            MarkdownBlock(
                "NDA, the normalized decoding accuracy, is the accuracy of decoded answers in percent of the missing "
                "expert's own: 100 means that nothing is lost with it. A bar is the mean over the runs of a code."
            ),
            TableOfContents(),
            H1("NDA by code and experiment"),
            MarkdownBlock(
                f"The paper's numbers are {'grey bars, and ' if with_paper else ''}in the table beside the bars: a "
                "ResNet-50, P = 200, β = (½, ½). The project's are means over all runs of a code that decode by the "
                "paper's formula."
            ),
            *(block for experiment in paper.EXPERIMENTS for block in column(experiment, with_paper)),
            H2("All experiments"),
            PanelGrid(
                runsets=[of_kind("encode", "encode runs")],
                panels=[
                    panels.nda_by("code", "NDA by code", panels.place(0, 3)),
                    panels.nda_by("experiment", "NDA by experiment", panels.place(1, 3)),
                    panels.nda_by("decoder", "NDA by decoder", panels.place(2, 3)),
                ],
            ),
            H1("NDA against λ and P"),
            PanelGrid(runsets=[of_kind("encode", "encode runs")], panels=panels.nda_against()),
            H1("Cost against NDA"),
            MarkdownBlock(
                "Seconds of encoding, and of the statistics that it rests on (Fishers, Gram matrices), whenever "
                "they were computed."
            ),
            PanelGrid(runsets=[of_kind("encode", "encode runs")], panels=panels.costs()),
            H1("Experts' fine-tuning"),
            PanelGrid(runsets=[of_kind("train", "trainings")], panels=panels.curves()),
            H1("How well each expert is decoded"),
            PanelGrid(runsets=[of_kind("encode", "encode runs")], panels=[panels.table("experts")]),
            H1("Comparisons of sweeps"),
            PanelGrid(runsets=[of_kind("report", "comparisons")], panels=[panels.table("table")]),
        ],
    )


def column(experiment: str, with_paper: bool) -> list[H2 | PanelGrid]:
    """One column of the paper's tables: the project's runs, and what the paper says."""
    here = has("experiment", experiment)
    runsets = [of_kind("encode", "this project", here, has("decoder", "analytic"), by="code")]
    colors: dict[str | RunsetGroup, str | dict[str, Any]] = {}
    if with_paper:
        runsets.append(of_kind("paper", PAPER, here, by="code"))
        colors = {RunsetGroup(PAPER, (RunsetGroupKey(Config("code"), code),)): GREY for code in paper.NDA}
    return [
        H2(experiment),
        PanelGrid(
            runsets=runsets,
            panels=[
                panels.nda_bars(
                    f"NDA by code (the paper's COIN: {paper.NDA['coin'][experiment][2]:.2f})", panels.place(0, 2)
                ),
                panels.paper_numbers(panels.place(1, 2), experiment),
            ],
            custom_run_colors=colors,
        ),
    ]
