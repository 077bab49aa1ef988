"""Values of the sources of training rows: Shapley values of suppliers, towns, years.

A coalition is a set of sources, its cost the mean loss of X, y by the model refitted (trees fixed)
or retrained on their rows alone: of squared errors their root (RMSE), in the unit of the target.
Nobody's rows leave the starting score of the model and no trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from ..._data.grouping import Groups, as_text, groups_of
from ..._data.progress import progress
from ..._data.time_limit import TimeLimit
from ..._tracer.tracer import Tracer
from ..common import Interruptible, check_tracer, stopping_note
from ..effects import unit_of
from .coalitions import sampled_falls, shapley_of_costs
from .source_result import SourceValues

MOST_EXACT = 12  # sources up to which all coalitions are tried
_FEWEST_PAIRS = 2  # of orders from which a standard error can be told


def source_values(
    tracer: Tracer,
    source: Any,
    X: Any,
    y: Any = None,
    *,
    retrain: bool = False,
    pairs: int = 25,
    seed: int = 0,
    bins: int = 5,
    time_limit: float | None = None,
) -> SourceValues:
    """Shapley values of the sources of training rows: what each is worth to the rows X, y.

    >>> source_values(tracer, supplier, X_val, y_val)                     # doctest: +SKIP

    ``source``   a label for each training row, or the name of a column of X_train
    ``X, y``     the rows whose mean loss is measured
    ``retrain``  train a model for each coalition of sources instead of refitting leaves
    ``pairs``    with more than 12 sources: pairs of random orders to average over. Each takes about
                 two refits (or trainings) a source; up to 12 sources, all coalitions are tried
    ``seed``     of the random orders
    ``bins``     number of groups of about equal size for a column of many numbers
    ``time_limit``  seconds after which no more pair of orders is begun, once there are two; where all
                 coalitions cannot be tried in that time, two pairs of orders take their place

    Positive is valuable. Values add up to what all sources together lower the loss by; of a model
    that is trained by squared error, the loss here is the RMSE, in the unit of the target. A source
    that others can replace has a small value when left out alone (`leave_one_out`), and a fair
    share of the common one in `values`. Ctrl-C ends the random orders with those that are finished.
    """
    limit = TimeLimit(time_limit)
    retrain = inputs.flag(retrain, "retrain")
    costs = make_coalitions(tracer, source, X, y, retrain, pairs, bins)
    K = len(costs.groups)
    everyone = (1 << K) - 1
    by_pair = None
    interrupted = False
    values = None
    if K <= MOST_EXACT:
        every = limit.items(range(1 << K))
        every = progress(every, 1 << K, "coalitions of sources", "coalition")
        cost = np.array([costs.cost(c) for c in every])
        if not limit.passed:
            values = shapley_of_costs(cost, K)
    if values is None:
        pairs = max(pairs, _FEWEST_PAIRS)
        random = inputs.random_numbers(seed)
        drawn: list[F64] = []
        with Interruptible() as run:
            allowed = limit.items(range(pairs), lambda: len(drawn) >= _FEWEST_PAIRS)
            orders = sampled_falls(costs.cost, K, pairs, random)
            for _ in progress(allowed, pairs, "orders of sources", "pair"):
                drawn.append(next(orders))
        interrupted = run.interrupted
        if len(drawn) < _FEWEST_PAIRS:
            raise KeyboardInterrupt
        by_pair = np.stack(drawn)
        values = by_pair.mean(axis=0)
    left_out = np.array([costs.cost(everyone & ~(1 << k)) for k in range(K)])
    return SourceValues.of(
        costs.groups,
        values,
        by_pair,
        left_out - costs.cost(everyone),
        costs.cost(0),
        costs.cost(everyone),
        loss=unit_of(tracer.engine.criterion).name,
        retrain=retrain,
        failed=len(costs.failed),
        ended="Interrupted" if interrupted else limit.note.rstrip(". "),
        note=stopping_note(tracer, retrain),
        kind=tracer.table_kind,
    )


def make_coalitions(
    tracer: Tracer, source: Any, X: Any, y: Any, retrain: bool, pairs: int, bins: int
) -> Coalitions:
    """Check the arguments of `source_values`: the coalitions they ask about."""
    check_tracer(tracer, "source_values")
    tracer.engine.needs_separate_rows("source_values()")
    m = inputs.row_count(X)
    if m == 0:
        raise InvalidInput("X has no rows; pass at least one row whose loss is measured.")
    labels = tracer.engine.test_labels(X, y, "y", "X")
    codes = tracer.engine.test_codes(labels, m, "y")
    groups = groups_of(source, tracer.X_train, tracer.n_rows, "source", bins=bins)
    if len(groups) < 2:
        raise InvalidInput(
            f"all training rows are from the source '{as_text(groups.names[0])}'; pass two or more sources."
        )
    if len(groups) > MOST_EXACT and pairs < _FEWEST_PAIRS:
        raise InvalidInput(f"pairs is {pairs}; ask for {_FEWEST_PAIRS} or more.")
    return Coalitions(tracer, groups, X, codes, retrain)


class Coalitions:
    """Costs of coalitions of sources, each computed once.

    ``failed``  coalitions of which no model can be made, such as those without rows of a class;
                they cost what nobody's rows cost
    """

    def __init__(self, tracer: Tracer, groups: Groups, X: Any, codes: F64, retrain: bool) -> None:
        self.tracer = tracer
        self.groups = groups
        self.X = X
        self.codes = codes
        self.retrain = retrain
        self.failed: list[int] = []
        self._known: dict[int, float] = {}
        self._leaves, self._offset = tracer.engine.source.rows(X)

    def cost(self, coalition: int) -> float:
        """Mean loss in its unit, by the rows of these sources."""
        if coalition not in self._known:
            self._known[coalition] = self.mean_loss(coalition)
        return self._known[coalition]

    def mean_loss(self, coalition: int) -> float:
        """The same, computed anew."""
        e = self.tracer.engine.ensemble
        if coalition == 0:
            start = np.tile(e.finished_base, (len(self.codes), 1))
            scores = start if self._offset is None else start + self._offset
        else:
            try:
                scores = self._scores(self._rows_of_others(coalition))
            except UnsupportedModel:
                raise
            except LeaftraceError:
                if coalition == (1 << len(self.groups)) - 1:
                    raise
                self.failed.append(coalition)
                return self.cost(0)
        loss = self.tracer.engine.criterion
        return float(unit_of(loss).level(loss.value(scores, self.codes).mean()))

    def _rows_of_others(self, coalition: int) -> Ints:
        """Positions of the training rows that are not from these sources."""
        inside = np.array([coalition >> k & 1 for k in range(len(self.groups))], dtype=bool)
        return np.flatnonzero(~inside[self.groups.code])

    def _scores(self, without: Ints) -> F64:
        if self.retrain:
            return self.tracer.retrain(without).scores(self.X)
        return self.tracer.refit(without).ensemble.scores(self._leaves, self._offset)
