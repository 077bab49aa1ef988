"""Early stopping when a model is trained again: the rows that decide, and the rounds that result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .._data import inputs
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.wording import words


class EvalRows(NamedTuple):
    """Rows that decide when training stops.

    ``X``       a table, or a Pool, DMatrix or Dataset that has its own labels and weights
    ``y``       labels as the user spells them; None: those of X
    ``weight``  sample weights; None: those of X, or 1
    """

    X: Any
    y: Any = None
    weight: F64 | None = None


EvalSet = tuple[EvalRows, ...]


def read_eval_set(given: Any) -> EvalSet | None:
    """The rows that a user passes as ``eval_set=``.

    They come as in the `fit` of the libraries: (X, y) or (X, y, sample_weight), a booster's own
    matrix, or a list of these.
    """
    if given is None:
        return None
    items = list(given) if isinstance(given, list) else [given]
    if not items:
        raise InvalidInput("eval_set is empty; pass (X, y) of the rows that stopped the training.")
    return tuple(_read_rows(item) for item in items)


def _read_rows(item: Any) -> EvalRows:
    """One of the sets of an ``eval_set=``."""
    if not isinstance(item, tuple):
        if any(hasattr(item, name) for name in ("get_label", "get_field")):
            return EvalRows(item)
        raise InvalidInput(
            f"eval_set has a {type(item).__name__}; expected (X, y) or (X, y, sample_weight), a Pool, DMatrix or "
            "Dataset, or a list of these."
        )
    if len(item) == 2 and isinstance(item[1], str):  # (matrix, name), as in xgboost.train
        return _read_rows(item[0])
    if len(item) not in (2, 3):
        raise InvalidInput(
            f"eval_set has a tuple of {len(item)}; expected (X, y) or (X, y, sample_weight)."
        )
    X, y, *more = item
    m = inputs.row_count(X)
    weight = inputs.weights(more[0], m) if more and more[0] is not None else None
    return EvalRows(X, inputs.vector(y, "the labels of eval_set", m), weight)


def map_eval_set(eval_set: EvalSet | None, X: Any = None, y: Any = None) -> EvalSet | None:
    """The same rows with their tables and labels passed through the functions X and y."""
    if eval_set is None:
        return None
    changed = []
    for rows in eval_set:
        table = rows.X if X is None else X(rows.X)
        labels = rows.y if y is None or rows.y is None else y(rows.y)
        changed.append(rows._replace(X=table, y=labels))
    return tuple(changed)


@dataclass(frozen=True)
class Rounds:
    """Rounds of boosting of a retrained model, and how their number came about.

    ``count, before``  of the retrained model, and of the model it was made from
    ``stopping``       "none": the model was trained without early stopping, or that is not known.
                       "kept": it stopped early, and the retrained model has as many rounds.
                       "repeated": early stopping decided again
    """

    count: int
    before: int
    stopping: Literal["none", "kept", "repeated"]

    @property
    def kind(self) -> str:
        """Words for tables: what a retraining was."""
        return _KINDS[self.stopping]

    def __str__(self) -> str:
        if self.stopping == "repeated":
            return f"early stopping repeated: {self.count:,} rounds, {self.before:,} before"
        text = f"{self.count:,} rounds, as many as before"
        if self.stopping == "kept":
            return f"{text}; early stopping was not repeated ({words().give_eval_set} repeats it)"
        return text


_KINDS = {
    "none": "retrained",
    "kept": "retrained, same number of rounds",
    "repeated": "retrained, early stopping repeated",
}


def rounds_in_words(rounds: Sequence[Rounds]) -> str:
    """A sentence about the rounds of retrained models; empty if none of them stopped early."""
    stopped = [r for r in rounds if r.stopping != "none"]
    if not stopped:
        return ""
    before = _range([r.before for r in stopped])
    if stopped[0].stopping == "kept":
        return (
            f"Retraining kept the {before} rounds at which training had stopped early; "
            f"{words().give_eval_set} repeats early stopping."
        )
    after = _range([r.count for r in stopped])
    return f"Early stopping was repeated: {after} rounds, {before} before."


def _range(counts: Sequence[int]) -> str:
    """The smallest and the largest of these numbers in words."""
    low = min(counts)
    high = max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def different_stop(rounds: Rounds, library: str) -> InvalidInput:
    """The error for rows that do not stop the training on all rows where it did stop."""
    return InvalidInput(
        f"trained again on all rows with this eval_set, the {library} stops after {rounds.count:,} rounds, but it has "
        f"{rounds.before:,}: rows, metric or patience of its early stopping were others. Pass eval_set as in training, "
        "and in params what the model does not keep (early_stopping_rounds, and the metric by the library's name)."
    )
