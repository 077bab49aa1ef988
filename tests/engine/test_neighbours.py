"""Neighbours: shares of trees and leaf-kernel weights, against loops over trees of real models."""

import numpy as np
import oracle
import pytest
from catboost_models import case as catboost_case
from catboost_models import tracer_of
from contract import prepared
from oracle_trees import trees_of
from raw_scores import raw_scores

import leaftrace as lt
from leaftrace._tracer.neighbours import leaf_kernel

SETTINGS = [
    "CatBoost: logloss, weights, class weights",
    "CatBoost: logloss, 3 Newton steps with backtracking",
    "CatBoost: default classifier of three classes (multiclass)",
    "CatBoost: shrinking model",
    "LightGBM: regression, weights, l1, l2, max_delta_step",
    "LightGBM: DART, weights",
    "LightGBM: multiclass, bagging",
    "LightGBM: path_smooth, l2",
    "LightGBM: regression_l1, weights",
    "XGBoost: penalties and bounds",
    "XGBoost: multiclass, vector leaves",
    "scikit-learn: HistGradientBoosting, early stopping, weights",
    "scikit-learn: RandomForest, multiclass, balanced_subsample, max_samples",
]


def tree_slope(structure, case, tree, row, k):
    """Return d(leaf values of output k) / d(negative gradient of a row), in this tree alone."""
    t, r, ids, L, o, factor, A = tree
    w = case.w * structure.class_weight
    lam = structure.l2 * w.sum() / len(w) if structure.l2_scales else structure.l2
    lam = lam + (0.0 if structure.more_l2 is None else structure.more_l2[t][r])
    w = w if structure.sample is None else w * structure.sample[t][r]
    if structure.leaf:  # a quantile: the row's share in it
        share = np.bincount(ids, w, L)
        return factor * structure.rate(t) * np.where(np.arange(L) == ids[row], w[row] / share, 0.0)
    derivatives = structure.derivatives or (lambda A, y: oracle.derivatives(structure.loss, A, y))

    def values(d):
        def moved(B, y):
            g, h = derivatives(B, y)
            g = g.copy()
            g[row, k] -= d
            return g, h

        moved_structure = oracle.replace(structure, derivatives=moved)
        out = oracle.tree_value(
            moved_structure, ids, L, o, structure.scales[t], A, case.data.codes, w, lam, t, r
        )
        return out[:, k - o]

    return factor * oracle.slope(values, 1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_against_a_loop_over_trees(name):
    case, tracer, structure, test_steps = prepared(name)
    work = tracer.engine.work
    queries = tracer.engine.queries(case.data.X_test, None, "prediction", None, None, None)[0]
    x = [0, 7]
    output = queries.scores.argmax(axis=1)[x]
    similarity, weight = leaf_kernel(work, queries.leaves[:, x], output)
    trees = list(trees_of(structure, case))
    same = np.array([[ids[:, None] == test_steps[t][r][0][x]] for t, r, ids, *_ in trees])[
        :, 0
    ]  # (trees, n, 2)
    np.testing.assert_allclose(similarity, same.mean(axis=0), atol=1e-12)
    order = np.argsort(-weight[:, 0])
    rows = np.r_[order[:2], order[len(order) // 2], order[-1]]
    expected = np.zeros((len(rows), len(x)))
    for i, row in enumerate(rows):
        for b, k in enumerate(output):
            for tree in trees:
                t = tree[0]
                r = tree[1]
                o = tree[4]
                if o <= k < o + structure.O:
                    expected[i, b] += tree_slope(structure, case, tree, row, k)[
                        test_steps[t][r][0][x[b]]
                    ]
    assert expected[0, 0] > 0
    # The oracle's differences have nine digits; boosters that round to float32 differ by as much as their leaves.
    np.testing.assert_allclose(
        weight[rows], expected, atol=max(1e-7, 20 * case.tolerance) * np.abs(weight).max()
    )


def test_weights_of_a_forest_sum_to_one():
    case, tracer, *_ = prepared(
        "scikit-learn: RandomForest, multiclass, balanced_subsample, max_samples"
    )
    table = tracer.neighbours(case.data.X_test, len(case.w))
    np.testing.assert_allclose(table.groupby("test_row").weight.sum(), 1.0, rtol=1e-9)


@pytest.mark.parametrize("by", ["weight", "similarity"])
def test_the_table(by):
    """The table equals the largest values of the whole matrix, for many test rows in blocks."""
    c = catboost_case("categories and missing values")
    # 80 rows
    X = c.X_test.loc[np.repeat(c.X_test.index, 4)]
    y = np.repeat(c.y_test, 4)
    tracer = tracer_of(c, dtype="float32", n_jobs=2, memory_limit=200_000)
    leaves = tracer.engine.source.rows(X)[0]
    parts = [
        leaf_kernel(tracer.engine.work, leaves[:, b : b + 20], np.zeros(20, int))
        for b in range(0, 80, 20)
    ]
    matrix = dict(
        zip(
            ("similarity", "weight"),
            (np.concatenate(p, axis=1) for p in zip(*parts, strict=True)),
            strict=True,
        )
    )
    influence = tracer.influence(X, y)
    table = tracer.neighbours(X, 6, y_test=y, by=by)
    assert list(table.columns) == [
        "test_row", "test_position", "rank", "train_row", "position", "label", "similarity", "weight", "effect",
        "loss_change_if_removed", "change_is",
    ]  # fmt: skip
    assert list(table["rank"]) == [1, 2, 3, 4, 5, 6] * 80
    assert list(table.test_row) == list(np.repeat(X.index, 6))
    for b in (0, 33, 79):
        lines = table[6 * b : 6 * b + 6]
        order = np.argsort(-matrix[by][:, b], kind="stable")[:6]
        assert list(lines.train_row) == list(c.X.index[order])
        assert list(lines.label) == list(c.y[order])
        for name, values in matrix.items():
            np.testing.assert_allclose(lines[name], values[order, b], rtol=1e-6)
        np.testing.assert_allclose(
            lines.loss_change_if_removed, influence.change[order, b], rtol=1e-4, atol=1e-9
        )
        assert list(lines.effect) == [
            "harmful" if v > 0 else "helpful" for v in influence.values[order, b]
        ]
    unlabelled = tracer.neighbours(X[:2], 3)
    assert list(unlabelled.columns)[-3:-1] == ["effect", "prediction_change_if_removed"]


def test_the_nearest_row_is_the_row_itself():
    case, tracer, *_ = prepared("XGBoost: XGBRegressor defaults")
    table = tracer.neighbours(case.data.X[:30], 1, by="similarity")
    assert (table.similarity == 1).all()
    assert (
        table.train_row == np.arange(30)
    ).mean() > 0.9  # some rows share all leaves with an earlier one


def test_held_out_and_weightless_rows_are_no_neighbours():
    case, tracer, *_ = prepared("scikit-learn: HistGradientBoosting, early stopping, weights")
    held = np.flatnonzero(tracer.engine.ensemble.w == 0)
    assert len(held) > 5
    for by in ("weight", "similarity"):
        found = set(tracer.neighbours(case.data.X_test, 1000, by=by).train_row)
        assert found
        assert not found & set(held)


def test_several_outputs():
    case, tracer, *_ = prepared("LightGBM: multiclass, bagging")
    X = case.data.X_test[:4]
    best = raw_scores(tracer.refit([]), X).argmax(axis=1)
    default = tracer.neighbours(X, 5)
    for x in range(4):
        one = tracer.neighbours(X[x : x + 1], 5, output=int(best[x]))
        np.testing.assert_allclose(one.weight, default[default.test_row == x].weight)
    other = tracer.neighbours(X[:1], 5, output=int(best[0] + 1) % 3)
    assert not np.allclose(other.weight, default[:5].weight)


def test_leaves_without_derivatives_have_no_influence():
    case, tracer, *_ = prepared("LightGBM: regression_l1, weights")
    table = tracer.neighbours(case.data.X_test, 2, y_test=case.data.y_test)
    assert list(table.columns) == [
        "test_row", "test_position", "rank", "train_row", "position", "label", "similarity", "weight",
    ]  # fmt: skip


def test_errors():
    case, tracer, *_ = prepared(SETTINGS[0])
    with pytest.raises(lt.InvalidInput, match="'weight' or 'similarity'"):
        tracer.neighbours(case.data.X_test, by="distance")
    with pytest.raises(lt.InvalidInput, match="k is 0"):
        tracer.neighbours(case.data.X_test, 0)
    with pytest.raises(lt.InvalidInput, match="outputs 0 to 0"):
        tracer.neighbours(case.data.X_test, output=3)
    with pytest.raises(lt.InvalidInput, match="y_test has 1 values"):
        tracer.neighbours(case.data.X_test, y_test=[1])
