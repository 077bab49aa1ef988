"""GradientBoostingClassifier and GradientBoostingRegressor (float64).

    value = -learning_rate G / H             log_loss with K > 2 classes: times (K - 1) / K
    absolute_error, quantile:  learning_rate * quantile of the residuals
    huber:  learning_rate * (median + mean of the residuals beyond it, cut at the step's delta)

`subsample` draws rows, and `n_iter_no_change` holds rows out, with random_state. An integer can be
replayed. Otherwise the user can record the draws while training and pass them:
``fit(X, y, monitor=lambda i, model, local: masks.append(local["sample_mask"]))``, then
``Tracer(..., params={"sample_mask": masks})``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.ensemble import Ensemble, Recorded
from ..._model.general_losses import Huber, Pinball
from ..._model.leaf_rule import LeafRule, Statistic
from ..._model.losses import Logistic, Loss, Softmax, SquaredError
from ..._model.splits import SplitSearch
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import UNWEIGHTED, native_values
from .labels import ResidualStatistic, WeightedLabels
from .losses import Exponential, HuberLeaf, RoundedLogistic
from .source import SklearnSource
from .splits import array_search
from .trees import ArrayTrees, Trees

_SMOOTH = ("squared_error", "log_loss", "exponential")
_QUANTILES = ("absolute_error", "huber", "quantile")
# Beyond this score, 1 - p has lost more than ten of its sixteen digits where p = 1 - (1 - p).
_SATURATED = 14.0


class GradientTrees(ArrayTrees):
    """The trees of a GradientBoosting model, K a step."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, model.estimators_.ravel().tolist(), model.estimators_.shape[1])

    def read(self, X: Any) -> Any:
        options: dict[str, Any] = {"dtype": np.float32, "order": "C", "accept_sparse": "csr"}
        return check_array(X, **options)


class GradientSource(SklearnSource):
    """A GradientBoosting model with its training data."""

    trees: GradientTrees
    extra_params = ("sample_mask",)

    def _refuse(self) -> None:
        p = self.params
        if p["loss"] not in (*_SMOOTH, *_QUANTILES):
            raise UnsupportedModel(
                f"the loss {p['loss']!r} of this {self.name} is not supported; supported are {', '.join(_SMOOTH)} and, "
                f"by LeafRefit, {', '.join(_QUANTILES)}."
            )
        replayable = isinstance(p["random_state"], Integral)
        if p["subsample"] < 1 and "sample_mask" not in p and not replayable:
            raise UnsupportedModel(
                f"subsample={p['subsample']:g} drew rows that random_state={p['random_state']!r} cannot draw again; "
                "train with an integer random_state, or record the draws while training: "
                "fit(X, y, monitor=lambda i, model, local: masks.append(local['sample_mask'])), and pass "
                "params={'sample_mask': masks}."
            )
        if p["n_iter_no_change"] is not None and not replayable:
            raise UnsupportedModel(
                f"n_iter_no_change held out rows that random_state={p['random_state']!r} cannot find again; "
                "train with an integer random_state."
            )

    def _trees(self, model: Any) -> GradientTrees:
        return GradientTrees(model)

    def _ensemble(self, leaves: Ids, offset: F64 | None, labels: WeightedLabels) -> Ensemble:
        K = self.model.estimators_.shape[1]
        n = len(labels.y)
        order = self._training_order(labels.y)
        if order is not None:
            self.early_stopping = "repeated"
            labels = labels.hold_out(~np.isin(np.arange(n), order))
        sample = self._draws(n, order)
        self.notes = tuple(self._remarks(order is not None, sample is not None, offset is not None))
        loss, statistic = self._loss(K)
        base, base_rule = self._base(K, labels)
        rate = float(self.params["learning_rate"])
        unweighted = isinstance(base_rule, LabelStatistic) and not labels.has_weights
        ensemble = Ensemble(
            loss=loss,
            rule=LeafRule(statistic=statistic),
            learning_rate=rate * (K - 1) / K if K > 1 else rate,
            leaves=leaves,
            **self.trees.layout,
            values=rate * self.trees.values(),
            y=labels.y,
            w=labels.w,
            w_factor=labels.factor,
            base=base,
            base_rule=base_rule,
            offset=offset,
            sample=sample,
            recorded=Recorded("weight", self.trees.weights()),
            further_records=[Recorded("rows", self.trees.rows())],
            weights_fixed=UNWEIGHTED if unweighted else "",
        )
        if isinstance(loss, Logistic) and _saturates(ensemble):
            return replace(ensemble, loss=RoundedLogistic())
        return ensemble

    def _remarks(self, held_out: bool, drawn: bool, has_offset: bool) -> Iterator[str]:
        """Yield the notes for the verdict on the replay."""
        if held_out:
            yield "rows held out by n_iter_no_change found again, checked by the weight of every leaf"
        if drawn:
            yield "subsample replayed, checked by the weight of every leaf"
        if has_offset:
            yield "the predictions of the init estimator are taken as given"

    def _loss(self, K: int) -> tuple[Loss, Statistic | None]:
        """Return the loss, and the statistic that leaves are if they are no Newton steps."""
        name = self.params["loss"]
        alpha = float(self.params.get("alpha", 0.5))
        if name == "squared_error":
            return SquaredError(), None
        if name == "exponential":
            return Exponential(), None
        if name == "log_loss":
            return Softmax(K) if K > 1 else Logistic(), None
        if name == "huber":
            return Huber(float(self.model._loss.closs.delta)), HuberLeaf(alpha)
        level = 0.5 if name == "absolute_error" else alpha
        kind = "median" if name == "absolute_error" else f"{level:g} quantile"
        # GradientBoosting always has weights: ones, if none were given.
        statistic = ResidualStatistic(kind, self.model._loss.fit_intercept_only, weighted=True)
        return Pinball(level, name.replace("_", " ")), statistic

    def _base(self, K: int, labels: WeightedLabels) -> tuple[F64, BaseRule | None]:
        """Return the starting score (K,) and its rule.

        There is no rule with init="zero" and with an estimator of the user's."""
        if self.model.init is not None:
            return np.zeros(K), None
        base = self.model._raw_predict_init(np.zeros((1, self.model.n_features_in_), np.float32))[0]
        if K > 1:
            return base, Mean("centred log")
        if self.classes is not None:
            half = self.params["loss"] == "exponential"
            return base, Mean("logit", scale=2.0 if half else 1.0)
        if self.params["loss"] == "squared_error":
            return base, Mean()

        def fit(y: F64, weights: F64 | None) -> Any:
            dummy: Any = clone(self.model.init_)
            return dummy.fit(y[:, None], y, sample_weight=weights).constant_

        return base, LabelStatistic(labels.starting_score(fit))

    def _offset(self, X: Any) -> F64 | None:
        init = self.model.init
        return None if init is None or isinstance(init, str) else self.model._raw_predict_init(X)

    def _training_order(self, y: F64) -> Ints | None:
        """Return the positions of the rows that were not held out, in the order of training.

        None means all rows as they are."""
        if self.params["n_iter_no_change"] is None:
            return None
        try:
            kept, _ = train_test_split(
                np.arange(len(y)),
                random_state=self.params["random_state"],
                test_size=self.params["validation_fraction"],
                stratify=None if self.classes is None else y,
            )
        except ValueError as error:
            raise InvalidInput(
                f"the split of n_iter_no_change cannot be made with these {len(y)} rows ({error}); pass all rows that "
                "were given to fit()."
            ) from None
        return np.asarray(kept)

    def _draws(self, n: int, order: Ints | None) -> list[NDArray[np.uint8]] | None:
        """Return for each tree which rows (n,) it drew; the trees of a step share them."""
        if self.params["subsample"] >= 1:
            return None
        steps, K = self.model.estimators_.shape
        trained = n if order is None else len(order)
        masks = self.params.get("sample_mask")
        if masks is None:
            masks = self._replayed_draws(steps, K, trained)
        masks = np.asarray(masks, dtype=np.uint8)
        if masks.shape != (steps, trained):
            raise InvalidInput(
                f"params['sample_mask'] has shape {masks.shape}; expected one mask a step for the rows in training, "
                f"shape {(steps, trained)}."
            )
        drawn = np.zeros((steps, n), np.uint8)
        drawn[:, slice(None) if order is None else order] = masks
        return [mask for mask in drawn for _ in range(K)]

    def _replayed_draws(self, steps: int, K: int, trained: int) -> list[NDArray[Any]]:
        """Draw the rows of each step again, as masks (trained,)."""
        rng = np.random.RandomState(int(self.params["random_state"]))
        count = max(1, int(self.params["subsample"] * trained))
        masks = []
        for _ in range(steps):
            masks.append(_random_sample_mask(trained, count, rng))
            for _ in range(K):
                rng.randint(0, 0x7FFFFFFF)  # the seed of a tree
        return masks

    def _scores(self, model: Any, X: Any) -> F64:
        return model._raw_predict(X)

    def split_search(self) -> SplitSearch:
        return array_search(self.trees, self.params, self._split_values, "ordered", self.ensemble)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        if self.classes is not None and F.shape[1] == 1:
            return self.classes[(F[:, 0] >= 0).astype(int)]  # zero stands for the second class
        return super().own_predictions(F)

    def _set_values(self, trees: Trees, e: Ensemble) -> None:
        rate = float(self.params["learning_rate"])
        trees.set_values(native_values(self.ensemble, e, self.trees.values(), 1 / rate))

    def _prepare_clone(self, model: Any, threads: int) -> Any:
        if self.params["n_iter_no_change"] is None:  # a monitor may have stopped it
            return model.set_params(n_estimators=len(self.model.estimators_))
        return model


def _saturates(e: Ensemble) -> bool:
    """Check for scores of training rows that are so large that p (1 - p) is rounded."""
    return bool(np.abs(e.scores(e.leaves, e.offset)).max() > _SATURATED)
