"""A report in a real browser: Playwright and a Chromium of the system, which tests go without where there are none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pages(html: bytes, folder: Path) -> Iterator[Any]:
    """Yield ``html`` as a page in light, then in dark; what holds for every report is asserted.

    It asks for nothing else, fits the window, has no error, the paper of its scheme, and can be printed.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("no Chromium")
    file = folder / "r.html"
    file.write_bytes(html)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 24, 27)")):
            page = browser.new_page(color_scheme=scheme)
            wrong: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message, wrong=wrong: wrong.append(message.text))
            page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(file.as_uri())
            assert len(asked) == 1
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            yield page
            assert wrong == []
            assert page.pdf(format="A4").startswith(b"%PDF")
        browser.close()


def saved_document(page: Any) -> tuple[str, Any]:
    """Return name and content of the JSON file that the page offers."""
    with page.expect_download() as saved:
        page.locator("#download").click()
    return saved.value.suggested_filename, json.loads(saved.value.path().read_text(encoding="utf-8"))
