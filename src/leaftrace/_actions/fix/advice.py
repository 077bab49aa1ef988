"""Title and advice of a fix, in words."""

from __future__ import annotations

from ..._data.arrays import F64
from ..._data.numbers import change_text, number_text
from ..._data.wording import words
from ..effects import unit_of
from ..statistics import ONE_RETRAINING, interval_in_words
from .search import Search

_FEW = 5
_SMALL_SHARE = 0.02
DONE = {"remove": "removed", "relabel": "relabelled"}
_DOING = {"remove": "Removing", "relabel": "Relabelling"}


def title_of(search: Search, already_right: bool) -> str:
    """Title of the result."""
    if already_right:
        return "Nothing to fix: the prediction is right"
    count = len(search.rows)
    if not count:
        return "Not fixed"
    rows = f"{count:,} training row{'s' * (count != 1)} {DONE[search.action]}"
    if is_small(count, search.tracer.n_rows):
        return f"Fixed with {rows}" if search.fixed else f"Not fixed with {rows}"
    share = count / search.tracer.n_rows
    if not search.fixed:
        return f"No small set fixes it: not even with {rows}, {share:.1%} of all, is it right"
    return f"No small set fixes it: only with {rows}, {share:.1%} of all, is it right"


def is_small(count: int, n: int) -> bool:
    """Whether so many of n training rows are few enough to look at each."""
    return count <= max(_FEW, _SMALL_SHARE * n)


def advice_of(
    search: Search,
    F: F64,
    cost: tuple[float, float] | None,
    before: float,
    already_right: bool,
    interrupted: bool,
) -> str:
    """Advice for the result.

    ``F`` (K,)       scores of x before
    ``cost``         see `Fix`
    ``before``       mean loss of the test rows before; NaN without them
    ``interrupted``  whether Ctrl-C ended the search
    """
    if already_right:
        return "The model is right about x already."
    stopped = "Ctrl-C ended the search; this is the best set so far. " if interrupted else ""
    if search.time.passed:
        ended = search.time.in_words(len(search.attempts), None, "retrainings")
        stopped = f"{ended} This is the best set so far. "
    if not len(search.rows):
        return stopped + "No training row that may be changed pulls x to the wrong side."
    if search.model is None:
        return stopped + "No model was retrained, so nothing is confirmed."
    tried = f"{len(search.attempts)} retraining{'s' * (len(search.attempts) != 1)}"
    margins = _way_of_x(search, F)
    many = ""
    if not is_small(len(search.rows), search.tracer.n_rows):
        many = (
            " So many rows are not a few wrong ones: the training data as a whole speak for the "
            "prediction. Look for what tells x apart from rows like it."
        )
    if not search.fixed:
        at_limit = search.size >= search.limit and not stopped and not many
        hint = f" {words().max_rows} allows more." if at_limit else ""
        return f"{stopped}After {tried}, {margins}, which is still the wrong side.{many}{hint}"
    others = _cost_in_words(cost, before, search)
    return (
        f"{stopped}{_DOING[search.action]} them makes x right, confirmed by training again "
        f"({tried}): {margins}.{many} {others}"
    )


def _way_of_x(search: Search, F: F64) -> str:
    """The move of x by retraining, in words. ``F`` (K,): its scores before."""
    assert search.model is not None
    side = search.side
    after = search.model.scores(search.x)[0]
    if side.reading.classes is None:
        return (
            f"the error goes from {number_text(abs(side.error(F)))} to "
            f"{number_text(abs(side.error(after)))} (at most {number_text(side.tolerance)} is right)"
        )
    return f"the margin goes from {number_text(side.margin(F), 3)} to {number_text(side.margin(after), 3)}"


def _cost_in_words(cost: tuple[float, float] | None, before: float, search: Search) -> str:
    """The effect of a fix on other predictions, and what to do about it.

    ``before``: their mean loss.

    To relabel rows is suggested only if other predictions gain. That they do is never certain: the model is
    compared with one retraining, and trees change whichever rows go.
    """
    unconfirmed = ""
    if search.action == "relabel":
        unconfirmed = (
            " That x becomes right does not show that these labels are wrong, "
            "so to relabel them is not suggested."
        )
    if cost is None:
        hint = f"{words().give_test_rows} to see what that does to other predictions."
        return hint + unconfirmed
    mean, half = cost
    low = mean - half
    high = mean + half
    unit = unit_of(search.side.reading.loss)
    interval = interval_in_words(*unit.interval(before, low, high))
    change = f"the {unit.name} of the test rows changes by {change_text(unit.change(before, mean), 3)} ({interval})"
    if low > 0:
        return (
            f"But {change}: this overfits x. {ONE_RETRAINING} "
            "Look for wrong labels among the rows and correct only those."
        )
    if high < 0:
        return (
            f"Other predictions may gain too: {change}. {ONE_RETRAINING} Removing as many random rows "
            "may do the same. Check the labels of these rows first."
        )
    return f"For other predictions it makes no difference that can be told: {change}.{unconfirmed}"
