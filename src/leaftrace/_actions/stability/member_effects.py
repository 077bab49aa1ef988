"""Effects of removing rows from one member of an average: predicted, refitted and retrained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64, Ints
from ..._engine.queries import Queries
from ..._model.early_stopping import Rounds
from ..._model.losses import Criterion
from .member_influence import own_changes
from .members import Member, MemberQueries


@dataclass(frozen=True)
class MemberEffects:
    """Effects of removing rows on the queries of a member.

    ``sizes``   (4, queries) the queries before, and their changes: predicted, refitted, retrained
    ``names``   of the queries
    ``rounds``  of the retrainings
    ``loss``    of the model
    """

    sizes: F64
    names: list[str]
    rounds: list[Rounds]
    loss: Criterion


def member_effects(
    queries: MemberQueries, member: Member, rows: Ints, retrain: bool
) -> MemberEffects:
    """The effects of removing those of these rows that are in a member's bag.

    ``retrain``  False: the last line of sizes is NaN
    """
    tracer = queries.training.trace(member)
    engine = tracer.engine
    gone = np.flatnonzero(np.isin(member.rows, rows))
    X, y = queries.test_rows(member)
    asked, test_index = engine.queries(X, y, queries.of, queries.reduce, queries.output, None)
    sizes = np.zeros((4, len(asked)))
    sizes[0] = _values(asked)
    sizes[3] = 0.0 if retrain else np.nan
    if len(gone):
        sizes[1] = own_changes(queries, tracer, member, gone).sum(axis=0, dtype=float)
        ways = (tracer.refit, tracer.retrain) if retrain else (tracer.refit,)
        for line, make in enumerate(ways, start=2):
            score_change = make(gone).scores(X) - asked.scores
            sizes[line] = asked.change(score_change[:, :, None])[:, 0]
    names = queries.names(asked.of, test_index, asked.reduce is not None)
    return MemberEffects(sizes, names, engine.retrainings.rounds, engine.criterion)


def _values(queries: Queries) -> F64:
    """(queries,) values of the queries; NaN if only a gradient was given."""
    if queries.goal is not None:
        return np.array([queries.goal.at(queries.scores)])
    if queries.of == "loss":
        assert queries.y is not None
        losses = queries.criterion.value(queries.scores, queries.y)
        return queries.reduced(losses[:, None])[:, 0]
    known = 1.0 if queries.of == "prediction" else np.nan
    return known * queries.slope(queries.scores[:, :, None])[:, 0]
