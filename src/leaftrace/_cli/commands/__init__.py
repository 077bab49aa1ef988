"""The commands.

Each checks all inputs that can be checked before the long work, and then calls the library.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ... import __version__
from ..registration import add_command
from .actions import fix, groups, impact
from .explain import check, explain
from .explore import explore
from .labels import clean, noise
from .tours import demo, paper
from .values import values

_HELP = (
    "Which training rows made a gradient-boosted tree model predict this, "
    "and what would change without them."
)
_EPILOG = (
    "Exit codes: 0 finished; 1 the answer is no (--fail-above exceeded, replay not exact, "
    "prediction not fixed, cleaning does not help); 2 an input is wrong, one line says what to do; "
    "3 leaftrace failed; 130 stopped with Ctrl-C, finished parts are shown."
)
app = typer.Typer(
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"leaftrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


for body in (check, explain, noise, clean, groups, fix, impact, values, explore):
    add_command(app, body)
for body in (demo, paper):
    app.command()(body)
