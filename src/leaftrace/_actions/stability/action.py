"""Influence that does not hang on one model: averaged over members, trained with other seeds on bags of the rows.

Member k is trained on a bag B_k of b of the n rows. Leaves are sums over rows, so with b rows each counts n / b times
as much as with n. The average that estimates effects in a model of all rows is therefore

    value_i = b / n * mean over the members with i in B_k of dQ_k / dw_i

which is also how the mean of Q over the members moves with w_i, for a row that is in its share b / n of the bags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Real
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.tables import table
from ..._engine.methods import Method
from ..._engine.queries import Of, Reduce
from ..._model.goal import Goal, ReadyGoal
from ..._tracer.influence import Influence, rank
from ..common import Effect, Finding, Interruptible, effects_table
from .members import Fit, Member, Question, Training, draw_bags
from .moments import Moments, rank_intervals, ranks, summary

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
    bag: float = 0.75,
    of: Of = "loss",
    reduce: Reduce = None,
    output: int | None = None,
    method: Method | None = None,
    seed: int = 0,
    fit: Fit | None = None,
    n_jobs: int | None = None,
) -> EnsembleInfluence:
    """Influence of training rows averaged over models of other seeds on bags of the rows, with intervals of ranks.

    One model's influence also tells of the chances of its training. The average agrees better with what retraining
    does, and the spread over the members says which rows can be named with confidence.

    >>> found = ensemble_influence(                                    # doctest: +SKIP
    ...     lambda seed: LGBMRegressor(colsample_bytree=0.7, random_state=seed), X, y, X_test, y_test)
    >>> found.influence.top(5), found.confirm([17, 42]).effects        # doctest: +SKIP

    ``make_model``    a function of a seed that gives an unfitted model of any library that `Tracer` reads
    ``X, y, sample_weight``  the training rows; bags keep their order
    ``X_test, y_test``  the rows that influence is on, as `Tracer.influence` takes them. Without, each member is asked
                      about the mean loss (or a goal) of the rows left out of its bag, which have labels like those of
                      training: rows that harm these need not harm cleaner ones
    ``members``       how many models; their seeds are ``seed``, ``seed + 1``, ...
    ``bag``           share of the rows each is trained on; 1.0: all rows, so that members differ by their seeds only
    ``of, reduce, output, method``  as in `Tracer.influence`
    ``seed``          of the bags, and of the first member
    ``fit``           how a model is trained, if not by ``model.fit(X, y, sample_weight=...)``: a function of what
                      make_model gave, X, y and sample_weight (or None) that returns the fitted model
    ``n_jobs``        threads of the tracers; None means all cores

    Ctrl-C ends it with the members that are finished, from two on. In memory are two matrices of the size of the
    answer, one member's values and, for ranks, members x rows.
    """
    if not callable(make_model):
        raise InvalidInput(
            f"make_model is a {type(make_model).__name__}; pass a function of a seed that gives an unfitted model, "
            "such as lambda seed: LGBMRegressor(random_state=seed)."
        )
    if members < 2:
        raise InvalidInput(f"members is {members}; ask for 2 or more, or use Tracer for one model.")
    n = inputs.row_count(X)
    size = round(bag * n) if 0 < bag <= 1 else 0
    if size < 1 or members * size < 2 * n:
        raise InvalidInput(
            f"bag is {bag} of {n} rows with {members} members; every row must be in two bags at least, so it is a "
            "share up to 1, and members * bag is 2 or more."
        )
    if getattr(method, "gives", "") == "scores":
        raise InvalidInput(
            f"method is {method!r}, which gives scores of rows; ensemble_influence() averages changes, so it takes "
            "LeafInfluence(), LeafRefit(), Retrain() or BoostIn()."
        )
    if X_test is None:
        reduce = _of_rows_left_out(y_test, of, reduce, n - size)
    labels = inputs.vector(y, "y", n)
    weight = None if sample_weight is None else inputs.weights(sample_weight, n)
    training = Training(X, labels, weight, make_model, fit, n_jobs)
    question = Question(training, X_test, y_test, of, reduce, output, method)
    bags = draw_bags(labels, members, size, np.random.default_rng(seed))
    done = _Finished()
    with Interruptible():
        for number, one in enumerate(progress(bags, members, "members", "model")):
            member = training.train(seed + number, one)
            done = done.add(member, question.influence(member))
    if len(done.members) < 2 or not np.all(done.moments.count):
        raise KeyboardInterrupt  # too early: there is no average of all rows yet
    return _result(question, done, members)


def _of_rows_left_out(y_test: Any, of: Of, reduce: Reduce, count: int) -> Reduce:
    """What the rows left out of the bags, others for each member, are reduced by."""
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
            "without X_test every member has other test rows, so of= is 'loss' or a goal; pass X_test."
        )
    if reduce not in (None, "mean"):
        raise InvalidInput(
            f"reduce is {reduce!r}, but without X_test it is the mean over the rows left out; leave it."
        )
    return None if goal else "mean"


@dataclass(frozen=True, repr=False)
class EnsembleInfluence(Finding):
    """Influence averaged over models, and how far it can be trusted.

    ``influence``  the average, on the scale of a model of all rows: an `Influence` as `Tracer` gives them
    ``error``      (rows, queries) standard errors of its values, from the spread over the members
    ``members``    the models, with their seeds and bags
    ``changes``    (members, rows) by how much the mean query changes without a row, on the same scale; NaN outside a
                   member's bag. Ranks and agreement come from these, so they are of the mean over the test rows; for
                   those of one test row, ask for that row alone
    ``asked``      how many members were asked for
    """

    title: str
    advice: str
    influence: Influence
    error: Real
    members: tuple[Member, ...]
    changes: F64
    asked: int
    _question: Question
    _table: Any
    _effects: tuple[Effect, ...] = ()

    @property
    def table(self) -> Any:
        """`top` of 20 rows."""
        return self._table

    @property
    def effects(self) -> Any:
        """Of what `confirm` removed."""
        return effects_table(self._effects, self.influence.tables.kind)

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to the mean over the test rows.

        ``rank`` is by the size of the effect; from ``rank_low`` to ``rank_high`` it is in 90 % of the ensembles drawn
        with replacement from the members. ``agreement``: the share of a row's members that give its effect the sign of
        the mean. ``stable``: ``rank_high`` is at most 2 k. ``effect`` keeps one side, as in `Influence.top`."""
        return _top(self.influence, self.changes, k, effect)

    def confirm(
        self, rows: Any, X: Any = None, y: Any = None, *, retrain: bool = True
    ) -> EnsembleInfluence:
        """This result with the `effects` of removing these rows, all at once, on the mean of the members.

        Each member is refitted and trained again without those of the rows that are in its bag. Ctrl-C ends it with
        the members that are finished.

        >>> found.confirm([17, 42], X_holdout, y_holdout).effects       # doctest: +SKIP

        ``rows``     positions of training rows, or a mask
        ``X, y``     rows to judge by, if not the test rows: rows that were chosen by this result look better there
        ``retrain``  False: refit only, which takes no training
        """
        index = np.unique(inputs.row_numbers(rows, len(self.influence.train_index)))
        if not len(index):
            raise InvalidInput("rows is empty; name at least one training row to remove.")
        question = self._question if X is None else replace(self._question, X=X, y=y)
        done: list[F64] = []  # (before, predicted, refitted, retrained; queries) of each member
        names: list[str] = []
        with Interruptible():
            for member in progress(self.members, len(self.members), "retraining", "model"):
                sizes, names = question.effects(member, index, retrain)
                done.append(sizes)
        if not done:
            raise KeyboardInterrupt
        sizes = np.mean(done, axis=0)
        if len(names) > 1:
            sizes = np.column_stack([sizes.mean(axis=1), sizes])
        effects = tuple(
            Effect(name, *size.tolist()) for name, size in zip(names, sizes.T, strict=True)
        )
        return replace(
            self,
            _effects=effects,
            advice=_verdict(np.array(done).mean(axis=2), len(index), names[0], X is None),
        )


def _verdict(sizes: F64, count: int, name: str, same: bool) -> str:
    """What `confirm` says of the sizes (members, 4) of the effect on the mean of the queries. ``same``: on the rows
    that the influence is on."""
    retrained = sizes[:, 3]
    members = len(sizes)
    refit_only = bool(np.isnan(retrained).any())
    changes = sizes[:, 2] if refit_only else retrained
    error = f" (standard error {changes.std(ddof=1) / np.sqrt(members):.2g})" if members > 1 else ""
    advice = (
        f"Removing {count} row{'s' * (count > 1)} from {members} members and "
        f"{'refitting their leaves' if refit_only else 'training them again'} changes the {name} by "
        f"{changes.mean():+.3g}{error}."
    )
    if refit_only:
        advice += " Only retraining tells the whole change."
    return (
        advice
        + " Rows chosen by these test rows must be judged by others: confirm(rows, X, y)." * same
    )


@dataclass(frozen=True)
class _Finished:
    """The members so far and what they say, on the scale of all rows."""

    members: tuple[Member, ...] = ()
    changes: tuple[
        F64, ...
    ] = ()  # (n,) of each member, of the mean over the queries; NaN outside its bag
    moments: Moments = field(default_factory=lambda: Moments.none(0, 0, float))
    one: Influence | None = None

    def add(self, member: Member, found: Influence) -> _Finished:
        n = len(member.bag)
        share = member.bag.mean()
        if any(member.model is other.model for other in self.members):
            raise InvalidInput(
                "make_model gave the same model twice; it must make a new one for every seed."
            )
        change = np.full(n, np.nan)
        change[member.bag] = share * found.change.mean(axis=1, dtype=float)
        if share == 1 and self.changes and np.array_equal(change, self.changes[-1]):
            raise InvalidInput(
                f"the models of seeds {member.seed - 1} and {member.seed} are the same, so averaging tells nothing; "
                "use a bag below 1, or let make_model pass its seed on to a model that draws rows or columns."
            )
        moments = (
            self.moments if self.members else Moments.none(n, found.shape[1], found.values.dtype)
        )
        moments = moments.add(member.rows, found.values * found.values.dtype.type(share))
        return _Finished((*self.members, member), (*self.changes, change), moments, found)


def _result(question: Question, done: _Finished, asked: int) -> EnsembleInfluence:
    training = question.training
    one = done.one
    changes = np.array(done.changes)
    assert one is not None
    n = len(training.y)
    count = len(done.members)
    influence = replace(
        one,
        values=done.moments.mean,
        train_index=inputs.row_index(training.X, n),
        weight=np.ones(n) if training.sample_weight is None else training.sample_weight,
        method=f"{one.method}, mean of {count} models",
        structure_changed=None,
        tables=replace(one.tables, train=training.X),
    )
    what = question.names(one.of, one.test_index, one.tables.reduced)[0]
    title = f"Influence of {n:,} training rows on the {what}, averaged over {count} models"
    top = _top(influence, changes, _SHOWN, None)
    (mean, error, _) = summary(changes)
    stable = int(np.asarray(top["stable"]).sum())
    clear = int((np.abs(mean) > 2 * error).sum())
    advice = (
        f"{stable} of the first {min(_SHOWN, n)} rows are stable: in 90 % of ensembles drawn from these members they "
        f"stay among the first {2 * _SHOWN}. {clear:,} of all {n:,} rows have an effect more than two standard errors "
        "from zero. "
        + (
            "Act on stable rows only; for others train more members. "
            if stable
            else "Train more members. "
        )
        + "confirm(rows, X, y) removes rows from all members, trains them again and judges by other test rows."
    )
    if count < asked:
        title = f"{title} of {asked}"
        advice = f"Interrupted after {count} of {asked} members. {advice}"
    return EnsembleInfluence(
        title, advice, influence, done.moments.error, done.members, changes, asked, question, top
    )


def _top(influence: Influence, changes: F64, k: int, effect: str | None) -> Any:
    mean, error, agreement = summary(changes)
    removal = replace(influence.mean(), values=-mean[:, None], derivative=False)
    ((rows, effects, _),) = rank(removal, k, effect)
    low, high = rank_intervals(changes, rows)
    return table(
        {
            "train_row": influence.train_index[rows],
            "effect": np.array(effects, dtype=object),
            f"{influence.of}_change_if_removed": mean[rows],
            "standard_error": error[rows],
            "agreement": agreement[rows],
            "rank": ranks(np.abs(mean), rows),
            "rank_low": low,
            "rank_high": high,
            "stable": high <= 2 * k,
        },
        influence.tables.kind,
    )
