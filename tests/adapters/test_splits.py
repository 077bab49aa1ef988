"""How each library chose its splits: nodes, columns, gains and limits.

The oracle is the library's own routing of rows, and the gains that it recorded itself."""

import json
import re

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from split_checks import check_search, gains, smallest_sides, taken_and_best
from split_tables import N, as_numbers, for_catboost, labels, mixed_table, opened, weights
from threadpoolctl import threadpool_limits

import leaftrace as lt


@pytest.fixture(scope="module")
def table():
    return mixed_table()


def same_gains(found, recorded):
    """Gains are recorded with six digits or in float32; a small one is a difference of large ones."""
    np.testing.assert_allclose(found, recorded, rtol=2e-5, atol=1e-5 * np.max(recorded))


# ---- LightGBM ----

LIGHTGBM = {
    "regression": ({"lambda_l2": 3.0}, 0, 1.0),
    "binary": ({"objective": "binary", "min_sum_hessian_in_leaf": 4.0, "min_data_in_leaf": 1}, 2, 1.0),
    "multiclass": ({"objective": "multiclass", "num_class": 3, "lambda_l2": 1.0}, 3, 2 / 3),
    "poisson": ({"objective": "poisson", "lambda_l2": 0.5}, 1, np.exp(-0.7)),
    "largest step, l1": ({"max_delta_step": 0.6, "lambda_l1": 1.0, "min_data_in_leaf": 5}, 0, 1.0),
    "bagging": ({"bagging_fraction": 0.6, "bagging_freq": 1, "feature_fraction_bynode": 0.8}, 0, 1.0),
    "dart": ({"boosting": "dart", "drop_rate": 0.5}, 0, 1.0),
    "zero_as_missing": ({"zero_as_missing": True}, 0, 1.0),
    "not missing": ({"use_missing": False}, 0, 1.0),
    "one-hot": ({"max_cat_to_onehot": 20, "min_data_in_leaf": 5}, 0, 1.0),
}  # fmt: skip


def lightgbm_model(params, X, y, **data):
    params = {
        "verbosity": -1, "num_threads": 1, "seed": 1, "num_leaves": 20, "min_data_per_group": 5, "cat_smooth": 2.0,
        "deterministic": True, **params,
    }  # fmt: skip
    return lgb.train(params, lgb.Dataset(X, y, free_raw_data=False, **data), 5)


@pytest.fixture(scope="module", params=LIGHTGBM)
def lightgbm_case(request, table):
    params, classes, factor = LIGHTGBM[request.param]
    X, y = table[0], labels(table[1], classes)
    model = lightgbm_model(params, X[:N], y[:N], weight=weights(N))
    source = opened(model, X[:N], y[:N], sample_weight=weights(N))
    return request.param, model, source, check_search(source, X[N:]), factor


def test_lightgbm_gains(lightgbm_case):
    _, model, source, search, factor = lightgbm_case
    recorded = re.findall(r"^split_gain=(.*)$", model.model_to_string(), re.MULTILINE)
    for text, found in zip(recorded, gains(source, search), strict=True):
        same_gains(factor * found, np.array(text.split(), float))


def test_lightgbm_columns(lightgbm_case):
    name, _, _, search, _ = lightgbm_case
    number = "ordered" if name == "not missing" else "missing"
    few_missing = "missing" if name == "zero_as_missing" else "ordered"
    many = "one-hot" if name == "one-hot" else "sorted"
    assert list(search.columns) == [few_missing, number, "one-hot", many, few_missing]
    used = {column for tree in search.trees for column in tree.column.tolist()}
    assert used == set(range(5))
    assert search.columns_sampled == (name == "bagging")


def test_lightgbm_limits(table):
    """Rows of a side are counted exactly where second derivatives are all one."""
    X, y = table
    models = [
        lightgbm_model({"min_data_in_leaf": rows, "num_leaves": 31}, X[:N], y[:N])
        for rows in (5, 25)
    ]
    loose, strict = (opened(model, X[:N], y[:N]) for model in models)
    search = strict.split_search()
    assert search.min_rows == 25
    assert smallest_sides(strict, search)[0] >= 25 > smallest_sides(loose, loose.split_search())[0]


def test_lightgbm_estimates_rows(table):
    """Where second derivatives differ, sides may have fewer rows than the limit, but not fewer as LightGBM counts.

    It rounds the rows of each bin."""
    X, y = table[0][:N], labels(table[1], 2)[:N]
    params = {"objective": "binary", "min_data_in_leaf": 25, "learning_rate": 0.5}
    source = opened(lightgbm_model(params, X, y), X, y)
    search = source.split_search()
    assert search.rows_estimated
    rows, _, estimated_rows = smallest_sides(source, search)
    assert rows < 18
    assert 23 < estimated_rows < 28


@pytest.mark.parametrize(("objective", "classes"), [("multiclass", 3), ("poisson", 1)])
def test_lightgbm_hessian_limits(table, objective, classes):
    """LightGBM multiplies the second derivatives of these losses by a constant."""
    X, y = table[0][:N], labels(table[1], classes)[:N]
    found = {}
    for least in (0.0, 20.0):
        params = {
            "objective": objective,
            "min_data_in_leaf": 1,
            "min_sum_hessian_in_leaf": least,
            "num_leaves": 60,
        }
        if classes > 1:
            params["num_class"] = classes
        source = opened(lightgbm_model(params, X, y), X, y)
        search = source.split_search()
        found[least] = search.min_hessian, smallest_sides(source, search)[1]
    limit, smallest = found[20.0]
    assert limit == pytest.approx(20 * {"multiclass": 2 / 3, "poisson": np.exp(-0.7)}[objective])
    assert limit <= smallest < 1.5 * limit
    assert found[0.0][1] < limit


REFUSED_LIGHTGBM = {
    "thresholds at random": {"extra_trees": True},
    "nodes above": {"path_smooth": 1.0},
    "cegb_penalty_split changes": {"cegb_penalty_split": 0.1},
    "feature_contri changes": {"feature_contri": [1.0, 0.5, 1.0, 1.0, 1.0]},
}


@pytest.mark.parametrize("reason", REFUSED_LIGHTGBM)
def test_lightgbm_refused(table, reason):
    X, y = table[0][:N], table[1][:N]
    source = opened(lightgbm_model(REFUSED_LIGHTGBM[reason], X, y), X, y)
    with pytest.raises(lt.UnsupportedModel, match=reason):
        source.split_search()


def test_lightgbm_refitted(table):
    X, y = table[0][:N], table[1][:N]
    model = lightgbm_model({"max_cat_to_onehot": 20}, X, y).refit(X, y, decay_rate=0.0)
    with pytest.raises(lt.UnsupportedModel, match="splits of another model"):
        opened(model, X, y).split_search()


# ---- HistGradientBoosting ----

HIST = {
    "regression": (HistGradientBoostingRegressor, {"l2_regularization": 2.0}, 0),
    "binary": (HistGradientBoostingClassifier, {"max_features": 0.7}, 2),
    "classes": (HistGradientBoostingClassifier, {"l2_regularization": 0.5}, 3),
    "poisson": (HistGradientBoostingRegressor, {"loss": "poisson"}, 1),
    "held out": (HistGradientBoostingRegressor, {"early_stopping": True}, 0),
    "interactions": (HistGradientBoostingRegressor, {"interaction_cst": "pairwise"}, 0),
}


def hist_model(kind, params, X, y, **fit):
    params = {"max_iter": 4, "max_leaf_nodes": 20, "random_state": 1, **params}
    with threadpool_limits(1, "openmp"):
        return kind(categorical_features="from_dtype", **params).fit(X, y, **fit)


@pytest.fixture(scope="module", params=HIST)
def hist_case(request, table):
    kind, params, classes = HIST[request.param]
    X, y = table[0], labels(table[1], classes)
    model = hist_model(kind, params, X[:N], y[:N], sample_weight=weights(N))
    source = opened(model, X[:N], y[:N], sample_weight=weights(N))
    return request.param, model, source, check_search(source, X[N:])


def test_hist_gains(hist_case):
    _, model, source, search = hist_case
    trees = [tree for step in model._predictors for tree in step]
    for tree, found in zip(trees, gains(source, search, parent_of_root=False), strict=True):
        inner = tree.nodes[tree.nodes["is_leaf"] == 0]
        same_gains(np.sort(found), np.sort(inner["gain"]))


def test_hist_columns(hist_case):
    """Categories come first in the rows that trees see."""
    name, _, _, search = hist_case
    assert list(search.columns) == ["sorted", "sorted", "missing", "missing", "missing"]
    used = {column for tree in search.trees for column in tree.column.tolist()}
    assert used == set(range(5))
    assert search.columns_sampled == (name in ("binary", "interactions"))


def test_hist_limits(table):
    X, y = table[0][:N], table[1][:N]
    kind = HistGradientBoostingRegressor
    models = [hist_model(kind, {"min_samples_leaf": rows}, X, y) for rows in (3, 25)]
    loose, strict = (opened(model, X, y) for model in models)
    search = strict.split_search()
    assert search.min_rows == 25
    assert smallest_sides(strict, search)[0] >= 25 > smallest_sides(loose, loose.split_search())[0]


# ---- GradientBoosting, forests and single trees ----

ARRAYS = {
    "regression": (GradientBoostingRegressor, {}, 0),
    "subsample": (GradientBoostingRegressor, {"subsample": 0.6, "max_features": 2}, 0),
    "binary": (GradientBoostingClassifier, {"min_samples_leaf": 12}, 2),
    "classes": (GradientBoostingClassifier, {"min_samples_leaf": 0.05}, 3),
    "exponential": (GradientBoostingClassifier, {"loss": "exponential"}, 2),
    "held out": (GradientBoostingRegressor, {"n_iter_no_change": 3}, 0),
    "forest": (RandomForestRegressor, {"min_samples_leaf": 4}, 0),
    "forest of classes": (RandomForestClassifier, {"min_weight_fraction_leaf": 0.03}, 3),
    "one tree": (DecisionTreeRegressor, {"min_samples_leaf": 6}, 0),
}


def array_model(kind, params, X, y, **fit):
    boosts = kind in (GradientBoostingRegressor, GradientBoostingClassifier)
    size = {} if kind is DecisionTreeRegressor else {"n_estimators": 4}
    depth = 4 if boosts else None
    return kind(**{"random_state": 1, "max_depth": depth, **size, **params}).fit(X, y, **fit)


@pytest.fixture(scope="module", params=ARRAYS)
def array_case(request, table):
    kind, params, classes = ARRAYS[request.param]
    boosts = kind in (GradientBoostingRegressor, GradientBoostingClassifier)
    X, y = as_numbers(table[0], gaps=not boosts), labels(table[1], classes)
    w = weights(N) if boosts else None  # forests take weights for chances
    model = array_model(kind, params, X[:N], y[:N], sample_weight=w)
    source = opened(model, X[:N], y[:N], sample_weight=w)
    return request.param, model, source, check_search(source, X[N:])


def test_array_gains(array_case):
    """The decrease of weighted impurity is the gain, whatever the loss."""
    _, model, source, search = array_case
    trees = np.ravel(getattr(model, "estimators_", [model]))
    for tree, found in zip([t.tree_ for t in trees], gains(source, search), strict=True):
        mass = tree.weighted_n_node_samples * tree.impurity
        inner = tree.children_left >= 0
        decrease = mass[inner] - mass[tree.children_left[inner]] - mass[tree.children_right[inner]]
        same_gains(np.sort(found), np.sort(decrease))


def test_array_limits(array_case):
    name, _, source, search = array_case
    assert search.by_weight
    assert search.columns_sampled == (name in ("subsample", "forest of classes"))
    assert set(search.columns) == {"missing" if "forest" in name or "tree" in name else "ordered"}
    rows = {"binary": 12, "classes": 15, "forest": 4, "one tree": 6}.get(name, 1)
    assert search.min_rows == rows
    assert rows <= smallest_sides(source, search)[0] <= rows + 6
    if name == "forest of classes":
        assert search.min_hessian == pytest.approx(0.03 * N)


REFUSED_ARRAYS = {
    "ExtraTreesRegressor draws thresholds": (ExtraTreesRegressor, {}),
    "splitter='random' draws": (DecisionTreeRegressor, {"splitter": "random"}),
    "criterion='entropy' compares": (RandomForestClassifier, {"criterion": "entropy"}),
    "criterion='poisson' compares": (RandomForestRegressor, {"criterion": "poisson"}),
    "criterion='absolute_error' compares": (RandomForestRegressor, {"criterion": "absolute_error"}),
}


@pytest.mark.parametrize("reason", REFUSED_ARRAYS)
def test_array_refused(table, reason):
    kind, params = REFUSED_ARRAYS[reason]
    X = as_numbers(table[0][:N], gaps=False)
    y = labels(table[1][:N], 2)
    source = opened(array_model(kind, params, X, y), X, y)
    with pytest.raises(lt.UnsupportedModel, match=reason):
        source.split_search()


# ---- CatBoost ----

CATBOOST = {
    "numbers": ({"cat_features": []}, 0),
    "max": ({"cat_features": [], "nan_mode": "Max", "rsm": 0.7}, 0),
    "depthwise": ({"cat_features": [], "grow_policy": "Depthwise"}, 2),
    "one-hot": ({"one_hot_max_size": 20}, 3),
    "lossguide": ({"one_hot_max_size": 20, "grow_policy": "Lossguide", "max_leaves": 12}, 0),
    "statistics": ({"max_ctr_complexity": 1, "simple_ctr": ["Borders", "Counter"]}, 2),
    "combinations": ({"max_ctr_complexity": 3, "model_size_reg": 0.0, "depth": 6}, 0),
    "classes": ({"max_ctr_complexity": 2}, 3),
    "depthwise statistics": ({"grow_policy": "Depthwise", "max_ctr_complexity": 1}, 0),
}


def catboost_model(params, X, y, classes=0):
    loss = {0: "RMSE", 2: "Logloss", 3: "MultiClass"}[classes]
    params = {
        "iterations": 8, "depth": 4, "cat_features": ["few", "many"], "loss_function": loss, "thread_count": 1,
        "random_seed": 3, "verbose": 0, "allow_writing_files": False, **params,
    }  # fmt: skip
    return catboost.CatBoost(params).fit(X, y)


@pytest.fixture(scope="module", params=CATBOOST)
def catboost_case(request, table):
    params, classes = CATBOOST[request.param]
    categories = "cat_features" not in params
    X, y = for_catboost(table[0], categories), labels(table[1], classes)
    model = catboost_model(params, X[:N], y[:N], classes)
    source = opened(model, X[:N], y[:N])
    return request.param, source, check_search(source, X[N:]), X[:N]


def test_catboost_columns(catboost_case):
    name, source, search, X = catboost_case
    used = {search.columns[column] for tree in search.trees for column in tree.column.tolist()}
    numbers = 5 if "few" in X.select_dtypes("number") else 3
    one_hot = {"one-hot": 2, "lossguide": 2}.get(name, 0)
    assert (
        list(search.columns[: numbers + one_hot]) == ["ordered"] * numbers + ["one-hot"] * one_hot
    )
    statistics = len(search.columns) - numbers - one_hot
    assert (statistics > 0) == ("statistics" in name or name in ("combinations", "classes"))
    assert used == set(search.columns)
    gaps = search.values[:, X.columns.tolist().index("gaps")]
    assert set(gaps[X.gaps.isna()]) == {np.inf if name == "max" else -np.inf}
    assert search.joint == (name in ("one-hot", "classes"))
    assert search.columns_sampled == (name in ("max", "combinations", "classes"))
    changed = source.split_columns(X) != search.values
    assert changed.any() == (statistics > 0)
    assert not changed[:, : numbers + one_hot].any()


def test_catboost_levels_share_a_choice(catboost_case):
    name, _, search, _ = catboost_case
    for tree in search.trees:
        if "depthwise" in name or name == "lossguide":
            assert np.array_equal(tree.choice, np.arange(len(tree.left)))
        else:
            sizes = np.bincount(tree.choice)
            assert sizes.tolist() == [1 << level for level in range(len(sizes))]
            assert len({*zip(tree.choice.tolist(), tree.column.tolist(), strict=True)}) == len(
                sizes
            )


@pytest.mark.parametrize("name", ["feature_weights", "first_feature_use_penalties"])
def test_catboost_refused(name):
    X = np.random.default_rng(1).normal(size=(N, 3))
    model = catboost_model({"cat_features": [], name: [1.0, 0.5, 1.0]}, X, X[:, 0])
    with pytest.raises(lt.UnsupportedModel, match=f"{name} changes the gains"):
        opened(model, X, X[:, 0]).split_search()


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
def test_catboost_takes_the_best_split(policy):
    """Without noise, each split taken has the largest sum of G^2 / (W + lam) of all."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 5, (N, 4)).astype(float)
    y = (X @ [1.0, -0.7, 0.4, 0.1] + rng.normal(size=N) > 1).astype(int)
    w = weights(N)
    model = catboost_model(
        {
            "cat_features": [], "score_function": "L2", "random_strength": 0, "bootstrap_type": "No",
            "grow_policy": policy, "depth": 3, "l2_leaf_reg": 5.0, "boosting_type": "Plain", "iterations": 12,
        },
        catboost.Pool(X, y, weight=w), None, 2,
    )  # fmt: skip
    source = opened(model, X, y, sample_weight=w)
    search = source.split_search()
    taken, best = taken_and_best(source, search)
    assert len(taken) > 30
    np.testing.assert_allclose(taken, best, rtol=1e-6)


# ---- XGBoost ----

XGBOOST = {
    "regression": ({"reg_lambda": 3.0, "min_child_weight": 12.0}, 0, 1.0),
    "binary": ({"objective": "binary:logistic", "colsample_bynode": 0.7}, 2, 1.0),
    "multiclass": ({"objective": "multi:softprob", "num_class": 3, "min_child_weight": 6.0}, 3, 1 / 2),
    "vectors": (
        {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree", "min_child_weight": 6.0},
        3,
        1 / 2,
    ),
    "poisson": ({"objective": "count:poisson", "min_child_weight": 32.0, "max_delta_step": 0.3}, 1, np.exp(-0.3)),
    "largest step": ({"max_delta_step": 0.2, "min_child_weight": 6.0}, 0, 1.0),
    "l1": ({"reg_alpha": 3.0, "min_child_weight": 6.0}, 0, 1.0),
    "dart": ({"booster": "dart", "rate_drop": 0.5, "num_parallel_tree": 2, "subsample": 0.7}, 0, 1.0),
    "one-hot": ({"max_cat_to_onehot": 20, "interaction_constraints": "[[0,1,2],[3,4]]"}, 0, 1.0),
    "approx": ({"tree_method": "approx"}, 0, 1.0),
}  # fmt: skip


def xgboost_model(params, X, y, w):
    params = {"nthread": 1, "max_depth": 5, "seed": 1, **params}
    return xgb.train(params, xgb.DMatrix(X, y, weight=w, enable_categorical=True), 5)


@pytest.fixture(scope="module", params=XGBOOST)
def xgboost_case(request, table):
    params, classes, factor = XGBOOST[request.param]
    X, y = table[0], labels(table[1], classes)
    if params.get("multi_strategy") or params.get("tree_method"):
        X = X.assign(many=X.many.cat.codes, few=X.few.cat.codes)
    model = xgboost_model(params, X[:N], y[:N], weights(N))
    source = opened(model, X[:N], y[:N], sample_weight=weights(N))
    return request.param, model, source, check_search(source, X[N:]), factor


def recorded_gains(model):
    """The gains of all trees as an XGBoost model has them, leaves left out."""
    details = json.loads(bytes(model.save_raw("json")))["learner"]["gradient_booster"]
    for tree in details.get("gbtree", details)["model"]["trees"]:
        yield np.array(tree["loss_changes"])[np.array(tree["left_children"]) >= 0]


def test_xgboost_gains(xgboost_case):
    _, model, source, search, factor = xgboost_case
    found = gains(source, search)
    if search.joint:
        found = [sum(found[r : r + 3]) for r in range(0, len(found), 3)]
    for recorded, own in zip(recorded_gains(model), found, strict=True):
        same_gains(np.sort(factor * own), np.sort(recorded))


def test_xgboost_columns_and_limits(xgboost_case):
    name, _, source, search, factor = xgboost_case
    categories = ["one-hot", "one-hot" if name == "one-hot" else "sorted"]
    if name in ("vectors", "approx"):
        categories = ["missing", "missing"]
    assert list(search.columns) == ["missing", "missing", *categories, "missing"]
    assert search.columns_sampled == (name in ("binary", "one-hot"))
    limit = XGBOOST[name][0].get("min_child_weight", 1.0) * factor
    held = search.output_hessian if search.joint else search.min_hessian
    assert held == pytest.approx(limit)
    assert (search.min_hessian == 0) == search.joint
    if name in ("regression", "multiclass", "poisson"):
        assert limit <= smallest_sides(source, search)[1] * (1 + 1e-6) < 1.5 * limit
