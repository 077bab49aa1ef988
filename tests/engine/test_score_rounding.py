"""Scores in float32 that are much larger than residuals: the verdict says how much it matters."""

import numpy as np
import pytest
import xgboost as xgb

import leaftrace as lt
from leaftrace._engine.rounding_noise import score_rounding

ETA = 0.3


def program(leaves, test_leaves, y, w):
    """Squared error boosted on fixed trees in float64: scores of the test rows."""
    start = (w * y).sum() / w.sum()
    A = np.full(len(y), start)
    F = np.full(test_leaves.shape[1], start)
    for ids, test_ids in zip(leaves, test_leaves, strict=True):
        v = -np.float32(ETA) * np.bincount(ids, w * (A - y)) / (np.bincount(ids, w) + 1)
        A = A + v[ids]
        F = F + v[test_ids]
    return F


def opened(offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = offset + X[:, 0] + rng.normal(size=120)
    model = xgb.XGBRegressor(n_estimators=20, max_depth=2, learning_rate=ETA, n_jobs=1).fit(X, y)
    return lt.Tracer(model, X, y, dtype="float64"), X, y


@pytest.mark.parametrize("offset", [2e5, 1e6])
def test_the_effect_of_rounding_is_said(offset):
    tracer, X, y = opened(offset)
    e = tracer.engine.ensemble
    found = tracer.influence(X[:8], of="prediction").values
    expected = np.empty_like(found)
    step = 1e-3
    for i in range(len(y)):
        up, down = (
            program(e.leaves, e.leaves[:, :8], y, 1 + d * (np.arange(len(y)) == i))
            for d in (step, -step)
        )
        expected[i] = (up - down) / (2 * step)
    effect = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    estimate = score_rounding(e, e.scores(e.leaves))
    # An estimate takes the roundings of rows as independent; those of a leaf's rows may not be.
    assert effect / 4 < estimate < 4 * effect
    assert f"roughly {estimate:.0%}" in tracer.fidelity.verdict


def test_labels_of_usual_size():
    assert "float32" not in opened(100.0)[0].fidelity.verdict
