import contextlib
import io
import os
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]  # for the tests' own modules, and benchmarks
if "OMP_NUM_THREADS" not in os.environ:
    torch.set_num_threads(1)  # networks this small gain nothing from more, and lose much on a busy machine


@dataclass
class Finished:
    code: int
    out: str
    err: str


def run_script(name: str, *args: str) -> Finished:
    """Runs a script or a module as __main__ in this process: what a shell would run, without importing torch again."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, [str(ROOT / name), *args]
    from coin.lab import console

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        console.console.file = out
        try:
            if name.endswith(".py"):
                runpy.run_path(str(ROOT / name), run_name="__main__")
            else:
                runpy.run_module(name, run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            console.console.file = None
            sys.argv = argv
    return Finished(code, out.getvalue(), err.getvalue())


def composed(script: str, *overrides: str):
    """The config of a command, its experts one by one."""
    from hydra import compose, initialize_config_dir

    from coin.cli.configs import CONF
    from coin.cli.experts import expand

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(script, overrides=[*overrides])
    return expand(config, [override.split("=")[0] for override in overrides]) if script == "encode" else config


def shown_in_the_readme() -> tuple[float, dict[str, list[float]]]:
    """λ, and accuracy, decoded accuracy, NDA and agreement of the experts and their average, in the first table."""
    shown = (ROOT / "README.md").read_text().split("coin on digits")[1].split("```")[0]
    rows = re.findall(r"│ (\w+) +" + r"│ +([0-9.]+) " * 4, shown)
    damping = re.search(r"damping=([0-9.e-]+)", shown)
    assert damping and len(rows) == 3
    return float(damping.group(1)), {name: [float(cell) for cell in cells] for name, *cells in rows}


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", COIN_DATA=os.environ.get("COIN_DATA", "data"))
    os.environ["COIN_STORE"] = str(tmp_path_factory.mktemp("store"))
    os.environ["WANDB_DIR"] = str(tmp_path_factory.mktemp("wandb"))


@pytest.fixture
def fake():
    """Tensors without values, those of a GPU too; older versions of torch make none of these without its driver."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        try:
            torch.nn.Linear(2, 2, device="cuda")
        except RuntimeError as error:
            pytest.skip(f"torch {torch.__version__} has no fake CUDA tensors here: {str(error).splitlines()[0]}")
        yield mode


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """The README's first command, once for all tests: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("digits")
    finished = run_script("encode.py", f"hydra.run.dir={folder}")
    assert finished.code == 0, finished.err
    return folder, finished


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """The folder of a small encoder and its tokenizer."""
    pytest.importorskip("transformers", reason="pip install -e '.[text]'")
    from sentences import tiny_bert

    return tiny_bert(tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture(scope="session")
def text_root(tmp_path_factory):
    """A data.root with sentences below it."""
    from sentences import corpora

    return corpora(tmp_path_factory.mktemp("sentences"))
