"""`leaftrace explore`."""

from __future__ import annotations

from typing import Annotated

import typer

from ...._data.errors import InvalidInput
from ...explore import explore as serve
from .. import INTERRUPTED, OK
from ..job import Job
from ..options import TestTable, command_line
from ..output import say


def explore(
    job: Job,
    *,
    test: TestTable,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any that is free.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the page in the browser.")
    ] = False,
) -> int:
    """Serve a page on this machine: take training rows out and see what changes.

    The first line is the address of the page. Ctrl-C ends it."""
    if job.options.as_json:
        raise InvalidInput("explore serves a page and has no --json; leave it out.")
    job.refuse_baseline("the explorer")
    training = job.open_training()
    other = job.open(test)
    tracer, _ = job.trace(training)
    given = job.read(other)
    made = command_line("explore", job.options, test=test)
    try:
        explorer = serve(
            tracer, given.X, given.y, port=port, open_browser=not no_open, how_made=made
        )
    except ImportError as error:
        raise InvalidInput(str(error)) from None
    say("the page is open until Ctrl-C; its address is for you alone.")
    try:
        explorer.wait()
    except KeyboardInterrupt:
        say("the page is closed.")
        return INTERRUPTED
    finally:
        explorer.close()
    return OK
