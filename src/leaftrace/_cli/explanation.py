"""The training rows behind some test rows, for the terminal and for a report.

They are computed block by block, so that Ctrl-C leaves what is finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._actions.common import Interruptible, row_columns
from .._data.progress import progress
from .._report.explained_rows import ExplainedRows, Sides, both_sides
from .._tracer.influence import Influence, Unit, rank
from .._tracer.tracer import Tracer
from .output import Output
from .text_table import cell_text

MAX_VALUES = 50_000_000  # influences in memory at once
# test rows of a block
LEAST_BLOCK = 32
MOST_BLOCK = 1024


@dataclass
class Explanation:
    """The test rows that are finished.

    ``test_rows``    facts about each, with the training rows behind it, for JSON
    ``sides``        the training rows on both sides of each, if a report needs them
    ``interrupted``  whether Ctrl-C came before the end
    """

    test_rows: list[dict[str, Any]] = field(default_factory=list)
    sides: list[Sides] = field(default_factory=list)
    interrupted: bool = False


def explain(rows: ExplainedRows, top: int, *, for_report: bool) -> Explanation:
    """Compute influence on the chosen test rows, once for the terminal and the report."""
    found = Explanation()
    facts = [_describe(rows, int(position)) for position in rows.chosen]
    size = max(LEAST_BLOCK, min(MOST_BLOCK, MAX_VALUES // rows.tracer.n_rows))
    blocks = rows.influence_blocks(size)
    with Interruptible() as run:
        for places, influence in progress(blocks, len(rows), "explaining", "test row", size):
            lines = _training_rows(rows.tracer, influence, top)
            sides = list(both_sides(influence, top)) if for_report else []
            found.sides += sides
            for j, training_rows in zip(places.tolist(), lines, strict=True):
                found.test_rows.append(facts[j] | {"training_rows": training_rows})
    found.interrupted = run.interrupted
    return found


def show_explanation(out: Output, rows: ExplainedRows, found: Explanation, top: int) -> None:
    """Print a table for each test row, and put everything into the JSON document."""
    out.document |= {"of": rows.of, "method": repr(rows.method), "test_rows": found.test_rows}
    for facts in found.test_rows:
        lines = facts["training_rows"]
        columns = list(lines[0]) if lines else []
        out.text(_title(facts), "bold")
        out.table({name: np.array([line[name] for line in lines]) for name in columns}, top)
        out.text("")


def _describe(rows: ExplainedRows, position: int) -> dict[str, Any]:
    """A test row: its name, its label and loss if they are known, and its prediction."""
    outcomes = rows.outcomes
    facts: dict[str, Any] = {"test_row": rows.X.index[position], "position": position}
    if rows.y is not None and outcomes.loss is not None:
        facts |= {"label": rows.y[position], "loss": float(outcomes.loss[position])}
    if outcomes.classes is not None and outcomes.decision is not None:
        return facts | {"predicted_label": outcomes.classes[outcomes.decision[position]]}
    assert outcomes.number is not None
    return facts | {"prediction": float(outcomes.number[position])}


def _training_rows(
    tracer: Tracer, influence: Influence, top: int
) -> Iterator[list[dict[str, Any]]]:
    """For each query the `top` training rows, most important first."""
    unit = Unit(influence.change_is, influence.noise)
    name = f"{influence.of}_change_if_removed"
    for j, (positions, effects, changes) in enumerate(rank(influence, top, None)):
        columns = {
            **row_columns(tracer, positions),
            "label": tracer.y_train[positions],
            "effect": effects,
            **unit.columns(name, changes.astype(float), np.full(len(positions), j)),
        }
        lines = zip(*columns.values(), strict=True)
        yield [dict(zip(columns, line, strict=True)) for line in lines]


def _title(facts: dict[str, Any]) -> str:
    """The line above the table of a test row."""
    text = f"Test row {facts['test_row']}: "
    if "label" in facts:
        text += f"label {cell_text(facts['label'])}, loss {cell_text(facts['loss'])}, "
    predicted = facts.get("predicted_label", facts.get("prediction"))
    return f"{text}predicted {cell_text(predicted)}"
