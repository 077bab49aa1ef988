"""XGBoost's estimated base_score as a starting score, with its derivative.

The estimate depends on the objective and on the version that trained; a file keeps neither the
version nor whether a link was applied. So every rule that some version had is tried, and the one
that gives the model's own number is taken. Near even classes, logit(mean) and a Newton step from zero
are the same number in float32 and have other slopes; the rule of the installed version is taken then.

    squarederror                       weighted mean
    logistic, poisson, gamma, tweedie  since 3.0 link(weighted mean), logitraw without the link;
                                       before, and wherever scale_pos_weight is not 1, one Newton
                                       step from zero
    squaredlogerror, pseudohubererror  one Newton step from zero
    softmax                            since 3.2 log(share + 1e-6), centred; 3.1 the share itself;
                                       before, 0.5
    hinge                              since 2.1 1 or 0, whichever side has more weight; before, 0.5
    absoluteerror, quantileerror       quantile of the labels
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xgboost as xgb

from ..._data.arrays import F64, Ints
from ..._data.errors import UnsupportedModel
from ..._model.losses import Loss
from ..._model.start import BaseRule, Mean, NewtonStep
from .objectives import as_float32
from .survival import AFT

_DEFAULT = 0.5  # where nothing is estimated
_LINKS: dict[str, Literal["identity", "log", "logit"]] = {
    "survival:cox": "log",
    "reg:squarederror": "identity",
    "reg:logistic": "logit",
    "binary:logistic": "logit",
    "binary:logitraw": "identity",
    "count:poisson": "log",
    "reg:gamma": "log",
    "reg:tweedie": "log",
    AFT: "log",
}


@dataclass(frozen=True)
class ClassShares:
    """Share p of each class in the weight: log(p + 1e-6) minus the mean of these, or p itself."""

    logarithm: bool
    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return self._score(np.bincount(y.astype(int), b, loss.n_outputs) / b.sum())

    def fit_float32(self, loss: Loss, y: F64, b: F64) -> F64:
        """The same as `fit` with XGBoost's sums, which are float32."""
        b32 = b.astype(np.float32)
        totals = [np.cumsum(b32[y == k])[-1:].sum() for k in range(loss.n_outputs)]
        return self._score(np.array(totals, np.float64) / np.cumsum(b32)[-1])

    def largest_logarithm(self, loss: Loss, y: F64, b: F64) -> float:
        """The largest |log(p + 1e-6)|, before the mean is taken off."""
        p = np.bincount(y.astype(int), b, loss.n_outputs) / b.sum()
        return float(np.abs(np.log(p + 1e-6)).max())

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        eye = np.eye(loss.n_outputs)
        total = b.sum()
        p = np.bincount(y.astype(int), b, loss.n_outputs) / total
        slope = eye
        if self.logarithm:
            slope = np.diag(1 / (p + 1e-6)) - 1 / (len(p) * (p + 1e-6))
        slope = slope / total
        by_weight = (eye[at.astype(int)] - p) @ slope.T
        return by_weight, np.broadcast_to(slope, (len(at), *slope.shape))

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        removed = np.eye(loss.n_outputs)[y[index].astype(int)] * b[index, None]
        totals = np.bincount(y.astype(int), b, loss.n_outputs) - removed
        return self._score((totals / (b.sum() - b[index, None])).T)

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return True

    def _score(self, p: F64) -> F64:
        """(K, ...) scores from shares (K, ...)."""
        logs = np.log(np.maximum(p, 0) + 1e-6)
        return logs - logs.mean(axis=0) if self.logarithm else p


@dataclass(frozen=True)
class ScaledNewtonStep:
    """A Newton step of a loss whose second derivative XGBoost multiplies by a constant."""

    factor: float
    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return self.factor * NewtonStep().fit(loss, y, b)

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        by_weight, by_label = NewtonStep().effects(loss, y, b, at)
        return self.factor * by_weight, self.factor * by_label

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        return self.factor * NewtonStep().without(loss, y, b, index)

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return NewtonStep().needs_only_mean(loss, y)


@dataclass(frozen=True)
class HeavierSide:
    """1 if rows with label 1 have more weight than rows with label 0, otherwise 0.

    The weight of a single row does not move it.
    """

    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return np.array([float(b @ (2 * y - 1) > 0)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        return np.zeros((len(at), 1)), np.zeros((len(at), 1, 1))

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        return (b @ (2 * y - 1) - b[index] * (2 * y[index] - 1) > 0).astype(float)[None]

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return True


@dataclass(frozen=True)
class RoundedRule:
    """Another rule, and how far XGBoost's float32 result is from it.

    The difference is large where a share near 1 becomes a logit.
    """

    rule: BaseRule
    rounding: F64  # (K,)

    @property
    def smooth(self) -> bool:
        return self.rule.smooth

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return self.rule.fit(loss, y, b) + self.rounding

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        return self.rule.effects(loss, y, b, at)

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        return self.rule.without(loss, y, b, index) + self.rounding[:, None]

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return self.rule.needs_only_mean(loss, y)


def margin(objective: str, base_score: F64) -> F64:
    """(K,) the raw score that corresponds to a stored base_score, computed in float32.

    A logarithm is rounded once, as that of the C library; NumPy's of float32 is off by several bits.
    """
    b = base_score.astype(np.float32)
    link = _LINKS.get(objective, "identity")
    if link == "identity":
        return b.astype(np.float64)
    if link == "logit":
        b = np.clip(b, np.float32(1e-6), np.float32(1) - np.float32(1e-6))
        b = np.float32(1) / b - np.float32(1)
    if b.min() <= 0:
        raise UnsupportedModel(
            f"a base_score of zero, which XGBoost takes for {objective} where all labels are zero, has no finite "
            "logarithm to start from; keep some rows whose labels are not zero, or train with a base_score of your own."
        )
    log = np.log(b.astype(np.float64)).astype(np.float32)
    return (-log if link == "logit" else log).astype(np.float64)


def takes_newton_step(params: Mapping[str, str]) -> bool:
    """Whether the installed version takes a Newton step where it could take the link of the mean."""
    before_links = int(xgb.__version__.partition(".")[0]) < 3
    return before_links or as_float32(params.get("scale_pos_weight", 1)) != 1


def starting_rule(
    objective: str,
    loss: Loss,
    y: F64,
    w: F64,
    stored: F64,
    hessian_factor: float,
    quantile: BaseRule | None,
    newton: bool,
) -> BaseRule | None:
    """The rule by which an estimated base_score came from the data; None if nothing was estimated.

    ``stored``: the base_score in the model; ``quantile``: the rule of a quantile objective; ``newton``:
    see `takes_newton_step`.
    """
    candidates = _candidates(objective, loss, y, w, hessian_factor, quantile)
    candidates = candidates[::-1] if newton else candidates
    errors = [float(np.abs(c.number - stored).max()) for c in candidates]
    # One rounding in the rule and one in storing it; the mean of a million rows has no more.
    as_near = 2 * np.finfo(np.float32).eps * float(np.abs(stored).max())
    best = candidates[0 if errors[0] <= as_near else int(np.argmin(errors))]
    rule = best.rule
    # XGBoost computes in float32, so the error is relative to the largest number on the way.
    largest = max(float(np.abs(stored).max()), best.largest, 0.1)
    if min(errors) > 1e-6 * largest:
        # No rule gives this number. It is XGBoost's default, or the labels are not those of
        # training, which the replay will find out.
        return None if np.all(stored == _DEFAULT) else rule
    with np.errstate(divide="ignore"):  # all labels equal: XGBoost stays a little below infinity
        fit = rule.fit(loss, y, w)
    return RoundedRule(rule, margin(objective, stored) - fit) if np.isfinite(fit).all() else None


@dataclass(frozen=True)
class _Candidate:
    """A rule that some version had, and the base_score (K,) that it would store.

    ``largest``: the largest number that appears while it is computed
    """

    rule: BaseRule
    number: F64
    largest: float = 0.0


def _candidates(
    objective: str,
    loss: Loss,
    y: F64,
    w: F64,
    hessian_factor: float,
    quantile: BaseRule | None,
) -> list[_Candidate]:
    """Rules that some version had for this objective, with the number that each would store."""
    if objective.startswith("multi:"):
        logarithms = ClassShares(logarithm=True)
        shares = ClassShares(logarithm=False)
        largest = logarithms.largest_logarithm(loss, y, w)
        return [
            _Candidate(logarithms, logarithms.fit_float32(loss, y, w), largest),
            _Candidate(shares, shares.fit_float32(loss, y, w)),
        ]
    if quantile is not None or objective == "binary:hinge":
        rule = quantile or HeavierSide()
        return [_Candidate(rule, rule.fit(loss, y, w))]
    candidates: list[_Candidate] = []
    link = _LINKS.get(objective)
    if link is not None:
        mean = np.atleast_1d(np.average(y, axis=0, weights=w))
        candidates.append(_Candidate(Mean(link), mean))
    if loss.n_outputs > 1:
        return candidates
    newton = ScaledNewtonStep(1 / hessian_factor)
    candidates.append(_Candidate(newton, _response(objective, newton.fit(loss, y, w))))
    return candidates


def _response(objective: str, score: F64) -> F64:
    """The base_score that corresponds to a raw score."""
    link = _LINKS.get(objective, "identity")
    if link == "identity":
        return score
    return np.exp(score) if link == "log" else 1 / (1 + np.exp(-score))
