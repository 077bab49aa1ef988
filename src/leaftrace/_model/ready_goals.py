"""Ready-made goals: their settings, and how they are made ready for a question. See `leaftrace.goals`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._data.inputs import vector, weights
from .._data.query_ids import read_queries
from .coupled.scalars import SmoothNDCG
from .goal import Goal, GoalRows, QueryGoal, ReadyGoal, ShapGoal
from .goal_values import GroupGap, SmoothAUC, SoftProfit


@dataclass(frozen=True)
class MeanLoss(ReadyGoal):
    """The model's own loss, mean over the test rows: sum c L / sum c.

    >>> tracer.influence(X_test, y_test, of=MeanLoss(prices))           # doctest: +SKIP

    ``sample_weight``  c, one for each test row; None: all count alike, and the answer is that of
                       ``reduce="mean"``
    """

    sample_weight: Any = None
    name: ClassVar[str] = "mean_loss"

    def bind(self, test: GoalRows) -> Goal:
        return _mean_loss(test, _row_weights(self.sample_weight, test), self.name)


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
        mask = np.asarray(test.in_order(self.mask, "mask"))
        if mask.dtype != bool or mask.shape != (test.count,):
            raise InvalidInput(
                f"mask has shape {mask.shape} and dtype {mask.dtype}; expected True or False for each of the "
                f"{test.count} test rows."
            )
        c = _row_weights(self.sample_weight, test) * mask
        if not c.any():
            raise InvalidInput(
                "mask leaves no test row of non-zero weight; choose a slice that has some."
            )
        return _mean_loss(test, c, self.name)


def _row_weights(given: Any, test: GoalRows) -> F64:
    """(m,) weights of the test rows, as the user gives them; None means one for every row."""
    return weights(test.in_order(given, "sample_weight"), test.count)


def _mean_loss(test: GoalRows, c: F64, name: str) -> Goal:
    """sum c L / sum c, c (m,)."""
    y = test.labels(name)
    loss = test.loss
    c = c / c.sum()

    def gradient(F: F64) -> F64:
        return c[:, None] * loss.value_gradient(F.reshape(len(c), -1), y)

    return Goal(lambda F: float(c @ loss.value(F.reshape(len(c), -1), y)), gradient, name, True)


@dataclass(frozen=True)
class AUC(ReadyGoal):
    """The area under the ROC curve, made differentiable.

    It is the mean over pairs of step((F_i - F_j) / bandwidth), i of the class, j not. The step is
    Laplace's, 1 - exp(-u) / 2 from u = 0 on: unlike the logistic one it adds up along sorted
    scores, O(m log m) for all pairs. The value is the AUC that the scores have with a little such
    noise on them.

    >>> tracer.influence(X_test, y_test, of=AUC())                      # doctest: +SKIP

    ``label``      the class that should rank high; of two classes, by default the second
    ``bandwidth``  the smaller it is, the nearer the value is to the AUC, and the fewer pairs the
                   gradient comes from. By default 0.1 in raw scores (log odds). Models of several
                   outputs are ranked by the probability of the class: 0.01
    """

    label: Any = None
    bandwidth: float | None = None
    name: ClassVar[str] = "auc"

    def bind(self, test: GoalRows) -> Goal:
        test.needs_classes(self.name)
        column = test.class_number(self.label, self.name)
        h = self.bandwidth
        if h is None:
            h = 0.1 if test.loss.n_outputs == 1 else 0.01
        if not h > 0:
            raise InvalidInput(f"bandwidth is {h}; it is a difference of scores, above zero.")
        high = (test.labels(self.name) == column).astype(float)
        pairs = high.sum() * (1 - high).sum()
        if not pairs:
            raise InvalidInput(
                "auc compares a class with the others, but y_test has only one side."
            )
        auc = SmoothAUC(test, column, h, high, pairs)
        return Goal(auc.value, auc.gradient, self.name, False)


@dataclass(frozen=True)
class DemographicParityGap(ReadyGoal):
    """The difference of the mean predicted probability of a class between groups.

    For models of numbers it is that of the mean prediction. Two groups: |mean_1 - mean_0|. More:
    the root mean square of that over all pairs. The means are of probabilities, not shares of
    decisions, which have no gradient.

    >>> tracer.influence(X_test, of=DemographicParityGap(X_test["sex"]))                  # doctest: +SKIP

    ``groups``  a label for each test row; ``groups == "a"`` compares one group with the rest
    ``label``   the class in question; of two classes, by default the second
    ``signed``  for two groups: the mean of the second, in the order of their names, minus that of
                the first
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
        groups = vector(test.in_order(self.groups, "groups"), "groups", test.count)
        names, code = np.unique(groups, return_inverse=True)
        counts = self.among(test, column).astype(float)  # (m,)
        size = np.bincount(code, counts)  # (groups,)
        self._check_groups(names, size)
        gap = GroupGap(test, column, code, counts / size[code], self.signed)
        return Goal(gap.value, gap.gradient, self.name, None if self.signed else True)

    def _check_groups(self, names: np.ndarray, size: np.ndarray) -> None:
        """Raise an error unless there are two or more groups with rows, and two if signed."""
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


@dataclass(frozen=True)
class EqualOpportunityGap(DemographicParityGap):
    """`DemographicParityGap` among the test rows of the class in question.

    A gap means that rows of the class are not recognised alike in all groups.

    >>> tracer.influence(X_test, y_test, of=EqualOpportunityGap(X_test["sex"], label="yes"))   # doctest: +SKIP
    """

    name: ClassVar[str] = "opportunity_gap"

    def among(self, test: GoalRows, column: int) -> np.ndarray:
        test.needs_classes(self.name)
        return test.labels(self.name) == column


@dataclass(frozen=True)
class ExpectedProfit(ReadyGoal):
    """The mean profit of decisions made by the model.

    Payoffs M (classes, decisions) give the profit of each decision for each true class. A decision
    d is taken with probability q_d = softmax(a / temperature), where a_d = sum_c p_c M_cd is its
    expected profit; for a small temperature that is the best decision. The profit of a row of class
    y is sum_d q_d M_yd.

    >>> tracer.influence(X_test, y_test, of=ExpectedProfit([[0, -1], [-10, 5]]))          # doctest: +SKIP

    ``payoff``       M: a row for each class in the order of ``tracer.classes``, a column for each
                     decision; costs are negative
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
        gain = M[test.labels(self.name).astype(int)]
        profit = SoftProfit(test, M, T, gain)
        return Goal(profit.value, profit.gradient, self.name, False)


@dataclass(frozen=True)
class NDCG(QueryGoal):
    """NDCG of each query of a ranking, made differentiable by soft ranks.

    The soft rank of a document is 1 + the sum over the others of its query of
    sigmoid((F_j - F_i) / bandwidth), and the first k places fade out around k + 1/2 (ApproxNDCG:
    Qin, Liu and Li, 2010). Influences, refits and retrainings are all of this number. A query
    without relevant documents counts as 0.

    >>> tracer.influence(X_test, y_test, qid=qid_test, of=NDCG(10))     # doctest: +SKIP

    ``k``          places that count; None: all
    ``bandwidth``  the smaller it is, the nearer soft ranks are to ranks, and the fewer pairs of
                   documents the gradient comes from; in raw scores
    ``gain``       "exponential" (2^y - 1) or "linear" (y)
    """

    k: int | None = None
    bandwidth: float = 0.1
    gain: Literal["exponential", "linear"] = "exponential"
    name: ClassVar[str] = "ndcg"

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise InvalidInput(f"NDCG has k={self.k}; it is a number of places, or None for all.")
        if not self.bandwidth > 0:
            raise InvalidInput(
                f"bandwidth is {self.bandwidth}; it is a difference of scores, above zero."
            )
        if self.gain not in ("exponential", "linear"):
            raise InvalidInput(f"gain is {self.gain!r}; it can be 'exponential' or 'linear'.")

    def values(self, scores: Any, y: Any, qid: Any) -> F64:
        """(Q,) the number of each query, from scores and labels (m,) of its documents.

        ``qid``: the query of each document, or the sizes of the queries
        """
        F = vector(scores, "scores", len(scores)).astype(float)
        labels = vector(y, "y", len(F)).astype(float)
        return self.scalar(labels, read_queries(qid, len(F)).number).at(F).values(F)

    def scalar(self, y: F64, number: Ints) -> SmoothNDCG:
        gain = 2.0**y - 1 if self.gain == "exponential" else y
        return SmoothNDCG(gain, number, np.inf if self.k is None else self.k, self.bandwidth)


def shap(feature: Any = None) -> ShapGoal:
    """The SHAP value of a feature at each test row: which training rows taught the model its effect.

    >>> tracer.influence(X_test, of=goals.shap("age")).top(5)                       # doctest: +SKIP
    >>> tracer.influence(X_test[:1], of=goals.shap(["age", "hours"]))               # doctest: +SKIP

    The values are those of path-dependent TreeSHAP in raw scores, as the boosters themselves and
    `shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")` give them. Derivatives
    are taken with trees and covers fixed. Covers are what the library recorded: sums of second
    derivatives (XGBoost), counts of rows (LightGBM, HistGradientBoosting), weights (CatBoost,
    scikit-learn's other trees). In truth they would move a little with the weights of rows, too.

    ``feature``  its name or position, as the model itself sees it (after the steps of a pipeline).
                 A list, or None for all: columns are features, for one test row or with `reduce`
    """
    if feature is None:
        return ShapGoal(None, True)
    if isinstance(feature, (list, tuple, np.ndarray)):
        if len(feature) == 0:
            raise InvalidInput("goals.shap() has an empty list; name a feature, or None for all.")
        return ShapGoal(tuple(feature), True)
    return ShapGoal((feature,), False)
