"""The pages and answers of an explorer, and the server that gives them on loopback."""

from __future__ import annotations

import json
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..._data.errors import InvalidInput, LeaftraceError
from ..._data.json_values import json_value
from . import effects, export, panels
from .basket import Basket, described_items, read_basket
from .behind import finding, row_behind
from .jobs import Latest, Retraining, Superseded
from .one_file import TYPES, static_files
from .security import Guard
from .session import Session
from .test_rows import page_of_rows

LOOPBACK = "127.0.0.1"
_SECONDS_TO_START = 30
Asked = Mapping[str, Any]
Check = Callable[[], None]  # raises Superseded once nobody waits for the answer


class Answers:
    """The answers to what a page asks, by name."""

    def __init__(self, session: Session, call: str) -> None:
        self.session = session
        self.retraining = Retraining(session)
        self._call = call

    def facts(self, asked: Asked, check: Check) -> Any:
        """The facts at the top of the page."""
        return panels.facts(self.session)

    def tests(self, asked: Asked, check: Check) -> Any:
        """A page of test rows."""
        return page_of_rows(self.session, asked)

    def row(self, asked: Asked, check: Check) -> Any:
        """A test row and the training rows behind it."""
        with self.session.lock:
            check()
            return row_behind(self.session, asked)

    def finding(self, asked: Asked, check: Check) -> Any:
        """The verdict on a test row."""
        with self.session.lock:
            check()
            return finding(self.session, self.session.check_row(asked.get("position")))

    def basket(self, asked: Asked, check: Check) -> Any:
        """A basket in words, and its effect to first order."""
        basket, position = self._basket(asked)
        with self.session.lock:
            check()
            first = None
            if len(basket.changed):
                first = effects.first_order(self.session, basket, position)
        return {
            "hash": basket.hash,
            **basket.sizes(),
            "items": described_items(self.session, asked["basket"], basket),
            "shown": basket.actions_on(asked.get("shown")),
            "effect": first,
        }

    def refit(self, asked: Asked, check: Check) -> Any:
        """The effect of a basket by a refit."""
        basket, position = self._basket(asked)
        with self.session.lock:
            check()
            return effects.refitted(self.session, basket, position)

    def controls(self, asked: Asked, check: Check) -> Any:
        """Changes when random rows are changed instead, by refits."""
        basket, position = self._basket(asked)
        return effects.control_changes(self.session, basket, position, check)

    def retrain(self, asked: Asked, check: Check) -> Any:
        """Begin to train again, and say how far that is."""
        basket, position = self._basket(asked)
        if not len(basket.changed):
            raise InvalidInput("the basket is empty; put training rows into it first.")
        self.retraining.start(basket)
        return self.retraining.answer(basket, position)

    def retrained(self, asked: Asked, check: Check) -> Any:
        """How far training again is, and its effect."""
        return self.retraining.answer(*self._basket(asked))

    def cancel(self, asked: Asked, check: Check) -> Any:
        """End training again."""
        self.retraining.cancel()
        return self.retraining.answer(*self._basket(asked))

    def groups(self, asked: Asked, check: Check) -> Any:
        """The heat map of groups and slices."""
        with self.session.lock:
            check()
            return panels.groups_panel(self.session, asked)

    def review(self, asked: Asked, check: Check) -> Any:
        """A page of surprising labels."""
        return panels.review_panel(self.session, asked)

    def verdict(self, asked: Asked, check: Check) -> Any:
        """Note what a reviewer says."""
        return panels.set_verdict(self.session, asked)

    def map(self, asked: Asked, check: Check) -> Any:
        """Training rows on a map."""
        with self.session.lock:
            check()
            return panels.map_panel(self.session, asked)

    def script(self, asked: Asked, check: Check) -> Any:
        """The Python script."""
        return {"text": export.script(self.session, *self._basket(asked), self._call)}

    def audit(self, asked: Asked, check: Check) -> Any:
        """The audit file."""
        record = export.audit(self.session, *self._basket(asked))
        return {"text": json.dumps(record, indent=2, allow_nan=False) + "\n"}

    def report(self, asked: Asked, check: Check) -> Any:
        """The report on the test row."""
        position = self.session.check_row(asked.get("position"))
        return {"text": export.frozen_report(self.session, position, self._call, check)}

    def review_csv(self, asked: Asked, check: Check) -> Any:
        """The verdicts of reviewers, as CSV."""
        return {"text": panels.review_csv(self.session)}

    def _basket(self, asked: Asked) -> tuple[Basket, int]:
        """The basket and the test row of a request."""
        position = self.session.check_row(asked.get("position"))
        return read_basket(self.session, asked.get("basket")), position


NAMES = (
    "facts", "tests", "row", "finding", "basket", "refit", "controls", "retrain", "retrained", "cancel", "groups",
    "review", "verdict", "map", "script", "audit", "report", "review_csv",
)  # fmt: skip


def application(answers: Answers, token: str, port: int) -> ASGIApp:
    """The application of an explorer: see `security` for who can reach it."""
    latest = Latest()

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in NAMES:
            return JSONResponse({"error": "there is no such answer"}, 404)
        try:
            asked = json.loads(await request.body())
        except ValueError:
            return JSONResponse({"error": "this is no JSON"}, 400)
        if not isinstance(asked, dict):
            return JSONResponse({"error": "an object is expected"}, 400)
        check = latest.begin(str(asked.get("client", ""))[:64], name)
        return await run_in_threadpool(_answer, getattr(answers, name), asked, check)

    routes = [
        Route("/{token}/", _static("index.html"), methods=["GET"]),
        Route("/{token}/static/{file}", _static(), methods=["GET"]),
        Route("/{token}/api/{name}", answer, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _answer(fn: Callable[[Asked, Check], Any], asked: Asked, check: Check) -> Response:
    """An answer of the server."""
    status, content = answered(fn, asked, check)
    return JSONResponse(content, status)


def answered(fn: Callable[[Asked, Check], Any], asked: Asked, check: Check) -> tuple[int, Any]:
    """An answer with its status, as of HTTP; every error is one sentence that the page can show."""
    try:
        return 200, json_value(fn(asked, check))
    except Superseded:
        return 409, {"superseded": True}
    except LeaftraceError as error:
        return 422, {"error": str(error)}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        text = f"leaftrace failed: {type(error).__name__}; the terminal has the details."
        return 500, {"error": text}


def _static(fixed: str | None = None) -> Callable[[Request], Response]:
    """Give a file of the page. ``fixed``: which; None: the one that the address names."""

    def give(request: Request) -> Response:
        name = fixed or request.path_params["file"]
        content = static_files().get(name)
        if content is None:
            return Response("not found", 404, media_type="text/plain")
        return Response(content, media_type=TYPES[name.rpartition(".")[2]])

    return give


class Server:
    """A server on loopback, on a thread of its own."""

    def __init__(self, make: Callable[[int], ASGIApp], port: int) -> None:
        self._socket = _loopback_socket(port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            make(self.port),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server ends; Ctrl-C is heard."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(_SECONDS_TO_START)
        self._socket.close()


def _loopback_socket(port: int) -> socket.socket:
    """A socket that listens on this machine only."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":  # where it would let others take the port over
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        opened.close()
        raise InvalidInput(
            f"the port {port} cannot be used: {error}; choose another, or 0 for any that is free."
        ) from None
    opened.listen(64)
    return opened
