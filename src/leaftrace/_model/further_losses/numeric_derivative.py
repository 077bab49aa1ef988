"""Derivatives of functions of one number a row that are known only by their values.

The complex step f(x + i e).imag / e has all digits, but only for functions that are written without
|x| and the like. So each row is compared with a central difference, and where the two differ a real
difference decides: the five-point formula

    f' = (8 (f(x + e) - f(x - e)) - (f(x + 2e) - f(x - 2e))) / 12e

A kink between these points shows, because the slopes between neighbouring points then do not change
evenly; the step e is made smaller until it lies outside. At a kink the derivative is that of the
side that is smooth.

Functions that compute in float32 have steps of their own, 1e-7 of a value or so, which short
differences would take for slopes. How fine the values are is measured, by third differences over a
step at which a smooth function has none, and the first step is made wide enough for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from ..._data.arrays import F64, Ints

# A function of x (r,) for the rows with these numbers (r,), which gives (r, C).
RowFunction = Callable[[np.ndarray, Ints], np.ndarray]

COMPLEX_STEP = 1e-30
CENTRAL_STEP = 1e-5
FIRST_STEP = 2e-4
SHRINK = 8.0
SHRINKINGS = 5
# Relative differences: of a complex step to a central difference, whose own error is 1e-9 or so;
# and of slopes that change evenly. An error of a derivative is a twelfth of the latter.
AGREEMENT = 1e-6
EVEN = 1e-6
MEASURED_ROWS = 200
MEASURING_STEP = 1e-6
FINE = 1e-11  # the values of a function in float64 are finer than this, relative to their size


def takes_complex(f: RowFunction, x: F64) -> bool:
    """Whether f gives complex numbers for complex x (n,), without an error or a warning."""
    rows = np.arange(len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return bool(np.iscomplexobj(f(x + 1j * COMPLEX_STEP, rows)))
        except Exception:  # whatever a user's function raises
            return False


def derivative(f: RowFunction, x: F64, try_complex: bool) -> F64:
    """(n, C) the derivatives of f at x (n,)."""
    rows = np.arange(len(x))
    if not try_complex or not len(x):
        return _real_derivative(f, x, rows)
    exact = np.imag(f(x + 1j * COMPLEX_STEP, rows)) / COMPLEX_STEP
    step = CENTRAL_STEP * np.maximum(1.0, np.abs(x))
    up = f(x + step, rows)
    down = f(x - step, rows)
    central = (up - down) / (2 * step)[:, None]
    size = np.abs(central) + np.abs(exact) + np.abs(up)
    differs = ~np.all(np.abs(exact - central) <= AGREEMENT * size, axis=1)
    if differs.any():
        exact[differs] = _real_derivative(f, x[differs], rows[differs])
    return exact


def _real_derivative(f: RowFunction, x: F64, rows: Ints) -> F64:
    """(n, C) the derivatives of f at x (n,) by the five-point formula."""
    grain = _grain(f, x, rows)
    is_fine = grain <= FINE
    # Where it is not, the bend of a smooth function over the first step is about what grains look like.
    first = FIRST_STEP if is_fine else np.cbrt(16 * grain)
    width = first * np.maximum(1.0, np.abs(x))
    out, settled = _difference(f, x, rows, width, grain)
    for _ in range(SHRINKINGS if is_fine else 2):
        left = np.flatnonzero(~settled)
        if not len(left):
            break
        width[left] /= SHRINK
        out[left], settled[left] = _difference(f, x[left], rows[left], width[left], grain)
    return out


def _grain(f: RowFunction, x: F64, rows: Ints) -> float:
    """How far apart the values of f are that it can give near x (n,), relative to their size."""
    eps = float(np.finfo(float).eps)
    if not len(x):
        return eps
    # Beside x, where all rows may be at a kink, and at many places, also of few rows.
    sample = np.resize(np.arange(min(len(x), MEASURED_ROWS)), MEASURED_ROWS)
    unit = np.maximum(1.0, np.abs(x[sample]))
    places = x[sample] + FIRST_STEP * unit * np.linspace(-1, 1, MEASURED_ROWS)
    e = MEASURING_STEP * unit
    values = np.stack([f(places + k * e, rows[sample]) for k in range(4)])  # (4, places, C)
    size = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    jumps = np.abs(np.diff(values, 3, axis=0)[0]) / size
    known = np.where(np.isfinite(jumps), jumps, 0.0)
    return max(float(np.quantile(known, 0.75, axis=0).max()), eps)


def _difference(f: RowFunction, x: F64, rows: Ints, e: F64, grain: float) -> tuple[F64, np.ndarray]:
    """(n, C) differences of f at x (n,) with steps e (n,), and (n,) whether slopes change evenly."""
    values = np.stack([f(x + k * e, rows) for k in (-2, -1, 0, 1, 2)])  # (5, n, C)
    slopes = np.diff(values, axis=0) / e[:, None]  # (4, n, C)
    bends = np.diff(slopes, axis=0)  # (3, n, C)
    size = np.abs(slopes).max(axis=0) + np.abs(values[2])
    rounding = 16 * grain * np.abs(values).max(axis=0) / e[:, None]
    # Also where a point has no value.
    uneven = ~(np.ptp(bends, axis=0) <= EVEN * size + rounding)
    before, near_before, at, near_after, after = values
    h = e[:, None]
    central = (8 * (near_after - near_before) - (after - before)) / (12 * h)
    forward = (-3 * at + 4 * near_after - after) / (2 * h)
    backward = (3 * at - 4 * near_before + before) / (2 * h)
    one_sided = np.where(np.abs(bends[2]) <= np.abs(bends[0]), forward, backward)
    return np.where(uneven, one_sided, central), ~uneven.any(axis=1)
