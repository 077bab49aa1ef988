"""XGBoost models that were trained again, and the objective of users in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost as xgb

from ..._data.arrays import F64
from ..._data.forks import works_in_forks
from ..._model.early_stopping import Rounds
from ..._model.further_losses.own import OwnFunctions
from ..._model.training_set import TrainingSet
from .model import learner, parameters
from .prediction import predict
from .start import margin
from .survival import AFT
from .users_model import with_booster

if TYPE_CHECKING:
    from .source import XGBoostSource


def training_objective(functions: OwnFunctions) -> Callable[[Any, xgb.DMatrix], tuple[Any, Any]]:
    """A user's objective as XGBoost's training takes it, with the weights of rows."""

    def objective(scores: Any, rows: xgb.DMatrix) -> tuple[Any, Any]:
        w = rows.get_weight()
        g, h = functions.objective(scores, rows.get_label())
        if not w.size:
            return g, h
        w = w.reshape(-1, *[1] * (np.ndim(g) - 1))
        return w * g, w * h

    return objective


@dataclass(frozen=True)
class RetrainedXGBoost:
    """An XGBoost model trained again."""

    booster: xgb.Booster
    source: XGBoostSource
    rows: TrainingSet  # labels as XGBoost takes them
    rounds: Rounds

    def __post_init__(self) -> None:
        _ = self.base  # raises an error for labels that have no finite starting score

    @cached_property
    def base(self) -> F64:  # (K,)
        return margin(self.source.objective, self.source._base_score(learner(self.booster)))

    @cached_property
    def structure_changed(self) -> bool:
        return not self.source.same_structure(self.booster, self.rounds.count)

    @works_in_forks
    def scores(self, X: Any) -> F64:
        source = self.source
        matrix = self.source._matrix(X)
        F = predict(
            self.booster, matrix, output_margin=True, iteration_range=(0, self.rounds.count)
        )
        F = F.astype(np.float64).reshape(matrix.num_row(), -1)
        # A matrix's base_margin stands for the base score in F; here it is the caller's, as what it adds to that.
        own = np.asarray(matrix.get_base_margin(), float)
        trees = F - (own.reshape(F.shape) if own.size else self.base)
        return trees + (self.base if source.estimated else source.base)

    def own_model(self) -> Any:
        booster = self.booster
        if self.source.rounds < booster.num_boosted_rounds():
            booster.set_attr(best_iteration=str(self.source.rounds - 1))
        return with_booster(self.source.opened, booster)

    @works_in_forks
    def open(self) -> XGBoostSource:
        source = self.source
        rows = self.rows
        t = self.source.training
        X = source._altered(rows, 1) if isinstance(source.X, xgb.DMatrix) else rows.table(source.X)
        codes = rows.labels(t.y)
        offset = rows.offset(t.offset)
        labels = codes if source.classes is None else source.classes[codes.astype(int)]
        if source.objective == AFT:
            labels = np.exp(codes)
        weight = rows.weights(t.sample_weight)
        baseline = None if offset is None else offset + source.base
        rounds = None if source.opened.rounds is None else self.rounds.count
        opened = replace(source.opened, booster=self.booster, rounds=rounds)
        queries = None if source.queries is None else source.queries.take(rows.keep).sizes
        params = parameters(self.booster)
        return type(source)(
            opened, learner(self.booster), params, X, labels, weight, baseline, qid=queries
        )
