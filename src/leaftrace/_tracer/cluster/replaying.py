"""Replay of a model from sums over partitions.

The model's own leaf values give every row's score before each step. So one map-reduce gives the sums
of all steps, and the replay compares them with the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._adapters import Source
from ..._data.arrays import F64
from ..._engine.chain_sums import sums_of_all_steps
from ..._engine.fidelity import largest_gradient
from ..._engine.leaf_equations import SumsRequest
from ..._engine.replay import Trace, base_labels, replay_from_sums
from ..._engine.steps import Step, TrainingScores
from ..._model.ensemble import Ensemble
from ..._model.start import condense_labels
from .part import Part, without_rows
from .protocol import Cluster


@dataclass(frozen=True)
class Totals:
    """Number and weight of rows, and condensed labels and weights that give the starting score."""

    n: int
    weight: float
    labels: tuple[F64, F64]

    def __add__(self, other: Totals) -> Totals:
        y = np.concatenate([self.labels[0], other.labels[0]])
        w = np.concatenate([self.labels[1], other.labels[1]])
        return Totals(self.n + other.n, self.weight + other.weight, (y, w))


def take_totals(part: Part, e: Ensemble) -> Totals:
    """The totals of one partition."""
    e = part.ensemble(e)
    return Totals(e.n_rows, float(e.w.sum()), base_labels(e))


@dataclass(frozen=True)
class StepSums:
    """Sums over rows that steps have requested."""

    by_step: dict[int, Any]
    gradient: float = 0.0  # the largest absolute one at the starting score

    def __add__(self, other: StepSums) -> StepSums:
        by_step = {t: sums + other.by_step[t] for t, sums in self.by_step.items()}
        return StepSums(by_step, max(self.gradient, other.gradient))


def take_sums(part: Part, e: Ensemble, requests: dict[int, SumsRequest]) -> StepSums:
    """The requested sums over the rows of this partition, at the model's own scores."""
    e = part.ensemble(e)
    scores = TrainingScores(e)
    gradient = largest_gradient(e, scores.A)
    are_first = all(request.S is None and request.s is None for request in requests.values())
    all_sums = sums_of_all_steps(e, scores.A, None) if are_first else None
    by_step = {}
    for t in range(max(requests) + 1):
        step = Step(e, t)
        if all_sums is None:
            step.advance(scores)
        else:
            step.use_sums(all_sums[e.leaf_range(t)])
        if t in requests:
            by_step[t] = step.answer(requests[t])
    return StepSums(by_step, gradient)


def replay_on(cluster: Cluster, source: Source, knows_labels: bool) -> Trace:
    """Replay the model from sums over the partitions.

    ``knows_labels``: the source has been opened with the labels of all rows, and not with stand-ins.
    """
    e = without_rows(source.ensemble)
    totals: Totals = cluster.total(take_totals, e=cluster.send(e))
    labels = totals.labels
    if e.base_rule is not None:
        labels = condense_labels(e.base_rule, e.loss, *labels)
        if not knows_labels:
            e = without_rows(source.rebased(e.base_rule.fit(e.loss, *labels)))
    e = replace(e, whole=(totals.n, totals.weight))
    sent = cluster.send(e)

    def sums_by_request(requests: dict[int, SumsRequest]) -> StepSums:
        return cluster.total(take_sums, e=sent, requests=requests)

    # All steps begin with the same request; its sums also give the largest gradient.
    first = sums_by_request({t: SumsRequest() for t in range(e.n_steps)})
    taken = [first]

    def sums_by_step(requests: dict[int, SumsRequest]) -> dict[int, Any]:
        sums = taken.pop() if taken else sums_by_request(requests)
        return sums.by_step

    return replay_from_sums(e, sums_by_step, first.gradient, labels, source.tolerance, source.notes)
