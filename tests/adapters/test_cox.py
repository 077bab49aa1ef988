"""Cox models of XGBoost and CatBoost: exact replays, and numbers of refits by a twin."""

import catboost
import numpy as np
import pytest
import ranking_twins as twins
import xgboost as xgb
from raw_scores import raw_scores

import leaftrace as lt

N = 90
ROWS = [4, 50]
rng = np.random.default_rng(2)
X = rng.normal(size=(N, 3))
TIME = np.ceil(np.exp(0.7 * X[:, 0] + 0.5 * rng.normal(size=N)) * 4) / 4  # with ties
Y = np.where(rng.random(N) < 0.7, TIME, -TIME)
W = (rng.random(N) + 0.5).astype(np.float32).astype(float)


def cox(A, y, order, pi, t, rows, w, ties=True):
    """Return w g and w h, row by row."""
    n = len(y)
    by_time = np.argsort(np.abs(y), kind="stable")
    place = np.empty(n, int)
    place[by_time] = np.arange(n)
    e = np.exp(A)
    later = np.abs(y)[:, None] <= np.abs(y) if ties else place[:, None] <= place
    E = later @ (pi * e)  # (n,) of the risk set at each row's time
    event = (y > 0).astype(float)
    before = place[:, None] >= place  # events up to a row
    R = before @ (pi * event / E)
    S = before @ (pi * event / E**2)
    return w * pi * (e * R - event), w * pi * (e * R - e**2 * S)


def xgboost_model(w=None):
    settings = {
        "objective": "survival:cox",
        "max_depth": 2,
        "eta": 0.2,
        "nthread": 1,
        "min_child_weight": 0.0,
    }
    return xgb.train(settings, xgb.DMatrix(X, Y, weight=w), 6)


def catboost_model(rows=X, y=Y):
    model = catboost.CatBoost(
        {
            "loss_function": "Cox", "iterations": 6, "depth": 2, "learning_rate": 0.2, "verbose": 0,
            "thread_count": 1, "allow_writing_files": False,
        }
    )  # fmt: skip
    return model.fit(catboost.Pool(rows, y))


def xgboost_leaves(model):
    nodes = model.predict(xgb.DMatrix(X), pred_leaf=True).astype(int).T
    return [np.unique(ids, return_inverse=True)[1] for ids in nodes]


CASES = {
    "XGBoost": lambda: (xgboost_model(), xgboost_leaves, np.ones(N), 0.2, 1.0, 0.0, True),
    "XGBoost, weights": lambda: (xgboost_model(W), xgboost_leaves, W, 0.2, 1.0, 0.0, True),
    "CatBoost": lambda: (
        catboost_model(), lambda m: m.calc_leaf_indexes(X).T, np.ones(N), np.float32(0.2), 0.0, 3.0, False,
    ),
}  # fmt: skip


@pytest.fixture(params=CASES, scope="module")
def setting(request):
    model, leaves, w, rate, l2, lam, ties = CASES[request.param]()
    weight = None if np.all(w == 1) else w
    tracer = lt.Tracer(model, X, Y, weight, dtype="float64")

    def refit(w=w, pi=None, keep=None):
        """Return the twin's scores of all rows."""
        keep = np.ones(N, bool) if keep is None else keep

        def terms(*args):
            return cox(*args, ties=ties)

        kept = [ids[keep] for ids in leaves(model)]
        sizes = [int(keep.sum())]
        values, _ = twins.refit(terms, kept, Y[keep], sizes, w[keep], rate, l2, lam, False, pi)
        return sum(v[ids] for v, ids in zip(values, leaves(model), strict=True))

    return tracer, refit, w


def test_fidelity(setting):
    assert setting[0].fidelity.max_error < 2e-6


def test_derivatives_are_slopes_of_a_refit(setting):
    """XGBoost rounds to float32, which the twin does not: 1e-4 of the largest slope."""
    tracer, refit, w = setting
    e = 1e-4
    for change, field in (("weight", "w"), ("presence", "pi")):
        method = lt.LeafInfluence(change=change)
        values = tracer.influence(X, of="prediction", reduce="sum", method=method).values[:, 0]
        start = w if field == "w" else np.ones(N)
        for row in ROWS:
            step = e * np.eye(N)[row]
            slope = (refit(**{field: start + step}) - refit(**{field: start - step})).sum() / (
                2 * e
            )
            np.testing.assert_allclose(values[row], slope, atol=1e-4 * np.abs(values).max())


def test_refit_without_a_row(setting):
    tracer, refit, _ = setting
    keep = np.arange(N) != ROWS[0]
    base = tracer.engine.ensemble.base
    found = raw_scores(tracer.refit(without=~keep), X).ravel() - base
    np.testing.assert_allclose(found, refit(keep=keep), atol=1e-5)


def test_loss_of_test_rows(setting):
    """The partial likelihood of all test rows is one column."""
    tracer, *_ = setting
    found = tracer.influence(X, Y, method=lt.LeafRefit(), rows=[3])
    assert found.shape == (1, 1)
    change = tracer.refit(without=[3]).loss(X, Y) - tracer.refit(without=[]).loss(X, Y)
    np.testing.assert_allclose(-found.values[0], change, atol=1e-9)
    with pytest.raises(lt.InvalidInput, match="no ranker"):
        tracer.influence(X, Y, by="query")


def test_derivatives_of_other_rows():
    """CatBoost's Cox gives rows beyond the first 500 the derivatives of others; the verdict says so."""
    local = np.random.default_rng(0)
    rows = local.normal(size=(620, 3))
    y = np.exp(rows[:, 0] + local.normal(size=620)) * np.where(local.random(620) < 0.7, 1, -1)
    tracer = lt.Tracer(catboost_model(rows, y), rows, y)
    assert tracer.fidelity.exact
    assert "derivatives of other rows for 120 of the 620 rows" in tracer.fidelity.verdict
