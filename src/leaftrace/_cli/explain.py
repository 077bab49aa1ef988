"""The training rows behind some test rows, block by block: what was finished before Ctrl-C is shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._actions.common import Interruptible
from .._data import inputs
from .._data.arrays import F64, Ints
from .._data.progress import progress
from .._tracer.influence import rank
from .._tracer.tracer import Tracer
from .job import Job, Rows
from .output import cell

_VALUES = 50_000_000  # influences in memory at once


def explain_rows(
    job: Job, tracer: Tracer, test: Rows, rows: list[int] | None, worst: int, top: int
) -> None:
    with job.out.step("predicting the test rows"):
        F = tracer.engine.as_trained.scores(test.X, test.baseline)  # (m, K)
    loss = None  # (m,)
    if test.y is not None:
        codes = tracer.engine.labels(test.y, len(F), "the target of the test rows")
        loss = tracer.engine.ensemble.loss.value(F, codes)
    chosen = _chosen(tracer, F, loss, rows, worst)
    size = max(32, min(1024, _VALUES // tracer.n_rows))
    shown: list[dict[str, Any]] = []
    with Interruptible():
        for start in progress(
            range(0, len(chosen), size), len(chosen), "explaining", "test row", size
        ):
            block = chosen[start : start + size]
            lines = _training_rows(job, tracer, test, block, top)
            for row, mine in zip(block.tolist(), lines, strict=True):
                shown.append(_test_row(job, tracer, test, F, loss, row) | {"training_rows": mine})
    job.out.document |= {"of": "prediction" if test.y is None else "loss", "test_rows": shown}
    for one in shown:
        lines = one["training_rows"]
        job.out.text(_title(one), "bold")
        job.out.table(
            {name: np.array([line[name] for line in lines]) for name in (lines or [{}])[0]}, top
        )
        job.out.text("")


def _chosen(tracer: Tracer, F: F64, loss: F64 | None, rows: list[int] | None, worst: int) -> Ints:
    """As a report chooses them."""
    if rows is not None:
        return np.array(rows)
    if loss is not None:
        return np.argsort(-loss, kind="stable")[:worst]
    response = tracer.engine.ensemble.loss.response(tracer.engine.ensemble.loss.state(F))
    if tracer.classes is not None and response.ndim == 2:  # the least certain
        return np.argsort(response.max(axis=1), kind="stable")[:worst]
    return np.arange(min(worst, len(F)))


def _training_rows(
    job: Job, tracer: Tracer, test: Rows, rows: Ints, top: int
) -> list[list[dict[str, Any]]]:
    """For each of these test rows the `top` training rows, most important first."""
    y, baseline = (None if x is None else x[rows] for x in (test.y, test.baseline))
    influence = tracer.influence(
        inputs.take_rows(test.X, rows),
        y,
        of="prediction" if y is None else "loss",
        baseline=baseline,
    )
    out = []
    for positions, effects, changes in rank(influence, top, None):
        columns = job.labels.shown(
            {"train_row": tracer.train_index[positions], "label": tracer.y_train[positions]}
        )
        columns |= {"effect": effects, f"{influence.of}_change_if_removed": changes.astype(float)}
        out.append(
            [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
        )
    return out


def _test_row(
    job: Job, tracer: Tracer, test: Rows, F: F64, loss: F64 | None, row: int
) -> dict[str, Any]:
    said: dict[str, Any] = {"test_row": test.X.index[row], "position": int(row)}
    if test.y is not None and loss is not None:
        said |= {"label": test.y[row], "loss": float(loss[row])}
    named = "prediction" if tracer.classes is None else "predicted_label"
    said[named] = _decision(tracer, F[[row]])
    return {
        name: values[0]
        for name, values in job.labels.shown({k: [v] for k, v in said.items()}).items()
    }


def _decision(tracer: Tracer, F: F64) -> Any:
    """Of one row (1, K): the class decided for, or the number predicted."""
    loss = tracer.engine.ensemble.loss
    classes = tracer.classes
    response = loss.response(loss.state(F))
    if classes is None:
        return float(response.ravel()[-1])
    return classes[int(F[0, 0] > 0) if response.ndim == 1 else int(response[0].argmax())]


def _title(one: dict[str, Any]) -> str:
    text = f"Test row {one['test_row']}: "
    if "label" in one:
        text += f"label {cell(one['label'])}, loss {cell(one['loss'])}, "
    return f"{text}predicted {cell(one.get('predicted_label', one.get('prediction')))}"
