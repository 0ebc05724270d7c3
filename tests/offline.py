"""Offline runs of W&B, read back from their files."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record


@dataclass
class OfflineRun:
    id: str = ""
    name: str = ""
    job_type: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)  # of a metric, or a pattern of them
    artifacts: list = field(default_factory=list)
    exit_code: int | None = None
    system: int = 0  # records of system metrics

    def logged(self) -> set[str]:
        return {key for row in self.history for key in row}


def records(path: Path) -> Iterator[Record]:
    """Of a .wandb file: a 7-byte header, then 32 KiB blocks of (crc, length, type) and data."""
    raw, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[at : at + 7])
        whole += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a full record, or the last piece of one
            yield Record.FromString(whole)
            whole = b""


def offline_run(path: Path) -> OfflineRun:
    run = OfflineRun()

    def items(found) -> dict:
        return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in found}

    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id, run.name, run.job_type = record.run.run_id, record.run.display_name, record.run.job_type
            run.group, run.tags = record.run.run_group, list(record.run.tags)
            run.config |= items(record.run.config.update)
        elif kind == "config":
            run.config |= items(record.config.update)
        elif kind == "history":
            run.history.append(items(record.history.item))
        elif kind == "summary":
            run.summary |= items(record.summary.update)
        elif kind == "metric":
            run.axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "artifact":
            run.artifacts.append(record.artifact)
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
        elif kind == "stats":
            run.system += 1
    return run


def offline_runs(folder: Path, job_type: str | None = None) -> list[OfflineRun]:
    """Below a folder, in the order they were begun."""
    paths = {path.resolve() for path in folder.rglob("*.wandb")}  # not once more by `latest-run`
    found = [offline_run(path) for path in sorted(paths)]
    return [run for run in found if job_type is None or run.job_type == job_type]
