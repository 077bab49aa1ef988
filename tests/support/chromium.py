"""Headless Chromium for tests of pages.

Without a browser these tests are skipped; LEAFTRACE_REQUIRE_BROWSER=1 makes that a failure."""

import os
import shutil
from contextlib import contextmanager

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def missing(what):
    """Skip the test, or fail it where a browser is required."""
    if os.environ.get("LEAFTRACE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"LEAFTRACE_REQUIRE_BROWSER=1, but {what}")
    pytest.skip(f"browser tests need Chromium and Playwright: {what}")


@contextmanager
def chromium():
    """Give a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("the Python package playwright is not installed")
    if BROWSER is None:
        missing("there is no chromium, chromium-browser or google-chrome on the PATH")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield opened
        opened.close()
