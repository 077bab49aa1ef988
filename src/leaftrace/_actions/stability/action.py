"""Influence averaged over models, which are trained with other seeds on bags of the rows.

Member k is trained on a bag B_k of b of the n rows. Leaves are sums over rows, so with b rows each
counts n / b times as much as with n. The average that estimates effects in a model of all rows is
therefore

    value_i = b / n * mean over the members with i in B_k of dQ_k / dw_i

This is also the derivative in w_i of the mean of Q over the members, for a row that is in its share
b / n of the bags.

If rows left out are scored, too, with the derivative at weight zero for rows outside B_k, the average
is made to predict retraining:

    value_i = 1/2 (mean of values inside bags + scale * mean of values outside), each * b / n

The scale brings both to the same size (`KindMoments.scale`), and dQ/dF is the mean over the members:
value_i is c . mean of dF_k / dw_i with c = mean of dQ_k / dF_k.

With refits, the values of member k are themselves such means: over its trees refitted on B_k, on the rows
outside of it, and on all rows, with values of rows inside and outside of each refit. So a row counts alike
whether it helped to choose the splits or not, and whether it is in the sums of the leaves or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.row_labels import row_index
from ..._data.time_limit import TimeLimit
from ..._engine.methods import LeafInfluence, Method
from ..._engine.queries import Of, Reduce
from ..._tracer.influence import Influence
from ..bags import Bag
from ..common import Interruptible
from .arguments import make_members
from .member_influence import MemberInfluence, member_influence
from .members import FitFunction, Member, MemberQueries
from .moments import KindMoments, Moments, Strata, by_kind, summary
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
    bag: float | Sequence[float] = 0.5,
    score_left_out: bool | None = None,
    refits: bool | None = None,
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
    with confidence. As it stands, the function does what predicted retraining best of all that was
    measured: members on halves of the rows, splits that give way, values of rows left out, and trees
    refitted on other rows.

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
                      as candidates at weight zero; for LeafInfluence() and StructureInfluence().
                      Values of rows inside and outside the bags then count alike, and the slopes of
                      the loss are means over the members, so that none counts more for being wrong.
                      None: True if test rows are given, method is None and there are members
                      enough to leave every row out of two bags
    ``refits``        True: the trees of a member are refitted on the rows left out of its bag and on
                      all rows, too, and its values are means over the three. That takes a backward
                      pass for each and no training. None: if rows left out are scored by
                      StructureInfluence() and the models can be refitted on other rows; otherwise
                      the advice says why they cannot
    ``of, reduce, output``  as in `Tracer.influence`
    ``method``        as in `Tracer.influence`. None: StructureInfluence(0.25) if test rows are given.
                      Models whose splits it cannot follow get LeafInfluence(), without values of
                      rows left out. Members whose values would become more than ten times as large as
                      with fixed trees are asked at a higher temperature. The advice says so
    ``seed``          seed of the bags, and of the first member
    ``fit``           how a model is trained, if not by ``model.fit(X, y, sample_weight=...)``: a
                      function of the result of make_model, X, y and sample_weight (or None) that
                      returns the fitted model
    ``n_jobs``        threads of the tracers; None means all cores
    ``eval_set``      the rows by which `fit` stops early, as `Tracer` takes them: retrainings of
                      members stop by them, too
    ``time_limit``    seconds after which no more member is trained, once there are two and every row
                      has a value; those that are trained are asked

    Ctrl-C ends it with the members that are finished, if they are two or more. It keeps in memory
    two matrices of the size of the answer (four if rows left out are scored, eight with refits), one
    member's values and, for ranks, members x rows.
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
        refits,
        of,
        reduce,
        output,
        method,
        seed,
        fit,
        n_jobs,
        eval_set,
    )
    queries, trained = _trained(queries, bags, seed, limit)
    if queries.score_left_out:
        queries = queries.at_mean_slopes(trained)
    weight = queries.training.sample_weight
    weights = np.ones(len(queries.training.y)) if weight is None else weight
    done = _Finished()
    count = len(trained)
    with Interruptible():
        for member in progress(trained, count, "influence of members", "model"):
            done = done.add(member, member_influence(queries, member), weights)
    if not done.is_enough():
        raise KeyboardInterrupt  # too early: there is no average of all rows yet
    return _result(replace(queries, slopes=None), done, len(bags), limit)


def _trained(
    queries: MemberQueries, bags: list[Bag], seed: int, limit: TimeLimit
) -> tuple[MemberQueries, list[Member]]:
    """Train the members; the queries as the first of them can answer them."""
    trained: list[Member] = []

    def is_enough() -> bool:
        return _have_all_rows([member.bag for member in trained], queries.score_left_out)

    with Interruptible():
        allowed = limit.items(bags, is_enough)
        for number, rows in enumerate(progress(allowed, len(bags), "members", "model")):
            member = queries.training.train(seed + number, rows)
            if any(member.model is other.model for other in trained):
                raise InvalidInput(
                    "make_model gave the same model twice; it must make a new one for every seed."
                )
            if not trained:
                queries = queries.checked(member)
            trained.append(member)
    if not is_enough():
        raise KeyboardInterrupt  # too early: there would be no average of all rows
    return queries, trained


def _have_all_rows(bags: list[Bag], score_left_out: bool) -> bool:
    """Whether two bags or more have every row and, if rows left out are scored, leave out every row.

    Bags of all rows alone leave out none, and need not.
    """
    inside = np.array(bags)
    if len(bags) < 2 or not inside.any(axis=0).all():
        return False
    return not score_left_out or bool(inside.all() or (~inside).any(axis=0).all())


@dataclass(frozen=True)
class _Finished:
    """The members so far and their influence, on the scale of all rows.

    ``changes``        (n,) of each member, of the mean over the queries; NaN for rows that it has no
                       value of
    ``moments``        of the members' values
    ``last_influence``  of the last member, of the rows in its bag
    ``calmed``         of each member that was not asked as by default, the reason: see `MemberInfluence`
    """

    members: tuple[Member, ...] = ()
    changes: tuple[F64, ...] = ()
    moments: KindMoments | None = None
    last_influence: Influence | None = None
    calmed: tuple[str, ...] = ()

    def add(self, member: Member, found: MemberInfluence, weight: F64) -> _Finished:
        """The finished members with one more. ``weight``: (n,) sample weights."""
        n = len(member.bag)
        share = found.share
        change = np.full(n, np.nan)
        change[member.bag] = share * found.own.change.mean(axis=1, dtype=float)
        if found.left_out is not None:
            added = found.left_out.change.mean(axis=1, dtype=float)
            change[~member.bag] = -share * added * weight[~member.bag]
        if (twin := self._twin(member, change)) is not None:
            raise InvalidInput(
                f"the models of seeds {twin.seed} and {member.seed} are the same, so "
                "averaging tells nothing; use a bag below 1, or let make_model pass its seed on to "
                "a model that draws rows or columns."
            )
        own = found.own.values
        moments = self.moments or KindMoments(Moments.none(n, own.shape[1], own.dtype))
        factor = own.dtype.type(share)
        left_out = None if found.left_out is None else factor * found.left_out.values
        moments = moments.add(member.bag, factor * own, left_out)
        members = (*self.members, member)
        calmed = (*self.calmed, found.calmed) if found.calmed else self.calmed
        return _Finished(members, (*self.changes, change), moments, found.own, calmed)

    def is_enough(self) -> bool:
        """Whether there is an average of all rows."""
        return len(self.members) >= 2 and self.moments is not None and self.moments.is_enough()

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
    assert done.moments is not None
    influence = _average(queries, done, done.last_influence)
    scale = done.moments.scale
    inside = np.array([member.bag for member in done.members])
    changes = np.where(inside, 1.0, scale) * np.array(done.changes)
    n = len(queries.training.y)
    count = len(done.members)
    name = queries.names(influence.of, influence.test_index, influence.tables.reduced)[0]
    title = f"Influence of {n:,} training rows on the {name}, averaged over {count} models"
    top = top_table(influence, changes, done.members, _SHOWN, None)
    kinds = by_kind(changes, inside)
    advice = _advice(*kinds, int(np.asarray(top["stable"]).sum()))
    if queries.note:
        advice = f"{advice} {queries.note}"
    if done.calmed:
        advice = f"{advice} {_calmed_in_words(done.calmed, count)}"
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
        left_out_scale=scale,
        _queries=queries,
        _table=top,
    )


def _average(queries: MemberQueries, done: _Finished, like: Influence) -> Influence:
    """The average of all members. ``like``: the influence of one of them."""
    moments = done.moments
    assert moments is not None
    training = queries.training
    n = len(training.y)
    left_out = ", rows left out at weight zero" if queries.score_left_out else ""
    if queries.refits:
        left_out = " refitted on three sets of rows each, values of rows inside and outside of them"
    return replace(
        like,
        values=moments.mean,
        train_index=row_index(training.X, n),
        positions=None,
        weight=np.ones(n) if training.sample_weight is None else training.sample_weight,
        method=f"{queries.method or LeafInfluence()!r}, mean of {len(done.members)} models{left_out}",
        structure_changed=None,
        tables=replace(like.tables, train=training.X),
    )


def _calmed_in_words(reasons: Sequence[str], count: int) -> str:
    """A sentence about members that were not asked as by default. ``count``: number of all members."""
    return (
        f"{len(reasons)} of {count} members {'is' if len(reasons) == 1 else 'are'} not refitted on other rows, or "
        f"the choices of splits are softer there or held fixed, for this reason: {reasons[0]}."
    )


def _advice(changes: F64, kinds: Strata, stable: int) -> str:
    """Advice from the changes, as `by_kind` gives them. ``stable``: stable rows in the table."""
    n = changes.shape[1]
    mean, error, _ = summary(changes, kinds)
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
