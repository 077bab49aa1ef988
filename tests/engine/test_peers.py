"""CatBoost's own `get_object_importance`: settings where it is right, and where it is not."""

import numpy as np
import oracle
import pytest
from catboost import CatBoostClassifier, Pool
from catboost_models import QUIET, case

import leaftrace as lt


def catboost_says(model, X, y, X_test, y_test, update_method):
    """Return CatBoost's derivatives (n, m) of the test losses."""
    index, score = model.get_object_importance(
        Pool(X_test, y_test), Pool(X, y), top_size=-1, type="PerObject", update_method=update_method
    )
    values = np.zeros((len(y), len(y_test)))
    for j in range(len(y_test)):
        values[index[j], j] = score[j]
    return values


def setup(**kw):
    c = case("logloss newton 1")
    settings = {
        "iterations": 10,
        "depth": 4,
        "learning_rate": 0.2,
        "l2_leaf_reg": 0.0,
        "boosting_type": "Plain",
    }
    settings |= {
        "leaf_estimation_method": "Newton",
        "leaf_estimation_iterations": 1,
        "boost_from_average": False,
    }
    settings |= {"leaf_estimation_backtracking": "No"}
    model = CatBoostClassifier(**QUIET, **{**settings, **kw}).fit(c.X, c.y)
    tracer = lt.Tracer(model, c.X, c.y, dtype="float64")
    structure, steps = oracle.from_catboost(model, c.X)
    test_steps = steps(c.X_test)

    def slope_of(i):
        def losses(dw):
            w = np.ones(len(c.y)) + dw * np.eye(len(c.y))[i]
            F = oracle.predict(structure, oracle.refit(structure, c.y, w), test_steps)
            return oracle.loss_value("logistic", F, c.y_test)

        return oracle.slope(losses, 1e-3)

    return c, model, tracer, slope_of


def test_all_points_agree_where_catboost_is_right():
    """CatBoost is right for one inner step, no base score and no l2.

    It ignores that l2 is scaled by the sum of weights."""
    c, model, tracer, _ = setup()
    theirs = catboost_says(model, c.X, c.y, c.X_test, c.y_test, "AllPoints")
    ours = tracer.influence(c.X_test, c.y_test).values
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("k", [1, 3])
def test_top_k_leaves_agree_with_catboosts_code(k):
    """`accumulate="updated"` is what CatBoost and the authors' code do.

    Leaves whose sums differ only by rounding are ranked by it, so a row in a hundred may differ."""
    c, model, tracer, _ = setup()
    theirs = catboost_says(model, c.X, c.y, c.X_test, c.y_test, f"TopKLeaves:top={k}")
    method = lt.LeafInfluence(lt.TopKLeaves(k, accumulate="updated"))
    ours = tracer.influence(c.X_test, c.y_test, method=method).values
    same = np.abs(ours - theirs).max(axis=1) <= 1e-5 * np.abs(theirs).max()
    assert same.mean() >= 0.99


@pytest.mark.parametrize(
    "kw",
    [{"leaf_estimation_iterations": 10, "l2_leaf_reg": 3.0}, {"boost_from_average": True}],
    ids=["several inner iterations", "base score from the data"],
)
def test_where_catboost_is_wrong_we_are_right(kw):
    c, model, tracer, slope_of = setup(**kw)
    theirs = catboost_says(model, c.X, c.y, c.X_test, c.y_test, "AllPoints")
    ours = tracer.influence(c.X_test, c.y_test).values
    rows = np.unique(np.r_[np.abs(ours).max(axis=1).argsort()[-3:], 10, 200])
    truth = np.array([slope_of(i) for i in rows])
    scale = np.abs(truth).max()
    assert np.abs(ours[rows] - truth).max() <= 1e-6 * scale
    assert np.abs(theirs[rows] - truth).max() >= 0.01 * scale
