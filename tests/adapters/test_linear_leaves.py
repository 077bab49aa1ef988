"""LightGBM's linear trees: the contract of test_contract.py, against a twin and LightGBM's own refit."""

from functools import cache

import lightgbm as lgb
import lightgbm_draws
import linear_twin
import numpy as np
import oracle
import pytest

import leaftrace as lt
from leaftrace._engine.linear_passes import LinearPasses

N = 160
STEP = 2e-3  # change of a weight or label
ACCURACY = 1e-6  # LightGBM rounds gradients to float32, the twin does not


def table(seed, n, missing):
    """Return columns of several scales, one of categories and one of two values; labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * [1, 5, 0.1, 1, 300, 1] + [0, 1, 3, 0, 900, 0]
    X[:, 3] = rng.integers(0, 8, n)
    X[:, 5] = rng.random(n) < 0.5
    y = 2 * X[:, 0] + np.abs(X[:, 1]) + X[:, 4] / 150 * X[:, 5] + X[:, 3] % 3
    y += 0.3 * rng.normal(size=n)
    if missing:
        X[:, [0, 1, 2, 4]] = np.where(rng.random((n, 4)) < 0.08, np.nan, X[:, [0, 1, 2, 4]])
    return X, np.float32(y).astype(float)


def labels(objective, y):
    if objective == "binary":
        return (y > 8).astype(float)
    if objective == "multiclass":
        return np.digitize(y, [6.0, 10.0]).astype(float)
    return np.floor(np.exp(y / 8)) if objective == "poisson" else y


SETTINGS = {
    "regression": {"linear_lambda": 0.01},
    "missing numbers": {"missing": True, "linear_lambda": 0.01},
    "weights, limits of constants": {
        "missing": True, "weighted": True, "linear_lambda": 0.3, "lambda_l1": 0.4, "lambda_l2": 2.0,
        "max_delta_step": 3.0,
    },
    "binary, weights": {"objective": "binary", "missing": True, "weighted": True, "linear_lambda": 0.1},
    "multiclass": {"objective": "multiclass", "num_class": 3, "missing": True, "linear_lambda": 0.5},
    "poisson": {"objective": "poisson", "linear_lambda": 0.5},
    "bagging": {"missing": True, "linear_lambda": 0.1, "bagging_fraction": 0.7, "bagging_freq": 2},
    "DART": {"boosting": "dart", "drop_rate": 0.6, "skip_drop": 0.0, "linear_lambda": 0.1},
    "leaves of few rows": {"linear_lambda": 0.2, "min_data_in_leaf": 2, "num_leaves": 25},
    "no penalty, no start": {"linear_lambda": 0.0, "boost_from_average": False, "own": True, "two_values": False},
}  # fmt: skip


class Case:
    def __init__(
        self,
        objective="regression",
        missing=False,
        weighted=False,
        own=False,
        two_values=True,
        **params,
    ):
        self.params = {
            "objective": objective, "linear_tree": True, "num_leaves": 6, "min_data_in_leaf": 12, "learning_rate": 0.3,
            "verbosity": -1, "num_threads": 1, "cat_l2": 0.0, **params,
        }  # fmt: skip
        self.X, y = table(1, N, missing)
        self.X_test, y_test = table(2, 14, missing)
        if not two_values:  # which are the same in some leaves
            self.X[:, 5] += np.sin(9 * self.X[:, 1])
            self.X_test[:, 5] += np.sin(9 * self.X_test[:, 1])
        self.y = labels(objective, y)
        self.y_test = labels(objective, y_test)
        self.weight = np.random.default_rng(3).uniform(0.3, 2.5, N) if weighted else None
        self.weight = None if self.weight is None else np.float32(self.weight).astype(float)
        self.w = np.ones(N) if self.weight is None else self.weight
        self.own = own
        data = lgb.Dataset(
            self.X, self.y, weight=self.weight, categorical_feature=[3], free_raw_data=False
        )
        self.model = lgb.train(self.params, data, 5)
        self.tracer = lt.Tracer(self.model, self.X, self.y, self.weight, dtype="float64")
        reported = self.tracer.engine.source.params
        T = self.model.current_iteration()
        moves = lightgbm_draws.dart(reported, T) if params.get("boosting") == "dart" else None
        bags = lightgbm_draws.bags(reported, self.y, T)
        self.twin = linear_twin.Twin(self.model, self.X, self.params, bags, moves)

    def raw(self, model=None):
        """Return the model's own scores (m, K) of the test rows."""
        found = (model or self.model).predict(self.X_test, raw_score=True)
        return found.reshape(len(self.X_test), -1)

    def losses(self, y, w, keep=None):
        F = self.twin.predict(self.twin.refit(y, w, keep), self.X_test)
        return linear_twin.loss_value(self.params["objective"], F, self.y_test)


@cache
def prepared(name):
    return Case(**SETTINGS[name])


@pytest.fixture(params=SETTINGS)
def case(request):
    return prepared(request.param)


def some_rows(values):
    order = np.argsort(values)
    return np.unique(np.r_[order[:2], order[-2:], 5, 50])


def test_fidelity_and_predictions(case):
    assert case.tracer.fidelity.exact
    assert case.tracer.fidelity.max_error < 1e-9
    expected = case.raw()
    scale = np.abs(expected).max()
    found = case.tracer.refit(without=[]).scores(case.X_test)
    np.testing.assert_allclose(found, expected, atol=1e-8 * scale)
    twin = case.twin.predict(case.twin.refit(case.y, case.w), case.X_test)
    np.testing.assert_allclose(twin, expected, atol=3e-6 * scale)


def test_slopes_matter(case):
    """The cases have functions, and without them predictions are others."""
    e = case.tracer.engine.ensemble
    assert np.count_nonzero(e.values[:, 2:]) > 20
    constant = e.constants.scores(np.asarray(e.leaves))
    assert np.abs(constant - e.scores(e.leaves)).max() > 0.05 * np.abs(constant).max()


def test_influence_is_the_slope_of_a_refit(case):
    values = case.tracer.influence(case.X_test, case.y_test, reduce="mean").values[:, 0]
    rows = some_rows(values)

    def loss(i, dw):
        return case.losses(case.y, case.w + dw * np.eye(N)[i]).mean()

    slopes = [oracle.slope(lambda d, i=i: loss(i, d), STEP) for i in rows]
    np.testing.assert_allclose(values[rows], slopes, rtol=0, atol=ACCURACY * np.abs(values).max())


def test_label_influence_is_the_slope_of_a_refit(case):
    if case.params["objective"] in ("binary", "multiclass"):
        pytest.skip("the twin's labels are classes")
    values = case.tracer.label_influence(case.X_test, case.y_test, reduce="mean").values[:, 0]
    rows = some_rows(values)

    def loss(i, dy):
        return case.losses(case.y + dy * np.eye(N)[i], case.w).mean()

    slopes = [oracle.slope(lambda d, i=i: loss(i, d), STEP) for i in rows]
    np.testing.assert_allclose(values[rows], slopes, rtol=0, atol=ACCURACY * np.abs(values).max())


def test_forward_is_the_transpose_of_backward(case):
    """d . (dF/dw)' by the backward pass is dF along d by the forward pass."""
    d = np.random.default_rng(0).normal(size=N)
    forward = case.tracer.engine.score_changes_along(case.X_test, d)
    for output in range(forward.shape[1]):
        given = None if forward.shape[1] == 1 else output
        values = case.tracer.influence(case.X_test, of="prediction", output=given).values
        # the same sums in another order
        np.testing.assert_allclose(
            d @ values, forward[:, output], atol=1e-9 * np.abs(forward).max()
        )


def test_refits_without_rows(case):
    """LeafRefit and refits without a group are those of the twin; so is the model that a refit gives."""
    X = case.X_test
    before = case.losses(case.y, case.w)
    rows = np.flatnonzero(case.w)[[3, 40]]
    changes = -case.tracer.influence(X, case.y_test, method=lt.LeafRefit(), rows=rows).values
    for row, change in zip(rows, changes, strict=True):
        expected = case.losses(case.y, case.w, np.arange(N) != row) - before
        # Differences of losses, which round gradients to float32 on one side.
        np.testing.assert_allclose(change, expected, atol=2e-5 * np.abs(before).max())
    group = [2, 30, 31, 77, 110]
    keep = np.ones(N, bool)
    keep[group] = False
    refitted = case.tracer.refit(without=group)
    F = case.twin.predict(case.twin.refit(case.y, case.w, keep), X)
    np.testing.assert_allclose(refitted.scores(X), F, atol=3e-6 * np.abs(F).max())
    np.testing.assert_allclose(case.raw(refitted.model), refitted.scores(X), atol=1e-12)


def test_other_weights_and_labels(case):
    rng = np.random.default_rng(5)
    w = np.float32(case.w * rng.uniform(0.5, 1.5, N)).astype(float)
    y = case.y[np.r_[1:10, 0, 10:N]]
    F = case.twin.predict(case.twin.refit(y, w), case.X_test)
    found = case.tracer.refit(y=y, sample_weight=w)
    np.testing.assert_allclose(found.scores(case.X_test), F, atol=3e-6 * np.abs(F).max())
    np.testing.assert_allclose(case.raw(found.model), found.scores(case.X_test), atol=1e-12)
    if case.own:
        own = case.model.refit(case.X, y, decay_rate=0.0, weight=w)
        np.testing.assert_allclose(case.raw(own), F, atol=3e-6 * np.abs(F).max())


def test_a_training_row_as_a_candidate_has_its_own_influence(case):
    if "bagging_freq" in case.params:
        pytest.skip("a candidate is drawn as often as the average row")
    values = case.tracer.influence(case.X_test, case.y_test, reduce="mean").values[:, 0]
    rows = some_rows(values)
    found = case.tracer.score_candidates(
        case.X[rows], case.X_test, case.y_test, case.y[rows], reduce="mean"
    )
    # the same formula on the same numbers; sums run in another order
    np.testing.assert_allclose(found.values[:, 0], values[rows], atol=1e-12 * np.abs(values).max())


def test_own_pull_is_that_of_the_leaf_without_the_row(case):
    """The pull of a row in one step: the twin's leaf without it, at the scores before the step."""
    e = case.tracer.engine.ensemble
    A = e.start()
    for t in (0, 1):
        e.move(t, e.leaves, A)
    pulls = np.zeros_like(A)
    LinearPasses(case.tracer.engine.work).add_own_pull(1, A, pulls)
    pulls /= e.factors[1]
    twin = case.twin
    g, h = linear_twin.derivatives(case.params["objective"], A, case.y)
    every = np.ones(N, bool)
    drawn = every if twin.bags is None else twin.bags[1] > 0
    compared = 0
    for row in np.flatnonzero(drawn)[::7]:
        for k in range(twin.K):
            r = twin.K + k
            leaf = twin.ids[row, r]
            there = np.flatnonzero(drawn & (twin.ids[:, r] == leaf))

            def output(rows, r=r, k=k, leaf=leaf, row=row):
                fitted = twin._leaf(rows, case.w * g[:, k], case.w * h[:, k], r, leaf, every)
                return linear_twin.outputs([fitted], twin.x[[row]], np.zeros(1, int))[0]

            if len(there) <= 7:  # without the row the leaf may be a constant
                continue
            expected = output(there) - output(there[there != row])
            np.testing.assert_allclose(pulls[row, k], expected, atol=1e-6 * np.abs(pulls).max())
            compared += 1
    assert compared > 4


def test_permuting_the_rows_permutes_the_influences(case):
    if "bagging_freq" in case.params:
        pytest.skip("rows were drawn by their position")
    order = np.random.default_rng(0).permutation(N)
    weight = None if case.weight is None else case.weight[order]
    again = lt.Tracer(case.model, case.X[order], case.y[order], weight, dtype="float64")
    values = case.tracer.influence(case.X_test, case.y_test, reduce="mean").values
    permuted = again.influence(case.X_test, case.y_test, reduce="mean").values
    np.testing.assert_allclose(permuted, values[order], atol=1e-8 * np.abs(values).max())


def test_other_labels_are_noticed(case):
    y = case.y.copy()
    other = int(np.flatnonzero(y != y[0])[-1])
    y[[0, other]] = y[[other, 0]]
    if "bagging_freq" in case.params:
        y = np.roll(case.y, 1)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(case.model, case.X, y, case.weight)


def test_other_numbers_are_noticed():
    """A column that decides no leaf of a row still decides its output."""
    case = prepared("regression")
    X = case.X.copy()
    X[:, 4] = np.where(X[:, 4] > X[:, 4].mean(), X[:, 4] * (1 + 1e-3), X[:, 4])
    with pytest.raises(lt.FidelityError):
        lt.Tracer(case.model, X, case.y)


def traced(X, y, rounds=8, **params):
    """Train with a few leaves and return (model, its tracer)."""
    settings = {
        "objective": "regression", "linear_tree": True, "num_leaves": 8, "min_data_in_leaf": 5, "verbosity": -1,
        "num_threads": 1, **params,
    }  # fmt: skip
    model = lgb.train(settings, lgb.Dataset(X, y, free_raw_data=False), rounds)
    return model, lt.Tracer(model, X, y, dtype="float64")


def test_columns_that_are_the_same_in_a_leaf():
    """Below a split of two values their column is constant, and LightGBM's solver leaves a slope out."""
    X, y = table(4, N, missing=False)
    X = X[:, [0, 4, 5]]
    y = 4 * X[:, 2] + X[:, 0] * X[:, 2] + 0.1 * y
    model, tracer = traced(X, y, linear_lambda=0.0, boost_from_average=False, min_data_in_leaf=12)
    assert tracer.fidelity.exact, tracer.fidelity.verdict
    e = tracer.engine.ensemble
    used = e.linear.used[e.linear.fitted]
    zeros = (e.values[e.linear.fitted, 2:] == 0) & (used >= 0)
    without_intercept = e.values[e.linear.fitted, 1] == 0
    assert zeros.any()
    assert without_intercept.any()
    w = np.float32(np.random.default_rng(0).uniform(0.5, 1.5, N)).astype(float)
    own = model.refit(X, y, decay_rate=0.0, weight=w)
    found = tracer.refit(sample_weight=w).scores(X)[:, 0]
    expected = own.predict(X, raw_score=True)
    np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())
    new = X[:1].copy()
    new[0, 2] = 0.5 if X[0, 2] == 1 else 0.25  # in a leaf where all rows have another value
    with pytest.raises(lt.InvalidInput, match="linear_lambda"):
        tracer.score_candidates(new, X, y, y[:1])


def test_leaves_that_hardly_any_row_can_be_fitted_to():
    """Missing numbers leave some leaves one row, or none: their slopes, or all of them, are zero."""
    X, y = table(6, 300, missing=False)
    X = X[:, [0, 1, 2, 4]]
    X[np.random.default_rng(0).random(X.shape) < 0.4] = np.nan
    model, tracer = traced(X, y, min_data_in_leaf=1, num_leaves=40, linear_lambda=0.01)
    assert tracer.fidelity.exact, tracer.fidelity.verdict
    assert "missing numbers" in tracer.fidelity.verdict
    e = tracer.engine.ensemble
    empty = e.linear.fitted & (e.values[:, 1:] == 0).all(axis=1) & (e.values[:, 0] != 0)
    assert empty.any()
    expected = model.predict(X, raw_score=True)
    found = tracer.refit(without=[]).scores(X)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    d = np.random.default_rng(1).normal(size=300)
    forward = tracer.engine.score_changes_along(X[:20], d)[:, 0]
    backward = d @ tracer.influence(X[:20], of="prediction").values
    np.testing.assert_allclose(backward, forward, atol=1e-8 * np.abs(forward).max())


def test_leaves_of_categories_alone_have_an_intercept_without_l2():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 12, N), rng.normal(size=N)]).astype(float)
    y = np.sin(X[:, 0]) * 3 + 0.1 * X[:, 1]
    params = {
        "objective": "regression", "linear_tree": True, "num_leaves": 6, "lambda_l2": 5.0, "min_data_in_leaf": 5,
        "min_data_per_group": 5, "cat_smooth": 1.0, "verbosity": -1,
    }  # fmt: skip
    data = lgb.Dataset(X, y, categorical_feature=[0], free_raw_data=False)
    model = lgb.train(params, data, 5)
    tracer = lt.Tracer(model, X, y)
    e = tracer.engine.ensemble
    alone = e.linear.fitted & (e.linear.used < 0).all(axis=1)
    assert np.any(alone & (e.values[:, 0] != e.values[:, 1]))
    assert tracer.fidelity.exact


@pytest.mark.parametrize(
    "method",
    [
        lt.StructureInfluence(),
        lt.LeafRefit(lt.TopKLeaves(2)),
        lt.baselines.BoostIn(),
        lt.baselines.TreeSim(),
    ],
)
def test_methods_that_are_refused(method):
    case = prepared("regression")
    with pytest.raises((lt.UnsupportedModel, lt.InvalidInput), match=r"linear|update set"):
        case.tracer.influence(case.X_test, case.y_test, method=method)


@pytest.mark.parametrize(
    "setting",
    [{"path_smooth": 2.0}, {"monotone_constraints": [1, 0, 0]}, {"objective": "quantile"}],
    ids=str,
)
def test_settings_that_are_refused(setting):
    X, y = table(7, N, missing=False)
    with pytest.raises(lt.UnsupportedModel, match="linear_tree=True together with"):
        traced(X[:, [0, 1, 4]], y, **setting)


def test_tables_and_files(tmp_path):
    """A sparse table, a data frame and a file give the same as the array."""
    pd = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    X, y = table(8, N, missing=False)
    X = X[:, [0, 4, 5]]
    model, tracer = traced(X, y, linear_lambda=0.1)
    values = tracer.influence(X[:5], y[:5]).values
    path = tmp_path / "model.txt"
    model.save_model(path)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for rows, some in ((sparse.csr_matrix(X), sparse.csr_matrix(X[:5])), (frame, frame[:5])):
        again = lt.Tracer(str(path), rows, y, dtype="float64")
        np.testing.assert_allclose(again.influence(some, y[:5]).values, values, rtol=1e-9)
