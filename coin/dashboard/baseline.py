"""The paper's numbers as runs, of job type `paper`: only what is a run can be drawn beside runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import wandb

from coin.report import paper


@dataclass(frozen=True)
class PaperRun:
    """Average NDA of a code in one column of the paper's tables. Its id is always the same, so it is logged once."""

    experiment: str
    code: str
    nda: float

    @property
    def id(self) -> str:
        return f"paper-{self.code}-{self.experiment}"

    @property
    def config(self) -> dict[str, Any]:
        """The names that an encode run has too (SPEC, "W&B")."""
        names = {"experiment": self.experiment, "code": self.code}
        return {**names, "decoder": "analytic", "tuning": "nda", "model": "resnet50", "samples": 200}

    def told(self) -> dict[str, Any]:
        return {"id": self.id, "config": self.config, "summary": {"nda": self.nda}}

    def log(self, project: str, entity: str | None = None, **settings: Any) -> None:
        run = wandb.init(
            project=project,
            entity=entity,
            id=self.id,
            name=f"paper: {self.code} on {self.experiment}",
            job_type="paper",
            group="paper",
            config=self.config,
            resume="allow",
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
            **settings,
        )
        run.summary["nda"] = self.nda
        run.finish()


def paper_runs(known: Sequence[str] = ()) -> list[PaperRun]:
    """All that the paper's two tables say, but for those whose id is known."""
    runs = [PaperRun(e, code, paper.NDA[code][e][2]) for e in paper.EXPERIMENTS for code in paper.NDA]
    return [run for run in runs if run.id not in known]
