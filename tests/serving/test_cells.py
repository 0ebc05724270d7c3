"""The page's tables are those of its runs; a small grid makes all tables and figures."""

import json
import shutil

import numpy as np
import pytest
from conftest import ROOT

from coin.report.quotes import QUOTE, quotation
from coin.serving.cells import Cell, Measured, faults, names_of, policies
from coin.serving.report import write

PAGE = ROOT / "results" / "serving"
MEASURED = Measured(service=np.array([0.007, 0.008, 0.01]))


def test_the_committed_tables_are_those_of_the_committed_runs(tmp_path):
    for file in PAGE.glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    write(tmp_path)
    for table in tmp_path.glob("*.md"):
        assert table.read_text() == (PAGE / table.name).read_text(), (
            f"{table.name}: python -m benchmarks.serving report"
        )
    page = PAGE / "README.md"
    for mark, what, end in QUOTE.findall(page.read_text()):
        assert f"{mark}{quotation(page, what)}{end}" in page.read_text(), what


@pytest.mark.parametrize("ensembles", [True, False])
def test_every_policy_meets_every_fault(ensembles):
    for policy in policies(names_of(2), ensembles):
        for fault in faults(names_of(2), 1.0):
            cell = Cell(policy=policy, fault=fault, ensembles=ensembles, queries=40)
            found = cell.simulate(MEASURED, (0,))
            assert found["answered"] == 40 and found["failed"] == 0
            assert found["quantiles"]["50"] <= found["quantiles"]["99.9"]
            json.dumps(found)


def test_what_a_policy_costs():
    def costs(policy):
        found = Cell(policy=policy, fault="no faults", experts=4, queries=5).simulate(MEASURED, (0,))
        return found["machines"], found["memory"]

    assert costs("none") == costs("drop the last") == (4, 4)
    assert costs("coded, late") == costs("replica of one") == costs("spare, loading") == (5, 5)
    assert costs("spare, all models") == (5, 8) and costs("pairs") == (8, 8)
    assert costs("small backup") == (5, 4) and costs("merged alone") == (1, 1)
