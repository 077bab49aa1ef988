"""The commands.

Each checks all inputs that can be checked before the long work, and then calls the library.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .... import __version__
from ..registration import add_command
from .actions import fix, groups, impact
from .explain import check, explain
from .explore import explore
from .gate import gate
from .labels import clean, noise
from .tours import demo, paper
from .values import sources, values

_HELP = (
    "Which training rows made a gradient-boosted tree model predict this, "
    "and what would change without them."
)
_EPILOG = (
    "Exit codes: 0 finished; 1 the answer is no (--fail-above exceeded, replay not exact, "
    "prediction not fixed, cleaning does not help, the gate stops a batch); "
    "2 an input is wrong, one line says what to do; "
    "3 leaftrace failed; 130 stopped with Ctrl-C, finished parts are shown; "
    "141 nobody reads the output on."
)
app = typer.Typer(
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout is not None and sys.stdout.isatty() else None,
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


_DATA = "model.cbm --train train.csv --target repaid"
_EXAMPLES = {
    check: _DATA,
    explain: f"{_DATA} --test test.csv --worst 5 --html report.html",
    noise: f"{_DATA} --hold holdout.csv",
    clean: f"{_DATA} --val trusted.csv --hold holdout.csv --out cleaned.csv",
    groups: f"{_DATA} --test test.csv --by source --test-by region",
    fix: f"{_DATA} --test test.csv --id customer --row C031251",
    impact: f"{_DATA} --test test.csv --id customer --rows forget.txt --audit request.json",
    gate: f"{_DATA} --new batch.parquet --test test.csv --markdown summary.md",
    values: f"{_DATA} --test test.csv --members 60",
    sources: f"{_DATA} --test test.csv --by supplier",
    explore: f"{_DATA} --test test.csv",
}
for body, example in _EXAMPLES.items():
    add_command(app, body, example)
for body in (demo, paper):
    app.command()(body)
