"""Lower rooms never import higher ones, and only the two scripts know Hydra."""

import ast

import pytest
from conftest import ROOT

ROOMS = {
    1: ["parameters", "batch_norm"],
    2: [
        "fisher",
        "averaging",
        "decoding",
        "decoders",
        "features",
        "digests",
        "metrics",
        "coding",
        "recipes",
        "codes",
        "tuning",
        "",
    ],
    3: [
        "ranks",
        "trainers",
        "checkpoints",
        "data",
        "models",
        "expert",
        "pretraining",
        "fisher_callback",
        "prediction",
        "samples",
    ],
    5: ["cli"],
    4: ["presence", "console", "loggers", "memory", "store", "artifacts", "experiment", "report"],
}
ROOM = {name: room for room, names in ROOMS.items() for name in names}
FILES = sorted((ROOT / "coin").rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            if node.module == "coin":
                yield from (f"coin.{alias.name}" for alias in node.names)


def room_of(module: str) -> int:
    if module == "coin.codes.distillation":
        return 3  # it trains
    return ROOM[module.split(".")[1] if "." in module else ""]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_its_own_room_and_lower_ones(path):
    relative = path.relative_to(ROOT / "coin")
    own = ROOM[
        "" if relative.name == "__init__.py" and len(relative.parts) == 1 else relative.parts[0].removesuffix(".py")
    ]
    if str(relative) == "codes/distillation.py":
        own = 3  # it trains
    for module in imported(path):
        assert own == 5 or not module.startswith(("hydra", "omegaconf")), module
        if module.startswith("coin.") and module.split(".")[1] in ROOM:
            assert room_of(module) <= own, f"{relative} (room {own}) imports {module} (room {room_of(module)})"
        if own == 1:
            assert module.split(".")[0] in ("torch", "collections", "copy", "coin"), module


def test_codes_do_not_import_one_another():
    shared = {"__init__", "code", "layers", "lockstep"}  # what several need is a file named for what it is
    codes = {p.stem for p in (ROOT / "coin" / "codes").glob("*.py")} - shared
    for path in (ROOT / "coin" / "codes").glob("*.py"):
        if path.stem != "__init__":
            others = {f"coin.codes.{name}" for name in codes - {path.stem}}
            assert not others & set(imported(path)), path
