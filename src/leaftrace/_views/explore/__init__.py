"""`explore`: a page on this machine to ask a model about its training rows, change them and see."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from ..._actions.common import check_tracer
from ..._tracer.tracer import Tracer
from .session import Session

_CALL = "tracer = lt.Tracer(model, X_train, y_train); repeat(tracer, X_test, y_test)"


class Explorer:
    """A page that is served on this machine until it is closed.

    ``address``  where it is; whoever knows it can read the data, so do not pass it on
    ``session``  the model and the test rows
    """

    def __init__(self, session: Session, port: int, call: str) -> None:
        try:
            from .security import new_token
            from .server import Answers, Server, application
        except ImportError as error:
            if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
                raise
            raise ImportError(
                f"leaftrace.explore needs {error.name}; do: pip install 'leaftrace[explore]'",
                name=error.name,
            ) from None
        token = new_token()
        self.session = session
        self._answers = Answers(session, call)
        self._server = Server(lambda at: application(self._answers, token, at), port)
        self._link: Path | None = None
        self.address = f"http://127.0.0.1:{self._server.port}/{token}/"

    def open_browser(self) -> None:
        """Open the page in the browser.

        The browser is given a file that only this user can read and that leads to the page: all users
        of a machine see the arguments of its processes, and the address must stay unknown to them."""
        handle, name = tempfile.mkstemp(prefix="leaftrace-", suffix=".html")
        with open(handle, "w", encoding="utf-8") as file:
            target = html.escape(self.address)
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">')
        self._link = Path(name)
        webbrowser.open(self._link.as_uri())

    def wait(self) -> None:
        """Wait until the page is closed, or Ctrl-C."""
        self._server.wait()

    def widget(self, height: int = 900) -> Any:
        """The same page as a widget of a notebook, also if the kernel is on another machine.

        ``height``  in pixels

        It needs anywidget: ``pip install 'leaftrace[notebook]'``.
        """
        try:
            from .widget import ExplorerWidget
        except ImportError as error:
            if error.name not in ("anywidget", "traitlets"):
                raise
            raise ImportError(
                f"the widget needs {error.name}; do: pip install 'leaftrace[notebook]'",
                name=error.name,
            ) from None
        return ExplorerWidget(self._answers, height)

    def close(self) -> None:
        """Stop serving the page, and any training that it began."""
        self._answers.retraining.cancel()
        self._server.close()
        if self._link is not None:
            self._link.unlink(missing_ok=True)

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.address})"

    def _repr_html_(self) -> str:
        """A link, for notebooks."""
        address = html.escape(self.address)
        return f'<a href="{address}" target="_blank" rel="noopener noreferrer">{address}</a>'


def explore(
    tracer: Tracer,
    X_test: Any,
    y_test: Any = None,
    *,
    port: int = 0,
    open_browser: bool = True,
    how_made: str = _CALL,
) -> Explorer:
    """Serve a page on this machine: look at test rows, take training rows out, see what changes.

    >>> explorer = lt.explore(tracer, X_test, y_test)               # doctest: +SKIP
    >>> explorer.close()                                            # doctest: +SKIP

    ``X_test, y_test``  the rows whose predictions are looked at, with their labels; None: X_test has
                        them (a Pool)
    ``port``            0: any that is free
    ``open_browser``    open the page in the browser. Its address is always printed
    ``how_made``        a line for exported scripts: how the tracer was made

    It returns at once; in a script, `wait()` keeps the page alive. Only this machine can reach it,
    and only with the address, which holds a random token. The page asks no other host.
    """
    check_tracer(tracer)
    explorer = Explorer(Session(tracer, X_test, y_test), port, how_made)
    print(explorer.address, flush=True)
    if open_browser:
        explorer.open_browser()
    return explorer


__all__ = ["Explorer", "explore"]
