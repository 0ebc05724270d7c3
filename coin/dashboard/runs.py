"""Which runs a panel or a table shows, by the names that runs have in their config (SPEC, "W&B")."""

from wandb_workspaces.reports.v2.interface import OrderBy, Runset, SummaryMetric

NAMES = ("experiment", "code", "decoder", "tuning", "model", "samples", "seed", "sweep")
RESULTS = ("nda", "hyperparameters/damping", "seconds/encode", "seconds/statistics")
COLUMNS = {
    "encode": [*(f"config:{name}.value" for name in NAMES), *(f"summary:{key}" for key in RESULTS)],
    "train": ["summary:test/accuracy", "summary:train/loss", "summary:epoch"],
    "report": ["run:group"],
    "paper": ["config:experiment.value", "config:code.value", "summary:nda"],
}
NEWEST = OrderBy("CreatedTimestamp")


def of_kind(job: str, name: str, *conditions: str, by: str | None = None) -> Runset:
    """The runs of a job type for which all conditions hold, with the columns of their table; the best NDA first."""
    best_first = job in ("encode", "paper")
    return Runset(
        name=name,
        filters=" and ".join([kind(job), *conditions]),
        groupby=[f"config.{by}"] if by else [],
        order=[OrderBy(SummaryMetric("nda"))] if best_first else [NEWEST],
        pinned_columns=["run:displayName", *COLUMNS[job]],
        column_order=["run:displayName", *COLUMNS[job]],
    )


def kind(job: str) -> str:
    return f"Metric('JobType') == '{job}'"


def has(name: str, value: str) -> str:
    return f"Config('{name}.value') == '{value}'"  # as W&B's own pages write it: a config's values lie below `value`
