"""A report: one file to send to a colleague.

It shows the model, the test rows it predicts worst, and the training rows behind these predictions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..._actions.common import check_tracer
from ..._data import inputs
from ..._data.cells import open_cell_tables
from ..._data.errors import InvalidInput
from ..._data.files import whole_file
from ..._data.row_labels import labels_of, row_numbers
from ..._engine.methods import Method
from ..._tracer.class_names import with_class_names
from ..._tracer.tracer import Tracer
from .explained_rows import ExplainedRows, choose_rows
from .page import Frame, render
from .parts import check_groups, data_hashes
from .settings import ReportSettings, check_method, check_rows
from .summary import summarise


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """The result of `report`.

    ``data``  everything the report shows, as a dictionary that JSON can hold
    ``html``  the page made from it
    """

    data: dict[str, Any]
    _explorer: Frame | None = None  # a page inside the page

    @cached_property
    def html(self) -> str:
        return render(self.data, self._explorer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears whole or not at all."""
        page = self.html.encode()
        hint = f"choose another place with {len(page) / 1e6:.1f} MB free"
        with whole_file(path, "the report", hint) as file:
            file.write(page)

    def log_mlflow(self, run: Any = None) -> str:
        """Log the report to a run of MLflow, and return the id of the run.

        >>> lt.report(tracer, X_test, y_test).log_mlflow()                  # doctest: +SKIP

        Artifacts, in the folder `leaftrace`: the page, its data as JSON, and tables of influences
        and of surprising labels as CSV. Metrics: fidelity, losses, counts.

        ``run``  the id of a run, or a Run; None: the active one, or a new one
        """
        from .tracking import log_report

        return log_report(self, run)

    def __repr__(self) -> str:
        shown = len(self.data["cases"])
        test = self.data["test"]
        return (
            f"Report({self.data['title']}: {shown} of {test['rows']:,} test rows; "
            ".save('report.html') writes the page)"
        )


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
    inside = recorded_explorer(chosen, settings, explorer)
    return Report(summarise(chosen, *tables, settings, hashes), inside)


def recorded_explorer(
    rows: ExplainedRows, settings: ReportSettings, wanted: bool | None, command: str = ""
) -> Frame | None:
    """The explorer of a report on these rows; None without one.

    ``wanted``   None: leave it out where it cannot be made
    ``command``  how to open the explorer itself; empty: in Python
    """
    from ..explore.frozen import explorer_of_report, why_not

    if wanted is False:
        return None
    if why := why_not(rows, bool(settings.redacted)):
        if wanted:
            raise InvalidInput(f"this report cannot have the explorer inside: {why}.")
        return None
    return explorer_of_report(rows, command)


__all__ = ["Report", "report"]
