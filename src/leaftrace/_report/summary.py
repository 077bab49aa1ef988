"""Everything a report shows, as one plain dictionary: data before presentation.

JSON can hold it as it is. The page is made of nothing else, and the command line prints it with ``--json``.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._actions.common import Interruptible, check_tracer
from .._adapters.versions import versions
from .._data import inputs
from .._data.cells import CellTable, open_cell_tables, short
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.progress import progress
from .._tracer.tracer import Tracer
from .cases import COLUMNS, Shown, choose, effect_rows, sides
from .names import check_names, with_names
from .outcomes import Outcomes, outcomes
from .parts import SUSPECTS, check_groups, groups_part, hashes, noise_part, with_features

FORMAT = "leaftrace-report-1"
# a page for people; `Tracer.top` gives any number
MOST_TOP = 50
MOST_CASES = 200
MOST_SUSPECTS = 500
BARS = 40  # of the histogram of losses


@dataclass(frozen=True)
class Settings:
    """What `report` was asked for."""

    rows: Any
    worst: int
    top: int
    noise: bool | int
    groups: Any
    test_groups: Any
    redact: Any
    classes: Any
    retrain: bool
    title: str | None

    @property
    def hidden(self) -> set[str]:
        return (
            {self.redact} if isinstance(self.redact, str) else {str(name) for name in self.redact}
        )

    def words(self) -> dict[str, Any]:
        """For the reader of the page; names of redacted columns are not said."""
        return {
            "test rows shown": "asked for" if self.rows is not None else f"worst {self.worst}",
            "training rows a side": self.top,
            "trained again": "yes" if self.retrain else "no",
            "redacted": len(self.hidden),
        }

    def check(self) -> None:
        for name, value, most in (("worst", self.worst, MOST_CASES), ("top", self.top, MOST_TOP)):
            if not 1 <= value <= most:
                raise InvalidInput(
                    f"{name} is {value}; a report shows 1 to {most}. Tracer.top() gives any number."
                )
        if not 0 <= int(self.noise) <= MOST_SUSPECTS:
            raise InvalidInput(
                f"noise is {self.noise}; it is True, False or how many suspects, up to {MOST_SUSPECTS}."
            )


def summarise(tracer: Tracer, X_test: Any, y_test: Any, settings: Settings) -> dict[str, Any]:
    check_tracer(tracer)
    settings.check()
    check_names(tracer, settings.classes)
    m = inputs.row_count(X_test)
    train, test = open_cell_tables(tracer.X_train, X_test, settings.hidden)
    y = tracer.engine.source.own_labels(X_test) if y_test is None else y_test
    y = None if y is None else inputs.vector(y, "y_test", m)
    rows = (
        None if settings.rows is None else inputs.row_numbers(settings.rows, m, "rows", "test rows")
    )
    if m == 0 or (rows is not None and not len(rows)):
        raise InvalidInput("there are no test rows to show; pass at least one.")
    if rows is not None and len(rows) > MOST_CASES:
        raise InvalidInput(f"rows has {len(rows)} test rows; a report shows up to {MOST_CASES}.")
    if settings.groups is not None:
        check_groups(tracer, settings.groups, settings.test_groups, X_test, y, settings.hidden)

    every = outcomes(tracer.engine.as_trained, X_test, y)
    chosen, how = choose(every, rows, settings.worst)
    shown = Shown(
        tracer,
        train,
        test,
        every,
        chosen,
        inputs.take_rows(X_test, chosen),
        None if y is None else y[chosen],
    )
    cases, missing, stopped = _cases(shown, settings)
    overall = noise = groups = None
    if cases[0]["training_rows"] and y is not None and not stopped:
        overall = _overall(tracer, train, X_test, y, settings.top)
    if settings.noise and not stopped:
        noise = noise_part(
            tracer, train, SUSPECTS if settings.noise is True else int(settings.noise)
        )
    if settings.groups is not None and not stopped:
        groups = groups_part(tracer, settings.groups, settings.test_groups, X_test, y)
    data = {
        "format": FORMAT,
        "title": short(settings.title or f"{tracer.engine.source.name}, {m:,} test rows"),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": _model(tracer),
        "fidelity": _fidelity(tracer),
        "test": {"rows": m, "shown": len(shown), "chosen": how, **_losses(every)},
        "columns": {
            "total": len(train.names),
            "at_most": COLUMNS,
            "redacted": len(settings.hidden),
        },
        "of": "prediction" if y is None else "loss",
        "top": settings.top,
        "cases": cases,
        "overall": overall,
        "noise": noise,
        "groups": groups,
        "missing": missing,
        "settings": settings.words(),
        "versions": versions(),
        "hashes": hashes(tracer, X_test, y),
    }
    return data if settings.classes is None else with_names(data, list(settings.classes))


def _cases(
    shown: Shown, settings: Settings
) -> tuple[list[dict[str, Any]], list[dict[str, str]], bool]:
    """The test rows, what could not be said of them and why, and whether Ctrl-C came before the end."""
    missing: list[dict[str, str]] = []
    if not shown.train.names:
        why = "a Pool or DMatrix cannot be read back; pass X_train and X_test as tables."
        missing.append({"part": "features", "why": why})
    try:
        both = list(shown.ranked(settings.top))
    except UnsupportedModel as error:
        why = f"{error} All rows one by one would take as many replays of the training as there are rows."
        missing.append({"part": "training rows behind each test row", "why": why})
        return [shown.describe(j, None) for j in range(len(shown))], missing, False
    cases = [shown.describe(j, sides) for j, sides in enumerate(both)]
    with Interruptible() as run:
        for j, removal in shown.without(both):
            cases[j]["removal"] = removal
        again = [
            j for j, case in enumerate(cases) if settings.retrain and case["removal"] is not None
        ]
        for j in progress(again, len(again), "training again", "model"):
            cases[j]["removal"]["retrained"] = shown.retrained(j, both[j])
    if run.interrupted:
        missing.append(
            {"part": "what comes after the first removals", "why": "it was stopped by Ctrl-C"}
        )
    elif kept := sum(case["removal"] is None for case in cases):
        why = "there are none, or a class would have no training rows left."
        missing.append(
            {
                "part": f"what happens to {kept} of the test rows without the most harmful rows",
                "why": why,
            }
        )
    return cases, missing, run.interrupted


def _model(tracer: Tracer) -> dict[str, Any]:
    e = tracer.engine.ensemble
    weight = tracer.sample_weight
    classes = tracer.classes
    return {
        "name": tracer.engine.source.name,
        "loss": e.loss.name,
        "steps": e.n_steps,
        "trees": len(e.first_output),
        "leaves": len(e.values),
        "rows": e.n_rows,
        "outputs": e.n_outputs,
        "weighted": bool((weight != 1).any()),
        "classes": None if classes is None else [short(c) for c in classes[:20].tolist()],
        "n_classes": None if classes is None else len(classes),
    }


def _fidelity(tracer: Tracer) -> dict[str, Any]:
    f = tracer.fidelity
    return {"exact": bool(f.exact), "max_error": float(f.max_error), "verdict": f.verdict}


def _losses(every: Outcomes) -> dict[str, Any]:
    """How the loss is distributed over all test rows, and how many are predicted right."""
    if every.loss is None:
        return {"mean_loss": None, "accuracy": None, "histogram": None}
    counts, edges = np.histogram(every.loss[np.isfinite(every.loss)], bins=BARS)
    right = None if every.predicted is None else float((every.predicted == every.codes).mean())
    return {
        "mean_loss": short(float(every.loss.mean())),
        "accuracy": right,
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def _overall(tracer: Tracer, train: CellTable, X: Any, y: Any, top: int) -> dict[str, Any]:
    """Training rows that matter most to the mean loss of all test rows: one pass."""
    lines = effect_rows(tracer, train, next(sides(tracer.influence(X, y, reduce="mean"), top)))
    return with_features(train, lines)
