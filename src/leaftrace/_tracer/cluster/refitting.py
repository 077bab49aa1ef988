"""Refits on partitions: all leaf values again, from the rows that are left.

Each step is a reduction. A partition keeps its scores from step to step; if it does not find them, it
goes through the refitted steps again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, LeaftraceError
from ..._engine.leaf_equations import LeafEquations, SumsRequest
from ..._engine.replay import Trace, base_labels
from ..._engine.steps import Step, TrainingScores
from ..._engine.unknown_limits import check_iterations
from ..._model.ensemble import Ensemble
from ..._model.start import condense_labels
from ..._model.training_set import TrainingSet
from . import scratch
from .part import Part
from .protocol import Cluster
from .replaying import Totals


class Removal(Protocol):
    """Rows that leave the training set."""

    def mask(self, part: Part) -> NDArray[np.bool_]:
        """(n,) whether each row of a partition leaves."""
        ...

    def check(self, count: int) -> None:
        """Raise an error if another number of rows leaves than was meant."""
        ...


@dataclass(frozen=True)
class RemovedPositions:
    """Rows that leave, by their positions over all partitions, in ascending order."""

    positions: Ints

    def mask(self, part: Part) -> NDArray[np.bool_]:
        first, last = np.searchsorted(self.positions, [part.start, part.start + len(part)])
        mask = np.zeros(len(part), bool)
        mask[self.positions[first:last] - part.start] = True
        return mask

    def check(self, count: int) -> None:
        """Nothing: a position is that of one row."""


@dataclass(frozen=True)
class RemovedNames:
    """Rows that leave, by their names, which are values of this column."""

    names: np.ndarray
    column: str

    def mask(self, part: Part) -> NDArray[np.bool_]:
        return np.isin(part.names, self.names)

    def check(self, count: int) -> None:
        check_names(count, len(self.names), self.column)


def check_names(found: int, meant: int, column: str) -> None:
    """Raise an error if the names of rows do not tell them apart, or are others each time."""
    if found != meant:
        raise InvalidInput(
            f"{meant:,} rows were asked for by the column '{column}', and {found:,} found by its values; order= must "
            "name each row by a value of its own, the same each time the rows are read."
        )


@dataclass(frozen=True)
class RowsLeft(TrainingSet):
    """The training set without some rows, of which only the number is known here."""

    count: int = 0

    @property
    def removed(self) -> Ints:
        raise InvalidInput(
            "the rows that a refit on a cluster left out are not kept; you have them."
        )

    def in_words(self) -> str:
        return f", without {self.count:,} row{'s' * (self.count != 1)}"


def rest_of(part: Part, e: Ensemble, removal: Removal) -> Ensemble:
    """The model with the rows of a partition that stay, as one that stands for all of them.

    If none stays, it has one row of weight zero, marked as removed.
    """
    keep = np.flatnonzero(~removal.mask(part))
    rest = replace(part.ensemble(e).take(keep if len(keep) else np.arange(1)), whole=e.whole)
    return rest if len(keep) else replace(rest, w=np.zeros(1), removed=np.ones(1, bool))


def totals_left(part: Part, e: Ensemble, removal: Removal) -> Totals:
    """Totals of the rows of a partition that stay."""
    rest = rest_of(part, e, removal)
    if rest.removed is not None:
        return Totals(0, 0.0, (rest.y[:0], rest.w[:0]))
    return Totals(rest.n_rows, float(rest.w.sum()), base_labels(rest))


@dataclass
class _RefittedRows:
    """The rows of a partition in a refit.

    ``t``  the step that the scores have come to; -1 before the first
    """

    rest: Ensemble
    scores: TrainingScores
    t: int = -1
    step: Step | None = None

    def advance(self, t: int, values: F64) -> Step:
        """Bring the scores to step t, with refitted values (leaves, O) of the steps before."""
        while self.step is None or self.t < t:
            self.t += 1
            self.step = Step(self.rest, self.t)
            self.step.advance(self.scores, values)
        return self.step


@dataclass(frozen=True)
class BySet:
    """Sums for several sets of rows that leave, by the number of the set."""

    sums: dict[int, Any]

    def __add__(self, other: BySet) -> BySet:
        return BySet({s: found + other.sums[s] for s, found in self.sums.items()})


def totals_by_set(part: Part, e: Ensemble, removals: Sequence[Removal]) -> BySet:
    """Totals of the rows of a partition that stay, for each set."""
    return BySet({s: totals_left(part, e, removal) for s, removal in enumerate(removals)})


def refitted_sums(
    part: Part,
    rests: Sequence[Ensemble],
    removals: Sequence[Removal],
    key: str,
    t: int,
    values: Sequence[F64],
    requests: dict[int, SumsRequest],
) -> BySet:
    """The sums of step t that were requested, over the rows of a partition that stay.

    ``rests``   for each set the model without rows; ``whole`` counts those that stay
    ``values``  for each set (leaves, O), of which those of the steps before t are refitted
    """
    kept: dict[int, _RefittedRows] = scratch.take(key, part.identity) or {}
    sums = {}
    for s, request in requests.items():
        rows = kept.get(s)
        if rows is None or rows.t > t:
            rest = rest_of(part, rests[s], removals[s])
            rows = kept[s] = _RefittedRows(rest, TrainingScores(rest))
        sums[s] = rows.advance(t, values[s]).answer(request)
    scratch.keep(key, part.identity, kept)
    return BySet(sums)


def further_sums(
    kept: dict[int, _RefittedRows],
    t: int,
    values: Sequence[F64],
    requests: dict[int, SumsRequest],
) -> BySet | None:
    """The same from rows that a process has kept; None if some have not been kept, or are too far."""
    if any(s not in kept or kept[s].t > t for s in requests):
        return None
    return BySet({s: kept[s].advance(t, values[s]).answer(r) for s, r in requests.items()})


Refit = tuple[Ensemble, int]  # the model with refitted values, and how many rows it was without


def refit_without(cluster: Cluster, trace: Trace, removal: Removal) -> Refit:
    """Replay all steps without some rows, and count these; the same as `refit_on`."""
    return refits_without(cluster, trace, [removal])[0]


def refits_without(cluster: Cluster, trace: Trace, removals: Sequence[Removal]) -> list[Refit]:
    """Replay all steps without each of these sets of rows.

    A step is a reduction for all sets together, or a few of them where leaves are iterated.
    Partitions keep a copy of their rows for each set.
    """
    e = trace.ensemble
    sent_removals = cluster.send(list(removals))
    found: BySet = cluster.total(totals_by_set, e=cluster.send(e), removals=sent_removals)
    totals = [found.sums[s] for s in range(len(removals))]
    assert e.whole is not None
    counts = [e.whole[0] - left.n for left in totals]
    for removal, count in zip(removals, counts, strict=True):
        removal.check(count)
    rests = [_model_left(trace, of_set) for of_set in totals]
    ask = {"rests": cluster.send(rests), "removals": sent_removals, "key": uuid4().hex}
    values = [np.zeros_like(e.values) for _ in removals]
    for t in range(e.n_steps):
        _refit_step(cluster, trace, rests, t, values, ask)
    cluster.forget(ask["key"])
    if not all(np.isfinite(of_set).all() for of_set in values):
        raise LeaftraceError(
            "with this training set the leaf values of the model are not finite numbers; train the model with a "
            "smaller learning rate or more regularisation."
        )
    return [
        (replace(e, base=rest.base, values=refitted), count)
        for rest, refitted, count in zip(rests, values, counts, strict=True)
    ]


def _model_left(trace: Trace, totals: Totals) -> Ensemble:
    """The model without rows, for those that stay."""
    if not totals.weight:
        raise InvalidInput("without= leaves no training row of non-zero weight; keep at least one.")
    rest = replace(
        trace.ensemble, whole=(totals.n, totals.weight), recorded=None, further_records=()
    )
    return replace(rest, base=_refitted_base(trace, totals))


def _refit_step(
    cluster: Cluster,
    trace: Trace,
    rests: Sequence[Ensemble],
    t: int,
    values: Sequence[F64],
    ask: dict[str, Any],
) -> None:
    """Refit the values (leaves, O) of step t for all sets, in place."""
    e = trace.ensemble
    equations = [LeafEquations(rest, t, derivatives=False) for rest in rests]
    scales = trace.steps[t].scale.tolist()
    running = {s: own.iterate_with_scales(scales) for s, own in enumerate(equations)}
    answers: dict[int, Any] = dict.fromkeys(running)  # None begins
    while running:
        requests = {}
        for s, coroutine in list(running.items()):
            try:
                requests[s] = coroutine.send(answers[s])
            except StopIteration as end:
                del running[s]
                check_iterations(trace.strictest_rule, equations[s], end.value)
                values[s][e.leaf_range(t)] = e.rate(t) * end.value[-1].after()
        if requests:
            step = {"t": t, "values": list(values), "requests": requests}
            found: BySet | None = cluster.go_on(ask["key"], further_sums, **step)
            if found is None:
                found = cluster.total(refitted_sums, **ask, **step)
            assert found is not None
            answers = found.sums


def _refitted_base(trace: Trace, totals: Totals) -> F64:
    """(K,) the starting score for the rows that stay, with the rounding of the model's own."""
    e = trace.ensemble
    if e.base_rule is None:
        return e.base
    labels = condense_labels(e.base_rule, e.loss, *totals.labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        fitted = e.base_rule.fit(e.loss, *labels)
    if not np.isfinite(fitted).all():
        raise InvalidInput(
            "this training set has no starting score for the model: keep some rows of each class, or with counts "
            "some that are not zero."
        )
    return e.base + fitted - e.base_rule.fit(e.loss, *trace.base_labels)
