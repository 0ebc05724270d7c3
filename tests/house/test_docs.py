"""The pages say what is so: links lead somewhere, commands compose, quotes and the picture are those of today."""

import importlib
import re
import runpy
import shlex
from itertools import product
from pathlib import Path

import pytest
from conftest import ROOT, composed
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from coin.cli.configs import CONF
from coin.report.quotes import QUOTE, quotation

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPEC = [
    "coin.encode",
    "coin.decode",
    "coin.fit_decoder",
    "coin.load",
    "coin.fisher.diagonal_fisher",
    "coin.codes.fisher_average",
    "coin.decoding.decode",
    "coin.metrics.NormalizedDecodingAccuracy",
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
COMMAND = re.compile(r"python +(train|encode|serve)\.py\b((?:\\\n|[^\n`#;&])*)")
SETTINGS = re.compile(r"`((?:[a-z_][\w./]*=[^\s`(]+ ?)+)`")  # `fisher=probes fisher.probes=10`
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
    assert {script for script, _ in COMMANDS} == {"train", "encode", "serve"} and len(COMMANDS) > 10


@pytest.mark.parametrize(
    "script, words", COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_names_options_that_exist(script, words):
    told = [single(word) for word in words]
    told = [word for word in told if not ("." not in word.split("=")[0] and PLACEHOLDER.fullmatch(word.split("=")[1]))]
    composed(script, *told)


@pytest.fixture(scope="module")
def configs():
    """One for each code and each experiment, with all that either has to be set."""
    variants = [f"code={path.stem}" for path in (CONF / "code").glob("*.yaml")]
    variants += ["experiment=cifar10_mnist", "experiment=image_folder_splits", "fisher=probes"]
    variants += ["decoder=alone", "logger=mlflow", "model=timm", "experiment=text_file_splits"]
    return [composed("train"), composed("serve"), *(composed("encode", variant) for variant in variants)]


@pages()
def test_a_setting_that_is_named_can_be_set(page, configs):
    for word in (word for span in SETTINGS.findall(prose(page)) for word in span.split()):
        key, _, value = word.partition("=")
        folder = ROOT / key if key == "sweeps" else CONF / key
        if folder.is_dir():
            for option in value.split("|"):
                known = (folder / f"{option}.yaml").is_file() or PLACEHOLDER.fullmatch(option)
                assert known, f"{page}: there is no {key}={option}"
        elif not key.startswith("hydra."):
            assert any(has(config, key) for config in configs), f"{page}: nothing is called {key}"


def has(config, key: str) -> bool:
    """Whether a config has a place of that name, whatever is in it."""
    above, _, last = key.replace("NAME", "split1").rpartition(".")
    part = OmegaConf.select(config, above) if above else config
    return isinstance(part, DictConfig) and last in list(part)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_pages_quote_what_is_there(page):
    for mark, what, end in QUOTE.findall(page.read_text()):
        told = f"python -m coin.report … --fill {page.relative_to(ROOT)}"
        assert f"{mark}{quotation(page, what)}{end}" in page.read_text(), told


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_python_on_a_page_runs(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
        exec(compile(block, str(page), "exec"), {})


def test_what_is_shown_as_a_diff_is_there():
    blocks = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M)
    assert len(blocks) == 4  # a code, a decoder, a data set, a model
    for line in "".join(blocks).splitlines():
        if line.startswith("+++ b/"):
            file = ROOT / line.removeprefix("+++ b/")
            lines = file.read_text().splitlines()
        else:
            assert line[1:] in lines, f"{file.relative_to(ROOT)} has no {line[1:]}"


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
