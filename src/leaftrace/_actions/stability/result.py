"""The result of `ensemble_influence`: averaged influence, ranks with intervals, confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data.arrays import F64, Real
from ..._data.errors import InvalidInput
from ..._data.numbers import change_text, number_text
from ..._data.progress import progress
from ..._data.row_labels import labels_of, row_numbers
from ..._data.tables import table
from ..._model.early_stopping import Rounds, rounds_in_words
from ..._model.losses import Criterion
from ..._tracer.influence import Influence, rank
from ..common import Finding, Interruptible
from ..effects import Effect, LossUnit, effects_table, in_target_unit, judged, unit_of
from ..statistics import paired_interval
from .member_effects import member_effects
from .members import Member, MemberQueries
from .moments import by_kind, rank_intervals, size_ranks, summary


@dataclass(frozen=True, repr=False)
class EnsembleInfluence(Finding):
    """Influence averaged over models, and how far it can be trusted.

    ``influence``  the average, on the scale of a model of all rows: an `Influence` like that of
                   `Tracer`
    ``error``      (rows, queries) standard errors of its values, from the spread over the members
    ``members``    the models, with their seeds and bags
    ``changes``    (members, rows) change of the mean query without a row, on the same scale; NaN
                   outside a member's bag, unless rows left out are scored. Ranks and agreement come
                   from these, so they are about the mean over the test rows; for those of one test
                   row, pass that row alone
    ``asked``      number of members that were requested
    ``left_out_scale``  the factor by which values of rows left out were brought to the size of the
                   others; 1 if they are not scored
    """

    title: str
    advice: str
    influence: Influence
    error: Real
    members: tuple[Member, ...]
    changes: F64
    asked: int
    left_out_scale: float
    _queries: MemberQueries
    _table: Any
    _effects: tuple[Effect, ...] = ()

    @property
    def table(self) -> Any:
        """`top` of 20 rows."""
        return self._table

    @property
    def effects(self) -> Any:
        """Effects of the rows that `confirm` removed."""
        return effects_table(self._effects, self.influence.tables.kind)

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to the mean over the test rows.

        ``rank`` is by the size of the effect; from ``rank_low`` to ``rank_high`` it is in 90 % of
        the ensembles drawn with replacement from the members. ``agreement``: the share of a row's
        members that give its effect the sign of the mean. ``stable``: ``rank_high`` is at most 2 k.
        ``effect`` keeps one side, as in `Influence.top`.
        """
        return top_table(self.influence, self.changes, self.members, k, effect)

    def confirm(
        self, rows: Any, X: Any = None, y: Any = None, *, retrain: bool = True
    ) -> EnsembleInfluence:
        """This result with the `effects` of removing these rows at once, over all members.

        Each member is refitted and trained again without those of the rows that are in its bag.
        Ctrl-C ends it with the members that are finished.

        >>> found.confirm([17, 42], X_holdout, y_holdout).effects       # doctest: +SKIP

        ``rows``     positions of training rows, a mask, or a table of ours that has them
        ``X, y``     rows to judge by, if not the test rows: rows that were chosen by this result
                     look better there
        ``retrain``  False: refit only, which takes no training
        """
        training = self._queries.training
        n = len(self.influence.train_index)
        index = np.unique(row_numbers(rows, n, labels=labels_of(training.X)))
        if not len(index):
            raise InvalidInput("rows is empty; name at least one training row to remove.")
        queries = self._queries if X is None else replace(self._queries, X=X, y=y)
        by_member: list[F64] = []  # (before, predicted, refitted, retrained; queries) of each
        names: list[str] = []
        rounds: list[Rounds] = []
        loss: Criterion | None = None
        with Interruptible():
            for member in progress(self.members, len(self.members), "retraining", "model"):
                found = member_effects(queries, member, index, retrain)
                names, loss = found.names, found.loss
                rounds += found.rounds
                by_member.append(found.sizes)
        if not by_member or loss is None:
            raise KeyboardInterrupt
        sizes = _with_mean(np.mean(by_member, axis=0), len(names))
        is_loss = "loss" in names[0]
        effects = [
            Effect(name, *size.tolist(), better="lower" if is_loss else "")
            for name, size in zip(names, sizes.T, strict=True)
        ]
        if len(by_member) > 1 and retrain:
            changes = _with_mean(np.array(by_member)[:, 3], len(names))  # (members, effects)
            effects = [
                judged(effect, paired_interval(change))
                for effect, change in zip(effects, changes.T, strict=True)
            ]
        if is_loss:
            effects = [in_target_unit(effect, loss) for effect in effects]
        unit = unit_of(loss) if is_loss else LossUnit(False)
        mean_sizes = np.array(by_member).mean(axis=2)
        advice = _verdict(mean_sizes, len(index), names[0], unit, same_rows=X is None)
        note = rounds_in_words(rounds)
        return replace(self, _effects=tuple(effects), advice=f"{advice} {note}".strip())


def _with_mean(sizes: F64, count: int) -> F64:
    """Sizes (lines, queries) with their mean over the queries in front, where there are several.

    ``count``: number of effects, which are the mean and each query."""
    return sizes if count == 1 else np.column_stack([sizes.mean(axis=1), sizes])


def _verdict(sizes: F64, count: int, name: str, unit: LossUnit, same_rows: bool) -> str:
    """Advice of `confirm` from the sizes (members, 4) of the effect on the mean of the queries.

    ``count``      number of removed rows
    ``name``       of the effect
    ``unit``       in which people read it
    ``same_rows``  whether the influence is on the same test rows
    """
    retrained = sizes[:, 3]
    members = len(sizes)
    refit_only = bool(np.isnan(retrained).any())
    changes = unit.change(sizes[:, 0], sizes[:, 2] if refit_only else retrained)
    error = (
        f" (standard error {number_text(changes.std(ddof=1) / np.sqrt(members), 2)})"
        if members > 1
        else ""
    )
    how = "refitting their leaves" if refit_only else "training them again"
    advice = (
        f"Removing {count} row{'s' * (count > 1)} from {members} members and {how} "
        f"changes the {unit.renamed(name)} by {change_text(changes.mean(), 3)}{error}."
    )
    if refit_only:
        advice += " Retraining may also choose other splits."
    if same_rows:
        advice += " Rows chosen by these test rows must be judged by others: confirm(rows, X, y)."
    return advice


def top_table(
    influence: Influence, changes: F64, members: Sequence[Member], k: int, effect: str | None
) -> Any:
    """The table of `EnsembleInfluence.top`."""
    kinds = by_kind(changes, np.array([member.bag for member in members]))
    mean, error, agreement = summary(*kinds)
    removal = replace(influence.mean(), values=-mean[:, None], derivative=False)
    [(rows, effects, _)] = rank(removal, k, effect)
    low, high = rank_intervals(kinds[0], rows, kinds[1])
    return table(
        {
            **{name: column[rows] for name, column in influence.row_columns().items()},
            "effect": np.array(effects, dtype=object),
            f"{influence.of}_change_if_removed": mean[rows],
            "change_is": np.full(len(rows), influence.change_is, dtype=object),
            "standard_error": error[rows],
            "agreement": agreement[rows],
            "rank": size_ranks(np.abs(mean), rows),
            "rank_low": low,
            "rank_high": high,
            "stable": high <= 2 * k,
        },
        influence.tables.kind,
    )
