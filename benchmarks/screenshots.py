"""The pictures of docs/dashboards.md: pages of committed results as a browser shows them.

    python -m benchmarks.screenshots

It needs Chromium (apt-get install chromium) and playwright, which the extra `test` brings.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from coin.report.page import write_page

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
LARGEST = 300_000  # bytes of a committed picture


def tables(page) -> None:
    """The paper's tables: codes beside the paper's numbers, and a run's card."""
    hover(page, "#by-code .x6y6 .point", 21)


def beyond(page) -> None:
    """Every code with every decoder: three codes are picked, against seconds and by expert."""
    page.click("#choices details[data-key=code] summary")
    for code in ("average", "coin", "matched"):
        page.check(f"#choices input[name=code][value={code}]")
    page.click("h1")  # the list closes
    page.wait_for_timeout(300)
    page.evaluate("document.getElementById('by-seconds').scrollIntoView()")


def damping(page) -> None:
    """A sweep of one number, as it opens."""


def hover(page, points: str, number: int) -> None:
    point = page.locator(points).nth(number)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#card:not([hidden])")


PICTURES = {"tables": ("paper/tables", 1180, 900, tables), "beyond": ("beyond/codes", 1180, 1500, beyond),
            "damping": ("paper/damping", 1180, 900, damping)}  # fmt: skip


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        sys.exit("no Chromium is installed; apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for name, (results, width, height, prepare) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(write_page(ROOT / "results" / results, Path(folder)).as_uri())
            page.wait_for_selector("#by-expert .point")
            prepare(page)
            page.wait_for_timeout(300)  # charts follow a filter a moment later
            path = IMAGES / f"{name}.png"
            page.screenshot(path=path)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
            if path.stat().st_size > LARGEST:
                sys.exit(f"{path} is larger than {LARGEST} bytes; make the window smaller")
        browser.close()


if __name__ == "__main__":
    main()
