"""Models without some training rows: leaf values refitted on the fixed structure, or the whole model retrained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ._adapters import Retrained, Source
from ._arrays import F64, Ints
from ._ensemble import Ensemble
from ._errors import InvalidInput
from ._replay import Step, Trace, walk


@dataclass(frozen=True)
class AlteredModel:
    """What refitted and retrained models share. ``without`` are the positions of the removed training rows."""

    source: Source
    without: Ints

    def scores(self, X: Any, baseline: Any = None) -> F64:
        raise NotImplementedError

    def predict(self, X: Any, baseline: Any = None) -> F64:
        """Raw predictions, (m,) or (m, K): what ``of="prediction"`` is about."""
        F = self.scores(X, baseline)
        return F[:, 0] if F.shape[1] == 1 else F

    def predict_proba(self, X: Any, baseline: Any = None) -> F64:
        """Class probabilities (m, classes), for classifiers."""
        loss = self.source.ensemble.loss
        response = loss.response(loss.state(self.scores(X, baseline)))
        if response.ndim == 1:
            raise InvalidInput(f"a model with the {loss.name} loss has no class probabilities; use predict().")
        return response

    def loss(self, X: Any, y: Any = None, baseline: Any = None) -> F64:
        """(m,) the model's own loss of each row."""
        F = self.scores(X, baseline)
        y = self.source.own_labels(X) if y is None else y
        return self.source.ensemble.loss.value(F, self.source.labels(y, len(F), "y"))


@dataclass(frozen=True)
class RefittedModel(AlteredModel):
    """The model with its trees as they are and all leaf values refitted without some rows."""

    ensemble: Ensemble  # with the refitted leaf values and base score

    def scores(self, X: Any, baseline: Any = None) -> F64:
        return self.ensemble.scores(*self.source.rows(X, baseline))


@dataclass(frozen=True)
class RetrainedModel(AlteredModel):
    """The model trained again without some rows."""

    retrained: Retrained

    @property
    def structure_changed(self) -> bool:
        """Does any training row fall into another leaf of any tree?"""
        return self.retrained.structure_changed

    def scores(self, X: Any, baseline: Any = None) -> F64:
        offset = self.source.rows(X, baseline)[1]
        return self.retrained.scores(X) + (0.0 if offset is None else offset)


def refit_on(trace: Trace, keep: Ints) -> Ensemble:
    """Replay all steps with these rows alone: exact, one pass. Their number counts in lam, and halvings by backtracking
    stay where they were."""
    e, rest = trace.ensemble, trace.ensemble.take(keep)
    base = e.base
    if e.base_rule is not None:  # the change only, so that the model's own rounding of its base stays
        fits = [e.base_rule.fit(part.loss, part.y, part.base_weight) for part in (rest, e)]
        base = base + fits[0] - fits[1]
    rest = replace(rest, base=base)
    A, values = rest.start(), np.zeros_like(e.values)
    for t, step in enumerate(trace.steps):
        path = walk(Step(rest, t, A, values), step.scale.tolist())
        values[e.leaf_range(t)] = e.rate(t) * path[-1].after()
    return replace(e, base=base, values=values)
