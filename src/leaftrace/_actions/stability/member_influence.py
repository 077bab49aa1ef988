"""Influence of rows in one member of an average: in its bag, left out of it, and in refits on other rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..._data import inputs
from ..._data.arrays import Ints, Real
from ..._data.errors import LeaftraceError
from ..._engine.methods import LeafInfluence, StructureInfluence
from ..._tracer.answers import kind_of_change, removal_influence, result_tables
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer
from .members import Member, MemberQueries
from .moments import KindMoments, Moments

# Values of soft splits are 1.2 to 2.1 times as large as with fixed trees on Adult and California housing. Where trees
# follow each other closely (few rows, large steps), they can grow from tree to tree without end.
MOST_GROWTH = 10.0
SOFTER = (2, 4, 8)  # times the temperature, for members whose values grow more
TOO_LARGE = f"values were more than {MOST_GROWTH:.0f} times as large as with fixed trees"


@dataclass(frozen=True)
class MemberInfluence:
    """Influence of rows in one member.

    ``own``       of the rows in its bag
    ``left_out``  of the other rows, as candidates at weight zero; None if they are not scored
    ``share``     the factor that brings values to the scale of a model of all rows
    ``calmed``    why the member was asked in another way than by default; empty if it was not
    """

    own: Influence
    left_out: Influence | None
    share: float
    calmed: str = ""


def member_influence(queries: MemberQueries, member: Member) -> MemberInfluence:
    """Influence of the rows in a member's bag and, if they are scored, of the others.

    Where values grow too large by refits or by soft splits (`MOST_GROWTH`), the member is not
    refitted, and by default its choices are made softer, or held fixed at last.
    """
    tracer = queries.training.trace(member)
    refits = bool(queries.refits) and not member.bag.all()
    if not (refits or _may_be_calmed(queries)):
        return _of_member(queries, tracer, member, queries.own_influence(tracer, member))
    largest = _largest(queries, tracer, member)
    reason = ""
    if refits:
        try:
            return _of_refits(queries, tracer, member, largest)
        except _NotRefitted as error:
            reason = str(error)
    asked, own = _calm(queries, tracer, member, largest)
    if asked is not queries and not reason:
        reason = TOO_LARGE
    return replace(_of_member(asked, tracer, member, own), calmed=reason)


def own_changes(queries: MemberQueries, tracer: Tracer, member: Member, rows: Ints) -> Real:
    """(rows, queries) changes of a member's queries without these rows, given by their positions in its bag.

    By default, its choices are made softer or held fixed where values grow too large, as in `member_influence`.
    """
    if not _may_be_calmed(queries):
        return queries.own_influence(tracer, member, rows).change
    _, own = _calm(queries, tracer, member, _largest(queries, tracer, member))
    return own.change[rows]


def _may_be_calmed(queries: MemberQueries) -> bool:
    """Whether members may be asked at another temperature, which the user did not choose."""
    return queries.is_default and isinstance(queries.method, StructureInfluence)


class _NotRefitted(Exception):
    """The trees of a member cannot be refitted on other rows. The message says why."""


def _of_member(
    queries: MemberQueries, tracer: Tracer, member: Member, own: Influence
) -> MemberInfluence:
    """Influence in a member as it was trained. ``own``: of the rows in its bag."""
    share = float(member.bag.mean())
    if not queries.score_left_out or member.bag.all():
        return MemberInfluence(own, None, share)
    rows = member.left_out
    left_out = tracer.score_candidates(
        inputs.take_rows(queries.training.X, rows),
        queries.X,
        queries.y,
        queries.training.y[rows],
        method=queries.method,
        **queries.asked(),
    )
    return MemberInfluence(own, left_out, share)


def _of_refits(
    queries: MemberQueries, tracer: Tracer, member: Member, largest: float
) -> MemberInfluence:
    """The mean over the member's trees refitted on three sets of rows.

    These are its bag, the rows left out of it, and all rows. Each row is inside of two of them and
    outside of one. Both kinds of values count alike, and are brought to one size. `_NotRefitted` if
    a refit is not possible, or its values have a larger root mean square than ``largest``.
    """
    assert isinstance(queries.method, StructureInfluence)
    engine = tracer.engine
    refits = queries.training.refits(tracer, member)
    asked, test_index = queries.of_member(tracer, member)
    order = np.concatenate([member.rows, member.left_out])
    moments = KindMoments(Moments.none(len(order), len(asked), engine.work.dtype))
    for rows in (member.bag, ~member.bag, np.ones_like(member.bag)):
        try:
            found = refits.values(rows[order], asked, queries.X, queries.method.temperature)
        except LeaftraceError as error:  # of leaf values or a starting score that are no numbers
            raise _NotRefitted(str(error).rstrip(".")) from error
        values = np.empty_like(found)
        values[order] = found
        if not (np.isfinite(values).all() and _size(values[rows]) <= largest):
            raise _NotRefitted(TOO_LARGE)
        values *= rows.mean(dtype=values.dtype)
        moments = moments.add(rows, values[rows], None if rows.all() else values[~rows])
    own = removal_influence(
        tracer,
        moments.mean[member.bag],
        np.arange(tracer.n_rows),
        test_index,
        asked,
        queries.method,
        tables=result_tables(tracer, tracer.X_train, None, queries.X, asked),
        change_is=kind_of_change(engine, queries.method),
    )
    left_out = moments.mean[~member.bag]
    ones = np.ones(len(left_out))
    added = replace(own, values=left_out, action="added", weight=ones, positions=None)
    own = own if queries.slopes is None else queries.slopes.named(own)
    return MemberInfluence(own, added, 1.0)


def _calm(
    queries: MemberQueries, tracer: Tracer, member: Member, largest: float
) -> tuple[MemberQueries, Influence]:
    """The queries, and the influence of the rows in a member's bag, at a temperature that is high enough.

    A method that the user chose is left as it is. ``largest``: root mean square of values
    """
    own = queries.own_influence(tracer, member)
    if not _may_be_calmed(queries):
        return queries, own
    assert isinstance(queries.method, StructureInfluence)
    asked = queries
    for times in SOFTER:
        if _size(own.values) <= largest:
            return asked, own
        softer = StructureInfluence(times * queries.method.temperature)
        asked = replace(queries, method=softer)
        own = asked.own_influence(tracer, member)
    if _size(own.values) <= largest:
        return asked, own
    held = replace(queries, method=LeafInfluence())
    return held, held.own_influence(tracer, member)


def _largest(queries: MemberQueries, tracer: Tracer, member: Member) -> float:
    """The root mean square that values of a member's rows may have.

    It goes by that with the trees fixed or, where each row alone decides its leaf, by what a row of
    average effect would have: the spread of the scores divided by the number of rows.
    """
    e = tracer.engine.ensemble
    asked, _ = queries.of_member(tracer, member)
    spread = float(e.scores(e.leaves, e.offset).std(axis=0).max())
    slopes = asked.reduced(np.abs(asked.gradient).sum(axis=1)[:, None])
    held = replace(queries, method=LeafInfluence())
    fixed = _size(held.own_influence(tracer, member).values)
    return MOST_GROWTH * float(np.hypot(fixed, _size(slopes) * spread / e.n_rows))


def _size(values: Real) -> float:
    """The root mean square of values."""
    return float(np.sqrt(np.mean(np.square(values, dtype=float))))
