"""Training parameters that the model does not report, found from its leaf values.

A saved file keeps no training parameters but those of the objective, and a learning rate that a callback changed is
reported as it was last. The leaf values of all steps, v, tell them, with G and H summed over the training rows:

    v = -eta T_alpha(G) / (H + lambda)     so     v H = -eta G - lambda v - eta alpha sign(v)       where v is not 0

which is linear in eta, lambda and eta alpha; and if eta alone is not known, it is v / s for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble, LeafRule
from .loss import single

FITS = 1e-5  # relative error of leaf values; the sums here are plain float64, so float32 leaves 1e-6 at most


@dataclass(frozen=True)
class Sums:
    """Leaves (all outputs in one list): their step, value, G, H; or of quantile leaves the step s itself."""

    step: NDArray[np.int64]
    value: F64
    G: F64
    H: F64
    s: F64 | None

    def steps(self, rule: LeafRule) -> F64:
        return rule.step(self.G, self.H, self.H + rule.l2)[0] if self.s is None else self.s

    def error(self, rule: LeafRule, rate: float | F64) -> float:
        """Largest error of a leaf value, relative to the largest value."""
        rates = rate if np.ndim(rate) == 0 else np.asarray(rate)[self.step]
        largest = float(np.abs(self.value).max(initial=0.0)) or 1.0
        return float(np.abs(rates * self.steps(rule) - self.value).max(initial=0.0)) / largest


def leaf_sums(e: Ensemble, steps: int) -> Sums:
    """The first steps, each at the model's own scores."""
    A = e.start()
    parts = []
    for t in range(steps):
        e.move(t, e.leaves, A)
        state = e.loss.state(A)
        O = e.leaf_outputs
        trees = range(*e.trees(t).indices(len(e.first_output)))
        values = e.values[e.leaf_range(t)]
        g = e.loss.gradient(state, e.y)
        h = (
            state * (1 - state) if e.n_outputs > 1 else e.loss.hessian(state, e.y)[:, :, 0]
        )  # softmax: the diagonal
        G = np.zeros(values.shape)
        H = np.zeros(values.shape)
        s = np.zeros(values.shape)
        for r in trees:
            ids = e.leaves[r]
            first = e.first_output[r]
            w = e.tree_weight(r)
            for k in range(O):
                G[:, k] += np.bincount(ids, w * g[:, first + k], len(G))
                H[:, k] += np.bincount(ids, w * h[:, first + k], len(H))
            if e.rule.statistic is not None:
                own = np.unique(ids)
                s[own, 0] = e.rule.statistic(ids, len(s), e.y - A[:, first], e.y, w)[own]
        parts.append([np.full(values.size, t), *(x.ravel() for x in (values, G, H, s))])
    step, value, G, H, s = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Sums(step.astype(np.int64), value, G, H, None if e.rule.statistic is None else s)


def reported_fit(e: Ensemble) -> bool:
    """Whether the reported parameters give the leaf values of the first steps."""
    sums = leaf_sums(e, min(3, e.n_steps))
    return sums.error(e.rule, e.learning_rate) <= FITS


def recovered(
    e: Ensemble, rate_unit: float, l2_unit: float
) -> tuple[LeafRule, float | F64, list[str]] | None:
    """(rule, learning rates, names of what was recovered) that give all leaf values; None if there are none.

    ``rate_unit, l2_unit``: what the ensemble's numbers are multiplied with to give XGBoost's, which are often round.
    """
    sums = leaf_sums(e, e.n_steps)
    rule = e.rule
    if rule.statistic is None and np.any((rule.min_hessian > sums.H) & (sums.value != 0)):
        rule = replace(rule, min_hessian=0.0)
    rates = _rates(e, sums, rule)
    if sums.error(rule, rates) <= FITS:
        rate = _round(float(np.median(rates)), rate_unit, lambda x: sums.error(rule, x) <= FITS)
        if sums.error(rule, rate) <= FITS:
            return rule, rate, ["learning_rate"]
        return rule, rates, ["a learning_rate for each round"]
    if rule.statistic is not None:
        return None
    for names in (["learning_rate", "reg_lambda"], ["learning_rate", "reg_lambda", "reg_alpha"]):
        if found := _solve(sums, rule, len(names) == 3, rate_unit, l2_unit):
            return *found, names
    return None


def _rates(e: Ensemble, sums: Sums, rule: LeafRule) -> F64:
    """(T,) the learning rate that fits each step best."""
    s = sums.steps(rule)
    over = np.bincount(sums.step, s * s, e.n_steps)
    rates = np.divide(
        np.bincount(sums.step, s * sums.value, e.n_steps),
        over,
        out=np.zeros(e.n_steps),
        where=over > 0,
    )
    return np.where(over > 0, rates, np.median(rates[over > 0]) if np.any(over > 0) else 0.0)


def _solve(
    sums: Sums, rule: LeafRule, with_l1: bool, rate_unit: float, l2_unit: float
) -> tuple[LeafRule, float] | None:
    some = (sums.value != 0) & (sums.H > 0)
    if np.isfinite(rule.max_step):  # leaves at the bound have the largest value there is
        some &= np.abs(sums.value) < (1 - 1e-5) * np.abs(sums.value).max()
    v = sums.value[some]
    G = sums.G[some]
    H = sums.H[some]
    if len(v) < 3:
        return None
    weight = 1 / (np.abs(v) * (H + 1))  # every leaf's value is rounded in proportion to itself
    columns = np.stack([-G, -v, -np.sign(v)][: 2 + with_l1], axis=1) * weight[:, None]
    solution = np.linalg.lstsq(columns, v * H * weight, rcond=None)[0]
    rate = float(solution[0])
    l2 = max(float(solution[1]), 0.0)
    l1 = max(float(solution[2]) / rate, 0.0) if with_l1 and rate > 0 else 0.0

    def fits(rate: float, l2: float, l1: float) -> bool:
        return sums.error(replace(rule, l2=l2, l1=l1), rate) <= FITS

    if rate <= 0 or not fits(rate, l2, l1):
        return None
    # Round numbers that fit together are better than the solution itself, which carries the rounding of the values.
    for digits in range(1, 7):
        rounded = (
            _short(rate * rate_unit, digits) / rate_unit,
            _short(l2 * l2_unit, digits) / l2_unit,
            _short(l1, digits),
        )
        if fits(*rounded):
            return replace(rule, l2=rounded[1], l1=rounded[2]), rounded[0]
    return replace(rule, l2=l2, l1=l1), rate


def _round(x: float, unit: float, fits: Callable[[float], bool]) -> float:
    """x with as few digits as fit, in these units."""
    for digits in range(1, 7):
        if fits(shorter := _short(x * unit, digits) / unit):
            return shorter
    return x


def _short(x: float, digits: int) -> float:
    """x to this many digits, as XGBoost would keep it."""
    return single(f"{x:.{digits}g}")
