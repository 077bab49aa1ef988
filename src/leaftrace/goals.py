"""Goals: any scalar of all test predictions, to be asked for as ``of=``.

>>> gap = lt.goals.DemographicParityGap(X_test["sex"])                   # doctest: +SKIP
>>> tracer.influence(X_test, y_test, of=gap).top(5)                     # doctest: +SKIP
>>> tracer.refit(without=[17, 42]).goal(gap, X_test, y_test)            # doctest: +SKIP

A goal has a value and a gradient in the raw predictions F, (m,) or (m, K). LeafInfluence gives its derivative in the
weight of every training row; LeafRefit and Retrain give value(F) - value(F without the row). It is one number of all
test rows, so the result has one column. Labels are the `y_test` of the question. A goal of your own is a `Goal`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ._data.arrays import F64, Ints
from ._data.errors import InvalidInput
from ._data.inputs import vector, weights
from ._model.goal import Goal, GoalRows, ReadyGoal

__all__ = [
    "AUC",
    "DemographicParityGap",
    "EqualOpportunityGap",
    "ExpectedProfit",
    "Goal",
    "MeanLoss",
    "SliceLoss",
]


@dataclass(frozen=True)
class MeanLoss(ReadyGoal):
    """The model's own loss, mean over the test rows: sum c L / sum c.

    >>> tracer.influence(X_test, y_test, of=MeanLoss(prices))           # doctest: +SKIP

    ``sample_weight``  c, one for each test row; None: all count alike, and the answer is that of ``reduce="mean"``
    """

    sample_weight: Any = None
    name: ClassVar[str] = "mean_loss"

    def bind(self, test: GoalRows) -> Goal:
        return _mean_loss(test, weights(self.sample_weight, test.count), self.name)


@dataclass(frozen=True)
class SliceLoss(ReadyGoal):
    """The mean loss of some of the test rows.

    >>> tracer.influence(X_test, y_test, of=SliceLoss(X_test["age"] > 60))              # doctest: +SKIP

    ``mask``           True for the test rows that count
    ``sample_weight``  as in `MeanLoss`, one for each test row
    """

    mask: Any
    sample_weight: Any = None
    name: ClassVar[str] = "slice_loss"

    def bind(self, test: GoalRows) -> Goal:
        mask = np.asarray(self.mask)
        if mask.dtype != bool or mask.shape != (test.count,):
            raise InvalidInput(
                f"mask has shape {mask.shape} and dtype {mask.dtype}; expected True or False for each of the "
                f"{test.count} test rows."
            )
        c = weights(self.sample_weight, test.count) * mask
        if not c.any():
            raise InvalidInput(
                "mask leaves no test row of non-zero weight; choose a slice that has some."
            )
        return _mean_loss(test, c, self.name)


def _mean_loss(test: GoalRows, c: F64, name: str) -> Goal:
    """sum c L / sum c, c (m,)."""
    y = test.labels(name)
    loss = test.loss
    c = c / c.sum()

    def gradient(F: F64) -> F64:
        return c[:, None] * loss.gradient(loss.state(F.reshape(len(c), -1)), y)

    return Goal(lambda F: float(c @ loss.value(F.reshape(len(c), -1), y)), gradient, name, True)


@dataclass(frozen=True)
class AUC(ReadyGoal):
    """The area under the ROC curve, made differentiable: mean over pairs of step((F_i - F_j) / bandwidth), i of the
    class, j not. The step is Laplace's, 1 - exp(-u) / 2 from u = 0 on: unlike the logistic one it adds up along sorted
    scores, O(m log m) for all pairs. The value is the AUC that the scores have with a little such noise on them.

    >>> tracer.influence(X_test, y_test, of=AUC())                      # doctest: +SKIP

    ``label``      the class that should rank high; of two classes, the second unless you say
    ``bandwidth``  the smaller, the nearer to the AUC, and the fewer pairs the gradient comes from. By default 0.1 in
                   raw scores (log odds). Models of several outputs are ranked by the probability of the class: 0.01
    """

    label: Any = None
    bandwidth: float | None = None
    name: ClassVar[str] = "auc"

    def bind(self, test: GoalRows) -> Goal:
        test.needs_classes(self.name)
        column = test.class_number(self.label, self.name)
        raw = test.loss.n_outputs == 1
        h = (0.1 if raw else 0.01) if self.bandwidth is None else self.bandwidth
        if not h > 0:
            raise InvalidInput(f"bandwidth is {h}; it is a difference of scores, above zero.")
        high = (test.labels(self.name) == column).astype(float)  # (m,)
        pairs = high.sum() * (1 - high).sum()
        if not pairs:
            raise InvalidInput(
                "auc compares a class with the others, but y_test has only one side."
            )
        sign = 1.0 if column else -1.0

        def ranked(F: F64) -> tuple[F64, Ints]:
            F = F.reshape(test.count, -1)
            u = (sign * F[:, 0] if raw else test.response(F)[:, column]) / h
            order = np.argsort(u, kind="stable")
            return u[order], order

        def value(F: F64) -> float:
            u, order = ranked(F)
            up = high[order]
            low = 1 - high[order]
            below = _decayed(u, low)
            above = _decayed(-u[::-1], low[::-1])[::-1]
            return float(up @ (np.cumsum(low) - (below - above) / 2)) / pairs

        def gradient(F: F64) -> F64:
            u, order = ranked(F)
            up = high[order]
            low = 1 - high[order]
            near = [_decayed(u, a) + _decayed(-u[::-1], a[::-1])[::-1] for a in (low, up)]
            slope = np.empty(test.count)
            slope[order] = (up * near[0] - low * near[1]) / (2 * h * pairs)
            if raw:
                return sign * slope
            F = F.reshape(test.count, -1)
            c = np.zeros_like(test.response(F))
            c[:, column] = slope
            return test.pulled_back(F, c)

        return Goal(value, gradient, self.name, False)


def _decayed(u: F64, a: F64) -> F64:
    """sum_{j <= k} a_j exp(u_j - u_k) for ascending u, in pieces within which exp does not overflow."""
    out = np.empty(len(u))
    carry = 0.0
    start = 0
    while start < len(u):
        stop = int(np.searchsorted(u, u[start] + 50, side="right"))
        part = u[start:stop] - u[start]
        out[start:stop] = (np.cumsum(a[start:stop] * np.exp(part)) + carry) * np.exp(-part)
        carry = out[stop - 1] * np.exp(u[stop - 1] - u[min(stop, len(u) - 1)])
        start = stop
    return out


@dataclass(frozen=True)
class DemographicParityGap(ReadyGoal):
    """How far the mean predicted probability of a class (for numbers, the mean prediction) differs between groups.

    Two groups: |mean_1 - mean_0|. More: the root mean square of that over all pairs. Means of probabilities, not
    shares of decisions: those have no gradient.

    >>> tracer.influence(X_test, of=DemographicParityGap(X_test["sex"]))                  # doctest: +SKIP

    ``groups``  a label for each test row; ``groups == "a"`` compares one group with the rest
    ``label``   the class in question; of two classes, the second unless you say
    ``signed``  for two groups: the mean of the second, in the order of their names, minus that of the first
    """

    groups: Any
    label: Any = None
    signed: bool = False
    name: ClassVar[str] = "parity_gap"

    def among(self, test: GoalRows, column: int) -> np.ndarray:
        """(m,) the test rows that count."""
        return np.ones(test.count, bool)

    def bind(self, test: GoalRows) -> Goal:
        column = test.class_number(self.label, self.name)
        groups = vector(self.groups, "groups", test.count)
        names, code = np.unique(groups, return_inverse=True)
        counts = self.among(test, column).astype(float)  # (m,)
        size = np.bincount(code, counts)  # (groups,)
        if len(names) < 2 or not size.all():
            found = ", ".join(f"{s:.0f} of {name}" for name, s in zip(names, size, strict=True))
            raise InvalidInput(
                f"{self.name} compares groups of test rows, but those that count are {found}."
            )
        if self.signed and len(names) > 2:
            raise InvalidInput(
                f"signed=True is for two groups, and groups has {len(names)}; pass groups == {names[0]!r} to compare "
                "one with the rest."
            )
        share = counts / size[code]  # (m,) of a row in the mean of its group

        def gap(F: F64) -> tuple[float, F64]:
            """The gap, and its gradient in the means (groups,)."""
            means = np.bincount(code, share * test.response(F)[:, column])
            if self.signed:
                return float(means[1] - means[0]), np.array([-1.0, 1.0])
            apart = means - means.mean()
            pairs = len(means) - 1
            rms = float(np.sqrt(2 * (apart @ apart) / pairs))
            return rms, 2 * apart / (pairs * rms) if rms else np.zeros_like(apart)

        def gradient(F: F64) -> F64:
            F = F.reshape(test.count, -1)
            c = np.zeros_like(test.response(F))
            c[:, column] = gap(F)[1][code] * share
            return test.pulled_back(F, c)

        better = None if self.signed else True
        return Goal(lambda F: gap(F.reshape(test.count, -1))[0], gradient, self.name, better)


@dataclass(frozen=True)
class EqualOpportunityGap(DemographicParityGap):
    """`DemographicParityGap` among the test rows that are of the class in question: do those who deserve it get it?

    >>> tracer.influence(X_test, y_test, of=EqualOpportunityGap(X_test["sex"], label="yes"))   # doctest: +SKIP
    """

    name: ClassVar[str] = "opportunity_gap"

    def among(self, test: GoalRows, column: int) -> np.ndarray:
        test.needs_classes(self.name)
        return test.labels(self.name) == column


@dataclass(frozen=True)
class ExpectedProfit(ReadyGoal):
    """The mean profit of deciding by the model, of payoffs M (classes, decisions) of each decision for each true class.

    A decision d is taken with probability q_d = softmax(a / temperature), a_d = sum_c p_c M_cd what the model expects
    of it; for a small temperature that is the best decision. The profit of a row of class y is sum_d q_d M_yd.

    >>> tracer.influence(X_test, y_test, of=ExpectedProfit([[0, -1], [-10, 5]]))          # doctest: +SKIP

    ``payoff``       M: a row for each class in the order of ``tracer.classes``, a column for each decision; costs are
                     negative
    ``temperature``  in the units of M; by default 5 % of its range
    """

    payoff: Any
    temperature: float | None = None
    name: ClassVar[str] = "profit"

    def bind(self, test: GoalRows) -> Goal:
        test.needs_classes(self.name)
        M = np.asarray(self.payoff, dtype=float)
        C = len(test.classes) if test.classes is not None else 0
        if M.ndim != 2 or len(M) != C or not np.isfinite(M).all():
            raise InvalidInput(
                f"payoff has shape {M.shape}; expected finite numbers, a row for each of the {C} classes."
            )
        T = 0.05 * np.ptp(M) if self.temperature is None else self.temperature
        if not T > 0:
            raise InvalidInput(
                f"the temperature is {T}; payoffs must differ, and the temperature be above zero."
            )
        gain = M[test.labels(self.name).astype(int)]  # (m, D)

        def decisions(F: F64) -> F64:
            """(m, D) q"""
            a = test.response(F) @ M / T
            q = np.exp(a - a.max(axis=1, keepdims=True))
            return q / q.sum(axis=1, keepdims=True)

        def gradient(F: F64) -> F64:
            F = F.reshape(test.count, -1)
            q = decisions(F)
            felt = (
                q * (gain - (q * gain).sum(axis=1, keepdims=True)) / (T * test.count)
            )  # (m, D) dQ/da
            return test.pulled_back(F, felt @ M.T)

        def value(F: F64) -> float:
            return float((decisions(F.reshape(test.count, -1)) * gain).sum() / test.count)

        return Goal(value, gradient, self.name, False)
