"""Panels, as both a workspace and a report show them. Every call makes new ones: a panel has its own place and id."""

from wandb_workspaces.reports.v2.interface import (
    BarPlot,
    Config,
    Layout,
    LinePlot,
    MarkdownPanel,
    PanelTypes,
    ScatterPlot,
    SummaryMetric,
    WeavePanelSummaryTable,
)

from coin.report import paper

NDA = SummaryMetric("nda")
LEGEND = "${config:experiment} ${config:code} ${config:decoder}, P = ${config:samples}, seed ${config:seed}"
ALL = 1000  # runs a panel may show; W&B's own default is ten
WIDTH = 24  # of a report, in W&B's grid


def place(column: int, columns: int, height: int = 10) -> Layout:
    """One of so many places beside one another."""
    width = WIDTH // columns
    return Layout(x=column * width, y=0, w=width, h=height)


def nda_by(key: str, title: str, layout: Layout) -> BarPlot:
    """Average NDA of the runs that have a setting in common, with the spread over their seeds."""
    return BarPlot(
        title=title,
        metrics=[NDA.name],
        groupby=Config(key),
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
        title_x="average NDA, %",
        max_runs_to_show=ALL,
        layout=layout,
    )


def nda_bars(title: str, layout: Layout) -> BarPlot:
    """A bar a group of the run sets: what they are grouped by is theirs to say."""
    return BarPlot(title=title, metrics=[NDA.name], title_x="average NDA, %", max_runs_to_show=ALL, layout=layout)


def nda_against() -> list[PanelTypes]:
    """NDA against λ, as it was chosen and as it was looked for, and against P."""
    searched = LinePlot(
        title="NDA on the samples of every λ that was tried",
        x="tuning/damping",
        y=["tuning/nda"],
        log_x=True,
        title_x="damping λ",
        legend_template=LEGEND,
        max_runs_to_show=ALL,
        layout=place(1, 3),
    )
    return [
        scatter("NDA against the damping λ", SummaryMetric("hyperparameters/damping"), place(0, 3)),
        searched,
        scatter("NDA against the samples P", Config("samples"), place(2, 3)),
    ]


def scatter(title: str, x: SummaryMetric | Config, layout: Layout) -> ScatterPlot:
    """A point a run; what is varied is varied by factors."""
    return ScatterPlot(title=title, x=x, y=NDA, log_x=True, legend_template=LEGEND, layout=layout)


def costs() -> list[PanelTypes]:
    """What a code costs: encoding, and the statistics (Fishers, Gram matrices) it rests on."""
    phases = ("encode", "statistics")
    seconds = BarPlot(
        title="Seconds by code",
        metrics=[f"seconds/{phase}" for phase in phases],
        groupby=Config("code"),
        groupby_aggfunc="mean",
        title_x="seconds",
        max_runs_to_show=ALL,
        layout=place(2, 3),
    )
    against = [
        scatter(f"NDA against seconds/{phase}", SummaryMetric(f"seconds/{phase}"), place(i, 3))
        for i, phase in enumerate(phases)
    ]
    return [*against, seconds]


def curves() -> list[PanelTypes]:
    """How the experts were fine-tuned."""
    return [
        LinePlot(
            title="Fine-tuning: training loss",
            x="trainer/global_step",
            y=["train/loss"],
            log_y=True,
            title_x="step",
            max_runs_to_show=ALL,
            layout=place(0, 2),
        ),
        LinePlot(
            title="Fine-tuning: test accuracy",
            x="epoch",
            y=["test/accuracy"],
            title_x="epoch",
            max_runs_to_show=ALL,
            layout=place(1, 2),
        ),
    ]


def table(name: str) -> WeavePanelSummaryTable:
    """A table that runs log: of their `experts` an encode run, a `table` of all runs the end of a sweep."""
    return WeavePanelSummaryTable(table_name=name, layout=place(0, 1, 12))


def paper_numbers(layout: Layout, *experiments: str) -> MarkdownPanel:
    """The paper's average NDA of every code."""
    header = ["paper's NDA %", *experiments]
    rows = [[code, *(f"{numbers[e][2]:.2f}" for e in experiments)] for code, numbers in paper.NDA.items()]
    lines = [header, ["---", *("---:" for _ in experiments)], *rows]
    return MarkdownPanel(markdown="\n".join(f"| {' | '.join(line)} |" for line in lines), layout=layout)
