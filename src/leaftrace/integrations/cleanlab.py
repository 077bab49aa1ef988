"""Issue managers for cleanlab's Datalab, which judge the rows of a model that is traced.

>>> import leaftrace.integrations.cleanlab                                           # doctest: +SKIP
>>> lab.find_issues(issue_types={"leaftrace_label": {"tracer": tracer}})    # doctest: +SKIP
>>> lab.get_issues("leaftrace_label")                                   # doctest: +SKIP

Importing this module registers them:

    leaftrace_label   labels that surprise the model without their own pull: see `label_noise`
    harmful_row       rows that raise the loss of validation rows: their influence on it

Both give each row a score from 0, worst, to 1 and a flag. Neither trains anything, unlike scores from
folds. The Datalab must hold the training rows of the tracer in the same order.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

try:
    import pandas as pd
    from cleanlab.datalab.internal.issue_manager import IssueManager  # pyright: ignore[reportMissingImports]
    from cleanlab.datalab.internal.issue_manager_factory import register  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    if error.name and error.name.partition(".")[0] in ("cleanlab", "datasets", "pandas"):
        raise ImportError(
            f"leaftrace.integrations.cleanlab needs {error.name}; do: pip install 'leaftrace[cleanlab]'"
        ) from None
    raise

from .._actions.common import check_tracer
from .._actions.noise import label_noise
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._tracer.tracer import Tracer

_OUTLYING = (
    3.5 * 1.4826
)  # in units of the median size: the modified z-score of Iglewicz and Hoaglin


class _TracedIssueManager(IssueManager):
    """Scores and flags of the rows of a tracer."""

    issue_name: ClassVar[str] = "leaftrace"
    description: ClassVar[str] = ""
    verbosity_levels: ClassVar[dict[int, list[str]]] = {0: [], 1: [], 2: [], 3: []}

    def _set(self, scores: F64, flags: np.ndarray, info: dict[str, Any]) -> None:
        """Set what Datalab reads: issues, summary and info."""
        rows = len(self.datalab.data)
        if len(scores) != rows:
            raise InvalidInput(
                f"the tracer has {len(scores)} training rows, and the Datalab {rows} examples; give both the same."
            )
        self.issues = pd.DataFrame(
            {f"is_{self.issue_name}_issue": flags, self.issue_score_key: scores}
        )
        self.summary = self.make_summary(score=float(scores.mean()))
        self.info = self.collect_info(**info)

    def collect_info(self, **info: Any) -> dict[str, Any]:
        return {**info, "number_of_issues": int(self.issues.iloc[:, 0].sum())}


class LabelIssues(_TracedIssueManager):
    """Labels that surprise the model: the scores and flags of `label_noise`."""

    issue_name: ClassVar[str] = "leaftrace_label"
    description: ClassVar[str] = (
        "Labels that surprise the boosted model which was trained on them, without the pull of each row on its own "
        "leaves (leaftrace)."
    )

    def find_issues(
        self, tracer: Tracer | None = None, X_val: Any = None, y_val: Any = None, **_: Any
    ) -> None:
        """Score the labels. ``X_val, y_val``: rows with labels to be trusted more, as in `label_noise`."""
        tracer = _checked(tracer, self.issue_name)
        found = label_noise(tracer, X_val, y_val)
        info = {
            "given_label": found.given_label,
            "predicted_label": found.predicted_label,
            "memorised": found.memorised,
        }
        self._set(np.clip(found.label_score, 0.0, 1.0), found.is_label_issue, info)


class HarmfulRows(_TracedIssueManager):
    """Rows that raise the loss of validation rows.

    The score is 0.5 for a row without effect, as in cleanlab's own data valuation, and lower for harm:
    0.5 + 0.5 v / max |v|, v being how far the row lowers the mean loss. Rows whose harm is far out (a
    modified z-score beyond 3.5) are flagged.
    """

    issue_name: ClassVar[str] = "harmful_row"
    description: ClassVar[str] = (
        "Rows that raise the loss of validation rows, by exact LeafInfluence of the boosted model (leaftrace)."
    )

    def find_issues(
        self, tracer: Tracer | None = None, X_val: Any = None, y_val: Any = None, **_: Any
    ) -> None:
        """Score the rows by their effect on the mean loss of validation rows."""
        tracer = _checked(tracer, self.issue_name)
        if X_val is None:
            raise InvalidInput(
                'harmful_row needs validation rows: {"X_val": X_val, "y_val": y_val}.'
            )
        values = tracer.influence(X_val, y_val, reduce="mean").data_values()
        scale = np.abs(values).max(initial=0.0) or 1.0
        typical = float(np.median(np.abs(values)))
        self._set(
            0.5 + 0.5 * values / scale, values < -_OUTLYING * typical, {"data_values": values}
        )


def _checked(tracer: Any, issue: str) -> Tracer:
    if tracer is None:
        raise InvalidInput(
            f'{issue} needs a tracer of your model: issue_types={{"{issue}": {{"tracer": tracer}}}}.'
        )
    check_tracer(tracer, issue)
    return tracer


for _manager in (LabelIssues, HarmfulRows):
    for _task in ("classification", "regression"):
        register(_manager, task=_task)

__all__ = ["HarmfulRows", "LabelIssues"]
