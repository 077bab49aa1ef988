"""`goals.shap`: against the boosters' own SHAP values of refitted models, and Shapley values by all coalitions."""

import json
from itertools import combinations
from math import factorial

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from catboost_models import QUIET
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leaftrace as lt

SMALL = {"n_estimators": 6, "max_depth": 3}


def table(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c d"])
    X.loc[::7, "b"] = np.nan
    X["kind"] = pd.Categorical(rng.choice(list("pqrs"), n))
    z = X["a"] * (1 + X["b"].fillna(0)) + (X["kind"] == "q") + 0.3 * rng.normal(size=n)
    return X, z.to_numpy()


X, Z = table()
CLASS = (Z > 0.3).astype(int)
CLASSES = np.digitize(Z, [-0.3, 0.8])
TEXT = X.assign(kind=X["kind"].astype(str), far=np.where(Z > 1, "p", X["kind"].astype(str)))
NUMBERS = X[["a", "b", "c d"]].fillna(0.0)
TEST = slice(0, 5)


def contributions(model, X, output=None):
    """(m, d) SHAP values by the library itself."""
    if isinstance(model, lgb.LGBMModel):
        found = model.booster_.predict(X, pred_contrib=True)
        found = found.reshape(len(X), -1, X.shape[1] + 1)
    elif isinstance(model, xgb.XGBModel):
        data = xgb.DMatrix(X, enable_categorical=True)
        found = model.get_booster().predict(data, pred_contribs=True)
    else:
        pool = Pool(X, cat_features=model.get_cat_feature_indices())
        found = model.get_feature_importance(pool, type="ShapValues")
    found = found.reshape(len(X), -1, X.shape[1] + 1)
    return found[:, output or 0, :-1]


CASES = {
    "xgboost": (xgb.XGBClassifier(**SMALL, enable_categorical=True), X, CLASS),
    "xgboost classes": (xgb.XGBClassifier(**SMALL, enable_categorical=True), X, CLASSES),
    "xgboost dart": (xgb.XGBRegressor(**SMALL, booster="dart", rate_drop=0.3), NUMBERS, Z),
    "lightgbm": (lgb.LGBMClassifier(**SMALL, verbose=-1, cat_smooth=1), X, CLASS),
    "lightgbm classes": (lgb.LGBMClassifier(**SMALL, verbose=-1), X, CLASSES),
    "catboost": (CatBoostRegressor(iterations=6, depth=3, **QUIET), NUMBERS, Z),
    "catboost classes": (CatBoostClassifier(iterations=4, depth=3, **QUIET), NUMBERS, CLASSES),
    "catboost combinations": (
        CatBoostClassifier(iterations=12, depth=4, cat_features=["kind", "far"], **QUIET),
        TEXT,
        CLASS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_the_librarys_own_values(case):
    """Central differences of SHAP values of models refitted with other weights of a row.

    Their error is 1e-6 from the step, and for XGBoost, whose leaves are float32, as much again.
    """
    model, X, y = CASES[case]
    model.fit(X, y)
    tracer = lt.Tracer(model, X, y, dtype="float64")
    output = 1 if tracer.engine.ensemble.n_outputs > 1 else None
    step = 0.05
    found = {
        f: tracer.influence(X[TEST], of=lt.goals.shap(f), output=output).values for f in X.columns
    }
    for i in (3, 40):
        sides = []
        for sign in (1, -1):
            w = np.ones(len(X))
            w[i] += sign * step
            refitted = tracer.refit(sample_weight=w).model
            sides.append(contributions(refitted, X[TEST], output))
        expected = (sides[0] - sides[1]) / (2 * step)
        assert np.abs(expected).max() > 1e-3
        for number, name in enumerate(X.columns):
            np.testing.assert_allclose(found[name][i], expected[:, number], atol=5e-6)


def coalitions(tree, x, feature, features):
    """The Shapley value by its definition; ``tree``: nested dictionaries with covers."""

    def value(node, known):
        if "value" in node:
            return node["value"]
        if node["feature"] in known:
            return value(node["left" if node["goes_left"](x) else "right"], known)
        parts = [(node[side], node[side]["cover"]) for side in ("left", "right")]
        return sum(value(part, known) * cover for part, cover in parts) / node["cover"]

    others = [f for f in features if f != feature]
    total = 0.0
    for k in range(len(others) + 1):
        share = factorial(k) * factorial(len(others) - k) / factorial(len(features))
        for known in combinations(others, k):
            total += share * (value(tree, {*known, feature}) - value(tree, set(known)))
    return total


def hist_tree(nodes, names, at=0):
    """A tree of HistGradientBoosting, whose columns are `names`."""
    node = nodes[at]
    if node["is_leaf"]:
        return {"value": node["value"], "cover": node["count"]}
    name = names[node["feature_idx"]]
    return {
        "feature": name,
        "cover": node["count"],
        "left": hist_tree(nodes, names, node["left"]),
        "right": hist_tree(nodes, names, node["right"]),
        "goes_left": _hist_side(node, name),
    }


def _hist_side(node, name):
    def goes_left(x):
        if node["is_categorical"]:
            return bool(x["sets"][node["bitset_idx"]][x[name]])
        return (
            bool(node["missing_go_to_left"])
            if np.isnan(x[name])
            else x[name] <= node["num_threshold"]
        )

    return goes_left


def test_hist_with_categories_by_all_coalitions():
    """Columns of categories come first in the trees of HistGradientBoosting, not in the table."""
    table = X.assign(kind=X["kind"].cat.codes.astype(float))
    model = HistGradientBoostingRegressor(max_iter=3, max_depth=3, categorical_features=["kind"])
    model.fit(table, Z)
    tracer = lt.Tracer(model, table, Z, dtype="float64")
    order = ["kind", "a", "b", "c d"]
    for name in ("kind", "a"):
        queries, _ = tracer.engine.queries(table[TEST], None, lt.goals.shap(name), None, None, None)
        found = queries.values_of(tracer.engine.ensemble)
        expected = np.zeros(len(found))
        for (tree,) in model._predictors:
            words = tree.raw_left_cat_bitsets
            sets = [[(w[c // 32] >> (c % 32)) & 1 for c in range(4)] for w in words]
            sides = hist_tree(tree.nodes, order)
            for j in range(len(found)):
                x = dict(table.iloc[j]) | {"sets": sets}
                x["kind"] = int(x["kind"])
                expected[j] += coalitions(sides, x, name, order)
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(found, expected, atol=1e-12)


def nested_tree(node):
    """A tree of CatBoost that is not symmetric, from its JSON."""
    if "value" in node:
        return {"value": node["value"], "cover": node["weight"]}
    left = nested_tree(node["left"])
    right = nested_tree(node["right"])
    border = node["split"]["border"]
    number = node["split"]["float_feature_index"]
    return {
        "feature": number,
        "cover": left["cover"] + right["cover"],
        "left": left,
        "right": right,
        "goes_left": lambda x: np.float32(x[number]) <= border,
    }


def test_nested_trees_by_all_coalitions(tmp_path):
    """CatBoost's own values of such trees do not add up to the prediction; these do."""
    model = CatBoostRegressor(iterations=4, grow_policy="Lossguide", max_leaves=6, **QUIET)
    model.fit(NUMBERS, Z)
    tracer = lt.Tracer(model, NUMBERS, Z, dtype="float64")
    model.save_model(tmp_path / "model.json", format="json")
    trees = json.loads((tmp_path / "model.json").read_text())["trees"]
    rows = NUMBERS[TEST].to_numpy()
    found = []
    for f in range(3):
        queries, _ = tracer.engine.queries(NUMBERS[TEST], None, lt.goals.shap(f), None, None, None)
        found.append(queries.values_of(tracer.engine.ensemble))
        expected = [sum(coalitions(nested_tree(t), x, f, [0, 1, 2]) for t in trees) for x in rows]
        np.testing.assert_allclose(found[-1], expected, atol=1e-12)
    all_rows, _ = tracer.engine.queries(NUMBERS, None, lt.goals.shap(0), "mean", None, None)
    assert np.abs(all_rows.values_of(tracer.engine.ensemble)).max() < np.abs(found[0]).max()


@pytest.fixture(scope="module")
def forest():
    model = RandomForestClassifier(n_estimators=4, max_depth=4, random_state=0)
    model.fit(NUMBERS, CLASSES)
    return lt.Tracer(model, NUMBERS, CLASSES, dtype="float64")


def test_values_add_up_to_the_prediction(forest):
    """Effects of removing rows on all SHAP values and on the mean of the trees sum to that on the prediction.

    The mean of a tree, with covers fixed, is its value for the empty set of features."""
    one = NUMBERS[:1]
    shap = forest.influence(one, of=lt.goals.shap(), output=1)
    assert list(shap.test_index) == ["a", "b", "c d"]
    prediction = forest.influence(one, of="prediction", output=1).values[:, 0]
    far = forest.influence(NUMBERS[9:10], of="prediction", output=1).values[:, 0]
    other = forest.influence(NUMBERS[9:10], of=lt.goals.shap(), output=1).values.sum(axis=1)
    # the means of the trees cancel in the difference of two rows
    np.testing.assert_allclose(shap.values.sum(axis=1) - other, prediction - far, atol=1e-12)
    assert np.abs(prediction - far).max() > 1e-3


def test_refitting_without_a_row_gives_the_change(forest):
    """LeafRefit is the difference of the SHAP values of two models."""
    rows = [2, 30]
    found = forest.influence(
        NUMBERS[TEST], of=lt.goals.shap("b"), output=1, rows=rows, method=lt.LeafRefit()
    )
    queries, _ = forest.engine.queries(NUMBERS[TEST], None, lt.goals.shap("b"), None, 1, None)
    for line, row in enumerate(rows):
        without = queries.values_of(forest.refit(without=[row]).ensemble)
        before = queries.values_of(forest.engine.unchanged.ensemble)
        np.testing.assert_allclose(found.values[line], before - without, atol=1e-12)
    assert np.abs(found.values).max() > 1e-4


def test_mean_over_rows_is_the_mean_of_columns(forest):
    single = forest.influence(NUMBERS[TEST], of=lt.goals.shap("a"), output=2)
    mean = forest.influence(NUMBERS[TEST], of=lt.goals.shap("a"), output=2, reduce="mean")
    np.testing.assert_allclose(mean.values[:, 0], single.values.mean(axis=1), atol=1e-12)
    several = forest.influence(NUMBERS[TEST], of=lt.goals.shap(["b", 0]), output=2, reduce="mean")
    np.testing.assert_allclose(several.values[:, 1], mean.values[:, 0], atol=1e-12)


def test_names_of_features_after_a_pipeline():
    model = make_pipeline(StandardScaler(), lgb.LGBMRegressor(**SMALL, verbose=-1))
    model.fit(NUMBERS, Z)
    tracer = lt.Tracer(model, NUMBERS, Z)
    by_name = tracer.influence(NUMBERS[TEST], of=lt.goals.shap("c d"))
    by_place = tracer.influence(NUMBERS[TEST], of=lt.goals.shap(2))
    np.testing.assert_array_equal(by_name.values, by_place.values)
    assert "shap_c d_change_if_removed" in by_name.top(1).columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"of": lt.goals.shap("age")}, "has the feature 'age'; this model has a, b, c d"),
        ({"of": lt.goals.shap(3)}, "features 0 to 2"),
        ({"of": lt.goals.shap()}, "pass one row, or reduce='mean'"),
        ({"of": lt.goals.shap(0), "method": lt.Retrain()}, "depends on leaf values"),
        ({"of": lt.goals.shap(0), "method": lt.baselines.BoostIn()}, "depends on leaf values"),
        ({"of": lt.goals.shap(0), "output": 7}, "outputs 0 to 2"),
        ({"of": lt.goals.shap(0), "reduce": "max"}, "reduce is 'max'"),
    ],
)
def test_refusals(forest, arguments, message):
    with pytest.raises(lt.InvalidInput, match=message):
        forest.influence(NUMBERS[TEST], **arguments)


def test_models_without_covers_are_refused():
    model = xgb.XGBRegressor(n_estimators=3, multi_strategy="multi_output_tree", tree_method="hist")
    y = np.stack([Z, -Z], axis=1)
    model.fit(NUMBERS, y)
    tracer = lt.Tracer(model, NUMBERS, y)
    with pytest.raises(lt.UnsupportedModel, match="no covers"):
        tracer.influence(NUMBERS[TEST], of=lt.goals.shap(0), output=0)


def test_picture_of_rows_against_features(forest):
    """The rows and features with the largest changes come first, each cell with its number."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found = forest.influence(NUMBERS[:1], of=lt.goals.shap(), output=1)
    ax = lt.plot.features(found, k=4)
    rows = np.argsort(-np.abs(found.change).sum(axis=1), kind="stable")[:4]
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"row {i}" for i in rows]
    largest = np.argmax(np.abs(found.change).sum(axis=0))
    assert ax.get_xticklabels()[0].get_text() == found.test_index[largest]
    assert float(ax.texts[0].get_text().replace("−", "-")) == pytest.approx(
        found.change[rows[0], largest], rel=0.06
    )
    pyplot.close("all")
    with pytest.raises(lt.InvalidInput, match="SHAP values of several features"):
        lt.plot.features(forest.influence(NUMBERS[:1], of="prediction", output=1))
