"""A folder is a room: lower ones never import higher ones, and only the commands know Hydra."""

import ast

import pytest
from conftest import ROOT

ROOMS = {
    "fisher": 2,
    "problem": 2,
    "codes": 2,
    "decoders": 2,
    "training": 3,
    "lab": 4,
    "report": 4,
    "dashboard": 4,
    "serving": 4,
    "cli": 5,
}
FILES = sorted(path.relative_to(ROOT / "coin") for path in (ROOT / "coin").rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse((ROOT / "coin" / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            if node.module == "coin":
                yield from (f"coin.{alias.name}" for alias in node.names)


def room(parts):
    """Of a path or a module below coin: that of its folder, the first where it lies in none."""
    return ROOMS[parts[0]] if len(parts) > 1 or parts[0] in ROOMS else 1


@pytest.mark.parametrize("path", [path for path in FILES if str(path) != "__init__.py"], ids=str)
def test_a_file_imports_only_its_own_room_and_lower_ones(path):
    own = room(path.parts)
    for module in imported(path):
        assert own == 5 or not module.startswith(("hydra", "omegaconf")), f"{path} knows Hydra: {module}"
        if module.startswith("coin."):
            other = room(module.split(".")[1:])
            assert other <= own, f"{path} (room {own}) imports {module} (room {other})"
        if own == 1:
            assert not module.startswith(("lightning", "torchvision", "wandb")), module


def test_every_folder_is_a_room():
    assert {path.parts[0] for path in FILES if len(path.parts) > 1} == set(ROOMS)


def test_tests_lie_where_what_they_test_does():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*ROOMS, "house"}, "house: the pages, the rooms and the wheel"


def test_no_two_files_of_tests_have_one_name():
    """Pytest would refuse the whole suite: folders of tests are no packages."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_codes_do_not_import_one_another():
    # what several need is a file named for what it is
    shared = {"__init__", "attention", "code", "layers", "lockstep", "task_vectors", "weighted"}
    codes = {path.stem for path in FILES if path.parts[0] == "codes"} - shared
    for path in FILES:
        if path.parts[0] == "codes" and path.stem in codes:
            others = {f"coin.codes.{name}" for name in codes - {path.stem}}
            assert not others & set(imported(path)), path


@pytest.mark.parametrize("path", FILES, ids=str)
def test_more_than_five_positional_arguments_mean_that_an_object_is_missing(path):
    calls = [n for n in ast.walk(ast.parse((ROOT / "coin" / path).read_text())) if isinstance(n, ast.Call)]
    assert not [ast.unparse(call) for call in calls if len(call.args) > 5]


def test_no_two_names_in_one_folder_differ_by_an_ending():
    for folder in {path.parent for path in FILES}:
        names = sorted({path.stem for path in FILES if path.parent == folder} - {"__init__", "__main__"})
        for i, name in enumerate(names):
            for other in names[i + 1 :]:
                stem = name.rstrip("s").removesuffix("ing").removesuffix("e")
                assert other.removesuffix("s").removesuffix("ing").removesuffix("e") != stem, (folder, name, other)
