"""Turn the layout of our docstrings into Markdown: examples as code, arguments as lists.

Docstrings are laid out to be read in the source. They have ``>>>`` examples, and lines for arguments:
a name in double backticks, at least two spaces, and what it is, with further lines indented. Markdown
would run these lines together.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"``([^`]+)``\s{2,}(\S.*)")
CHOICE = re.compile(r'\s+((?:"\w+"(?:, )?)+)\s{2,}(\S.*)')  # one of the values an argument can have
EXAMPLE = re.compile(r"(?:>>>|\.\.\.) ?(.*)")
FLAG = re.compile(r"\s*# doctest: .*")


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown."""
    lines: list[str] = []
    kind = "text"  # of the line before
    for line in docstring.splitlines():
        if found := EXAMPLE.match(line):
            now = "example"
            line = FLAG.sub("", found[1])
        elif found := ARGUMENT.match(line):
            now = "list"
            line = f"- `{found[1]}`: {found[2]}"
        elif kind == "list" and (found := CHOICE.match(line)):
            now = "list"
            line = f"    - `{found[1]}`: {found[2]}"
        elif kind == "list" and line.startswith("  "):
            now = "list"
            line = f"    {line.strip()}"
        else:
            now = "text"
        if now != kind:  # a fence or an empty line between what Markdown would run together
            lines += ["```"] if kind == "example" else []
            lines += ["", "```python"] if now == "example" else [""]
        lines.append(line)
        kind = now
    return "\n".join([*lines, "```"] if kind == "example" else lines)
