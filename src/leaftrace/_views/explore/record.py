"""Answers of the explorer for a page without a server: what a reader of the report is likely to ask.

For the chosen test row and for the worst ones: the row, the training rows behind it, its verdict, and then
the refits with random controls of baskets that ticking rows gives: each training row alone, and the most
harmful ones together, from two to all that are listed. To first order any basket of listed rows is known, as
its effect is a sum. Controls are shared by all baskets of as many rows, as one random choice of rows is as
good as another. A limit of time and one of size bound the rest; the page says what was not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from time import monotonic
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import LeaftraceError
from ..._data.json_values import json_value
from ..._engine.removals import has_block_removal
from ..._model.kernels import BLOCKS, blocks_of
from . import effects, panels
from .basket import read_basket
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
    start = monotonic()
    rows: dict[int, Any] = {}
    for i in positions:
        check()
        if rows and monotonic() > start + seconds / 2:
            break
        rows[i] = _row(session, i)
    size = _bytes(list(rows.values()))
    controls = _Controls(session, list(rows), check)
    asked = list(_in_turn(rows))
    refits = _scores_without(session, [np.sort(gone) for _, gone in asked])
    for (i, gone), F in zip(asked, refits, strict=True):
        check()
        if monotonic() > start + seconds or size > MAX_BYTES:
            break
        key = ",".join(map(str, sorted(gone)))
        rows[i]["baskets"][key] = _basket(session, F, i, controls.of(len(gone), i))
        size += _bytes(rows[i]["baskets"][key])
    lines = [line_of(session, i) for i in rows]
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


def _in_turn(rows: dict[int, Any]) -> Iterator[tuple[int, list[int]]]:
    """Test rows and baskets: the likeliest basket of each test row, then the next of each."""
    for baskets in zip_longest(*(_likely(row["row"]) for row in rows.values())):
        for i, basket in zip(rows, baskets, strict=True):
            if basket is not None:
                yield i, basket


class _Controls:
    """Changes when random rows are removed, by how many they are."""

    def __init__(self, session: Session, positions: Sequence[int], check: Check) -> None:
        self._session = session
        self._positions = positions
        self._check = check
        self._known: dict[int, list[tuple[dict[int, float], float]]] = {}

    def of(self, size: int, position: int) -> dict[str, list[float]]:
        """Changes of a test row's loss and of the mean loss without so many random rows."""
        if size not in self._known:
            self._known[size] = [self._changes(F) for F in self._scores(size)]
        known = self._known[size]
        return {"row": [row[position] for row, _ in known], "all": [mean for _, mean in known]}

    def _scores(self, size: int) -> Iterator[F64]:
        """(m, K) scores of the test rows by each control that can be refitted."""
        session = self._session
        n = session.tracer.n_rows
        draws = [np.random.default_rng([size, k]) for k in range(effects.CONTROLS)]
        for F in _scores_without(session, [np.sort(d.permutation(n)[:size]) for d in draws]):
            self._check()
            if not isinstance(F, LeaftraceError):
                yield F

    def _changes(self, F: F64) -> tuple[dict[int, float], float]:
        """Changes of the losses of the recorded test rows, and of the mean loss."""
        session = self._session
        rows = {i: effects.row_loss_change(session, F[[i]], i) for i in self._positions}
        return rows, effects.mean_loss_change(session, F)


def _scores_without(session: Session, sets: Sequence[Ints]) -> Iterator[F64 | LeaftraceError]:
    """(m, K) scores of the test rows refitted without each set of training rows, or why there are none.

    Sets are refitted many at once where the model allows it.
    """
    engine = session.tracer.engine
    at_once = BLOCKS[-1] if has_block_removal(engine.ensemble) else 1
    for part in blocks_of(len(sets), at_once):
        F = _refitted_at_once(session, sets[part]) if at_once > 1 else None
        yield from (_refitted(session, rows) for rows in sets[part]) if F is None else F


def _refitted_at_once(session: Session, sets: Sequence[Ints]) -> F64 | None:
    """(sets, m, K) the same in one pass; None if one of the sets cannot be left out."""
    try:
        blocks = session.tracer.engine.score_changes_without(sets, session.placed()[0])
        changes = np.concatenate(list(blocks), axis=2)  # (m, K, sets)
    except LeaftraceError:
        return None
    return session.before + np.moveaxis(changes, 2, 0) if np.isfinite(changes).all() else None


def _refitted(session: Session, rows: Ints) -> F64 | LeaftraceError:
    """(m, K) the same without one set of rows."""
    try:
        return session.scores(session.tracer.refit(without=rows).ensemble)
    except LeaftraceError as error:  # such as a class without rows
        return error


def _basket(
    session: Session, F: F64 | LeaftraceError, position: int, controls: dict[str, list[float]]
) -> dict[str, Any]:
    """A refit with its controls, or why there is none. ``F`` (m, K): scores of the test rows."""
    if isinstance(F, LeaftraceError):
        return {"error": str(F)}
    refit = {"level": effects.REFITTED, **effects.effect(session, F, position)}
    return {"refit": refit, "controls": controls}
