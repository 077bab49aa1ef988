"""A report: one file to send to a colleague.

It shows the model, the test rows it predicts worst, and the training rows behind these predictions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..._data.files import whole_file
from .page import Frame, render


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


__all__ = ["Report"]
