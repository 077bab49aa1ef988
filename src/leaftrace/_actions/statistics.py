"""The interval that all advice uses: Student's t of paired differences.

The same rows are judged before and after a change, so their losses are compared row by row:

    mean +- t s / sqrt(m)      s: standard deviation of the m differences
                               t: quantile of Student's distribution with m - 1 degrees of freedom
"""

from __future__ import annotations

from .._data.arrays import F64
from .._data.numbers import change_text
from .._data.student import student

# What the interval leaves out, beside a claim that rests on it.
ONE_RETRAINING = (
    "The interval tells how the change varies with the rows it is measured on; how it varies from one "
    "retraining to the next was not measured."
)


def half_width(differences: F64, confidence: float = 0.95) -> float:
    """Half the width of the interval of the mean of differences (m,); infinite for one row."""
    m = len(differences)
    if m < 2:
        return float("inf")
    return student((1 - confidence) / 2, m - 1) * float(differences.std(ddof=1)) / m**0.5


def paired_interval(differences: F64, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the mean of paired differences (m,)."""
    half = half_width(differences, confidence)
    mean = float(differences.mean())
    return mean - half, mean + half


def interval_in_words(low: float, high: float) -> str:
    """The interval as advice mentions it."""
    return f"95 % interval {change_text(low, 3)} to {change_text(high, 3)}"


def no_gain(change: float) -> str:
    """Words for the change of a loss that is not clearly below zero."""
    return "Not confirmed" if change < 0 else "No improvement"
