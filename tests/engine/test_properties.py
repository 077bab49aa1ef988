"""Properties that hold for all data."""

import numpy as np
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from catboost_models import QUIET, case, tracer_of
from raw_scores import raw_scores

import leaftrace as lt

SMALL = {**QUIET, "iterations": 15, "depth": 3, "bootstrap_type": "No", "random_strength": 0}


@pytest.fixture(scope="module")
def c():
    return case("logloss newton 1")


def model_of(c, X, y, w=None, **kw):
    return CatBoostClassifier(**{**SMALL, **kw}).fit(Pool(X, y, weight=w))


def influence(c, model, X, y, w=None, **kw):
    return lt.Tracer(model, X, y, w, dtype="float64").influence(c.X_test, c.y_test, **kw)


def test_permuting_the_rows_permutes_the_influences(c):
    order = np.random.default_rng(0).permutation(len(c.y))
    model = model_of(c, c.X, c.y)
    values = influence(c, model, c.X, c.y).values
    permuted = influence(c, model, c.X[order], c.y[order]).values
    np.testing.assert_allclose(permuted, values[order], atol=1e-12 * np.abs(values).max())


def test_a_row_twice_is_a_row_of_weight_two(c):
    """This holds for l2 = 0, because CatBoost's l2 also counts rows."""
    twice = np.r_[np.arange(len(c.y)), 5]
    heavy = np.ones(len(c.y))
    heavy[5] = 2.0
    model = model_of(c, c.X, c.y, heavy, l2_leaf_reg=0.0)
    doubled = influence(c, model, c.X[twice], c.y[twice]).values
    weighted = influence(c, model, c.X, c.y, heavy).values
    np.testing.assert_allclose(doubled[:-1], weighted, atol=1e-10 * np.abs(weighted).max())
    np.testing.assert_allclose(doubled[-1], weighted[5], atol=1e-10 * np.abs(weighted).max())
    refitted = raw_scores(
        lt.Tracer(model, c.X[twice], c.y[twice]).refit(without=[5, len(twice) - 1]), c.X_test
    )
    without = raw_scores(lt.Tracer(model, c.X, c.y, heavy).refit(without=[5]), c.X_test)
    np.testing.assert_allclose(refitted, without, atol=1e-10)


def test_weight_zero_is_a_removed_row(c):
    """With l2 = 0, a model fitted with a row at weight zero is the model without it."""
    zero = np.ones(len(c.y))
    zero[[5, 9]] = 0.0
    model = model_of(c, c.X, c.y, zero, l2_leaf_reg=0.0)
    kept = zero > 0
    values = influence(c, model, c.X, c.y, zero)
    np.testing.assert_allclose(
        values.values[kept],
        influence(c, model, c.X[kept], c.y[kept]).values,
        atol=1e-10 * np.abs(values.values).max(),
    )
    assert np.all(values.change[~kept] == 0)
    refit = influence(c, model, c.X, c.y, zero, method=lt.LeafRefit(), rows=[5, 9])
    assert np.all(refit.values == 0)


def test_linear_methods_are_additive_over_queries(c):
    tracer = tracer_of(c)
    columns = tracer.influence(c.X_test, c.y_test).values
    for reduce, expected in (("sum", columns.sum(axis=1)), ("mean", columns.mean(axis=1))):
        one = tracer.influence(c.X_test, c.y_test, reduce=reduce).values[:, 0]
        np.testing.assert_allclose(one, expected, atol=1e-12 * np.abs(expected).max())


def test_a_goal_is_its_gradient(c):
    tracer = tracer_of(c)
    loss = tracer.influence(c.X_test, c.y_test).values

    def gradient(F):
        return 1 / (1 + np.exp(-F)) - c.y_test

    by_function = tracer.influence(c.X_test, of=gradient).values
    by_array = tracer.influence(
        c.X_test, of=gradient(raw_scores(tracer.refit([]), c.X_test))
    ).values
    np.testing.assert_allclose(by_function, loss, atol=1e-12)
    np.testing.assert_allclose(by_array, loss, atol=1e-12)


def test_a_slope_predicts_a_small_removal(c):
    """The removal of one row among many is close to its derivative, in sign and size."""
    tracer = tracer_of(c)
    linear = tracer.influence(c.X_test, c.y_test, reduce="mean").change[:, 0]
    exact = tracer.influence(c.X_test, c.y_test, reduce="mean", method=lt.LeafRefit()).change[:, 0]
    assert np.corrcoef(linear, exact)[0, 1] > 0.95


@pytest.mark.parametrize(
    "method", [lt.LeafInfluence(), lt.LeafRefit(), lt.LeafInfluence(lt.TopKLeaves(2))], ids=repr
)
def test_threads_and_memory_do_not_change_a_bit(c, method):
    results = []
    for kw in ({"n_jobs": 1}, {"n_jobs": 3}, {"n_jobs": 2}):
        tracer = tracer_of(c, dtype="float32", **kw)
        # several blocks of columns
        X = np.tile(c.X_test, (4, 1))
        y = np.tile(c.y_test, 4)
        results.append(tracer.influence(X, y, method=method, rows=range(100)).values)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    small = tracer_of(c, dtype="float32", memory_limit=100_000)
    assert not small.engine.work.keeps_effects
    again = small.influence(X, y, method=method, rows=range(100)).values
    np.testing.assert_allclose(again, results[0], atol=1e-6 * np.abs(results[0]).max())


def test_streaming_top_is_the_top_of_the_matrix(c):
    X = np.tile(c.X_test, (4, 1))
    y = np.tile(c.y_test, 4)
    tracer = tracer_of(c)
    for kw in ({}, {"effect": "harmful"}, {"effect": "helpful"}):
        streamed = tracer.top(X, y, 7, **kw)
        whole = tracer.influence(X, y).top(7, **kw)
        assert streamed.equals(whole)


def test_removing_a_row_of_one_class_moves_the_other_scores():
    c = case("multiclass")
    tracer = tracer_of(c)
    row = int(np.flatnonzero(c.codes == 0)[3])
    moved = [
        np.abs(tracer.influence(c.X_test, of="prediction", output=k, rows=[row]).values).max()
        for k in range(3)
    ]
    assert min(moved) > 1e-3 * max(moved)


def test_label_influence_of_classes():
    """Label influence is the slope of moving weight from a row to its relabelled copy."""
    c = case("multiclass")
    model = c.model
    row = 4
    target = next(k for k in range(3) if k != c.codes[row])
    tracer = tracer_of(c)
    slope = tracer.label_influence(
        c.X_test, c.y_test, to=model.classes_[target], rows=[row]
    ).values[0]
    # The relabelled copy as a candidate, minus the row itself: dw = +1 there and -1 here.
    copy = tracer.score_candidates(
        c.X[row : row + 1], c.X_test, c.y_test, [model.classes_[target]]
    ).values[0]
    own = tracer.score_candidates(c.X[row : row + 1], c.X_test, c.y_test, [c.y[row]]).values[0]
    np.testing.assert_allclose(slope, copy - own, atol=1e-12 * np.abs(slope).max())
    same = tracer.label_influence(c.X_test, c.y_test, to=c.y[row], rows=[row]).values
    assert np.all(same == 0)


def test_candidates_without_labels():
    c = case("multiclass")
    tracer = tracer_of(c)
    scores = tracer.score_candidates(c.X_test[:4], c.X_test, c.y_test, reduce="mean")
    p = c.model.predict_proba(c.X_test[:4])
    assert scores.per_label is not None
    assert list(scores.per_label) == list(c.model.classes_)
    for label, values in scores.per_label.items():
        given = tracer.score_candidates(
            c.X_test[:4], c.X_test, c.y_test, [label] * 4, reduce="mean"
        ).values
        np.testing.assert_array_equal(values, given)
    expected = sum(p[:, k, None] * v for k, v in enumerate(scores.per_label.values()))
    np.testing.assert_allclose(scores.values, expected, atol=1e-12)
    r = case("rmse default rule")
    t = tracer_of(r)
    own = t.score_candidates(r.X_test[:4], r.X_test, r.y_test, reduce="mean").values
    same = t.score_candidates(
        r.X_test[:4], r.X_test, r.y_test, r.model.predict(r.X_test[:4]), reduce="mean"
    ).values
    np.testing.assert_allclose(own, same, atol=1e-12)


def test_numpy_twins_give_the_same_answers(c, monkeypatch):
    from leaftrace._engine import backward, forward, forward_block, row_effects, steps
    from leaftrace._model.kernels import numpy as twins

    native = tracer_of(c)
    methods = [
        lt.LeafInfluence(),
        lt.LeafRefit(),
        lt.LeafInfluence(lt.TopKLeaves(2)),
        lt.LeafRefit(lt.TopKLeaves(2)),
    ]
    expected = [
        native.influence(c.X_test, c.y_test, method=m, rows=range(20)).values for m in methods
    ]
    for module in (backward, row_effects, forward, forward_block, steps):
        monkeypatch.setattr(module, "kernels", twins)
    twins = tracer_of(c)
    for method, values in zip(methods, expected, strict=True):
        again = twins.influence(c.X_test, c.y_test, method=method, rows=range(20)).values
        np.testing.assert_allclose(again, values, atol=1e-11 * np.abs(values).max())


def test_regression_default_in_two_lines():
    c = case("rmse default rule")
    tracer = lt.Tracer(CatBoostRegressor(**SMALL).fit(c.X, c.y), c.X, c.y)
    assert tracer.influence(c.X_test, c.y_test).values.shape == (len(c.y), len(c.y_test))
