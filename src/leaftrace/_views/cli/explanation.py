"""The training rows behind some test rows, for the terminal and for a report.

They are computed block by block, so that Ctrl-C leaves what is finished.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..._actions.common import Interruptible, row_columns
from ..._actions.effects import unit_of
from ..._data.arrays import F64
from ..._data.cells import CellTable, open_cell_tables
from ..._data.progress import progress
from ..._tracer.influence import Influence, Ranked, Unit
from ..report.differences import column_scales, differing_columns
from ..report.explained_rows import ExplainedRows, Sides, both_sides
from ..report.verdicts import (
    EXCEPTION,
    FEW_SIMILAR,
    NOTHING,
    UNPREDICTABLE,
    UNUSUAL,
    WRONG_LABELS,
    Verdict,
    rests_on,
    summary,
    verdicts,
)
from .options import Options, command_line
from .output import Output
from .text_table import cell_text

_DIFFERENCES = 3  # columns named beside a training row
MAX_VALUES = 50_000_000  # influences in memory at once
# test rows of a block
LEAST_BLOCK = 32
MOST_BLOCK = 1024


@dataclass
class Explanation:
    """The test rows that are finished.

    ``test_rows``    facts about each, with the training rows behind it, for JSON
    ``sides``        the training rows on both sides of each, for the report
    ``verdicts``     what is behind the prediction of each, if its label is known
    ``interrupted``  whether Ctrl-C came before the end
    """

    test_rows: list[dict[str, Any]] = field(default_factory=list)
    sides: list[Sides] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    interrupted: bool = False


def explain(rows: ExplainedRows, top: int, *, retrain: bool = False) -> Explanation:
    """Compute influence on the chosen test rows, once for the terminal and the report.

    ``retrain``: verdicts about wrong labels are confirmed by training again."""
    found = Explanation()
    size = max(LEAST_BLOCK, min(MOST_BLOCK, MAX_VALUES // rows.tracer.n_rows))
    blocks = rows.influence_blocks(size)
    lines = _Lines(rows, top)
    with Interruptible() as run:
        for places, influence in progress(blocks, len(rows), "explaining", "test row", size):
            sides = list(both_sides(influence, top))
            for b, j in enumerate(places.tolist()):
                found.test_rows.append(lines.describe(j, influence, b, sides[b]))
            found.sides += sides
        found.verdicts = verdicts(rows, found.sides, *lines.cells, retrain=retrain)
    found.interrupted = run.interrupted
    for facts, verdict in zip(found.test_rows, found.verdicts, strict=False):
        facts["verdict"] = verdict.kind
        facts["because"] = verdict.facts
        facts["evidence"] = verdict.evidence
        facts["noise"] = verdict.noise
    return found


def show_explanation(out: Output, rows: ExplainedRows, found: Explanation, top: int) -> None:
    """Print what is concluded, then a table for each test row; all goes into the JSON document."""
    out.document |= {"of": rows.of, "method": repr(rows.method), "test_rows": found.test_rows}
    if found.verdicts:
        concluded = summary(found.verdicts)
        out.document["summary"] = concluded
        out.document["rests_on"] = rests_on(found.verdicts)
        out.text(concluded, "bold")
        out.text(f"{rests_on(found.verdicts)}\n")
    loss = unit_of(rows.tracer.engine.criterion).of_row
    for j, facts in enumerate(found.test_rows):
        out.text(_title(facts, loss), "bold")
        if j < len(found.verdicts):
            out.text(str(found.verdicts[j]))
        lines = facts["training_rows"]
        columns = list(lines[0]) if lines else []
        if "error_change_if_removed" in columns:  # says the same in the unit of the labels
            columns.remove("loss_change_if_removed")
        shown = {name: np.array([line[name] for line in lines]) for name in columns}
        own = f"{loss}_change_if_removed"
        out.table(
            {own if name == "loss_change_if_removed" else name: shown[name] for name in shown}, top
        )
        out.text("")


# What to do about a kind of verdict, and the command that does it.
_NEXT = {
    WRONG_LABELS: ("See by retraining whether the row is right without them", "fix"),
    UNUSUAL: ("Look at the training rows around such a row", "explore"),
    FEW_SIMILAR: ("Look at the training rows around such a row", "explore"),
    EXCEPTION: ("List the training labels that surprise the model", "noise"),
    UNPREDICTABLE: ("List the training labels that surprise the model", "noise"),
    NOTHING: ("Look for groups of training rows that do harm", "explore"),
}


def next_command(found: Explanation, options: Options, test: str) -> tuple[str, str] | None:
    """The next thing to do, in words, and the command for it. None: nothing can be suggested.

    ``test``: the path of the table of test rows."""
    kinds = Counter(verdict.kind for verdict in found.verdicts if verdict.kind in _NEXT)
    if not kinds or options.baseline is not None:
        return None
    kind = WRONG_LABELS if WRONG_LABELS in kinds else kinds.most_common(1)[0][0]
    why, command = _NEXT[kind]
    own = {} if command == "noise" else {"test": test}
    if command == "fix":
        place = [verdict.kind for verdict in found.verdicts].index(kind)
        facts = found.test_rows[place]
        own["row"] = str(facts["position" if options.id is None else "test_row"])
    return why, command_line(command, options, **own)


@dataclass(frozen=True)
class _Lines:
    """Makes the lines about each test row: itself, and the training rows behind it."""

    rows: ExplainedRows
    top: int

    @cached_property
    def cells(self) -> tuple[CellTable, CellTable]:
        return open_cell_tables(self.rows.tracer.X_train, self.rows.X, ())

    @cached_property
    def _scales(self) -> F64:
        return column_scales(self.cells[0])

    def describe(self, j: int, influence: Influence, b: int, sides: Sides) -> dict[str, Any]:
        """The explained row j with the training rows behind it, harmful ones first.

        ``b``: which query of the influence it is."""
        rows = self.rows
        position = int(rows.chosen[j])
        facts = _facts(rows, position)
        positions, effects, changes = (
            np.concatenate(pair) for pair in zip(*_shares(sides, self.top), strict=True)
        )
        trained = positions.astype(np.intp)
        unit = Unit(influence.change_is, influence.noise)
        name = f"{influence.of}_change_if_removed"
        columns: dict[str, Any] = {
            **row_columns(rows.tracer, trained),
            "label": rows.tracer.y_train[trained],
            "effect": effects,
        }
        measured = unit.columns(name, changes.astype(float), np.full(len(trained), b))
        if facts.get("error"):
            columns["error_change_if_removed"] = changes.astype(float) / facts["error"]
        columns |= measured
        train, test = self.cells
        if train.names:
            columns["differs_in"] = np.array(
                differing_columns(train, test, trained, position, self._scales, _DIFFERENCES),
                dtype=object,
            )
        lines = zip(*columns.values(), strict=True)
        return facts | {"training_rows": [dict(zip(columns, line, strict=True)) for line in lines]}


def _shares(sides: Sides, top: int) -> list[Ranked]:
    """Rows of both sides, `top` in all: as many of each, or more of one where the other has too few."""
    up, down = sides
    few = min(len(down[0]), top // 2)
    many = min(len(up[0]), top - few)
    few = min(len(down[0]), top - many)
    return [tuple(part[:many] for part in up), tuple(part[:few] for part in down)]  # type: ignore[list-item]


def _facts(rows: ExplainedRows, position: int) -> dict[str, Any]:
    """A test row: its name, its label and loss if they are known, and its prediction.

    ``error``: how far a predicted number is off, where the loss is half its square."""
    outcomes = rows.outcomes
    facts: dict[str, Any] = {"test_row": rows.X.index[position], "position": position}
    if rows.y is not None and outcomes.loss is not None:
        facts |= {"label": rows.y[position], "loss": float(outcomes.loss[position])}
    if outcomes.classes is not None and outcomes.decision is not None:
        facts["predicted_label"] = outcomes.classes[outcomes.decision[position]]
        watched = outcomes.watched_class(position)
        if outcomes.probability is not None and watched is not None:
            facts["class_watched"] = outcomes.classes[watched]
            facts["probability"] = float(outcomes.probability[position, watched])
        return facts
    assert outcomes.number is not None
    facts["prediction"] = float(outcomes.number[position])
    if outcomes.codes is not None and unit_of(rows.tracer.engine.criterion).squared:
        facts["error"] = abs(facts["prediction"] - float(outcomes.codes[position]))
    return facts


def _title(facts: dict[str, Any], loss: str) -> str:
    """The line above the table of a test row. ``loss``: the name of its loss."""
    text = f"Test row {facts['test_row']}: "
    if "label" in facts:
        text += f"label {cell_text(facts['label'])}, "
    predicted = facts.get("predicted_label", facts.get("prediction"))
    text += f"predicted {cell_text(predicted)}"
    if "probability" in facts:
        text += f", probability of {facts['class_watched']} {cell_text(facts['probability'])}"
    if "error" in facts:
        return f"{text}, error {cell_text(facts['error'])}"
    return f"{text}, {loss} {cell_text(facts['loss'])}" if "loss" in facts else text
