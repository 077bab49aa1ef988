"""CatBoost's losses: what each is in leaftrace's terms, and those that no other library has.

Leaves of the method Exact are statistics of the residuals, rounded to float32, whatever the rows' weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Statistic
from ..._model.general_losses import General, Huber, KernelFamily, Pinball, Terms, Tweedie, pieces
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.separate_losses import OneVsAll
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import f32

# The labels a loss takes: lowest, highest, in words.
_ANY = -np.inf, np.inf, "finite numbers"
_POSITIVE = 0.0, np.inf, "numbers of zero or more"
LABELS: dict[str, tuple[float, float, str]] = {
    "RMSE": _ANY,
    "Logloss": (0.0, 1.0, "the model's two classes"),
    "CrossEntropy": (0.0, 1.0, "probabilities from 0 to 1"),
    "Poisson": _POSITIVE,
    "MultiClass": (0.0, np.inf, "the model's classes"),
    "MultiClassOneVsAll": (0.0, np.inf, "the model's classes"),
    "MAE": _ANY,
    "Quantile": _ANY,
    "MAPE": _ANY,
    "Tweedie": _POSITIVE,
    "Huber": _ANY,
    "Expectile": _ANY,
    "LogCosh": _ANY,
    "Lq": _ANY,
}
OF_CLASSES = ("Logloss", "MultiClass", "MultiClassOneVsAll")
EXPONENTIAL = ("Logloss", "CrossEntropy", "Poisson", "Tweedie")  # CatBoost keeps exp(score)
_QUANTILES = ("MAE", "Quantile", "MAPE")


@dataclass(frozen=True)
class Objective:
    """A loss with its settings. ``statistic``: leaves of the method Exact; ``base``: a starting score from the data."""

    loss: Loss
    statistic: Statistic | None
    base: BaseRule | None


def objective(description: str, K: int, exact: bool) -> Objective:
    """What CatBoost's ``description`` means, such as "Quantile:alpha=0.7", for a model of K outputs."""
    name, _, settings = description.partition(":")
    if name not in LABELS:
        raise UnsupportedModel(
            f"the loss '{description}' is not supported; supported losses are {', '.join(LABELS)}."
        )
    given = dict(part.split("=") for part in settings.split(";") if part)
    number = {key: float(value) for key, value in given.items() if key != "use_weights"}
    if name == "Lq" and number["q"] < 2:
        raise UnsupportedModel(
            f"the loss '{description}' has no second derivative; use Lq with q of 2 or more, or MAE."
        )
    alpha = number.get("alpha", 0.5)
    delta = number.get("delta", 1e-6)
    quantile = _Quantile(alpha, 0.0 if name == "MAPE" else delta, relative=name == "MAPE")
    losses: dict[str, Any] = {
        "RMSE": SquaredError,
        "Logloss": Logistic,
        "CrossEntropy": Logistic,
        "Poisson": Poisson,
        "MultiClass": partial(Softmax, K),
        "MultiClassOneVsAll": partial(OneVsAll, K),
        "MAE": partial(Quantile, float(f32(alpha)), delta),
        "Quantile": partial(Quantile, float(f32(alpha)), delta),
        "MAPE": RelativeError,
        "Tweedie": lambda: Tweedie(number["variance_power"]),
        "Huber": lambda: Huber(number["delta"], flat=False),
        "Expectile": partial(Expectile, float(f32(alpha))),
        "LogCosh": LogCosh,
        "Lq": lambda: Lq(number["q"]),
    }
    links: dict[str, Any] = {"RMSE": "identity", "Logloss": "logit", "CrossEntropy": "logit"}
    base: BaseRule | None = _Mean(links[name], float32=True) if name in links else None
    if name in _QUANTILES:
        base = LabelStatistic(quantile.of_labels)
    statistic = None if not exact else _LogCoshMinimum() if name == "LogCosh" else quantile
    return Objective(losses[name](), statistic, base)


@dataclass(frozen=True)
class _Mean(Mean):
    """Each label times its weight is rounded to float32, too."""

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return self._link(f32([f32(y * b).sum() / b.sum()]))


@dataclass(frozen=True)
class LogCosh(General):
    """L = log cosh r, r = A - y."""

    name: str = "log-cosh"
    changes = "sigmoid", (2.0, 1.0)  # tanh r = 2 (sigma(2 r) - 1/2)

    def value(self, A: F64, y: F64) -> F64:
        r = A[..., 0] - y
        return np.logaddexp(r, -r) - np.log(2)

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.tanh(A - y)
        h = 1 - g * g
        return g, h, h, -2 * g * h


@dataclass(frozen=True)
class Lq(General):
    """L = |A - y|^q, q >= 2."""

    q: float
    name: str = "Lq"

    @property
    def changes(self) -> KernelFamily:
        return "power", (self.q,)

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(A[..., 0] - y) ** self.q

    def terms(self, A: F64, y: F64) -> Terms:
        q = self.q
        r = A - y
        a = np.abs(r)
        sign = np.sign(r)
        h = q * (q - 1) * a ** (q - 2)
        k = (q - 2) * sign * h / np.where(a > 0, a, 1.0)
        return q * sign * a ** (q - 1), h, h, k


@dataclass(frozen=True)
class Expectile(General):
    """L = c r^2, r = A - y; c is alpha below the label and 1 - alpha above it."""

    alpha: float
    name: str = "expectile"

    @property
    def changes(self) -> KernelFamily:
        below = 2 * self.alpha
        above = 2 * (1 - self.alpha)
        return pieces(
            "residual", 0.0, 0.0, (0.0, below, below), (0.0, above, above), (0.0, above, above)
        )

    def value(self, A: F64, y: F64) -> F64:
        r = A[..., 0] - y
        return self._c(r) * r * r

    def terms(self, A: F64, y: F64) -> Terms:
        r = A - y
        h = 2 * self._c(r)
        return h * r, h, h, np.zeros_like(h)

    def _c(self, r: F64) -> F64:
        return np.where(r < 0, self.alpha, 1 - self.alpha)


@dataclass(frozen=True)
class Quantile(Pinball):
    """Residuals below ``delta`` count as none in the gradient."""

    delta: float = 0.0

    def __init__(self, alpha: float, delta: float) -> None:
        super().__init__(alpha)
        object.__setattr__(self, "delta", delta)

    @property
    def changes(self) -> KernelFamily:
        of, (_, _, *numbers) = super().changes
        if self.delta == 0:
            return super().changes
        inside = float(np.nextafter(self.delta, 0.0))  # a residual of delta is outside
        return of, (-inside, inside, *numbers[:3], 0.0, 0.0, 1.0, *numbers[6:])

    def terms(self, A: F64, y: F64) -> Terms:
        g, j, h, k = super().terms(A, y)
        return np.where(np.abs(y - A) < self.delta, 0.0, g), j, h, k


@dataclass(frozen=True)
class RelativeError(General):
    """L = |A - y| / max(1, |y|): the leaves are medians, not Newton steps."""

    name: str = "relative error"
    changes = pieces("relative", 0.0, 0.0, (-1.0, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(A[..., 0] - y) / np.maximum(1.0, np.abs(y))

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.where(y > A, -1.0, 1.0) * f32(1 / np.maximum(1.0, np.abs(y)))
        return g, np.zeros_like(g), np.ones_like(g), np.zeros_like(g)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.zeros_like(A), np.zeros_like(A)


@dataclass
class _Quantile:
    """The alpha quantile of residuals: the lowest with at least alpha of all weight up to it, then ``delta`` lower or
    higher. ``relative``: weights are divided by residuals beyond 1 (MAPE; by the residual, not the label)."""

    alpha: float
    delta: float
    relative: bool = False
    name: str = "quantile of residuals"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        return self._of(leaf, M, f32(residual), np.ones(len(residual)))

    def of_labels(self, y: F64, b: F64) -> float:
        return float(self._of(np.zeros(len(y), dtype=np.intp), 1, f32(y), b)[0])

    def _of(self, leaf: Any, M: int, x: F64, w: F64) -> F64:
        if self.relative:
            w = f32(w / np.maximum(1.0, np.abs(x)))
        order = np.lexsort((x, leaf))
        x = x[order]
        w = w[order]
        leaf = leaf[order]
        count = np.bincount(leaf, minlength=M)
        total = np.bincount(leaf, w, M)
        start = np.cumsum(count) - count
        reached = np.cumsum(w)
        reached = reached - np.concatenate([[0.0], reached])[start][leaf]
        enough = reached >= (total * self.alpha - np.finfo(float).eps)[leaf]
        at = start + np.bincount(leaf[~enough], minlength=M)
        some = count > 0
        q = np.zeros(M)
        q[some] = x[np.minimum(at, start + count - 1)[some]]
        if self.delta > 0:
            below = np.bincount(leaf, w * (x < q[leaf]), M)
            equal = np.bincount(leaf, w * (x == q[leaf]), M)
            lower = below + equal * self.alpha >= total * self.alpha - np.finfo(float).eps
            q = np.where(some, q + np.where(lower, -self.delta, self.delta), 0.0)
        return f32(q)


@dataclass
class _LogCoshMinimum:
    """The constant with the least log-cosh loss against the residuals, by bisection to 1e-9."""

    name: str = "log-cosh minimum"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        x = f32(residual)
        left = np.full(M, np.inf)
        right = np.full(M, -np.inf)
        np.minimum.at(left, leaf, x)
        np.maximum.at(right, leaf, x)
        some = right >= left
        left = np.where(some, left, 0.0)
        right = np.where(some, right, 0.0)
        for _ in range(100):
            wide = right - left > 1e-9
            if not wide.any():
                break
            middle = (left + right) / 2
            above = np.bincount(leaf, np.tanh(middle[leaf] - x), M) > 0
            right = np.where(wide & above, middle, right)
            left = np.where(wide & ~above, middle, left)
        return f32(left)
