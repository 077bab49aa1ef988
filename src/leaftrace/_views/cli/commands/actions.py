"""`leaftrace groups`, `fix` and `impact`: what changes of the training set do."""

from __future__ import annotations

import os
from typing import Annotated, Any

import numpy as np
import typer

from ...._actions.common import Finding
from ...._data.errors import InvalidInput
from ...._data.tables import columns_of
from .. import NO, OK
from ..findings import judge, show_finding
from ..job import InputRows, Job
from ..options import AlsoRetrain, FailAbove, TestHasNoLabels, TestTable, named_rows, split
from ..output import records


def groups(
    job: Job,
    *,
    test: TestTable,
    by: Annotated[
        str, typer.Option(help="Column that makes the groups of training rows.", show_default=False)
    ],
    test_by: Annotated[
        str | None, typer.Option(help="Column that makes the slices of test rows.")
    ] = None,
    bins: Annotated[
        int, typer.Option(help="Groups that a column of many numbers is cut into.")
    ] = 5,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Only predict to first order: fast, rough.")
    ] = False,
    retrain: AlsoRetrain = False,
) -> int:
    """Show what whole groups of training rows do to slices of the test rows."""
    from ...._actions.groups import group_effects

    job.refuse_baseline("groups")
    training = job.open_training(extra=[by])
    other = job.open(test, extra=[test_by])
    tracer, trained = job.trace(training, extra=[by])
    given = job.read(other, extra=[test_by])
    found = group_effects(
        tracer,
        _grouping(trained, by),
        given.X,
        given.y,
        None if test_by is None else _grouping(given, test_by),
        refit=not no_refit,
        retrain=retrain,
        bins=bins,
    )
    show_finding(job.out, found)
    return OK


def _grouping(rows: InputRows, column: str) -> Any:
    """A feature by its name, so that numbers are cut into bins; another column by its values."""
    return column if column in rows.X.columns else rows.extra[column]


def fix(
    job: Job,
    *,
    test: TestTable,
    row: Annotated[
        str,
        typer.Option(help="The test row: its id (with --id), or position.", show_default=False),
    ],
    action: Annotated[
        str, typer.Option(help="What to do to training rows: remove or relabel.")
    ] = "remove",
    max_rows: Annotated[int | None, typer.Option(help="Give up beyond this many.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="For numbers: the error to get down to.")
    ] = None,
) -> int:
    """Find the fewest training rows to remove or relabel so that one test row is predicted right.

    The result is confirmed by retraining."""
    from ...._actions.fix.action import fix as fix_prediction

    job.refuse_baseline("fix")
    training = job.open_training()
    other = job.open(test)
    tracer, _ = job.trace(training)
    given = job.read(other)
    assert given.y is not None
    place = _one_row(row, job.row_ids(given), len(given.X))
    rest = np.delete(np.arange(len(given.y)), place)
    settings: Any = {"action": action, "max_rows": max_rows, "tolerance": tolerance}
    if len(rest):
        settings |= {"X_test": given.X.iloc[rest], "y_test": given.y[rest]}
    found = fix_prediction(tracer, given.X.iloc[[place]], given.y[place], **settings)
    job.out.document |= {"fixed": found.fixed, "action": found.action}
    show_finding(job.out, found)
    return OK if found.fixed else NO


def _one_row(text: str, ids: list[str] | None, n: int) -> int:
    """The position of the one test row that a text names."""
    places = named_rows([text], ids, n, "test rows")
    if len(places) > 1:
        raise InvalidInput(f"--row {text} names {len(places)} test rows; name one.")
    return places[0]


def impact(
    job: Job,
    *,
    test: TestTable,
    rows: Annotated[
        str,
        typer.Option(
            help="Training rows: a file with one id a line (position without --id), or 0,5-9."
        ),
    ],
    audit: Annotated[
        str | None, typer.Option(help="Write the record of the removal to this JSON file.")
    ] = None,
    dossier: Annotated[
        str | None, typer.Option(help="Write the record as a signed page (HTML) to this file.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(help="File with the secret key that signs the dossier.")
    ] = None,
    controls: Annotated[
        int, typer.Option(min=0, help="Random groups of the same size to compare with.")
    ] = 0,
    no_retrain: Annotated[
        bool, typer.Option("--no-retrain", help="Do not train again; nothing is confirmed.")
    ] = False,
    no_labels: TestHasNoLabels = False,
    fail_above: FailAbove = None,
) -> int:
    """Show how far all predictions move without some training rows.

    --fail-above is the mean move."""
    from ...._actions.impact.action import removal_impact

    job.refuse_baseline("impact")
    job.check_output(audit, test, rows, key_file)
    job.check_output(dossier, test, rows, key_file)
    key = _secret(key_file, dossier)
    training = job.open_training()
    other = job.open(test, labelled=not no_labels)
    tracer, trained = job.trace(training)
    gone = _rows_to_remove(rows, job.row_ids(trained), len(trained.X))
    given = job.read(other, labelled=not no_labels)
    found = removal_impact(
        tracer, gone, given.X, given.y, retrain=not no_retrain, controls=controls
    )
    show_finding(job.out, found)
    membership = columns_of(found.membership)
    job.out.document["membership"] = records(membership)
    job.out.text("\nDoes a model show that it saw them?", "bold")
    job.out.text(
        "Of losses, the chance that a removed row has the lower one: 0.5 tells nothing, 1 that it was seen."
    )
    job.out.table(membership)
    if audit is not None:
        found.save(audit)
        job.out.document["audit"] = os.path.abspath(audit)
        job.out.text(f"Audit: {os.path.abspath(audit)}")
    if dossier is not None:
        found.save_dossier(dossier, key)
        job.out.document["dossier"] = os.path.abspath(dossier)
        job.out.text(f"Dossier: {os.path.abspath(dossier)}")
    return judge("the mean move", _mean_move(found), fail_above)


def _secret(path: str | None, dossier: str | None) -> bytes | None:
    """The key in a file, to sign a dossier with."""
    if path is None:
        return None
    if dossier is None:
        raise InvalidInput("--key-file signs a dossier; say with --dossier where to write it.")
    try:
        with open(path, "rb") as file:
            key = file.read().strip()
    except OSError as error:
        raise InvalidInput(f"cannot read the key in '{path}': {error.strerror}.") from None
    if len(key) < 16:
        raise InvalidInput(f"the key in '{path}' has {len(key)} bytes; use 16 or more, at random.")
    return key


def _mean_move(found: Finding) -> float:
    """The mean move of predictions, retrained or else refitted: the first of the effects."""
    effects = columns_of(found.effects)
    retrained = float(effects["retrained"][0])
    return float(effects["refitted"][0]) if np.isnan(retrained) else retrained


def _rows_to_remove(text: str, ids: list[str] | None, n: int) -> list[int]:
    """Positions of training rows, from the path of a file with one row a line, or from a list."""
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()]
        if not lines:
            raise InvalidInput(f"the file '{text}' names no rows; write one id a line.")
        return named_rows(lines, ids, n, "training rows")
    if ids is None and not text[:1].isdigit():
        raise InvalidInput(
            f"there is no file '{text}' of rows; give one id a line, or positions such as 0,5-9."
        )
    return named_rows(split(text), ids, n, "training rows")
