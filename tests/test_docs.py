"""The pages say what is so: links lead somewhere, commands compose, quotes and the picture are those of today."""

import importlib
import re
import runpy
import shlex
from itertools import product
from pathlib import Path

import pytest
from conftest import ROOT
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from coin.cli.configs import CONF
from coin.report.quotes import QUOTE, quotation

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPEC = [
    "coin.encode",
    "coin.decode",
    "coin.fit_decoder",
    "coin.fisher.diagonal_fisher",
    "coin.codes.fisher_average",
    "coin.decoding.decode",
    "coin.metrics.NormalizedDecodingAccuracy",
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
COMMAND = re.compile(r"python +(train|encode)\.py\b((?:\\\n|[^\n`#;&])*)")
CHOICE = re.compile(r"`([a-z_]+)=([\w|]+)`")
PLACEHOLDER = re.compile(r"[A-Z]+|…")  # sweeps=NAME


def pages(*names: str):
    return pytest.mark.parametrize(
        "page", [page for page in PAGES if not names or page.name in names], ids=Path.__str__
    )


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def anchors(page: Path) -> set[str]:
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(page))]
    return {title.strip().replace(" ", "-") for title in titles}


def commands():
    """Every command as (page, script, overrides), each alternative of `a|b` by itself."""
    for page in PAGES:
        for script, rest in COMMAND.findall(page.read_text()):
            words = [word for word in shlex.split(rest.replace("\\\n", " ").replace("'", " ")) if "=" in word]
            for chosen in product(*(alternatives(word) for word in words)):
                yield page, script, chosen


def alternatives(word: str) -> list[str]:
    key, _, value = word.partition("=")
    return [f"{key}={option}" for option in value.split("|")]


def single(word: str) -> str:
    """Of a sweep over several values, the first."""
    override = OverridesParser.create().parse_override(word)
    if not override.is_sweep_override():
        return word
    return f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"


def test_the_front_page_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pages()
def test_links_lead_somewhere(page):
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page} links to {target}, where there is no such heading"


def test_pages_link_to_one_another():
    """Nothing lies where nobody is led to."""
    linked = {(p.parent / t.split("#")[0]).resolve() for p in PAGES for t in LINK.findall(prose(p)) if "://" not in t}
    assert {page for page in PAGES if page.name not in ("README.md", "index.md")} <= linked
    nav = (ROOT / "mkdocs.yml").read_text()
    assert all(f"  - {page.name}\n" in nav for page in (ROOT / "docs").glob("*.md"))


COMMANDS = sorted({(script, chosen) for _, script, chosen in commands() if chosen})


def test_there_are_commands():
    assert {script for script, _ in COMMANDS} == {"train", "encode"} and len(COMMANDS) > 10


@pytest.mark.parametrize(
    "script, words", COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_names_options_that_exist(script, words):
    told = [single(word) for word in words]
    told = [word for word in told if not ("." not in word.split("=")[0] and PLACEHOLDER.fullmatch(word.split("=")[1]))]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose(script, overrides=told)


@pages()
def test_a_choice_that_is_named_can_be_chosen(page):
    for group, options in CHOICE.findall(page.read_text()):
        folder = CONF / group if (CONF / group).is_dir() else ROOT / group
        if folder.is_dir() and not PLACEHOLDER.fullmatch(options):
            for option in options.split("|"):
                assert (folder / f"{option}.yaml").is_file(), f"{page}: {group}={option}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_pages_quote_what_is_there(page):
    for mark, what, end in QUOTE.findall(page.read_text()):
        told = f"python -m coin.report … --fill {page.relative_to(ROOT)}"
        assert f"{mark}{quotation(page, what)}{end}" in page.read_text(), told


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_python_on_a_page_runs(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
        exec(compile(block, str(page), "exec"), {})


def test_the_picture_of_the_house_is_that_of_today():
    house = runpy.run_path(str(ROOT / "docs" / "house.py"))
    page = house["PAGE"].read_text()
    assert house["renewed"](page) == page, "python docs/house.py"


def test_the_picture_sees_every_way_to_import(tmp_path):
    house = runpy.run_path(str(ROOT / "docs" / "house.py"))
    for name, text in {
        "__init__.py": "from coin.low.thing import x",
        "ground.py": "",
        "low/thing.py": "from coin import ground, encode",
        "high/thing.py": "def late():\n    import coin.low.thing\n    from coin import low",
        "high/deep/thing.py": "from coin.ground import x\nimport torch",
    }.items():
        file = tmp_path / "coin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert house["imports"](tmp_path) == {
        "import coin": {"coin/low"},
        "coin/*.py": set(),
        "coin/low": {"coin/*.py", "import coin"},
        "coin/high": {"coin/low", "coin/*.py"},
    }
    assert "    high --> low\n" in house["drawing"](tmp_path)


@pytest.mark.parametrize("path", SPEC)
def test_what_others_import_is_there(path):
    module, _, name = path.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))
