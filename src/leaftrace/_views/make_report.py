"""`report`: a page about the test rows that a model predicts worst, with a recorded explorer inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._actions.common import Interruptible, check_tracer
from .._data import inputs
from .._data.cells import open_cell_tables
from .._data.errors import InvalidInput, LeaftraceError
from .._data.row_labels import labels_of, row_numbers
from .._engine.methods import Method
from .._tracer.class_names import with_class_names
from .._tracer.tracer import Tracer
from .explore.frozen import explorer_of_report, why_not
from .report import Report
from .report.explained_rows import ExplainedRows, choose_rows
from .report.page import Frame
from .report.parts import check_groups, data_hashes
from .report.settings import ReportSettings, check_method, check_rows
from .report.summary import summarise


def report(
    tracer: Tracer,
    X_test: Any,
    y_test: Any = None,
    *,
    rows: Any = None,
    worst: int = 20,
    top: int = 10,
    noise: bool | int = True,
    groups: Any = None,
    test_groups: Any = None,
    redact: Iterable[str] = (),
    classes: Sequence[Any] | None = None,
    method: Method | None = None,
    retrain: bool = False,
    explorer: bool | None = None,
    title: str | None = None,
) -> Report:
    """Make a report on the test rows that a model predicts worst: one HTML file, no network needed.

    >>> lt.report(tracer, X_test, y_test).save("report.html")       # doctest: +SKIP

    ``X_test, y_test``  rows to explain. Without labels, the report shows the training rows behind
                 each prediction instead of those behind each loss
    ``rows``     test rows to show: positions, a mask, or a table of ours that has them; None: the
                 worst
    ``worst``    how many test rows to show: those with the largest loss, or without labels those
                 with the least certain prediction
    ``top``      how many harmful and how many helpful training rows to show for each
    ``noise``    training rows whose label surprises the model: True, False, or how many to show
    ``groups``   effects of whole groups of training rows: a column, or a label for each training
                 row; ``test_groups`` the same for slices of the test rows
    ``redact``   columns that must not appear anywhere; "index" (or its name) hides the names of the
                 rows
    ``classes``  names of the classes in their order, for a model that has only numbers for them
    ``method``   how influence is computed, as in `Tracer.influence`; None: LeafInfluence()
    ``retrain``  also train the model again without the most harmful rows of each test row shown
    ``explorer`` put a recorded explorer into the page: tick training rows, and see what the model
                 does without them. It takes some seconds. None: if the model and the settings
                 allow it
    ``title``    headline of the page

    The page holds only what it shows. It stays under 5 MB and states what was left out.
    """
    settings = ReportSettings(rows, worst, top, noise, groups, test_groups, redact, retrain, title)
    check_tracer(tracer, "report")
    settings.check()
    check_method(method)
    given = tracer
    if classes is not None:
        tracer = with_class_names(tracer, list(classes), "classes")
    m = inputs.row_count(X_test)
    tables = open_cell_tables(tracer.X_train, X_test, settings.redacted)
    y = tracer.engine.test_labels(X_test, y_test)
    y = None if y is None else inputs.vector(y, "y_test", m)
    positions = (
        None if rows is None else row_numbers(rows, m, "rows", "test rows", labels_of(X_test))
    )
    check_rows(positions, m)
    if groups is not None:
        check_groups(tracer, groups, test_groups, X_test, y, settings.redacted)
    chosen = choose_rows(tracer, X_test, y, positions, worst, method=method)
    hashes = data_hashes(given, X_test, y)  # of the labels as they were given
    has_explorer(chosen, settings, explorer)  # raises before the long work
    return finished_report(summarise(chosen, *tables, settings, hashes), chosen, settings, explorer)


def has_explorer(rows: ExplainedRows, settings: ReportSettings, asked: bool | None) -> bool:
    """Whether a report on these rows gets the explorer inside.

    ``asked``: None for one that is left out where it cannot be made; with True that is an error.
    """
    if asked is False:
        return False
    why = why_not(rows, bool(settings.redacted))
    if why and asked:
        raise InvalidInput(f"this report cannot have the explorer inside: {why}.")
    return not why


def finished_report(
    data: dict[str, Any],
    rows: ExplainedRows,
    settings: ReportSettings,
    asked: bool | None,
    command: str = "",
) -> Report:
    """The report with this data, with the explorer inside unless Ctrl-C ended the work.

    ``asked``    as in `has_explorer`
    ``command``  how to open the explorer itself; empty: in Python
    """
    inside: Frame | None = None
    stopped = any("Ctrl-C" in part["why"] for part in data["missing"])
    if not stopped and has_explorer(rows, settings, asked):
        with Interruptible():
            try:
                inside = explorer_of_report(rows, command)
            except LeaftraceError:  # a refit that this model refuses
                if asked:
                    raise
    return Report(data, inside)
