"""Title and advice of a fix, in words."""

from __future__ import annotations

from ..._data.arrays import F64
from ..._data.wording import words
from ..statistics import interval_in_words
from .search import Action, Search

DONE = {"remove": "removed", "relabel": "relabelled"}
_DOING = {"remove": "Removing", "relabel": "Relabelling"}


def title_of(search: Search, already_right: bool) -> str:
    """Title of the result."""
    if already_right:
        return "Nothing to fix: the prediction is right"
    count = len(search.rows)
    if not count:
        return "Not fixed"
    outcome = "Fixed" if search.fixed else "Not fixed"
    return f"{outcome} with {count:,} training row{'s' * (count != 1)} {DONE[search.action]}"


def advice_of(
    search: Search,
    F: F64,
    cost: tuple[float, float] | None,
    already_right: bool,
    interrupted: bool,
) -> str:
    """Advice for the result.

    ``F`` (K,)       scores of x before
    ``cost``         see `Fix`
    ``interrupted``  whether Ctrl-C ended the search
    """
    if already_right:
        return "The model is right about x already."
    stopped = "Ctrl-C ended the search; this is the best set so far. " if interrupted else ""
    if not len(search.rows):
        return stopped + "No training row that may be changed pulls x to the wrong side."
    if search.model is None:
        return stopped + "No model was retrained, so nothing is confirmed."
    tried = f"{len(search.attempts)} retraining{'s' * (len(search.attempts) != 1)}"
    before = search.side.margin(F)
    margins = f"the margin goes from {before:.3g} to {search.margin(search.model):.3g}"
    if not search.fixed:
        at_limit = search.size >= search.limit and not interrupted
        hint = f" {words().max_rows} allows more." if at_limit else ""
        return f"{stopped}After {tried}, {margins}, which is still the wrong side.{hint}"
    return (
        f"{stopped}{_DOING[search.action]} them makes x right, confirmed by training again "
        f"({tried}): {margins}. {_cost_in_words(cost, search.action)}"
    )


def _cost_in_words(cost: tuple[float, float] | None, action: Action) -> str:
    """The effect of a fix on other predictions, and what to do about it.

    To relabel rows is suggested only if other predictions gain.
    """
    unconfirmed = ""
    if action == "relabel":
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
    change = (
        f"the mean loss of the test rows changes by {mean:+.3g} ({interval_in_words(low, high)})"
    )
    if low > 0:
        return (
            f"But {change}: this overfits x. "
            "Look for wrong labels among the rows and correct only those."
        )
    if high < 0:
        return f"Other predictions gain too: {change}. Check the labels of these rows first."
    return f"For other predictions it makes no difference that can be told: {change}.{unconfirmed}"
