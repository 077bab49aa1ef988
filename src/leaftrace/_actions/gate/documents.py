"""The result of `gate` as documents that CI servers show: JUnit XML and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from ..._data.cells import short
from ..._data.numbers import number_text
from ..._data.tables import columns_of

if TYPE_CHECKING:
    from .result import Gate

_SHOWN = 20  # suspects in Markdown


def as_junit(found: Gate) -> str:
    """One test case for each check. What is not known is skipped."""
    failed = sum(not check.passed for check in found.checks)
    skipped = sum(not check.known for check in found.checks)
    counts = f'tests="{len(found.checks)}" failures="{failed}" errors="0" skipped="{skipped}"'
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites {counts}><testsuite name="leaftrace gate" {counts} time="0">',
    ]
    for check in found.checks:
        head = f'<testcase classname="leaftrace.gate" name={_attribute(check.name)} time="0"'
        if not check.known:
            lines.append(f"{head}><skipped message={_attribute(check.text)}/></testcase>")
        elif check.passed:
            lines.append(f"{head}/>")
        else:
            lines.append(f"{head}><failure message={_attribute(check.sentence)}/></testcase>")
    return "\n".join([*lines, "</testsuite></testsuites>", ""])


def _attribute(text: str) -> str:
    """Text as the value of an attribute, without characters that XML does not allow."""
    return quoteattr(str(short(text, 1000)))


def as_markdown(found: Gate) -> str:
    """A heading with the verdict, the checks as a table, and the first suspects."""
    lines = [
        f"## {found.title}",
        "",
        found.advice,
        "",
        "| check | share | interval | limit | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for check in found.checks:
        share = f"{check.value:+.2%}" if check.known else "not known"
        interval = f"{check.low:+.2%} to {check.high:+.2%}" if check.known else ""
        cells = [check.name, share, interval, f"{check.limit:.2%}", check.verdict]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    suspects = columns_of(found.suspects)
    count = len(suspects["position"])
    if count:
        title = f"Rows to look at: {count:,}"
        title += f", the first {_SHOWN} of them" if count > _SHOWN else ""
        lines += [
            "",
            f"### {title}",
            "",
            f"| {' | '.join(suspects)} |",
            "| --- " * len(suspects) + "|",
        ]
    for values in list(zip(*suspects.values(), strict=True))[:_SHOWN]:
        lines.append(f"| {' | '.join(_cell(value) for value in values)} |")
    return "\n".join([*lines, ""])


def _cell(value: Any) -> str:
    """A value in a cell of a table of Markdown, in which it cannot end the cell or begin a tag."""
    text = number_text(value) if isinstance(value, float) else str(short(value, 60))
    for mark in "\\|<>`*_[]&":
        text = text.replace(mark, f"\\{mark}")
    return text
