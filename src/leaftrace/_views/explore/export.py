"""Exports of what was done: a Python script, an audit file, a report."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._actions.impact.audit import data_record, model_record
from ..._adapters.class_names import stored_labels
from ..._adapters.versions import versions
from ..._data.cells import cell_value, short
from ..._data.json_values import json_value
from ..make_report import report
from ..report.page import render
from .basket import Basket
from .effects import refitted
from .frozen import COMMAND, frozen_explorer
from .panels import loss_names
from .record import MAX_ROWS
from .session import Session

FORMAT = "leaftrace-explore-1"
SECONDS = 20.0  # after which no more baskets are refitted for a report
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
SEEN = {seen}  # on the page, refitted with the trees fixed
NAMES = {names}


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


def size(loss):
    """{size_doc}"""
    return {size}


def repeat(tracer, X_test, y_test, retrain=False):
    """The numbers of NAMES before and after the changes."""
    model = (tracer.retrain if retrain else tracer.refit)(**changed(tracer))
    found = {{}}
    for name, one in (("before", tracer.refit()), ("after", model)):
        loss = one.loss(X_test, y_test)
        found[name] = {{"row": float(size(loss[TEST_ROW])), "all": float(size(loss.mean()))}}
    for name, sizes in found.items():
        for which, value in sizes.items():
            seen = SEEN[name][which]
            if not retrain and abs(value - seen) > 1e-6 * max(1.0, abs(seen)):
                raise SystemExit(f"{{NAMES[which]}} {{name}} is {{value}}, but was {{seen}}: other data or model?")
            print(f"{{name:6}} {{NAMES[which]}}: {{value:.6g}}")
    return found
'''


def script(session: Session, basket: Basket, position: int, call: str) -> str:
    """A Python script that repeats the changes, and checks that the numbers are the same.

    ``call``: how the tracer is made, for its first lines."""
    seen = refitted(session, basket, position)
    names = loss_names(session)
    key = names["key"]
    before = {"row": seen["row"]["before"][key], "all": seen["all"]["before"]}
    after = {"row": seen["row"]["after"][key], "all": seen["all"]["after"]}
    squared = session.unit.squared
    factors = basket.factor[basket.reweighted].tolist()
    return _SCRIPT.format(
        call=_one_line(call),
        model=model_record(session.tracer)["sha256"],
        removed=basket.removed.tolist(),
        weighted=dict(zip(basket.reweighted.tolist(), factors, strict=True)),
        relabelled=_new_labels(basket),
        position=position,
        seen={"before": before, "after": after},
        names={
            "row": f"{names['row']} of the test row",
            "all": f"{names['mean']} of all test rows",
        },
        size="np.sqrt(2 * loss)" if squared else "loss",
        size_doc=(
            "The error in the unit of the target, of a loss that is half its square."
            if squared
            else "The number on the page, which is the loss itself."
        ),
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


def frozen_report(session: Session, position: int, call: str, check: Callable[[], None]) -> str:
    """The report on a test row, as one HTML page that needs no server, with a recorded explorer in it.

    ``call``: how the explorer was opened, if that is a command."""
    command = call if call.startswith("leaftrace ") else COMMAND
    worst = [int(i) for i in session.rows.chosen[:MAX_ROWS] if i != position]
    positions = [position, *worst[: MAX_ROWS - 1]]
    frame = frozen_explorer(session, positions, command, check, SECONDS)
    with session.lock:
        found = report(
            session.tracer,
            session.rows.X,
            session.rows.y,
            rows=np.array([position]),
            noise=bool(session.verdicts),
            explorer=False,
        )
    return render(found.data, frame)
