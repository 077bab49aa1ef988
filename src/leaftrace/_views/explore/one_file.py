"""The page in one file: its styles and modules inside, for a frame that may ask no host.

Modules become one script, so that the policy of the page allows it by its hash. Each is a function that
returns what it exports, those first that others import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..report.page import digest, embedded, quoted

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_IMPORT = re.compile(r'^import \{ (.*) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const) (\w+))", re.MULTILINE)


@dataclass(frozen=True)
class OneFile:
    """A page, and the hashes by which a policy allows its styles and its script."""

    html: str
    styles: tuple[str, ...]
    script: str


def static_files() -> dict[str, bytes]:
    """The files of the page by name; its colours and tables are those of the report."""
    package = files("leaftrace")
    found = {
        entry.name: entry.read_bytes()
        for entry in (package / "_views" / "explore" / "static").iterdir()
        if entry.name.rpartition(".")[2] in TYPES
    }
    return found | {"report.css": (package / "_views" / "report" / "report.css").read_bytes()}


def one_file(answers: str, recorded: Any = None) -> OneFile:
    """The page with everything inside.

    ``answers``   the script that answers its questions, by setting leaftracePost
    ``recorded``  data for that script
    """
    texts = {name: content.decode() for name, content in static_files().items()}
    styles = [texts[name] for name in ("report.css", "explore.css")]
    script = f"{answers}\n{bundled(texts)}"
    hashes = tuple(digest(style) for style in styles)
    policy = (
        f"default-src 'none'; style-src {quoted(hashes)}; script-src {quoted([digest(script)])}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = re.sub(r'<link rel="stylesheet"[^>]*>\n', "", texts["index.html"])
    page = page.replace('<script type="module" src="static/main.js"></script>\n', "")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    head += "".join(f"<style>{style}</style>\n" for style in styles)
    data = f'<script type="application/json" id="recorded">{embedded(recorded)}</script>\n'
    body = f"{data}<script>{script}</script>\n"
    page = page.replace("</head>", f"{head}</head>").replace("</body>", f"{body}</body>")
    return OneFile(page, hashes, digest(script))


def bundled(texts: dict[str, str]) -> str:
    """The modules of the page as one script."""
    return "\n".join(_as_function(name, texts[f"{name}.js"]) for name in _ordered(texts))


def _as_function(name: str, text: str) -> str:
    """A module as a function that is called at once."""
    names = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = module_\2;", text))
    return f"const module_{name} = (() => {{\n'use strict';\n{body}\nreturn {{ {names} }};\n}})();"


def _ordered(texts: dict[str, str]) -> list[str]:
    """The modules of the page, each after those that it imports."""
    order: list[str] = []

    def add(name: str) -> None:
        for _, other in _IMPORT.findall(texts[f"{name}.js"]):
            add(other)
        if name not in order:
            order.append(name)

    add("main")
    return order
