"""Exports of what was done: a Python script, an audit file, a report."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from .._actions.impact.audit import data_record, model_record
from .._adapters.class_names import stored_labels
from .._adapters.versions import versions
from .._data.cells import cell_value, short
from .._data.json_values import json_value
from .._report import report
from .basket import Basket
from .effects import refitted
from .session import Session

FORMAT = "leaftrace-explore-1"
_SCRIPT = '''"""Repeats changes of a training set that were made in leaftrace's explorer, and checks the numbers.

Call `repeat(tracer, X_test, y_test)` with the tracer and the test rows of the exploration:

    {call}

The SHA-256 of the model's trees was {model}.
"""

import numpy as np

REMOVED = np.array({removed}, dtype=int)  # positions of training rows
WEIGHTED = {weighted}  # position: factor of the weight
RELABELLED = {relabelled}  # position: new label
TEST_ROW = {position}  # position
SEEN = {seen}  # losses on the page, refitted with the trees fixed


def changed(tracer):
    """Arguments of `refit` and `retrain` for the changes."""
    y = np.array(tracer.y_train)
    if any(isinstance(label, float) for label in RELABELLED.values()):
        y = y.astype(float)
    weight = np.array(tracer.sample_weight)
    for row, label in RELABELLED.items():
        y[row] = label
    for row, factor in WEIGHTED.items():
        weight[row] *= factor
    arguments = {{"without": REMOVED}} if len(REMOVED) else {{}}
    arguments |= {{"y": y}} if RELABELLED else {{}}
    return arguments | ({{"sample_weight": weight}} if WEIGHTED else {{}})


def repeat(tracer, X_test, y_test, retrain=False):
    """Losses of the test row and of all test rows, before and after the changes."""
    model = (tracer.retrain if retrain else tracer.refit)(**changed(tracer))
    found = {{}}
    for name, one in (("before", tracer.refit()), ("after", model)):
        loss = one.loss(X_test, y_test)
        found[name] = {{"row": float(loss[TEST_ROW]), "all": float(loss.mean())}}
    for name, losses in found.items():
        for which, value in losses.items():
            seen = SEEN[name][which]
            if not retrain and abs(value - seen) > 1e-6 * max(1.0, abs(seen)):
                raise SystemExit(f"{{name}} of {{which}} is {{value}}, but was {{seen}}: other data or model?")
            print(f"{{name:6}} {{which:3}} {{value:.6g}}")
    return found
'''


def script(session: Session, basket: Basket, position: int, call: str) -> str:
    """A Python script that repeats the changes, and checks that the numbers are the same.

    ``call``: how the tracer is made, for its first lines."""
    seen = refitted(session, basket, position)
    before = {"row": seen["row"]["before"]["loss"], "all": seen["all"]["before"]}
    after = {"row": seen["row"]["after"]["loss"], "all": seen["all"]["after"]}
    factors = basket.factor[basket.reweighted].tolist()
    return _SCRIPT.format(
        call=_one_line(call),
        model=model_record(session.tracer)["sha256"],
        removed=basket.removed.tolist(),
        weighted=dict(zip(basket.reweighted.tolist(), factors, strict=True)),
        relabelled=_new_labels(basket),
        position=position,
        seen={"before": before, "after": after},
    )


def _one_line(text: str) -> str:
    """A text that stays inside the docstring it is put into."""
    return str(short(text.replace("\\", "/").replace('"', "'"), 400))


def _new_labels(basket: Basket) -> dict[int, Any]:
    """The new labels by position, in types whose text is Python."""
    if basket.labels is None:
        return {}
    return {i: cell_value(basket.labels[i]) for i in basket.relabelled.tolist()}


def audit(session: Session, basket: Basket, position: int) -> dict[str, Any]:
    """A record of the changes and their effect, with hashes of the model and all rows."""
    tracer = session.tracer
    source = tracer.engine.source
    effect = refitted(session, basket, position)
    return json_value(
        {
            "format": FORMAT,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "model": model_record(tracer),
            "training": data_record(
                tracer.X_train,
                stored_labels(source, tracer.y_train),
                weights=tracer.sample_weight,
            ),
            "test": data_record(session.rows.X, stored_labels(source, session.rows.y)),
            "removed": basket.removed,
            "reweighted": {str(i): float(basket.factor[i]) for i in basket.reweighted},
            "relabelled": {str(i): label for i, label in _new_labels(basket).items()},
            "changed_rows": [session.train.row(int(i))["row"] for i in basket.changed],
            "test_row": session.test.row(position),
            "effect": effect,
            "label_review": {str(i): v for i, v in sorted(session.verdicts.items())},
            "versions": versions(),
        }
    )


def frozen_report(session: Session, position: int) -> str:
    """The report on a test row, as one HTML page that needs no server."""
    with session.lock:
        found = report(
            session.tracer,
            session.rows.X,
            session.rows.y,
            rows=np.array([position]),
            noise=bool(session.verdicts),
        )
        return found.html
