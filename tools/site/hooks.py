"""Hooks of mkdocs: run the code of pages, and turn formulas into MathML, when the site is built."""

from __future__ import annotations

import html
import os
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parent))
from blocks import with_output

INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.+?)\\\]</div>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    as_written = os.environ.get("LEAFTRACE_DOCS_CODE") == "0"  # to write prose with `mkdocs serve`
    return markdown if as_written else with_output(markdown)


def on_page_content(content: str, **_: Any) -> str:
    content = INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    return DISPLAY.sub(lambda found: _mathml(found[1], "block"), content)


def _mathml(latex: str, display: str) -> str:
    return convert(html.unescape(latex).strip(), display=display)
