"""The HTML page of a report, which needs nothing else: styles, script and data are inside.

Every value passes through the template's escaping. The policy of the page allows its own style and
script, by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..._data.errors import LeaftraceError

MAX_BYTES = 4_800_000  # of the page; 5 MB pass through most mail servers
MAX_SHOWN = 28  # characters of a value that a cell shows; the rest is in its title
MINUS = "\N{MINUS SIGN}"


class Frame(Protocol):
    """A page inside the page, and the hashes by which a policy allows its styles and its script."""

    @property
    def html(self) -> str: ...

    @property
    def styles(self) -> tuple[str, ...]: ...

    @property
    def script(self) -> str: ...


def render(data: dict[str, Any], frame: Frame | None = None) -> str:
    """Make the page. ``frame``: a page that it shows inside.

    A page that would be too large holds fewer test rows and says so; `data` itself stays whole. Where
    the frame leaves no room for half of the rows, it is left out."""
    shown = len(data["cases"])
    while True:
        some = {**data, "cases": data["cases"][:shown]}
        page = _fill(some, frame, left_out=len(data["cases"]) - shown)
        size = len(page.encode())
        if size > MAX_BYTES and frame is not None and 2 * shown <= len(data["cases"]) + 1:
            return render(data)
        if size <= MAX_BYTES or shown <= 1:
            return page
        shown = max(1, min(shown - 1, int(0.95 * shown * MAX_BYTES / size)))


def _fill(data: dict[str, Any], frame: Frame | None, left_out: int) -> str:
    """The template filled with this data. ``left_out``: number of test rows that are not in it."""
    style = _part("report.css")
    script = _part("report.js")
    styles = [digest(style)]
    scripts = [digest(script)]
    if frame is not None:  # it has the policy of this page, too
        styles += frame.styles
        scripts.append(frame.script)
    policy = (
        f"default-src 'none'; style-src {quoted(styles)}; script-src {quoted(scripts)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        data=data,
        left_out=left_out,
        style=style,
        script=script,
        policy=policy,
        embedded=embedded(data),
        frame="" if frame is None else embedded(frame.html),
    )


@functools.cache
def _template() -> Any:
    """The template of the page, with its filters."""
    try:
        import jinja2
    except ImportError:
        raise LeaftraceError(
            "the HTML report needs jinja2: pip install leaftrace[report]"
        ) from None
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    filters = (number, signed, percent, brief, is_long, kinds, bar, axis, height, heat)
    environment.filters |= {f.__name__: f for f in filters}
    return environment.from_string(_part("template.html"))


@functools.cache
def _part(name: str) -> str:
    """The text of a file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def quoted(hashes: Sequence[str]) -> str:
    """Hashes as a policy lists them."""
    return " ".join(f"'{one}'" for one in hashes)


def digest(text: str) -> str:
    """The hash by which a policy allows a style or a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: Any) -> str:
    """JSON that no HTML parser can mistake for markup, nor a script for the end of a line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# ---- filters of the template ----


def number(x: Any, digits: int = 4) -> str:
    """A quantity to this many digits, with separators of thousands and a typographic minus."""
    if x is None:
        return "–"
    if isinstance(x, str):
        return x
    text = f"{x:,}" if isinstance(x, int) else _digits(x, digits)
    return text.replace("-", MINUS)


def signed(x: float) -> str:
    """A change with its sign."""
    return ("+" if x >= 0 else MINUS) + number(abs(float(x)), 3)


def _digits(x: float, digits: int) -> str:
    """A number to this many digits, trailing zeros included, so that columns are easy to compare."""
    if x == 0:
        return "0"
    if not 1e-4 <= abs(x) < 1e15:
        return f"{x:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{x:,.{decimals}f}"


def percent(p: float | None) -> str:
    """A probability in percent, with more digits near 0 and 1."""
    if p is None:
        return "–"
    x = 100 * p
    if 0 < x < 0.1:
        return f"{x:.2g} %"
    return f"{x:.2f} %" if x < 1 or x > 99 else f"{x:.1f} %"


def brief(x: Any) -> str:
    """A cell of the data, shortened.

    Numbers have six digits and no separators, since they may be years or ids."""
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        text = str(x)
        return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    text = str(x) if isinstance(x, int) else f"{x:.6g}"
    return text.replace("-", MINUS)


def is_long(x: Any) -> bool:
    """Whether `brief` cuts the value."""
    return isinstance(x, str) and len(x) > MAX_SHOWN


def kinds(rows: list[dict[str, Any]]) -> list[str]:
    """For each column of these lines, "n" if it holds numbers, to be set flush right."""
    columns = zip(*(row["values"] for row in rows), strict=True)
    return ["n" if any(map(_is_number, column)) else "" for column in columns]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def bar(change: float, largest: float) -> dict[str, float]:
    """Position and width, in percent, of a bar that grows from the middle."""
    share = 50 * abs(change) / largest if largest > 0 else 0.0
    x = 50 - share if change < 0 else 50.0
    return {"x": round(x, 2), "width": round(max(share, 0.5), 2)}


def axis(x: float, low: float, high: float) -> float:
    """Position of a value between low and high, in percent."""
    if not (math.isfinite(x) and high > low):
        return 50.0
    return round(100 * min(max((x - low) / (high - low), 0.0), 1.0), 2)


def height(count: float, most: float) -> float:
    """Height of a bar as a share of the largest, logarithmic."""
    return round(math.log1p(count) / math.log1p(most), 3)


def heat(x: float | None, largest: float) -> str:
    """Class of a cell for the strength of its colour, in three steps."""
    share = 0.0 if x is None or largest <= 0 else abs(x) / largest
    if share > 0.5:
        return "w2"
    return "w1" if share > 0.1 else ""
