"""A real browser without a screen, and what its page asked for."""

import shutil
import time
from collections.abc import Iterator

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Chromium with an empty profile. (Closed with its module: its loop would be in the way of others'.)"""
    if not CHROMIUM:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield running
        running.close()


@pytest.fixture
def tab(browser) -> Iterator:
    """A page that no request leaves, and in which no script fails."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    asked, failed = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
    gone = "ERR_CONNECTION_REFUSED"  # said of a server that has ended, as it should be
    page.set_default_timeout(20_000)
    yield page
    context.close()
    assert asked and all(url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")) for url in asked), asked
    assert not [text for text in failed if gone not in text], failed


def column(page, title: str) -> list[str]:
    """The texts of a column of the table, from top to bottom."""
    return page.evaluate(
        """(title) => {
            const i = [...document.querySelectorAll("#columns th")].findIndex((th) => th.textContent === title);
            return [...document.querySelectorAll("#rows tr")].map((row) => row.cells[i].textContent);
        }""",
        title,
    )


def point(page, chart: str, number: int = 0) -> tuple[float, float]:
    """Where a point of a chart is in the window."""
    found = page.locator(f"#{chart} .plot .point").nth(number)
    found.scroll_into_view_if_needed()
    box = found.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def until(page, expression: str, wanted: object) -> None:
    """Waits. (Playwright's own way evaluates text inside the page, which the page's policy forbids.)"""
    limit = time.monotonic() + 20
    while (found := page.evaluate(expression)) != wanted:
        assert time.monotonic() < limit, f"{expression} is {found}, not {wanted}"
        page.wait_for_timeout(50)
