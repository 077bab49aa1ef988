"""Answers of the explorer for a page without a server: what a reader of the report is likely to ask.

For the chosen test row and then for the worst ones: the row, the training rows behind it, its verdict, and
the refits with random controls of baskets that ticking rows gives: each training row alone, and the most
harmful ones together, from two to all that are listed. To first order any basket of listed rows is known, as
its effect is a sum. Controls are shared by all baskets of as many rows, as one random choice of rows is as
good as another. A limit of time and one of size bound the rest; the page says what was not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ..._data.errors import LeaftraceError
from ..._data.json_values import json_value
from . import effects, panels
from .basket import Basket, read_basket
from .behind import finding, row_behind
from .session import MEAN, Session
from .test_rows import line_of

MAX_BYTES = 1_500_000  # of the answers as JSON
MAX_ROWS = 10  # test rows
TOP = 10  # training rows of each side
Check = Callable[[], None]  # raises an error once nobody waits for the answer


def record(
    session: Session, positions: Sequence[int], command: str, check: Check, seconds: float
) -> dict[str, Any]:
    """The answers for a page that shows the first of these test rows first.

    ``command``  how to open the explorer itself
    ``seconds``  after which no more baskets are refitted
    """
    end = monotonic() + seconds
    controls = _Controls(session, positions, check)
    rows: dict[str, Any] = {}
    size = 0
    for i in positions:
        check()
        if rows and (monotonic() > end or size > MAX_BYTES):
            break
        row = _row(session, i)
        size += _bytes(row)
        for rows_gone in _likely(row["row"]):
            check()
            if monotonic() > end or size > MAX_BYTES:
                break
            key = ",".join(map(str, sorted(rows_gone)))
            row["baskets"][key] = _basket(session, rows_gone, i, controls)
            size += _bytes(row["baskets"][key])
        rows[str(i)] = row
    lines = [line_of(session, int(i)) for i in rows]
    facts = panels.facts(session) | {"worst": positions[0], "frozen": {"command": command}}
    return json_value({"facts": facts, "tests": lines, "rows": rows})


def _bytes(answer: Any) -> int:
    """The size of an answer as JSON."""
    return len(json.dumps(json_value(answer)))


def _row(session: Session, position: int) -> dict[str, Any]:
    """A test row, the training rows behind it, and what is needed for first-order effects."""
    row = row_behind(session, {"position": position, "top": TOP})
    listed = np.array([line["position"] for line in row["training_rows"]], dtype=np.intp)
    nothing = read_basket(session, [])
    mean: list[float] = []
    if len(listed):
        weight = session.tracer.sample_weight[listed]
        slopes = -session.slopes(MEAN)[listed] * weight
        mean = session.unit.slope(float(session.loss.mean()), slopes).tolist()
    return {
        "row": row,
        "finding": finding(session, position),
        "first": effects.first_order(session, nothing, position),
        "mean": mean,
        "baskets": {},
    }


def _likely(row: dict[str, Any]) -> Iterator[list[int]]:
    """Baskets that a reader is likely to make: positions of training rows to remove."""
    sides: dict[str, list[int]] = {"harmful": [], "helpful": []}
    for line in row["training_rows"]:
        sides.setdefault(line["effect"], []).append(line["position"])
    harmful = sides["harmful"]
    if len(harmful) > 1:
        yield harmful
    for i in harmful:
        yield [i]
    for k in range(2, len(harmful)):
        yield harmful[:k]
    for i in sides["helpful"]:
        yield [i]


class _Controls:
    """Changes when random rows are removed, by how many they are."""

    def __init__(self, session: Session, positions: Sequence[int], check: Check) -> None:
        self._session = session
        self._positions = positions
        self._check = check
        self._known: dict[int, list[tuple[dict[int, float], float]]] = {}

    def of(self, basket: Basket, position: int) -> dict[str, list[float]]:
        """Changes of a test row's loss and of the mean loss, as for this basket."""
        size = len(basket.removed)
        if size not in self._known:
            numbers = range(effects.CONTROLS)
            self._known[size] = [self._change(basket, size, number) for number in numbers]
        known = self._known[size]
        return {"row": [row[position] for row, _ in known], "all": [mean for _, mean in known]}

    def _change(self, basket: Basket, size: int, number: int) -> tuple[dict[int, float], float]:
        """Changes by one control: of the losses of the recorded test rows, and of the mean loss."""
        self._check()
        session = self._session
        random = basket.random_like(np.random.default_rng([size, number]))
        F = session.scores(random.refit().ensemble)
        rows = {i: effects.row_loss_change(session, F[[i]], i) for i in self._positions}
        return rows, effects.mean_loss_change(session, F)


def _basket(
    session: Session, rows: list[int], position: int, controls: _Controls
) -> dict[str, Any]:
    """The refit without these rows and its controls, or why there is none."""
    try:
        basket = read_basket(session, [{"rows": rows, "do": "remove"}])
        return {
            "refit": effects.refitted(session, basket, position),
            "controls": controls.of(basket, position),
        }
    except LeaftraceError as error:  # such as a class without rows
        return {"error": str(error)}
