"""The paper's algorithms with every update set, against a transcription in plain Python.

The transcription follows Algorithms 2 to 4 with totals instead of differences: scores that are in U carry their change,
the others do not; leaf values come from the formulas; changes accumulate. Taking a small weight away instead of the
whole row, and dividing by it, gives LeafInfluence.
"""

import numpy as np
import oracle
import pytest
from test_catboost import structure_of, tracer_of

import leaftrace as lt
from conftest import case

UPDATE_SETS = [
    lt.AllPoints(),
    lt.SinglePoint(),
    lt.TopKLeaves(1),
    lt.TopKLeaves(3),
    lt.TopKLeaves(3, accumulate="updated"),
    lt.TopKLeaves(1000),
    lt.TopKLeaves(2, sample=50),
    lt.TopKLeaves(2, sample=50, accumulate="updated", seed=7),
]
SETTINGS = [
    "logloss newton 1",
    "logloss newton 5 plain",
    "logloss weights",
    "logloss boost from average",
    "rmse gradient",
    "poisson newton 5",
    "multiclass",
    "multiclass newton 3",
]


def transcription(structure, y, w, i, dw, removed, update_set):
    """Change of (base, leaf values) when row i's weight changes by dw, or when it is removed.

    Whether row i itself can be in U: removed, no; otherwise as any row, and always with accumulate="updated"."""
    n = len(y)
    w_hat = w.copy()
    w_hat[i] = 0.0 if removed else w[i] + dw
    lam = structure.l2 * w.sum() / n
    lam_hat = structure.l2 * w_hat.sum() / (n - removed)
    base = oracle.base_score(structure, y, w)
    base_hat = oracle.base_score(structure, y, w_hat)
    A = np.tile(base, (n, 1)) + structure.offset
    D = np.tile(base_hat - base, (n, 1))
    only_updated = isinstance(update_set, lt.TopKLeaves) and update_set.accumulate == "updated"
    changes = []
    for t, (step, scales) in enumerate(zip(structure.steps, structure.scales, strict=True)):
        ((ids, L, o),) = step
        if isinstance(update_set, lt.TopKLeaves):
            counted = np.ones(n)
            if update_set.sample is not None:
                rng = np.random.default_rng([update_set.seed, t])
                counted = np.isin(np.arange(n), rng.choice(n, update_set.sample, replace=False))
            sums = [np.abs(D[(ids == leaf) & (counted > 0)]).sum() for leaf in range(L)]
            top = sorted(range(L), key=lambda leaf: (-sums[leaf], leaf))[: update_set.k]
            used = np.isin(ids, top)
        else:
            used = np.full(n, isinstance(update_set, lt.AllPoints))
        accumulates = used.copy() if only_updated else np.ones(n, bool)
        if only_updated:
            accumulates[i] = used[i] = True
        A_hat = A + np.where(used[:, None], D, 0.0)
        before = oracle.tree_value(structure, ids, L, o, scales, A, y, w, lam)
        after = oracle.tree_value(structure, ids, L, o, scales, A_hat, y, w_hat, lam_hat)
        changes.append([after - before])
        D = D + np.where(accumulates[:, None], (after - before)[ids], 0.0)
        A = A + before[ids]
    return base_hat - base, changes


def score_change(structure, change, test_steps):
    return oracle.predict(structure, change, test_steps)


@pytest.mark.parametrize("update_set", UPDATE_SETS, ids=repr)
@pytest.mark.parametrize("name", SETTINGS)
def test_leaf_refit(name, update_set):
    c = case(name)
    tracer = tracer_of(c)
    structure, test_steps = structure_of(c, tracer)
    rows = np.array([3, 40, 77])
    values = tracer.influence(c.X_test, c.y_test, method=lt.LeafRefit(update_set), rows=rows).values
    F = oracle.predict(structure, oracle.refit(structure, c.codes, c.w_total), test_steps)
    for i, value in zip(rows, values, strict=True):
        change = transcription(structure, c.codes, c.w_total, i, None, True, update_set)
        F_hat = F + score_change(structure, change, test_steps)
        expected = oracle.loss_value(structure.loss, F, c.test_codes) - oracle.loss_value(
            structure.loss, F_hat, c.test_codes
        )
        np.testing.assert_allclose(value, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("update_set", UPDATE_SETS, ids=repr)
@pytest.mark.parametrize("name", SETTINGS)
def test_leaf_influence(name, update_set):
    c = case(name)
    tracer = tracer_of(c)
    structure, test_steps = structure_of(c, tracer)
    rows = np.array([3, 40, 77])
    values = tracer.influence(
        c.X_test, of="prediction", output=0, method=lt.LeafInfluence(update_set), rows=rows
    ).values
    for i, value in zip(rows, values, strict=True):

        def prediction(dw, i=i):
            change = transcription(structure, c.codes, c.w_total, i, dw, False, update_set)
            return score_change(structure, change, test_steps)[:, 0]

        expected = oracle.slope(prediction, 1e-3)
        np.testing.assert_allclose(value, expected, atol=1e-6 * np.abs(expected).max())


def test_all_leaves_in_the_update_set_is_all_points():
    c = case("logloss newton 1")
    tracer = tracer_of(c)
    every, all_points = (
        tracer.influence(c.X_test, c.y_test, method=method, rows=range(40)).values
        for method in (lt.LeafInfluence(lt.TopKLeaves(16)), lt.LeafInfluence())
    )
    np.testing.assert_allclose(every, all_points, atol=1e-12 * np.abs(all_points).max())


def test_the_fast_names_are_the_same_methods():
    assert lt.FastLeafInfluence(lt.TopKLeaves(2)) == lt.LeafInfluence(lt.TopKLeaves(2))
    assert lt.FastLeafRefit(lt.TopKLeaves(2)) == lt.LeafRefit(lt.TopKLeaves(2))
