"""The wheel holds all of it: configs and sweeps too, and the commands run in an empty folder."""

import os
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder a wheel of this checkout was installed into, without what it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True, stdout=subprocess.PIPE
    )
    for name in tracked.stdout.splitlines():
        if name.startswith(("coin/", "conf/", "sweeps/")) or name in ("pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True)
    return wheel, folder / "site"


def test_it_holds_every_module_config_and_sweep(installed):
    held = set(zipfile.ZipFile(installed[0]).namelist())
    for folder in ("coin", "conf", "sweeps"):
        for path in (ROOT / folder).rglob("*.py" if folder == "coin" else "*.yaml"):
            name = str(path.relative_to(ROOT))
            assert (name if folder == "coin" else f"coin/{name}") in held, name
    web = {str(path.relative_to(ROOT)) for path in (ROOT / "coin").glob("*/web/*")}
    assert len(web) > 6 and web <= held


def test_its_commands_run_in_an_empty_folder(installed, tmp_path, digits_run):
    environment = {**os.environ, "PYTHONPATH": str(installed[1])}

    def run(command, *args):
        call = [sys.executable, installed[1] / "bin" / command, *args]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    out = run("coin-encode", "sweeps=quickstart", "code=average,task_arithmetic", "logger=csv", "train_missing=false")
    assert "task_arithmetic" in out
    for name in ("table.md", "report.html"):
        assert (tmp_path / "outputs/sweeps/quickstart" / name).is_file()
    assert "wrote" in run("coin-report", "outputs/sweeps/quickstart", "--out", "again")
    assert "digits-0-4-small_resnet" in run("coin-train", "data.labels=[0,1,2,3,4]", "logger=csv")
