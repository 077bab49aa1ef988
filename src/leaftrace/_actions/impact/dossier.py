"""A removal on record: one HTML page with the audit record inside, signed in its last line."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from html import escape
from typing import Any

from ..._data.errors import InvalidInput
from ..._data.numbers import number_text

_LAST_LINE = re.compile(
    rb"<!-- leaftrace-dossier-1 sha256=([0-9a-f]{64})(?: hmac-sha256=([0-9a-f]{64}))? -->\n\Z"
)
_RECORD = re.compile(rb'<script type="application/json" id="record">(.*?)</script>', re.DOTALL)
_LEAST_KEY = 16  # bytes
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}"
    "td,th{border:1px solid #bbb;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}th{background:#f2f2f2}code{overflow-wrap:anywhere}h1{font-size:1.6rem}"
)
_PROVES = (
    "The last line of this file has the SHA-256 of everything above it. If it also has an HMAC, those who hold the "
    "secret key can check that one of them wrote the file and that it was not changed since."
)
_PROVES_NOT = (
    "No signature proves that the numbers were computed honestly, that the time is right, or that the rows are gone "
    "from tables, backups, logs and other models. The refitted model is a measurement, not a deletion: its trees were "
    "chosen with the rows. Only a model that was trained without them never saw them."
)


# ---- signing ----


def signed(page: bytes, key: bytes | None) -> bytes:
    """The page with its signature as the last line."""
    line = f"<!-- leaftrace-dossier-1 sha256={hashlib.sha256(page).hexdigest()}"
    if key is not None:
        line += f" hmac-sha256={hmac.new(_checked_key(key), page, hashlib.sha256).hexdigest()}"
    return page + f"{line} -->\n".encode()


def _checked_key(key: Any) -> bytes:
    if not isinstance(key, bytes) or len(key) < _LEAST_KEY:
        raise InvalidInput(
            f"key is not {_LEAST_KEY} bytes or more; make one with secrets.token_bytes(32), and keep it secret."
        )
    return key


def checked(content: bytes, key: bytes | None) -> bytes:
    """The page without its signature; an error if that does not fit."""
    last = _LAST_LINE.search(content)
    if last is None:
        raise InvalidInput("this file does not end with the signature of a leaftrace dossier.")
    page = content[: last.start()]
    if not hmac.compare_digest(hashlib.sha256(page).hexdigest().encode(), last[1]):
        raise InvalidInput("this file was changed after it was signed: its SHA-256 does not fit.")
    if key is None:
        return page
    if last[2] is None:
        raise InvalidInput("this file was signed without a key, so a key cannot check it.")
    own = hmac.new(_checked_key(key), page, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(own.encode(), last[2]):
        raise InvalidInput("the HMAC does not fit: another key, or a file that was signed again.")
    return page


def record_of(page: bytes) -> dict[str, Any]:
    """The audit record inside a page."""
    found = _RECORD.search(page)
    if found is None:
        raise InvalidInput("this page has no record inside; was it made by save_dossier()?")
    return json.loads(found[1])


# ---- the page ----


def dossier_page(record: dict[str, Any]) -> bytes:
    """The page of a record. It requests nothing from anywhere and runs no script."""
    embedded = json.dumps(record, indent=1, allow_nan=False).replace("<", "\\u003c")
    removed = record["removed"]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Removal of {removed['count']:,} training rows</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Removal of {removed['count']:,} of {record['training']['rows']:,} training rows</h1>",
        f"<p>{escape(record['time'])}, {escape(record['model']['name'])}. {escape(record['model']['fidelity'])}.</p>",
        "<h2>What changes without the rows</h2>",
        _table(record["effects"]),
        "<h2>Does a model show that it saw them?</h2>",
        "<p>An AUC is the chance that a removed row has the lower loss; 0.5 tells nothing. Controls are random groups "
        "of as many rows, removed and compared in the same way.</p>",
        _table(record["membership"]),
        "<h2>The rows</h2>",
        f"<p>{escape(_listed(removed['row_names']))}</p>",
        "<h2>Fingerprints</h2>",
        _table(list(_hashes(record))),
        "<h2>What the signature proves</h2>",
        f"<p>{_PROVES}</p><p>{_PROVES_NOT}</p>",
        f'<script type="application/json" id="record">{embedded}</script>',
        "</body></html>",
        "",
    ]
    return "\n".join(parts).encode()


def _hashes(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Lines of SHA-256 sums: of the models, their settings and the data."""
    lines = [
        {"of": "the model", "sha256": record["model"]["sha256"]},
        {"of": "its settings", "sha256": record["model"]["settings_sha256"]},
    ]
    if record["retrained"] is not None:
        lines.append({"of": "the retrained model", "sha256": record["retrained"]["sha256"]})
    for part, name in (("training", "training rows"), ("test", "test rows")):
        for column, value in record[part]["sha256"].items():
            if value is not None:
                lines.append({"of": f"{name}: {column}", "sha256": value})
    return lines


def _listed(names: list[Any], most: int = 200) -> str:
    """Names of rows in a sentence."""
    shown = ", ".join(map(str, names[:most]))
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _table(lines: list[dict[str, Any]]) -> str:
    """Lines as a table; an empty list as a sentence."""
    if not lines:
        return "<p>Not computed.</p>"
    head = "".join(f"<th>{escape(str(name)).replace('_', ' ')}</th>" for name in lines[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in line.values())}</tr>"
        for line in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return escape(number_text(value))
    text = escape(str(value))
    return f"<code>{text}</code>" if re.fullmatch(r"[0-9a-f]{64}", text) else text
