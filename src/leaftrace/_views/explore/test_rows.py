"""The panel of test rows: a page of a filtered and sorted list, with the counts that filters show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.cells import CellValue, short
from ..._data.errors import InvalidInput
from ..._data.grouping import column, column_names
from .session import Session

BARS = 40  # of the histogram of losses
GRID = (24, 16)  # of the residual plot: predictions across, residuals down
MAX_PAGE = 200
MAX_MATRIX = 12  # classes of a confusion matrix
MAX_SEARCH = 200  # characters
_SORTS = ("loss", "position", "score")
Mask = NDArray[np.bool_]


def page_of_rows(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the test rows that pass the filters, and the counts of the pictures.

    Each picture counts the rows that pass all filters but its own, so that another part of it can be
    chosen.
    """
    searched = _searched(session, asked.get("search") or "")
    by_loss = _between(session.size, asked.get("loss"), "loss")
    by_class = _by_class(session, asked) & _by_residual(session, asked)
    passing = np.flatnonzero(searched & by_loss & by_class)
    order = _in_order(session, passing, asked.get("sort") or "loss", asked.get("ascending") is True)
    start = _whole(asked.get("offset", 0), "offset", session.m)
    count = _whole(asked.get("count", 50), "count", MAX_PAGE)
    return {
        "total": session.m,
        "passing": len(passing),
        "mean_loss": _mean(session, passing),
        "offset": start,
        "rows": [line_of(session, i) for i in order[start : start + count].tolist()],
        "histogram": _histogram(session, np.flatnonzero(searched & by_class)),
        **_picture(session, np.flatnonzero(searched & by_loss)),
    }


def _mean(session: Session, rows: Ints) -> CellValue:
    """The mean loss of some test rows in its unit; None if there are none."""
    return short(float(session.unit.level(session.loss[rows].mean()))) if len(rows) else None


def line_of(session: Session, position: int) -> dict[str, Any]:
    """A line of the list."""
    assert session.rows.y is not None
    facts = session.describe(session.outcomes, position)
    facts.pop("probabilities", None)
    return session.test.row(position) | {"label": short(session.rows.y[position])} | facts


def _whole(given: Any, name: str, most: int) -> int:
    """A whole number of a request, cut to its limits."""
    if type(given) is not int:
        raise InvalidInput(f"{name} is {given!r}; it is a whole number.")
    return max(0, min(given, most))


def _in_order(session: Session, passing: Ints, by: str, ascending: bool) -> Ints:
    """The positions in the order of the list; ties in the order of the table."""
    if by not in _SORTS:
        raise InvalidInput(f"sort is {by!r}; it can be one of {', '.join(_SORTS)}.")
    key: Any = {"loss": session.loss, "position": np.arange(session.m)}.get(by)
    if key is None:
        key = session.outcomes.number
        if key is None:  # the probability of the label, or the highest score without probabilities
            p = session.outcomes.probability
            own = session.codes.astype(int)
            key = session.outcomes.scores.max(axis=1) if p is None else p[np.arange(len(p)), own]
    values = key[passing] if ascending else -key[passing]
    return passing[np.argsort(values, kind="stable")]


# ---- filters ----


def _searched(session: Session, text: Any) -> Mask:
    """(m,) whether rows have all words: `Rome`, `age>40`, `town=Rome`."""
    if not isinstance(text, str) or len(text) > MAX_SEARCH:
        raise InvalidInput(f"search is a text of up to {MAX_SEARCH} characters.")
    found = np.ones(session.m, bool)
    for word in text.split():
        found &= _with_word(session, word)
    return found


def _with_word(session: Session, word: str) -> Mask:
    """(m,) whether rows have one word: in their name, or a condition on a column."""
    for sign in ("=", "<", ">"):
        name, is_condition, value = word.partition(sign)
        if is_condition and name in map(str, column_names(session.rows.X)):
            return _condition(column(session.rows.X, name, "search"), sign, value)
    lowered = word.lower()
    return np.fromiter((lowered in name for name in _names(session)), bool, session.m)


def _condition(values: NDArray[Any], sign: str, given: str) -> Mask:
    """(m,) whether a column is equal to, below or above a value."""
    if values.dtype.kind in "iuf":
        try:
            number = float(given)
        except ValueError:
            return np.zeros(len(values), bool)
        return {"=": values == number, "<": values < number, ">": values > number}[sign]
    lowered = given.lower()
    texts = [str(v).lower() for v in values]
    if sign == "=":
        return np.array([t == lowered for t in texts])
    return np.array([(t < lowered) if sign == "<" else (t > lowered) for t in texts])


def _names(session: Session) -> list[str]:
    """Names of the test rows in small letters."""
    rows = session.test.rows
    return session.answers.get("names", lambda: [str(name).lower() for name in rows.tolist()])


def _between(values: F64, limits: Any, name: str) -> Mask:
    """(m,) whether values are within [low, high]; None: all are."""
    if limits is None:
        return np.ones(len(values), bool)
    if not isinstance(limits, list) or len(limits) != 2:
        raise InvalidInput(f"{name} is a pair of numbers, or null.")
    low = -np.inf if limits[0] is None else float(limits[0])
    high = np.inf if limits[1] is None else float(limits[1])
    return (values >= low) & (values <= high)


def _by_class(session: Session, asked: Mapping[str, Any]) -> Mask:
    """(m,) whether rows have the label and the decision that were asked for, or are right or wrong."""
    kept = np.ones(session.m, bool)
    decision = session.outcomes.decision
    if decision is None:
        return kept
    own = session.codes.astype(int)
    for values, name in ((own, "label"), (decision, "decision")):
        if asked.get(name) is not None:
            kept &= values == asked[name]
    if asked.get("which") == "wrong":
        kept &= own != decision
    elif asked.get("which") == "right":
        kept &= own == decision
    return kept


def _by_residual(session: Session, asked: Mapping[str, Any]) -> Mask:
    """(m,) whether predicted numbers and their residuals are within limits."""
    number = session.outcomes.number
    if number is None:
        return np.ones(session.m, bool)
    return _between(number, asked.get("predicted"), "predicted") & _between(
        session.codes - number, asked.get("residual"), "residual"
    )


# ---- pictures ----


def _histogram(session: Session, rows: Ints) -> dict[str, Any]:
    """Counts of losses in equal steps, of all test rows and of some."""
    low = float(session.size.min())
    high = float(session.size.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BARS + 1)
    return {
        "low": float(edges[0]),
        "high": float(edges[-1]),
        "all": np.histogram(session.size, edges)[0].tolist(),
        "some": np.histogram(session.size[rows], edges)[0].tolist(),
    }


def _picture(session: Session, rows: Ints) -> dict[str, Any]:
    """The confusion matrix of some rows, or their residual plot; nothing for many classes."""
    decision = session.outcomes.decision
    if decision is None:
        return {"residuals": _residuals(session, rows)}
    assert session.classes is not None
    C = len(session.classes)
    if C > MAX_MATRIX:
        return {}
    pairs = session.codes[rows].astype(int) * C + decision[rows]
    counts = np.bincount(pairs, minlength=C * C).reshape(C, C)
    return {"confusion": counts.tolist()}


def _residuals(session: Session, rows: Ints) -> dict[str, Any]:
    """Counts of (prediction, residual) in a grid; residuals are label minus prediction."""
    number = session.outcomes.number
    assert number is not None
    residual = session.codes - number
    limits = [(float(v.min()), float(v.max())) for v in (number, residual)]
    limits = [(a, b if b > a else a + 1.0) for a, b in limits]
    counts, _, _ = np.histogram2d(number[rows], residual[rows], bins=GRID, range=limits)
    return {"predicted": limits[0], "residual": limits[1], "counts": counts.astype(int).tolist()}
