"""The arguments of `ensemble_influence`, checked: what each member is asked, and the bags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..._data import inputs
from ..._data.errors import InvalidInput
from ..._data.row_labels import aligned, labels_of
from ..._engine.methods import LeafInfluence, Method, StructureInfluence
from ..._engine.queries import Of, Reduce
from ..._model.goal import Goal, ReadyGoal
from ..bags import Bag, draw_bags
from .members import FitFunction, MemberQueries, MemberTraining

# Members on bags differ in their splits, so choices need less softening than in one model. Chosen among 0.15, 0.25,
# 0.5 and 1 by the LDS of Adult and California housing; at 0.15 values of single members can be far too large.
_TEMPERATURE = 0.25


def make_members(
    make_model: Callable[[int], Any],
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    sample_weight: Any,
    members: int,
    bag: float | Sequence[float],
    score_left_out: bool | None,
    refits: bool | None,
    of: Of,
    reduce: Reduce,
    output: int | None,
    method: Method | None,
    seed: int,
    fit: FitFunction | None,
    n_jobs: int | None,
    eval_set: Any,
) -> tuple[MemberQueries, list[Bag]]:
    """Check the arguments of `ensemble_influence`: what each member is asked, and the members' bags."""
    n = inputs.row_count(X)
    is_default = method is None and X_test is not None
    if is_default:
        method = StructureInfluence(_TEMPERATURE)
    sizes = _bag_sizes(make_model, members, bag, n, method)
    outside = sum(_least_times(n - np.array(counts), n) for counts in sizes)
    if score_left_out is None:
        score_left_out = is_default and outside >= 2
    rng = inputs.random_numbers(seed)
    if score_left_out:
        _check_scored_rows(X_test, method)
        if outside < 2 and min(map(min, sizes)) < n:
            raise InvalidInput(
                f"bag is {bag} of {n} rows with {members} members; to score rows left out, every row "
                "must be left out of two bags at least; take more members or smaller bags."
            )
    refits = _checked_refits(refits, score_left_out, method)
    if X_test is None:
        reduce = _reduction_of_rows_left_out(y_test, of, reduce, n - max(map(max, sizes)))
    index = labels_of(X)
    labels = inputs.vector(aligned(y, index, "y"), "y", n)
    sample_weight = aligned(sample_weight, index, "sample_weight")
    weight = None if sample_weight is None else inputs.weights(sample_weight, n)
    training = MemberTraining(X, labels, weight, make_model, fit, n_jobs, eval_set)
    queries = MemberQueries(
        training, X_test, y_test, of, reduce, output, method, score_left_out, refits, is_default
    )
    return queries, _draw_bags_in_turn(labels, sizes, rng)


def _draw_bags_in_turn(
    y: np.ndarray, sizes: list[list[int]], rng: np.random.Generator
) -> list[Bag]:
    """A bag for each member: of each list of sizes in turn."""
    bags: list[Bag] = [np.ones(0, bool)] * sum(map(len, sizes))
    for place, counts in enumerate(sizes):
        bags[place :: len(sizes)] = draw_bags(y, counts, rng)
    return bags


def _bag_sizes(
    make_model: Any,
    members: int,
    bag: float | Sequence[float],
    n: int,
    method: Method | None,
) -> list[list[int]]:
    """Numbers of rows in the bags of each share, which take turns, with the arguments checked.

    Of a share that is no whole number of rows, some bags have one row more than others.
    """
    if not callable(make_model):
        raise InvalidInput(
            f"make_model is a {type(make_model).__name__}; pass a function of a seed that gives an "
            "unfitted model, such as lambda seed: LGBMRegressor(random_state=seed)."
        )
    if not inputs.is_whole(members) or members < 2:
        raise InvalidInput(
            f"members is {members!r}; it is a number of models, 2 or more; use Tracer for one model."
        )
    shares = inputs.shares(bag)
    is_valid = bool(shares) and all(0 < share <= 1 for share in shares)
    sizes = _sizes_in_turn(shares, int(members), n) if is_valid else []
    inside = sum(_least_times(counts, n) for counts in sizes)
    if inside < 2 or min(map(min, sizes)) < 1:
        raise InvalidInput(
            f"bag is {bag} of {n} rows with {members} members; every row must be in two bags at "
            "least, so it is a share up to 1, or several, and members * bag is 2 or more. Take more "
            "members, or larger bags."
        )
    if getattr(method, "gives", "") == "scores":
        raise InvalidInput(
            f"method is {method!r}, which gives scores of rows; ensemble_influence() averages "
            "changes, so it takes LeafInfluence(), StructureInfluence(), LeafRefit(), Retrain() or "
            "BoostIn()."
        )
    return sizes


def _sizes_in_turn(shares: Sequence[float], members: int, n: int) -> list[list[int]]:
    """Numbers of rows in the bags of each share, of as many members as have their turn."""
    turns = [len(range(place, members, len(shares))) for place in range(len(shares))]
    return [
        np.diff(np.rint(share * n * np.arange(count + 1))).astype(int).tolist()
        for share, count in zip(shares, turns, strict=True)
        if count
    ]


def _least_times(counts: ArrayLike, n: int) -> int:
    """How often every row is drawn at least, by draws of so many of n rows each."""
    return int(np.sum(counts)) // n


def _check_scored_rows(X_test: Any, method: Method | None) -> None:
    """Raise an error if rows left out cannot be scored."""
    if X_test is None:
        raise InvalidInput(
            "score_left_out=True needs X_test: without it the rows left out are the test rows, and "
            "each would be scored by its own loss."
        )
    if not (method is None or method == LeafInfluence() or isinstance(method, StructureInfluence)):
        raise InvalidInput(
            f"method is {method!r}; with score_left_out=True it can be LeafInfluence() or "
            "StructureInfluence(), which have values for rows of weight zero."
        )


def _checked_refits(
    refits: bool | None, score_left_out: bool, method: Method | None
) -> bool | None:
    """Whether members are refitted on other rows, too; None: if their models can be."""
    possible = score_left_out and isinstance(method, StructureInfluence)
    if refits and not possible:
        raise InvalidInput(
            "refits=True is for rows left out that are scored by StructureInfluence(): pass X_test, "
            "score_left_out=True, and this method or none."
        )
    return refits if possible else False


def _reduction_of_rows_left_out(y_test: Any, of: Of, reduce: Reduce, count: int) -> Reduce:
    """How the rows left out of the bags, others for each member, are reduced to one query."""
    if y_test is not None:
        raise InvalidInput(
            "y_test is given without X_test; pass both, or neither to ask about the rows left out."
        )
    if count == 0:
        raise InvalidInput(
            "no row is left out of the bags to ask about; pass X_test, or a bag below 1."
        )
    goal = isinstance(of, (Goal, ReadyGoal))
    if not goal and not (isinstance(of, str) and of == "loss"):
        raise InvalidInput(
            "without X_test every member has other test rows, so of= is 'loss' or a goal; pass "
            "X_test."
        )
    if reduce not in (None, "mean"):
        raise InvalidInput(
            f"reduce is {reduce!r}, but without X_test it is the mean over the rows left out; "
            "leave it."
        )
    return None if goal else "mean"
