"""Reports: the results of runs as files, tables and figures for people."""

from coin.report.runs import collect, experiment_name, pack, write_results
from coin.report.sweep import SweepReport, job_of_sweep
from coin.report.tables import run_table
from coin.report.write import write_report

__all__ = [
    "SweepReport",
    "collect",
    "experiment_name",
    "job_of_sweep",
    "pack",
    "run_table",
    "write_report",
    "write_results",
]
