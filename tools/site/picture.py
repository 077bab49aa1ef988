"""Take docs/report.png from the report of `make demo`: the conclusions and the recorded explorer, in a browser.

python tools/site/picture.py leaftrace-report.html
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[2] / "docs" / "report.png"
WIDTH = 1200
HEIGHT = 1240


def main(report: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": WIDTH, "height": 2 * HEIGHT}, color_scheme="light"
        )
        page.goto(Path(report).resolve().as_uri())
        page.frame_locator("#explorer").locator("#rows tbody tr").first.wait_for()
        page.wait_for_timeout(1000)  # the frame is drawn by a process of its own
        top = page.locator("#conclusions").bounding_box()
        assert top is not None
        clip = {"x": 0, "y": top["y"] - 20, "width": WIDTH, "height": HEIGHT}
        page.screenshot(path=PICTURE, clip=clip)  # pyright: ignore[reportArgumentType]
        browser.close()
    # With 128 colours the file has a third of the size.
    Image.open(PICTURE).convert("RGB").quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
