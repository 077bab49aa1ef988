"""Register a function as a command that takes its own options and those of all commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from . import INTERRUPTED
from .job import Job
from .options import PANELS, PLACEHOLDERS, Options
from .output import NO_ANSWER, say

CommandBody = Callable[..., int]
_PLACEHOLDER_OF_TYPE: dict[Any, str] = {
    bool: "",
    int: "N",
    int | None: "N",
    float: "NUMBER",
    float | None: "NUMBER",
}
_REQUIRED = 3  # options of all commands that have no default; they come first


def add_command(app: typer.Typer, body: CommandBody, example: str) -> None:
    """Register a function (job, *, own options) -> exit code under its own name.

    ``example``: arguments to show at the end of its help.

    typer reads the options of a command from the signature of a function, so we make a function
    that has the signature of both."""

    def call(**given: Any) -> int:
        return _run(body, given)

    parameters = _parameters(body)
    setattr(call, "__signature__", inspect.Signature(parameters))  # noqa: B010
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__doc__ = body.__doc__
    app.command(body.__name__, epilog=f"Example: leaftrace {body.__name__} {example}")(call)


def _run(body: CommandBody, given: dict[str, Any]) -> int:
    """Run a command with these options, and return its exit code."""
    shared = {f.name: given.pop(f.name) for f in fields(Options)}
    job = Job(Options(**shared), body.__name__)
    try:
        return job.out.finish(body(job, **given))
    except KeyboardInterrupt:
        say(NO_ANSWER)
        return INTERRUPTED


def _parameters(body: CommandBody) -> list[inspect.Parameter]:
    """The required options of all commands, the command's own, then all others."""
    shared = _shared_parameters()
    parameters = [*shared[:_REQUIRED], *_own_parameters(body), *shared[_REQUIRED:]]
    for parameter in parameters:
        _describe(parameter)
    return parameters


def _describe(parameter: inspect.Parameter) -> None:
    """Give an option its heading in the help, and a word for its value."""
    kind, option = get_args(parameter.annotation)
    if not isinstance(option, OptionInfo):
        return
    headings = [panel for panel, names in PANELS.items() if parameter.name in names]
    option.rich_help_panel = headings[0] if headings else None
    if option.metavar is None:
        words = [word for word, names in PLACEHOLDERS.items() if parameter.name in names]
        option.metavar = words[0] if words else _PLACEHOLDER_OF_TYPE.get(kind, "TEXT")


def _shared_parameters() -> list[inspect.Parameter]:
    """The options of all commands as parameters."""
    hints = get_type_hints(Options, include_extras=True)
    return [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if f.default is MISSING else f.default,
            annotation=hints[f.name],
        )
        for f in fields(Options)
    ]


def _own_parameters(body: CommandBody) -> list[inspect.Parameter]:
    """The parameters of the function after `job`."""
    hints = get_type_hints(body, include_extras=True)
    own = list(inspect.signature(body).parameters.values())[1:]
    return [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own]
