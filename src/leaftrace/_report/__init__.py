"""One file to send to a colleague: the model, its worst predictions, the training rows behind them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .._data.files import whole_file
from .._tracer.tracer import Tracer
from .summary import Settings, summarise


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """What `report` found: ``data`` is a plain dictionary that JSON can hold, ``html`` the page made of it."""

    data: dict[str, Any]

    @cached_property
    def html(self) -> str:
        from .page import render

        return render(self.data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears whole or not at all."""
        page = self.html.encode()
        with whole_file(
            path, "the report", f"choose another place with {len(page) / 1e6:.1f} MB free"
        ) as file:
            file.write(page)

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
    retrain: bool = False,
    title: str | None = None,
) -> Report:
    """A report on the test rows a model gets most wrong: one HTML file that needs no network.

    >>> lt.report(tracer, X_test, y_test).save("report.html")       # doctest: +SKIP

    ``X_test, y_test``  rows to explain. Without labels, the rows behind each prediction instead of each loss
    ``rows``     positions of test rows to show, or a mask; None: the worst
    ``worst``    how many test rows to show: those with the largest loss, or without labels the least certain
    ``top``      how many harmful and how many helpful training rows to show for each
    ``noise``    training rows whose label is suspicious: True, False, or how many to show
    ``groups``   effects of whole groups of training rows: a column, or a label for each training row; ``test_groups``
                 the same for slices of the test rows
    ``redact``   columns that must not appear anywhere; "index" (or its name) hides the names of the rows
    ``classes``  names of the classes in their order, for a model file that knows their numbers only
    ``retrain``  also train the model again without the most harmful rows of each test row shown
    ``title``    headline of the page

    Only what is shown is embedded: the page stays under 5 MB, and says what it left out.
    """
    settings = Settings(
        rows, worst, top, noise, groups, test_groups, redact, classes, retrain, title
    )
    return Report(summarise(tracer, X_test, y_test, settings))


__all__ = ["Report", "report"]
