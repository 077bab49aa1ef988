"""Fidelity: whether the replay gives the model's own leaf values, and if not, where and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .._data.errors import UnsupportedModel
from .._data.tables import notebook
from .._model.ensemble import Ensemble
from .diagnosis import FirstValues, likely_cause

_GRADIENT_ROWS = 1 << 13


@dataclass(frozen=True)
class Fidelity:
    """How well the replay matches the model.

    ``max_error``  largest difference of a leaf value, relative to the largest leaf value of the
                   steps up to its own
    ``exact``      whether everything agrees to rounding
    ``verdict``    one sentence
    ``per_step``   (T,) the largest relative difference in each step
    """

    max_error: float
    exact: bool
    verdict: str
    per_step: F64

    def __repr__(self) -> str:
        return f"Fidelity(max_error={self.max_error:.2g}, exact={self.exact}: {self.verdict})"

    def _repr_html_(self) -> str:
        """The verdict as a notebook shows it."""
        return notebook(f"The replay is {'' if self.exact else 'not '}exact", self.verdict)


def refuse_diverged(e: Ensemble) -> None:
    """Raise an error if the starting score or a leaf value of the model is not a finite number."""
    if not np.isfinite(e.base).all():
        raise UnsupportedModel(
            f"the starting score of this model is {e.base[~np.isfinite(e.base)][0]}; no training row can explain "
            "predictions that are not numbers. Train it again."
        )
    broken = np.flatnonzero(~np.isfinite(e.values).all(axis=1))
    if not len(broken):
        return
    value = e.values[broken[0]][~np.isfinite(e.values[broken[0]])][0]
    t = int(np.searchsorted(e.step_leaves, broken[0], side="right")) - 1
    raise UnsupportedModel(
        f"{len(broken)} of the {len(e.values)} leaf values of this model are not finite numbers, the first is {value} "
        f"in step {t + 1}: its training diverged, or the file is damaged. No training row can explain such "
        "predictions; train it again, with a smaller learning rate."
    )


def judge(
    ensemble: Ensemble,
    errors: F64,
    worst_leaf: F64,
    weight_errors: F64,
    base_error: float,
    tolerance: float,
    notes: Sequence[str] = (),
    first: FirstValues | None = None,
) -> Fidelity:
    """Judge a replay by its errors.

    ``errors``         (T,) largest relative error of a leaf value in each step
    ``worst_leaf``     (T,) the leaf that has it
    ``weight_errors``  (T,) largest relative error of the numbers that the model recorded of its
                       leaves
    ``base_error``     relative error of the starting score
    ``tolerance``      relative error that is still rounding
    ``notes``          added to the verdict
    ``first``          the first step as found, if the rows are in memory
    """
    max_error = float(max(errors.max(initial=0.0), base_error))
    if not np.isfinite(max_error):
        max_error = np.inf
    # Errors that are not numbers compare as false, so what is within the tolerance is counted.
    good = (errors <= tolerance) & (weight_errors <= tolerance)
    bad = np.flatnonzero(~good)
    exact = bool(len(bad) == 0 and base_error <= tolerance)
    if exact:
        verdict = (
            f"exact: all {len(ensemble.values)} leaf values of {ensemble.n_steps} steps recomputed, "
            f"largest relative difference {max_error:.1e}"
        )
    elif ensemble.missing:
        verdict = f"{ensemble.missing}; without it the replay differs by {max_error:.1e} (relative)"
    else:
        t = int(bad[0]) if len(bad) else 0
        begins_wrong = t == 0 or not base_error <= tolerance
        if np.isinf(base_error):
            cause = (
                "with these labels the starting score is infinite, as a class has all rows or none: likely other "
                "labels, or a model that was trained on rows of one class"
            )
        elif begins_wrong and first is not None:
            cause = likely_cause(ensemble, first, base_error, tolerance)
        else:
            cause = _reason(weight_errors[t], t, base_error, tolerance, ensemble.suspected)
        verdict = cause
        if len(bad):
            verdict += (
                f"; the replay differs from the model from step {t + 1} of {ensemble.n_steps} on "
                f"({len(bad)} steps; there leaf {int(worst_leaf[t])} by {errors[t]:.1e}, "
                f"in all {max_error:.1e} relative)"
            )
    return Fidelity(max_error, exact, "; ".join([verdict, *notes]), errors)


def _reason(
    weight_error: float, t: int, base_error: float, tolerance: float, suspected: str
) -> str:
    """The likely reason for the first step t that differs, without a look at the rows."""
    if not base_error <= tolerance:
        return (
            f"the starting score differs by {base_error:.1e} (relative): likely other labels or sample weights than in "
            "training"
        )
    if not weight_error <= tolerance:
        return (
            f"rows fall into other leaves than in training (leaf weights differ by {weight_error:.1e}): likely "
            "other training rows, another row order of weights, forgotten or different sample weights, or "
            "target statistics of categories"
        )
    if suspected:
        return suspected
    if t == 0:
        return (
            "the rows fall into the right leaves but give other values from the first step on: likely other or "
            "shuffled labels, a forgotten baseline, or changed training parameters"
        )
    return "likely a setting that changes leaf values after the first steps, or continued training"


# ---- what errors are relative to ----


def largest_gradient(e: Ensemble, A: F64) -> float:
    """The largest absolute gradient of a row at scores A (n, K)."""
    if e.coupled:
        return float(np.abs(e.gradients(A)).max())
    # Arrays of so few rows stay in the caches, and are not new memory each time.
    parts = [slice(start, start + _GRADIENT_ROWS) for start in range(0, e.n_rows, _GRADIENT_ROWS)]
    found = [np.abs(e.loss.gradient(e.loss.state(A[p]), e.y[p])).max() for p in parts]
    return float(np.max(found))


def leaf_scales(e: Ensemble, gradient: float, tolerance: float) -> F64:
    """(T,) the leaf value that errors of each step are relative to: the largest one up to that step.

    Leaves of later steps do not count, as they explode where training diverges: beside them any
    error of the steps before would seem small. If all values are rounding noise, it is a small part
    of the largest value that a leaf could have with this largest gradient. It is never so small that the
    rounding of a sum of starting scores over all rows, in float64, is beyond the tolerance.
    """
    possible = float(np.max(e.learning_rate)) * gradient
    largest = [np.abs(e.values[e.leaf_range(t)]).max(initial=0.0) for t in range(e.n_steps)]
    last_bit = np.finfo(np.float64).eps * float(np.abs(e.base).max())
    least = max(1e-6 * possible, 10 * np.sqrt(e.n_rows) * last_bit / tolerance)
    scales = np.maximum(np.maximum.accumulate(largest), least)
    return np.where(scales > 0, scales, 1.0)
