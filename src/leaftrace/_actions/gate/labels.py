"""How many labels of a batch look wrong: from how much they surprise a model that never saw them.

The surprise of a label is u = 1 - P(label), or for numbers u = d / (d + s) with d = |label -
prediction| and s its median over test rows. If a share r of the labels of a batch was wrong, and
everything else was like the test rows, the surprise of its labels would have the density

    (1 - r) f_right(u) + r f_wrong(u)

f_right is that of the test rows, and f_wrong that of the same rows with wrong labels: for classes any
other one, for numbers that of another row. Both are histograms. The most telling number of a label
is then the slope of its log-likelihood in r, at some small r_0:

    s(u) = (f_wrong - f_right) / ((1 - r_0) f_right + r_0 f_wrong)

Its mean over a batch is linear in r, which gives r, with the error of the means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.student import student
from ..._tracer.tracer import Tracer
from ..noise.suspicion import unweighted_reading

_SMALL = 0.05  # r_0
_USELESS = 0.2  # half width from which on an interval would not even show a tenth of wrong labels
_ROWS_OF_BIN = 50  # test rows that a bin of the histograms needs
_MOST_BINS = 20


@dataclass(frozen=True)
class LabelCheck:
    """The share of wrong labels that would explain the surprise of a batch.

    ``share, low, high``  the estimate and its interval; NaN if the model cannot tell
    ``surprise``          (m,) of each new label, from 0 to 1
    ``usual``             surprise that 99 % of the test labels stay below
    ``expected``          (m,) labels that the model predicts for the new rows
    """

    share: float
    low: float
    high: float
    surprise: F64
    usual: float
    expected: np.ndarray


def check_labels(
    tracer: Tracer,
    new: tuple[Any, np.ndarray],
    test: tuple[Any, np.ndarray],
    confidence: float,
    seed: int,
) -> LabelCheck:
    """Compare the labels of new rows with those of test rows; (X, y) each."""
    engine = tracer.engine
    reading = unweighted_reading(tracer)

    scores = engine.unchanged.scores(new[0])
    of_new = reading.prediction(scores)
    of_test = reading.prediction(engine.unchanged.scores(test[0]))
    y_new = engine.labels(new[1], len(of_new), "y_new")
    y_test = engine.labels(test[1], len(of_test), "y_test")
    u_new = reading.surprise(of_new, y_new)
    u_right = reading.surprise(of_test, y_test)
    if of_test.ndim == 2:
        u_wrong = 1 - u_right / (of_test.shape[1] - 1)
        expected = np.asarray(engine.reading.with_numbered_classes().classes)[of_new.argmax(axis=1)]
    else:
        other = inputs.random_numbers(seed).permutation(len(y_test))
        scale = float(np.median(u_right)) or 1.0
        u_wrong = _bounded(reading.surprise(of_test, y_test[other]), scale)
        u_new = _bounded(u_new, scale)
        u_right = _bounded(u_right, scale)
        expected = engine.reading.number(scores)
    share, half = _wrong_share(u_new, u_right, u_wrong, confidence)
    usual = float(np.quantile(u_right, 0.99))
    return LabelCheck(share, share - half, share + half, u_new, usual, expected)


def _bounded(distance: F64, scale: float) -> F64:
    """(m,) distances as numbers from 0 to 1."""
    return distance / (distance + scale)


def _wrong_share(new: F64, right: F64, wrong: F64, confidence: float) -> tuple[float, float]:
    """The share r, and half the width of its interval; NaN if that is too wide to be of use."""
    telling = _slopes(right, wrong)
    of_new = telling(new)
    of_right = telling(right)
    gap = float(telling(wrong).mean() - of_right.mean())
    error = np.sqrt(of_new.var(ddof=1) / len(new) + of_right.var(ddof=1) / len(right))
    t = student((1 - confidence) / 2, min(len(new), len(right)) - 1)
    if not t * error < _USELESS * gap:  # right and wrong labels surprise the model alike
        return np.nan, np.nan
    return float(of_new.mean() - of_right.mean()) / gap, float(t * error) / gap


def _slopes(right: F64, wrong: F64) -> Callable[[F64], F64]:
    """The function s(u), from the surprise (m,) of right and of wrong labels."""
    bins = int(np.clip(len(right) // _ROWS_OF_BIN, 2, _MOST_BINS))
    shares = np.arange(1, bins) / bins
    edges = np.unique(np.quantile(np.concatenate([right, wrong]), shares))

    def density(u: F64) -> F64:
        counts = np.bincount(np.searchsorted(edges, u, side="right"), minlength=len(edges) + 1)
        return (counts + 1) / (len(u) + len(counts))  # one row more in each bin: none is empty

    f_right = density(right)
    f_wrong = density(wrong)
    slope = (f_wrong - f_right) / ((1 - _SMALL) * f_right + _SMALL * f_wrong)
    return lambda u: slope[np.searchsorted(edges, u, side="right")]
