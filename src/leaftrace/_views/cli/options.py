"""Options of the commands: those that all take, and types of those that several take."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import typer

from ..._data.errors import InvalidInput
from ..._engine.methods import LeafInfluence, LeafRefit, Method, StructureInfluence

_TABLES = "CSV, Parquet, Arrow or Feather, by its ending"

TestTable = Annotated[
    str, typer.Option(help="Table of test rows, with the columns of training.", show_default=False)
]
TestHasNoLabels = Annotated[bool, typer.Option("--no-labels", help="The test table has no target.")]
AlsoRetrain = Annotated[
    bool, typer.Option("--retrain", help="Also train again, which alone gives the real effect.")
]
ShownRows = Annotated[int, typer.Option(min=1, help="How many training rows to show.")]
MethodName = Annotated[
    str,
    typer.Option(
        help="How influence is computed: leaf (exact for the trees as they are), structure (to first "
        "order, through soft choices of splits) or refit (leaves refitted without each row: slow)."
    ),
]
FailAbove = Annotated[float | None, typer.Option(min=0.0, help="Exit with code 1 above this.")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that every command takes."""

    model: Annotated[
        str,
        typer.Argument(
            help="File of a model: of CatBoost, XGBoost or LightGBM, or a .joblib or .pkl of scikit-learn.",
            show_default=False,
        ),
    ]
    train: Annotated[
        str,
        typer.Option(help=f"The table the model was trained on: {_TABLES}.", show_default=False),
    ]
    target: Annotated[str, typer.Option(help="Column of labels.", show_default=False)]
    weight: Annotated[str | None, typer.Option(help="Column of training weights.")] = None
    baseline: Annotated[
        str | None, typer.Option(help="Column(s) of scores given before the first tree.")
    ] = None
    id: Annotated[str | None, typer.Option(help="Column that names the rows in results.")] = None
    drop: Annotated[str, typer.Option(help="Columns not to use: a,b.")] = ""
    categorical: Annotated[
        str, typer.Option(help="Columns of categories, if the model does not store them: a,b.")
    ] = ""
    missing: Annotated[
        str | None, typer.Option(help="Text that stood for missing categories (CatBoost).")
    ] = None
    classes: Annotated[
        str, typer.Option(help="Classes in order, if the model has only numbers for them: no,yes.")
    ] = ""
    param: Annotated[
        list[str] | None, typer.Option(help="A training parameter the file lacks: max_depth=4.")
    ] = None
    fidelity: Annotated[str, typer.Option(help="If the replay is not exact: raise or warn.")] = (
        "raise"
    )
    jobs: Annotated[int | None, typer.Option(help="Threads; all cores by default.")] = None
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read models in .joblib and .pkl files, which can run any code: only from those you trust.",
        ),
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False


_OF_THE_RUN = ("as_json", "debug")  # not part of a command that is suggested


def command_line(command: str, options: Options, **own: str) -> str:
    """A call of a command as it is typed into a shell, with these options of all commands.

    ``own``: options of the command itself."""
    words = ["leaftrace", command, options.model, "--train", options.train]
    words += ["--target", options.target]
    for name, value in own.items():
        words += [f"--{name}", value]
    for field in fields(Options)[3:]:
        value = getattr(options, field.name)
        if value == field.default or field.name in _OF_THE_RUN:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag)
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [flag, str(one)]
    return shlex.join(words)


# Headings in the help under which options of all commands stand; the others are the command's own.
PANELS = {
    "Columns of the tables": (
        "weight",
        "baseline",
        "id",
        "drop",
        "categorical",
        "missing",
        "classes",
    ),
    "The run": ("param", "fidelity", "jobs", "allow_pickle", "as_json", "debug"),
}
# What stands for the value of an option in the help; flags have none.
PLACEHOLDERS = {
    "FILE": (
        "train",
        "test",
        "new",
        "val",
        "hold",
        "html",
        "audit",
        "out",
        "junit",
        "markdown",
        "dossier",
        "key_file",
    ),
    "COLUMN": ("target", "weight", "baseline", "id", "by", "test_by"),
    "COLUMNS": ("drop", "categorical", "redact"),
    "NAME=VALUE": ("param",),
    "ROWS": ("rows",),
    "ROW": ("row",),
}

METHODS: dict[str, Method] = {
    "leaf": LeafInfluence(),
    "structure": StructureInfluence(),
    "refit": LeafRefit(),
}


def method_of(name: str) -> Method:
    """The method that an option names."""
    if name not in METHODS:
        raise InvalidInput(f"--method is '{name}'; it can be {', '.join(METHODS)}.")
    return METHODS[name]


def split(text: str | None) -> list[str]:
    """The names in a text, which are separated by commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def named_rows(names: Sequence[str], ids: Sequence[str] | None, n: int, of: str) -> list[int]:
    """Positions of rows that are named by ids, or by positions such as 7 and 5-9.

    ``ids``  those of the column of --id; None: there is none
    ``of``   what the rows are, for messages

    Where ids are whole numbers, a number is an id and never a position.
    """
    if not names:
        raise InvalidInput("no rows were given; write ids, or positions such as 0,5-9.")
    places: dict[str, list[int]] = {}
    for place, name in enumerate(ids or ()):
        places.setdefault(name, []).append(place)
    numbered = any(name.isdecimal() for name in places)
    rows: list[int] = []
    for name in names:
        if name in places:
            rows += places[name]
        elif ids is None or (name[:1].isdecimal() and not numbered):
            rows += _positions(name, n, of)
        else:
            raise InvalidInput(
                f"none of the {of} has the id '{name}' in the column of --id; take it out, or check --id."
            )
    return list(dict.fromkeys(rows))


def _positions(part: str, n: int, of: str) -> range:
    """The positions that a part of a text means: one, or a range."""
    low, dash, high = part.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise InvalidInput(
            f"'{part}' is not a row or a range of rows; write positions such as 0,5-9."
        )
    last = int(high if dash else low)
    if last >= n:
        raise InvalidInput(
            f"there is no row {part}: the {of} go from 0 to {n - 1}, counted in the table's order."
        )
    return range(int(low), last + 1)
