"""Checks that keep other people and other pages out of an explorer.

Every address begins with a random token, which is compared in constant time. The Host of a request
must be this machine's loopback, so that no name that is pointed at it can reach it (DNS rebinding).
An Origin, or the browser's word on where a request comes from, must be the page itself. Answers
forbid scripts in the page, other hosts, frames and guesses of types.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 4_000_000  # bytes of a request
_HOSTS = ("127.0.0.1", "localhost")
_FROM_THE_PAGE = (None, "same-origin", "none")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def new_token() -> str:
    """A token that nobody can guess: 192 random bits."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets a request through to the application only if it comes from the page itself."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = {f"{host}:{port}" for host in _HOSTS}
        if port == 80:  # which browsers leave out
            self._hosts |= set(_HOSTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it without saying more than that."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        answer: Any = self._app if refusal is None else PlainTextResponse(*refusal)
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[str, int] | None:
        """Text and status of a refusal; None: the request is let through."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return "wrong host", 421
        parts = scope["path"].split("/", 2)
        given = parts[1] if len(parts) == 3 else ""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            return "not found", 404
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return "wrong origin", 403
        site = headers.get("sec-fetch-site")
        if site not in _FROM_THE_PAGE and not _is_link(scope, headers):
            return "wrong origin", 403
        if scope["method"] == "POST" and headers.get("content-type") != "application/json":
            return "application/json is expected", 415
        if scope["method"] == "POST" and not _is_short(headers.get("content-length")):
            return "too long", 413
        return None


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Whether the page itself is opened by a link, such as that of a notebook."""
    mode = headers.get("sec-fetch-mode")
    return scope["method"] == "GET" and mode == "navigate" and scope["path"].count("/") == 2


def _is_short(length: str | None) -> bool:
    """Whether the length of a request is known and small."""
    return length is not None and length.isdecimal() and int(length) <= MAX_BODY
