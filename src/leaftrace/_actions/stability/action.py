"""Influence averaged over models, which are trained with other seeds on bags of the rows.

Member k is trained on a bag B_k of b of the n rows. Leaves are sums over rows, so with b rows each
counts n / b times as much as with n. The average that estimates effects in a model of all rows is
therefore

    value_i = b / n * mean over the members with i in B_k of dQ_k / dw_i

This is also the derivative in w_i of the mean of Q over the members, for a row that is in its share
b / n of the bags. If rows left out are scored, too, the mean is over all members: the derivative is
that at weight zero for rows outside B_k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.row_labels import aligned, labels_of, row_index
from ..._data.time_limit import TimeLimit
from ..._engine.methods import LeafInfluence, Method, StructureInfluence
from ..._engine.queries import Of, Reduce
from ..._model.goal import Goal, ReadyGoal
from ..._tracer.influence import Influence
from ..bags import Bag, draw_bags
from ..common import Interruptible
from .members import FitFunction, Member, MemberInfluence, MemberQueries, MemberTraining
from .moments import Moments, summary
from .result import EnsembleInfluence, top_table

_SHOWN = 20  # rows in the table


def ensemble_influence(
    make_model: Callable[[int], Any],
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    sample_weight: Any = None,
    members: int = 20,
    bag: float | Sequence[float] = 0.75,
    score_left_out: bool = False,
    of: Of = "loss",
    reduce: Reduce = None,
    output: int | None = None,
    method: Method | None = None,
    seed: int = 0,
    fit: FitFunction | None = None,
    n_jobs: int | None = None,
    eval_set: Any = None,
    time_limit: float | None = None,
) -> EnsembleInfluence:
    """Influence of training rows, averaged over models of other seeds on bags of the rows.

    The influence in one model also reflects the chances of its training. The average agrees better
    with the effect of retraining, and the spread over the members shows which rows can be named
    with confidence.

    >>> found = ensemble_influence(                                    # doctest: +SKIP
    ...     lambda seed: LGBMRegressor(colsample_bytree=0.7, random_state=seed), X, y, X_test, y_test)
    >>> found.influence.top(5), found.confirm([17, 42]).effects        # doctest: +SKIP

    ``make_model``    a function of a seed that gives an unfitted model of any library that `Tracer`
                      reads
    ``X, y, sample_weight``  the training rows; bags keep their order
    ``X_test, y_test``  the rows that influence is on, as `Tracer.influence` takes them. Without
                      them, it is on the mean loss (or a goal) of the rows left out of each member's
                      bag, which have labels like those of training: rows that harm these need not
                      harm cleaner ones
    ``members``       number of models; their seeds are ``seed``, ``seed + 1``, ...
    ``bag``           share of the rows each is trained on; 1.0: all rows, so that members differ by
                      their seeds only. Several shares: members take them in turn; (1.0, 0.5) is
                      other seeds on all rows and bags of half of them together
    ``score_left_out``  True: a member also gives the influence of the rows that are not in its bag,
                      as candidates at weight zero; for LeafInfluence() and StructureInfluence()
    ``of, reduce, output, method``  as in `Tracer.influence`
    ``seed``          seed of the bags, and of the first member
    ``fit``           how a model is trained, if not by ``model.fit(X, y, sample_weight=...)``: a
                      function of the result of make_model, X, y and sample_weight (or None) that
                      returns the fitted model
    ``n_jobs``        threads of the tracers; None means all cores
    ``eval_set``      the rows by which `fit` stops early, as `Tracer` takes them: retrainings of
                      members stop by them, too
    ``time_limit``    seconds after which no more member is trained, once there are two and every row
                      has a value

    Ctrl-C ends it with the members that are finished, if they are two or more. It keeps in memory
    two matrices of the size of the answer, one member's values and, for ranks, members x rows.
    """
    limit = TimeLimit(time_limit)
    queries, bags = make_members(
        make_model,
        X,
        y,
        X_test,
        y_test,
        sample_weight,
        members,
        bag,
        score_left_out,
        of,
        reduce,
        output,
        method,
        seed,
        fit,
        n_jobs,
        eval_set,
    )
    training = queries.training
    weight = training.sample_weight
    weights = np.ones(len(training.y)) if weight is None else weight
    done = _Finished()
    with Interruptible():
        allowed = limit.items(bags, lambda: done.is_enough())
        for number, rows in enumerate(progress(allowed, len(bags), "members", "model")):
            member = training.train(seed + number, rows)
            done = done.add(member, queries.influence(member), weights)
    if not done.is_enough():
        raise KeyboardInterrupt  # too early: there is no average of all rows yet
    return _result(queries, done, len(bags), limit)


def make_members(
    make_model: Callable[[int], Any],
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    sample_weight: Any,
    members: int,
    bag: float | Sequence[float],
    score_left_out: bool,
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
    sizes = _bag_sizes(make_model, members, bag, score_left_out, n, method)
    rng = inputs.random_numbers(seed)
    if score_left_out:
        _check_scored_rows(X_test, method)
    if X_test is None:
        reduce = _reduction_of_rows_left_out(y_test, of, reduce, n - max(sizes))
    index = labels_of(X)
    labels = inputs.vector(aligned(y, index, "y"), "y", n)
    sample_weight = aligned(sample_weight, index, "sample_weight")
    weight = None if sample_weight is None else inputs.weights(sample_weight, n)
    training = MemberTraining(X, labels, weight, make_model, fit, n_jobs, eval_set)
    queries = MemberQueries(training, X_test, y_test, of, reduce, output, method, score_left_out)
    return queries, _draw_bags_in_turn(labels, int(members), sizes, rng)


def _draw_bags_in_turn(
    y: np.ndarray, members: int, sizes: Sequence[int], rng: np.random.Generator
) -> list[Bag]:
    """A bag for each member, whose sizes take turns."""
    bags: list[Bag] = [np.ones(0, bool)] * members
    for place, size in enumerate(sizes):
        turns = range(place, members, len(sizes))
        for member, drawn in zip(turns, draw_bags(y, len(turns), size, rng), strict=True):
            bags[member] = drawn
    return bags


def _bag_sizes(
    make_model: Any,
    members: int,
    bag: float | Sequence[float],
    score_left_out: bool,
    n: int,
    method: Method | None,
) -> list[int]:
    """Numbers of rows in the bags that take turns, with the arguments checked."""
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
    sizes = [round(share * n) if 0 < share <= 1 else 0 for share in shares]
    # Of c bags of one size, every row is in floor(c size / n) at least.
    turns = [len(range(place, int(members), len(sizes))) for place in range(len(sizes))]
    times = sum(count * size // n for count, size in zip(turns, sizes, strict=True))
    if not sizes or min(sizes) < 1 or (times < 2 and not score_left_out):
        raise InvalidInput(
            f"bag is {bag} of {n} rows with {members} members; every row must be in two bags at "
            "least, so it is a share up to 1, or several, and members * bag is 2 or more."
        )
    if getattr(method, "gives", "") == "scores":
        raise InvalidInput(
            f"method is {method!r}, which gives scores of rows; ensemble_influence() averages "
            "changes, so it takes LeafInfluence(), StructureInfluence(), LeafRefit(), Retrain() or "
            "BoostIn()."
        )
    return sizes


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


@dataclass(frozen=True)
class _Finished:
    """The members so far and their influence, on the scale of all rows.

    ``changes``        (n,) of each member, of the mean over the queries; NaN for rows that it has no
                       value of
    ``moments``        of the members' values
    ``last_influence``  of the last member, of the rows in its bag
    """

    members: tuple[Member, ...] = ()
    changes: tuple[F64, ...] = ()
    moments: Moments = field(default_factory=lambda: Moments.none(0, 0, float))
    last_influence: Influence | None = None

    def add(self, member: Member, found: MemberInfluence, weight: F64) -> _Finished:
        """The finished members with one more. ``weight``: (n,) sample weights."""
        n = len(member.bag)
        share = member.bag.mean()
        if any(member.model is other.model for other in self.members):
            raise InvalidInput(
                "make_model gave the same model twice; it must make a new one for every seed."
            )
        change = np.full(n, np.nan)
        change[member.bag] = share * found.own.change.mean(axis=1, dtype=float)
        rows = member.rows
        values = found.own.values
        if found.left_out is not None:
            added = found.left_out.change.mean(axis=1, dtype=float)
            change[~member.bag] = -share * added * weight[~member.bag]
            rows = np.concatenate([rows, member.left_out])
            values = np.concatenate([values, found.left_out.values])
        if (twin := self._twin(member, change)) is not None:
            raise InvalidInput(
                f"the models of seeds {twin.seed} and {member.seed} are the same, so "
                "averaging tells nothing; use a bag below 1, or let make_model pass its seed on to "
                "a model that draws rows or columns."
            )
        moments = self.moments
        if not self.members:
            moments = Moments.none(n, values.shape[1], values.dtype)
        moments = moments.add(rows, values * values.dtype.type(share))
        return _Finished((*self.members, member), (*self.changes, change), moments, found.own)

    def is_enough(self) -> bool:
        """Whether there is an average of all rows."""
        return len(self.members) >= 2 and bool(np.all(self.moments.count))

    def _twin(self, member: Member, change: F64) -> Member | None:
        """The last member of all rows before this one, if both have the same changes."""
        if not member.bag.all():
            return None
        for other, own in zip(reversed(self.members), reversed(self.changes), strict=True):
            if other.bag.all():
                return other if np.array_equal(change, own) else None
        return None


def _result(
    queries: MemberQueries, done: _Finished, requested: int, limit: TimeLimit
) -> EnsembleInfluence:
    """The result of the finished members. ``requested``: number of members."""
    assert done.last_influence is not None
    influence = _average(queries, done, done.last_influence)
    changes = np.array(done.changes)
    n = len(queries.training.y)
    count = len(done.members)
    name = queries.names(influence.of, influence.test_index, influence.tables.reduced)[0]
    title = f"Influence of {n:,} training rows on the {name}, averaged over {count} models"
    top = top_table(influence, changes, _SHOWN, None)
    advice = _advice(changes, int(np.asarray(top["stable"]).sum()))
    if count < requested:
        title = f"{title} of {requested}"
        ended = f"Interrupted after {count} of {requested} members."
        if limit.passed:
            ended = limit.in_words(count, requested, "members")
        advice = f"{ended} {advice}"
    return EnsembleInfluence(
        title=title,
        advice=advice,
        influence=influence,
        error=done.moments.error,
        members=done.members,
        changes=changes,
        asked=requested,
        _queries=queries,
        _table=top,
    )


def _average(queries: MemberQueries, done: _Finished, like: Influence) -> Influence:
    """The average of all members. ``like``: the influence of one of them."""
    training = queries.training
    n = len(training.y)
    left_out = ", rows left out at weight zero" if queries.score_left_out else ""
    return replace(
        like,
        values=done.moments.mean,
        train_index=row_index(training.X, n),
        positions=None,
        weight=np.ones(n) if training.sample_weight is None else training.sample_weight,
        method=f"{like.method}, mean of {len(done.members)} models{left_out}",
        structure_changed=None,
        tables=replace(like.tables, train=training.X),
    )


def _advice(changes: F64, stable: int) -> str:
    """Advice from the changes (members, n). ``stable``: number of stable rows in the table."""
    n = changes.shape[1]
    mean, error, _ = summary(changes)
    clear = int((np.abs(mean) > 2 * error).sum())
    act = "Act on stable rows only; for others train more members. "
    if not stable:
        act = "Train more members. "
    return (
        f"{stable} of the first {min(_SHOWN, n)} rows are stable: in 90 % of ensembles drawn from "
        f"these members they stay among the first {2 * _SHOWN}. {clear:,} of all {n:,} rows have "
        f"an effect more than two standard errors from zero. {act}confirm(rows, X, y) removes rows "
        "from all members, trains them again and judges by other test rows."
    )
