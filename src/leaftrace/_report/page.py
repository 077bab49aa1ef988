"""From the summary to one HTML page that needs nothing else: styles, script and data are inside.

Every value passes through the template's escaping. The page's policy allows this style, this script (by their hashes)
and no request at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from pathlib import Path
from typing import Any

from .._data.errors import LeaftraceError

LIMIT = 4_800_000  # bytes of the page; 5 MB go through most mail servers
SEEN = 28  # characters of a value that a cell shows; the rest is in its title


def render(data: dict[str, Any]) -> str:
    """The page. If it would be too large, it holds fewer test rows and says so; `data` itself stays whole."""
    shown = len(data["cases"])
    while True:
        page = _fill({**data, "cases": data["cases"][:shown]}, left_out=len(data["cases"]) - shown)
        size = len(page.encode())
        if size <= LIMIT or shown <= 1:
            return page
        shown = max(1, min(shown - 1, int(0.95 * shown * LIMIT / size)))


def _fill(data: dict[str, Any], left_out: int) -> str:
    style = _part("report.css")
    script = _part("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        data=data,
        left_out=left_out,
        style=style,
        script=script,
        policy=policy,
        embedded=embedded(data),
    )


@functools.cache
def _template() -> Any:
    try:
        import jinja2
    except ImportError:
        raise LeaftraceError(
            "the HTML report needs jinja2: pip install leaftrace[report]"
        ) from None
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        f.__name__: f
        for f in (number, signed, percent, brief, is_long, kinds, bar, axis, height, heat)
    }
    return environment.from_string(_part("template.html"))


@functools.cache
def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for markup, nor a script for a line's end."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# ---- filters of the template ----


def number(x: Any, digits: int = 4) -> str:
    """A quantity: thousands apart, so many digits, a real minus."""
    if x is None:
        return "–"
    if isinstance(x, str):
        return x
    return (f"{x:,}" if isinstance(x, int) else _digits(x, digits)).replace("-", "\N{MINUS SIGN}")


def signed(x: float) -> str:
    return ("+" if x >= 0 else "\N{MINUS SIGN}") + number(abs(float(x)), 3)


def _digits(x: float, digits: int) -> str:
    """With trailing zeros, so that numbers below each other compare."""
    if x == 0 or not 1e-4 <= abs(x) < 1e6:
        return f"{x:.{digits - 1}e}" if x else "0"
    return f"{x:,.{max(0, digits - 1 - math.floor(math.log10(abs(x))))}f}"


def percent(p: float | None) -> str:
    if p is None:
        return "–"
    x = 100 * p
    return f"{x:.2g} %" if 0 < x < 0.1 else f"{x:.2f} %" if x < 1 or x > 99 else f"{x:.1f} %"


def brief(x: Any) -> str:
    """A cell of the data: numbers to six digits without separators (they may be years or ids), text cut."""
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        text = str(x)
        return text if len(text) <= SEEN else text[: SEEN - 1] + "…"
    return (str(x) if isinstance(x, int) else f"{x:.6g}").replace("-", "\N{MINUS SIGN}")


def is_long(x: Any) -> bool:
    return isinstance(x, str) and len(x) > SEEN


def kinds(rows: list[dict[str, Any]]) -> list[str]:
    """For each column "n" if it holds numbers, to be set flush right; of lines with `values`."""
    columns = zip(*(row["values"] for row in rows), strict=True)
    return [
        "n" if any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in c) else ""
        for c in columns
    ]


def bar(change: float, largest: float) -> dict[str, float]:
    """x and width, of 100, of a bar that grows from the middle."""
    share = 50 * abs(change) / largest if largest > 0 else 0.0
    return {"x": round(50 - share if change < 0 else 50.0, 2), "width": round(max(share, 0.5), 2)}


def axis(x: float, low: float, high: float) -> float:
    """Where a value stands between low and high, of 100."""
    if not (math.isfinite(x) and high > low):
        return 50.0
    return round(100 * min(max((x - low) / (high - low), 0.0), 1.0), 2)


def height(count: float, most: float) -> float:
    """Of a bar, of 1: logarithmic."""
    return round(math.log1p(count) / math.log1p(most), 3)


def heat(x: float | None, largest: float) -> str:
    """How strong a colour: three steps."""
    share = 0.0 if x is None or largest <= 0 else abs(x) / largest
    return "w2" if share > 0.5 else "w1" if share > 0.1 else ""
