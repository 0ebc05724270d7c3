"""report.html in a real browser: what a reader sees, sorts, filters and clicks."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from browser import browser, column, point, tab, until  # noqa: F401 (fixtures)
from conftest import ROOT, composed

from coin.report import collect, write_report, write_results
from coin.report.cells import cells_of
from coin.report.page import command, content, write_page

TABLES = ROOT / "results" / "paper" / "tables"


def run(code="coin", experiment="cifar10_splits", nda=90.0, seed=0, damping=0.01, samples=200, **overrides):
    experts = [
        {"name": n, "accuracy": 95.0, "decoded_accuracy": 90.0, "nda": nda + d} for n, d in (("a", 1), ("b", -1))
    ]
    return {"code": code, "decoder": "analytic", "experiment": experiment, "seed": seed, "samples": samples,
            "beta": [0.5, 0.5], "nda": nda, "hyperparameters": {"damping": damping}, "experts": experts,
            "candidates": [{"damping": d, "nda": 80.0, "divergence": 0.1} for d in (damping, 7.5)],
            "seconds": {"encode": 2.0, "statistics": 1.5, "evaluate": 1.0},
            "overrides": {"code": code, "seed": str(seed), **overrides}}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The page of the paper's tables: 6 codes in 6 experiments, three draws each."""
    return write_page(TABLES, tmp_path_factory.mktemp("page")).as_uri()


@pytest.fixture
def opened(tab, tables):  # noqa: F811
    tab.goto(tables)
    tab.wait_for_selector("#by-code .point")
    return tab


def test_it_shows_every_run_and_what_they_are(opened):
    assert "108 runs (108 finished) · 6 experiments · 6 codes" in opened.inner_text("#summary")
    assert opened.locator("#rows tr").count() == 108
    runs = collect(TABLES)
    assert sorted(column(opened, "NDA %")) == sorted(f"{r['nda']:.2f}" for r in runs)
    assert opened.locator("h1").inner_text() == "paper/tables"
    for chart in ("by-code", "by-setting", "by-seconds", "by-expert"):
        assert opened.locator(f"#{chart} .point").count() >= 100, chart


def test_means_and_the_papers_numbers_are_those_of_the_tables(opened):
    drawn = opened.evaluate(
        """() => document.querySelector("#by-code .plot").data.filter((t) => t.customdata)
            .flatMap((t) => t.x.map((x, i) => [t.customdata[i][0], t.customdata[i].length - 1, x]))"""
    )
    cells = cells_of(collect(TABLES))
    means = {title: x for title, count, x in drawn if count == 3 and not title.startswith("the paper")}
    assert means == {f"{c.label} on {c.experiment}": pytest.approx(c.nda()[0]) for c in cells}
    papers = {title: x for title, _, x in drawn if title.startswith("the paper")}
    told = [c for c in cells if c.paper() is not None]
    assert papers == {f"the paper's {c.code} on {c.experiment}: {c.paper():.2f} %": c.paper() for c in told}
    assert len(papers) == 30


def test_a_column_sorts_up_and_down_by_mouse_and_keyboard(opened):
    def numbers():
        return [float(text) for text in column(opened, "NDA %")]

    head = opened.locator("th[data-key=nda]")
    assert head.get_attribute("aria-sort") == "none" and head.get_attribute("scope") == "col"
    head.locator("button").click()
    assert numbers() == sorted(numbers(), reverse=True) and head.get_attribute("aria-sort") == "descending"
    opened.keyboard.press("Enter")  # the focus has stayed
    assert numbers() == sorted(numbers()) and head.get_attribute("aria-sort") == "ascending"
    opened.click("th[data-key=damping] button")
    chosen = [float(text) for text in column(opened, "damping λ") if text]
    assert chosen == sorted(chosen) and len(set(chosen)) > 1
    assert column(opened, "damping λ")[len(chosen) :] == [""] * (108 - len(chosen)), "unknown comes last"


def test_filters_hold_for_the_table_and_the_charts(opened):
    opened.click("#choices details[data-key=code] summary")
    opened.check("#choices input[name=code][value=coin]")
    opened.check("#choices input[name=code][value=average]")
    opened.click("#choices details[data-key=experiment] summary")
    opened.check("#choices input[name=experiment][value=cifar10_mnist]")
    assert set(column(opened, "code")) == {"coin", "average"} and set(column(opened, "experiment")) == {"cifar10_mnist"}
    assert opened.inner_text("#count") == "6 of 108 runs"
    points = "document.querySelectorAll('#by-seconds .points .point').length"
    until(opened, points, 6)
    opened.fill("#search", "coin seed=2")
    assert column(opened, "code") == ["coin"] and column(opened, "seed") == ["2"]
    until(opened, points, 1)
    opened.fill("#search", "nothing has this name")
    opened.wait_for_selector("#by-code .nothing")
    opened.click("#clear")
    assert opened.inner_text("#count") == "108 runs"
    until(opened, points, 108)
    opened.mouse.move(*point(opened, "by-seconds"))
    opened.wait_for_selector("#card:not([hidden])")  # a chart that was empty listens again


def test_hovering_shows_the_command_and_a_click_copies_it(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.mouse.move(*point(opened, "by-seconds"))
    opened.wait_for_selector("#card:not([hidden])")
    shown = opened.inner_text("#card-command")
    assert shown in {item["command"] for item in content(TABLES)["runs"]} and "sweeps=table" in shown
    assert re.search(r"NDA \d+\.\d\d % · P=200", opened.inner_text("#card-facts"))
    opened.click("#card-copy")
    opened.wait_for_selector("#card-copy:text('Copied')")
    assert opened.evaluate("navigator.clipboard.readText()") == shown
    opened.keyboard.press("Escape")
    assert not opened.is_visible("#card")


def test_a_click_on_a_point_or_a_row_opens_the_details(opened):
    opened.mouse.click(*point(opened, "by-expert"))
    opened.wait_for_selector("#details[open]")
    opened.keyboard.press("Escape")
    opened.fill("#search", "coin cifar10_splits seed=1")
    opened.locator("#rows tr td.open button").focus()
    opened.keyboard.press("Enter")
    text = opened.inner_text("#details")
    (cell,) = [c for c in cells_of(collect(TABLES)) if (c.code, c.experiment) == ("coin", "cifar10_splits")]
    told = cell.runs[1]
    assert "coin on cifar10_splits, seed 1" in text
    for expert in told["experts"]:
        assert expert["name"] in text and f"{expert['nda']:.2f}" in text
    for title in ("Experts", "Hyperparameters", "Candidates", "Seconds", "Overrides", "Everything in results.json"):
        assert title in text
    assert opened.locator("#details tr.chosen").count() == 1
    assert opened.inner_text("#details pre.command") == command(told)
    opened.click("#close")
    assert not opened.is_visible("#details")


def test_nda_is_drawn_against_the_setting_that_varies_or_another(tab, tmp_path):  # noqa: F811
    tab.goto(write_page(ROOT / "results" / "paper" / "damping", tmp_path).as_uri())
    tab.wait_for_selector("#by-setting .point")
    layout = 'document.querySelector("#by-setting .plot").layout.xaxis'
    assert tab.input_value("#setting") == "damping" and tab.evaluate(f"{layout}.type") == "log"
    assert tab.evaluate(f"{layout}.title.text + {layout}.ticktext") == "damping λ1e-5,1e-4,0.001,0.01,0.1,1"
    assert tab.evaluate("document.querySelector('#by-setting .plot').data.filter(t => t.mode === 'lines').length") == 2
    tab.select_option("#setting", "run.test_coding_loss")
    until(tab, f"{layout}.title.text", "coding loss on test samples")
    assert tab.evaluate("document.querySelector('#by-setting .plot').data.filter(t => t.mode === 'lines').length") == 0


def test_text_of_a_run_is_text(tab, tmp_path):  # noqa: F811
    evil = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'><b>$data"
    written = [run(evil, experiment=evil, nda=90.0 + seed, seed=seed, note=evil) for seed in range(2)]
    for results in written:
        results["experts"][0]["name"] = evil
        write_results(tmp_path / evil.replace("/", "") / str(results["seed"]), results)
    tab.goto(write_page(tmp_path, tmp_path).as_uri())
    tab.wait_for_selector("#by-code .point")
    tab.mouse.move(*point(tab, "by-code"))
    tab.wait_for_selector("#card:not([hidden])")
    assert evil in tab.inner_text("#card-title")
    tab.locator("#rows td.open button").first.click()
    assert evil in tab.inner_text("#details-title") and column(tab, "experiment") == [evil] * 2
    assert evil in tab.locator("#by-code .annotation-text").first.text_content()
    assert tab.evaluate("window.broken") is None and not tab.locator("img, main b").count()


def test_it_may_ask_nobody_and_run_nothing_else(browser, tables):  # noqa: F811
    """The policy that the page carries, beside what the fixture sees of its requests."""
    page, refused = browser.new_page(), []
    page.goto(tables)
    page.on("console", lambda said: refused.append(said.text))
    page.evaluate("fetch('https://example.org/').catch(() => null)")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.broken = 1'}))")
    assert page.evaluate("window.broken") is None
    for what in ("connect-src", "script-src"):
        assert any("Content Security Policy" in text and what in text for text in refused), refused
    page.close()


def test_every_committed_comparison_has_a_page(tab, tmp_path):  # noqa: F811
    for file in sorted((ROOT / "results").glob("*/*/runs.jsonl")):
        tab.goto(write_page(file.parent, tmp_path).as_uri())
        for chart in ("by-code", "by-seconds", "by-expert"):
            tab.wait_for_selector(f"#{chart} .point")
        assert tab.locator("#rows tr").count() == len(collect(file.parent))


@pytest.mark.parametrize("page, width", [("paper/tables", 360), ("beyond/tuning", 360), ("paper/tables", 768)])
def test_a_phone_scrolls_up_and_down_alone(tab, page, width, tmp_path):  # noqa: F811
    tab.set_viewport_size({"width": width, "height": 740})
    tab.goto(write_page(ROOT / "results" / page, tmp_path).as_uri())
    tab.wait_for_selector("#by-expert .point")
    wide = "document.documentElement.scrollWidth"
    assert tab.evaluate(wide) == width
    tab.mouse.move(*point(tab, "by-code", 3))
    tab.wait_for_selector("#card:not([hidden])")
    assert tab.evaluate(wide) == width
    tab.mouse.click(*point(tab, "by-code", 3))
    tab.wait_for_selector("#details[open]")
    assert tab.evaluate(wide) == width
    tab.set_viewport_size({"width": 1280, "height": 900})
    until(tab, "document.querySelector('#by-code .plot').layout.width > 1000", True)


def test_it_prints_without_what_only_a_screen_needs(opened, tmp_path):
    opened.emulate_media(media="print")
    assert not opened.is_visible("#filters") and opened.is_visible("#by-code .plot")
    assert opened.evaluate("getComputedStyle(document.querySelector('.scroll')).maxHeight") == "none"
    assert opened.pdf(format="A4").startswith(b"%PDF")


def test_runs_without_a_cell_of_their_own_are_counted(tmp_path):
    for i, nda in enumerate((90.0, 91.0)):
        write_results(tmp_path / str(i), run(nda=nda))
    data = content(tmp_path)
    assert [item["run"]["nda"] for item in data["runs"]] == [91.0] and data["superseded"] == 1
    assert data["runs"][0]["seconds"] == 3.5


def test_a_command_repeats_its_run():
    assert command(run(beta="[0.3,0.7]")) == (
        "python encode.py code=coin seed=0 'beta=[0.3,0.7]' experiment=cifar10_splits decoder=analytic"
    )
    assert "experiment=" not in command(
        {**run(experiment="mnist+cifar10"), "overrides": {"experts": "[mnist,cifar10]"}}
    )
    for folder in ("paper/tables", "paper/damping", "beyond/codes"):
        item = content(ROOT / "results" / folder)["runs"][-1]
        _, script, *words = shlex.split(item["command"])
        assert script == "encode.py" and words[-1] == "hydra.mode=RUN", "one run, not its sweep again"
        told = composed("encode", *(w for w in words if not w.startswith(("hydra.", "model.weights"))))
        assert (told.seed, told.samples) == (item["run"]["seed"], item["run"]["samples"])


def test_it_appears_whole(tmp_path):
    write_results(tmp_path / "0", run())
    (tmp_path / "report.html").write_text("the one before")
    with open(tmp_path / "report.html") as before:
        written = write_report(tmp_path, tmp_path)
        assert before.read() == "the one before", "another file took its place"
    assert tmp_path / "report.html" in written and not list(tmp_path.glob(".*new"))
    text = (tmp_path / "report.html").read_text()
    data = re.search(r'<script type="application/json" id="data" data-live="false">(.*?)</script>', text)[1]
    assert json.loads(data)["runs"][0]["run"] == json.loads((tmp_path / "0" / "results.json").read_text())


def test_pages_of_results_are_not_committed_nor_linked_to():
    """They are megabytes, and made in a moment."""
    assert shutil.which("git")
    ignored = subprocess.run(["git", "check-ignore", "results/paper/tables/report.html"], cwd=ROOT, capture_output=True)
    assert ignored.returncode == 0
    for page in (ROOT / "results").rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text()):
            assert "report.html" not in target, page
            assert "://" in target or (page.parent / target).exists(), f"{page} links to {target}"
