"""Refits without sets of rows, many at once, against the oracle for every setting of the contract."""

import numpy as np
import oracle
import pytest
import xgboost as xgb
from contract import CASES, accuracy, prepared

import leaftrace as lt
from leaftrace._engine.removals import has_block_removal

AT_ONCE = 20  # settings at least; the others have several outputs, samples or quantiles


def sets_of(case, structure, count):
    """Return sets that share rows: a single row, a tenth of all rows, and all rows of one leaf."""
    n = len(case.w)
    rng = np.random.default_rng(4)
    sets = [
        rng.choice(n, size, replace=False)
        for size in rng.permutation(np.geomspace(1, n // 10, count).astype(int))
    ]
    ids, sizes = np.unique(structure.steps[0][0][0], return_counts=True)
    if len(ids) > 1:
        sets[0] = np.flatnonzero(structure.steps[0][0][0] == ids[sizes.argmin()])
    return [np.unique(rows) for rows in sets]


@pytest.mark.parametrize("name", CASES)
def test_scores_are_the_oracles(name):
    case, tracer, structure, test_steps = prepared(name)
    structure = structure.strict()
    if case.baseline is not None:
        pytest.skip("test rows have no baseline here")
    X = case.data.X_test
    m = len(case.data.y_test)
    sets = sets_of(case, structure, m)
    found = list(tracer.engine.scores_without(sets, X, "refits"))
    scale = 0.0
    for j, gone in enumerate(sets):
        keep = ~np.isin(np.arange(len(case.w)), gone)
        rest = structure.rows(keep)
        expected = oracle.predict(
            rest, oracle.refit(rest, case.data.codes[keep], case.w[keep]), test_steps
        )
        scale = max(1.0, scale, np.abs(expected).max())
        np.testing.assert_allclose(
            found[j], expected[j], atol=max(3e-6, accuracy(case)) * scale, err_msg=str(j)
        )


def test_most_settings_go_at_once():
    assert sum(has_block_removal(prepared(name)[1].engine.ensemble) for name in CASES) >= AT_ONCE


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_sets_than_a_block_on_any_number_of_threads(dtype):
    """The result for a set does not depend on the other sets."""
    from lightgbm import LGBMClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    w = rng.random(600) + 0.5
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    model = LGBMClassifier(n_estimators=15, n_jobs=1, verbose=-1).fit(X, y, sample_weight=w)
    sets = [rng.choice(600, rng.integers(1, 30), replace=False) for _ in range(75)]
    one, two = (lt.Tracer(model, X, y, w, dtype=dtype, n_jobs=jobs) for jobs in (1, 2))
    found = np.array(list(two.engine.scores_without(sets, X[:75], "refits")))
    np.testing.assert_array_equal(list(one.engine.scores_without(sets, X[:75], "refits")), found)
    slow = np.array([one.refit(rows).scores(X[[j]])[0] for j, rows in enumerate(sets)])
    moves = np.abs(slow - one.refit().scores(X[:75])).max()
    np.testing.assert_allclose(
        found, slow, atol=1e-5 * moves
    )  # LightGBM's gradients are float32 numbers


@pytest.mark.parametrize("objective", ["reg:tweedie", "count:poisson", "binary:logistic"])
def test_sets_without_a_starting_score(objective):
    """Without all labels that are not zero, a refit has no starting score; many at once have none either."""
    X = np.random.default_rng(0).normal(size=(8, 3))
    y = np.array([0.0, 0, 0, 0, 0, 0, 1, 1])
    kind = xgb.XGBClassifier if objective == "binary:logistic" else xgb.XGBRegressor
    model = kind(objective=objective, n_estimators=3, min_child_weight=0, n_jobs=1).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    leaves, _ = tracer.engine.source.rows(X)
    for sets in ([np.array([6, 7])], [np.array([0]), np.array([6, 7])]):
        with pytest.raises(lt.InvalidInput, match="no starting score"):
            list(tracer.engine.score_changes_without(sets, leaves))
