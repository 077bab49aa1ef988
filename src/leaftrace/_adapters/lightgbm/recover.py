"""What a LightGBM model does not tell, recovered from its leaf values: they have all digits and depend on everything.

Parameters stand in a model file with six digits, and so do the learning rates of a schedule. A few least-squares steps
from the six digits find the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble, Rounding

# parameters are told by some of the first steps; fewer of many rows
FIRST = 30
STEPS = 8
FOUND = 1e-11  # relative miss of leaf values when they are found


def terms(
    e: Ensemble, t: int, A: F64, drawn: NDArray[Any] | None = None
) -> Iterator[tuple[int, F64, F64, F64]]:
    """Tree, weights, terms w g and w h (n,) of its rows, for each tree of step t at scores A (n, K)."""
    state = e.loss.state(A)
    g = e.loss.gradient(state, e.y)
    h = e.loss.hessian(state, e.y)
    for r in range(*e.trees(t).indices(len(e.leaves))):
        o = slice(e.first_output[r], e.first_output[r] + 1)
        w = e.tree_weight(r)
        w = w if drawn is None else w * drawn
        yield r, w, e.rounding.apply(g[:, o], w)[:, 0], e.rounding.apply(h[:, o, o], w)[:, 0, 0]


def sizes(e: Ensemble, t: int, A: F64, factor: float) -> NDArray[np.float32]:
    """(n,) what GOSS ranks rows by: |w g| w h, h times ``factor``."""
    out = np.zeros(e.n_rows, np.float32)
    for _, _, wg, wh in terms(e, t, A):
        out += np.abs(wg.astype(np.float32) * (factor * wh).astype(np.float32))
    return out


def step(e: Ensemble, t: int, A: F64, drawn: NDArray[Any] | None = None) -> F64:
    """(M,) leaf values of step t before the learning rate, at scores A; zero for leaves that are fixed."""
    part = e.leaf_range(t)
    M = part.stop - part.start
    G = np.zeros(M)
    H = np.zeros(M)
    s = np.zeros(M)
    for r, w, wg, wh in terms(e, t, A, drawn):
        ids = e.leaves[r]
        if e.rule.statistic is not None:
            s += e.rule.statistic(ids, M, e.y - A[:, e.first_output[r]], e.y, w)
        G += np.bincount(ids, wg, M)
        H += np.bincount(ids, wh, M)
    if e.rule.statistic is None:
        s = e.rule.step(G, H, H + e.lam + (0.0 if e.leaf_l2 is None else e.leaf_l2[part]))[0]
    return s if e.fixed is None else np.where(e.fixed[part], 0.0, s)


def fits(e: Ensemble, t: int, A: F64, drawn: NDArray[Any]) -> bool:
    """Whether these rows give step t its leaf values, roughly."""
    s = step(e, t, A, drawn)
    values = e.values[e.leaf_range(t), 0]
    return bool(np.all(np.abs(e.rate(t) * s - values)[s != 0] <= 1e-4 * np.abs(values).max()))


def _scores(e: Ensemble, steps: int) -> Iterator[tuple[int, F64]]:
    """(t, scores before step t) of the first steps, those of the model itself."""
    A = e.start()
    for t in range(steps):
        e.move(t, e.leaves, A)
        yield t, A


def rates(e: Ensemble, told: F64) -> Ensemble:
    """The ensemble with the learning rate of each step that fits its leaves, if it is what the model tells with six
    digits (NaN: it does not tell)."""
    found = told.copy()
    for t, A in _scores(e, e.n_steps):
        s = step(e, t, A)
        if s.any():
            rate = s @ e.values[e.leaf_range(t), 0] / (s @ s)
            if not abs(rate - told[t]) > 1e-5 * abs(told[t]):
                found[t] = rate
    return replace(e, learning_rate=np.where(np.isnan(found), 1.0, found))


def parameters(
    build: Callable[[dict[str, Any]], Ensemble], p: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    """p with all digits of those of these parameters that have more than six."""
    best = _miss(build(p)), p
    for some in dict.fromkeys([tuple(names), *((name,) for name in names)]):
        if best[0] <= FOUND:
            break
        found = _fit(build, p, list(some))
        best = min(best, (_miss(build(found)), found), key=lambda pair: pair[0])
    return best[1]


def _misses(e: Ensemble) -> F64:
    """By how much the leaves of some steps are missed."""
    first = min(FIRST, e.n_steps)
    some = set(np.linspace(0, first - 1, STEPS if e.n_rows < 100_000 else 3).astype(int).tolist())
    found = [
        e.rate(t) * step(e, t, A) - e.values[e.leaf_range(t), 0]
        for t, A in _scores(e, first)
        if t in some
    ]
    return np.concatenate(found)


def _miss(e: Ensemble) -> float:
    return float(np.abs(_misses(e)).max() / np.abs(e.values).max())


def _fit(
    build: Callable[[dict[str, Any]], Ensemble], p: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    start: F64 = np.array([float(p[name]) for name in names])

    def at(x: F64) -> dict[str, Any]:
        return {**p, **dict(zip(names, x.tolist(), strict=True))}

    def smooth(x: F64) -> F64:
        return _misses(replace(build(at(x)), rounding=Rounding()))

    h = 1e-6 * start * np.eye(len(start))
    slopes = np.stack([(smooth(start + d) - smooth(start - d)) / (2 * d.sum()) for d in h], axis=1)
    x = start
    for _ in range(10):
        change = np.linalg.lstsq(slopes, _misses(build(at(x))), rcond=1e-9)[0]
        x = np.clip(x - change, start - 1e-5 * np.abs(start), start + 1e-5 * np.abs(start))
        if np.all(np.abs(change) <= 1e-14 * np.abs(start)):
            break
    return at(x)
