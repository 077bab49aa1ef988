"""GradientBoostingClassifier and GradientBoostingRegressor (float64).

    value = -learning_rate G / H             log_loss with K > 2 classes: times (K - 1) / K
    absolute_error, quantile:  learning_rate * quantile of the residuals
    huber:  learning_rate * (median + mean of the residuals beyond it, cut at the step's delta)

`subsample` draws rows, and `n_iter_no_change` holds rows out, with random_state: an integer can be replayed, and a draw
recorded while training can be given: ``fit(X, y, monitor=lambda i, model, local: masks.append(local["sample_mask"]))``,
then ``Tracer(..., params={"sample_mask": masks})``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn._loss.loss import HuberLoss
from sklearn.base import clone
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array
from sklearn.utils.stats import _weighted_percentile

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.ensemble import Ensemble, LeafRule, Recorded, Statistic
from ..._model.general_losses import General, Huber, Pinball, Terms
from ..._model.losses import Logistic, Loss, Softmax, SquaredError
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import UNWEIGHTED
from .source import ArrayTrees, OfResiduals, Rows, SklearnSource

_SMOOTH = ("squared_error", "log_loss", "exponential")
_QUANTILES = ("absolute_error", "huber", "quantile")
_SATURATED = 14.0  # beyond this score, 1 - p has lost more than ten of its sixteen digits where p = 1 - (1 - p)


@dataclass(frozen=True)
class Exponential(General):
    """L = y exp(-A) + (1 - y) exp(A) with y in [0, 1]: AdaBoost's loss. p = sigma(2 A)."""

    name: str = "exponential"
    changes = "exponentials", (-1.0, 1.0, 1.0, -1.0, 0.0)

    def value(self, A: F64, y: F64) -> F64:
        return y * np.exp(-A[..., 0]) + (1 - y) * np.exp(A[..., 0])

    def terms(self, A: F64, y: F64) -> Terms:
        up = (1 - y) * np.exp(A)
        down = y * np.exp(-A)
        return up - down, up + down, up + down, up - down

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return -np.exp(A) - np.exp(-A), np.exp(-A) - np.exp(A)

    def response(self, state: F64) -> F64:
        p = 1 / (1 + np.exp(-2 * state[:, 0]))
        return np.stack([1 - p, p], axis=1)


@dataclass(frozen=True)
class RoundedLogistic(Logistic):
    """Logistic loss whose h is p (1 - p) with p taken from g as y - (y - p): so it is rounded where p is near 1."""

    rounded = True

    def hessian(self, state: F64, y: F64) -> F64:
        p = y + self.gradient(state, y)[:, 0]
        return (p * (1 - p))[:, None, None]


@dataclass
class HuberLeaf:
    """The median of the residuals plus the mean of what is beyond it, cut at delta: a quantile of all residuals."""

    quantile: float
    name: str = "median with outliers cut"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        percent: Any = 100 * self.quantile
        delta = _weighted_percentile(np.abs(residual[w > 0]), w[w > 0], percent)
        loss = HuberLoss(quantile=self.quantile, delta=float(delta))
        return OfResiduals(self.name, loss.fit_intercept_only, True)(leaf, M, residual, y, w)


class GradientTrees(ArrayTrees):
    def __init__(self, model: Any) -> None:
        super().__init__(model, model.estimators_.ravel().tolist(), model.estimators_.shape[1])

    def read(self, X: Any) -> Any:
        how: dict[str, Any] = {"dtype": np.float32, "order": "C", "accept_sparse": "csr"}
        return check_array(X, **how)


class GradientSource(SklearnSource):
    """A GradientBoosting model with its training data."""

    trees: GradientTrees
    more_params = ("sample_mask",)

    def _refuse(self) -> None:
        p = self.params
        if p["loss"] not in (*_SMOOTH, *_QUANTILES):
            raise UnsupportedModel(
                f"the loss {p['loss']!r} of this {self.name} is not supported; supported are {', '.join(_SMOOTH)} and, "
                f"by LeafRefit, {', '.join(_QUANTILES)}."
            )
        replayable = isinstance(p["random_state"], Integral)
        if p["subsample"] < 1 and p["loss"] == "huber":
            raise UnsupportedModel(
                "the loss 'huber' is not supported with subsample below 1; train with subsample=1."
            )
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

    def _ensemble(self, leaves: Ids, offset: F64 | None, rows: Rows) -> Ensemble:
        p = self.params
        K = self.model.estimators_.shape[1]
        notes = []
        order = self._training_rows(rows.y)
        if order is not None:
            rows = rows.hold_out(~np.isin(np.arange(len(rows.y)), order))
            notes.append(
                "rows held out by n_iter_no_change found again, checked by the weight of every leaf"
            )
        sample = self._draws(len(rows.y), order)
        if sample is not None:
            notes.append("subsample replayed, checked by the weight of every leaf")
        if offset is not None:
            notes.append("the predictions of the init estimator are taken as given")
        self.notes = tuple(notes)
        loss, statistic = self._loss(K, rows)
        base, base_rule = self._base(K, rows)
        rate = float(p["learning_rate"])
        ensemble = Ensemble(
            loss=loss,
            rule=LeafRule(statistic=statistic),
            learning_rate=rate * (K - 1) / K if K > 1 else rate,
            leaves=leaves,
            **self.trees.arrays,
            values=rate * self.trees.values(),
            y=rows.y,
            w=rows.w,
            w_factor=rows.factor,
            base=base,
            base_rule=base_rule,
            offset=offset,
            sample=sample,
            recorded=Recorded("weight", self.trees.weights()),
            weights_fixed=UNWEIGHTED
            if isinstance(base_rule, LabelStatistic) and not rows.given
            else "",
        )
        if (
            isinstance(loss, Logistic)
            and np.abs(ensemble.scores(leaves, offset)).max() > _SATURATED
        ):
            return replace(ensemble, loss=RoundedLogistic())
        return ensemble

    def _loss(self, K: int, rows: Rows) -> tuple[Loss, Statistic | None]:
        name = self.params["loss"]
        alpha = float(self.params.get("alpha", 0.5))
        if name in _SMOOTH:
            logistic = Softmax(K) if K > 1 else Logistic()
            return {"squared_error": SquaredError(), "exponential": Exponential()}.get(
                name, logistic
            ), None
        if name == "huber":
            return Huber(float(self.model._loss.closs.delta)), HuberLeaf(alpha)
        level = 0.5 if name == "absolute_error" else alpha
        kind = "median" if name == "absolute_error" else f"{level:g} quantile"
        # GradientBoosting always has weights: ones, if none were given.
        return Pinball(level, name.replace("_", " ")), OfResiduals(
            kind, self.model._loss.fit_intercept_only, True
        )

    def _base(self, K: int, rows: Rows) -> tuple[F64, BaseRule | None]:
        """The starting score (K,) and its rule. init="zero" and an estimator of the user's have none."""
        if self.model.init is not None:
            return np.zeros(K), None
        base = self.model._raw_predict_init(np.zeros((1, self.model.n_features_in_), np.float32))[0]
        if self.classes is not None:
            half = self.params["loss"] == "exponential"
            return base, Mean("centred log") if K > 1 else Mean("logit", scale=2.0 if half else 1.0)
        if self.params["loss"] == "squared_error":
            return base, Mean()

        def fit(y: F64, weights: F64 | None) -> Any:
            dummy: Any = clone(self.model.init_)
            return dummy.fit(y[:, None], y, sample_weight=weights).constant_

        return base, LabelStatistic(rows.constant(fit))

    def _offset(self, X: Any) -> F64 | None:
        given = self.model.init
        return None if given is None or isinstance(given, str) else self.model._raw_predict_init(X)

    def _training_rows(self, y: F64) -> Ints | None:
        """Positions of the rows that were not held out, in the order of training; None means all as they are."""
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
        """For each tree (n,) the rows drawn for it; the trees of a step share theirs."""
        if self.params["subsample"] >= 1:
            return None
        (steps, K) = self.model.estimators_.shape
        trained = n if order is None else len(order)
        masks = self.params.get("sample_mask")
        if masks is None:
            masks = self._drawn_again(steps, K, trained)
        masks = np.asarray(masks, dtype=np.uint8)
        if masks.shape != (steps, trained):
            raise InvalidInput(
                f"params['sample_mask'] has shape {masks.shape}; expected one mask a step for the rows in training, "
                f"shape {(steps, trained)}."
            )
        drawn = np.zeros((steps, n), np.uint8)
        drawn[:, slice(None) if order is None else order] = masks
        return [mask for mask in drawn for _ in range(K)]

    def _drawn_again(self, steps: int, K: int, trained: int) -> list[NDArray[Any]]:
        rng = np.random.RandomState(int(self.params["random_state"]))
        masks = []
        for _ in range(steps):
            masks.append(
                _random_sample_mask(trained, max(1, int(self.params["subsample"] * trained)), rng)
            )
            for _ in range(K):
                rng.randint(0, 0x7FFFFFFF)  # the seed of a tree
        return masks

    def _scores(self, model: Any, X: Any) -> F64:
        return model._raw_predict(X)

    def _fresh(self, model: Any, threads: int) -> Any:
        if self.params["n_iter_no_change"] is None:  # a monitor may have stopped it
            return model.set_params(n_estimators=len(self.model.estimators_))
        return model
