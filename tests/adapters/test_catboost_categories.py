"""CatBoost models that split on target statistics of categories.

Their training rows are in the leaves they were in during training, which CatBoost's own scores show
(see cases_catboost.py), not where the finished model puts them."""

import re

import numpy as np
import pandas as pd
import pytest
from boosters import frame, weights
from cases_catboost import SMALL, three_kinds
from catboost import CatBoost, CatBoostClassifier, Pool
from catboost_structure import final_leaves, recorded_leaves
from raw_scores import raw_scores

import leaftrace as lt

CATEGORIES = ["kind", "town"]


def says(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(p) for p in parts))


def trained(data, w=None, eval_set=None, **kw):
    labels = len(np.unique(data.y))
    loss = "RMSE" if labels > 5 else "Logloss" if labels == 2 else "MultiClass"
    settings = {**SMALL, "loss_function": loss, "one_hot_max_size": 2, **kw}
    return CatBoost(settings).fit(
        Pool(data.X, data.y, weight=w, cat_features=CATEGORIES), eval_set=eval_set
    )


def leaves_of(model, data, w=None):
    tracer = lt.Tracer(model, data.X, data.y, w)
    assert tracer.fidelity.max_error <= 1e-9
    assert "do not confirm" not in tracer.fidelity.verdict
    return tracer.engine.ensemble.leaves


SETTINGS = {
    "has_time": {"has_time": True},
    "seed": {"random_seed": 2**40 + 1},
    "Ordered": {"boosting_type": "Ordered"},
    "one permutation": {"permutation_count": 1},
    "blocks of rows": {"fold_permutation_block": 7},
    "combinations": {"max_ctr_complexity": 4, "depth": 6, "random_seed": 4},
    "combinations with one-hot": {"max_ctr_complexity": 4, "depth": 6, "one_hot_max_size": 3},
    "Buckets": {"simple_ctr": ["Buckets:Prior=0.3", "Borders:Prior=-1:Prior=2"]},
    "means": {"simple_ctr": ["BinarizedTargetMeanValue:Prior=0.5", "Counter"]},
    "many bins": {"simple_ctr": "Borders:CtrBorderCount=90"},
    "statistics for one column": {"per_feature_ctr": ["5:Buckets:Prior=0.1"]},
    "Depthwise": {"grow_policy": "Depthwise"},
    "Lossguide": {
        "grow_policy": "Lossguide",
        "max_leaves": 7,
        "simple_ctr": ["Borders", "Counter"],
    },
    "Bayesian bootstrap": {"bootstrap_type": "Bayesian", "random_strength": 3},
    "class weights": {"auto_class_weights": "SqrtBalanced"},
}


@pytest.mark.parametrize("kw", SETTINGS.values(), ids=SETTINGS)
def test_leaves_are_those_of_training(kw):
    # weights, so that no two leaves have the same value
    data = frame(many=True)
    w = weights(400)
    model = trained(data, w, **kw)
    expected = recorded_leaves(model, data.X, data.y, w, cat_features=CATEGORIES)
    np.testing.assert_array_equal(leaves_of(model, data, w), expected)
    finished = final_leaves(model, Pool(data.X, cat_features=CATEGORIES))
    assert np.mean(expected != finished) > 0.02


@pytest.mark.parametrize(
    "kw",
    [
        {},
        {"ctr_target_border_count": 4},
        {"simple_ctr": "Borders:TargetBorderCount=3:TargetBorderType=Uniform"},
        {"simple_ctr": "BinarizedTargetMeanValue"},
        {"loss_function": "MAE"},
    ],
)
def test_statistics_of_numbers(kw):
    data = frame("number", many=True)
    model = trained(data, **kw)
    if kw.get("loss_function") == "MAE":  # its leaves are often the same number
        leaves_of(model, data)
        return
    expected = recorded_leaves(model, data.X, data.y, None, cat_features=CATEGORIES)
    np.testing.assert_array_equal(leaves_of(model, data), expected)


@pytest.mark.parametrize(
    "kw",
    [
        {},
        {"loss_function": "MultiClassOneVsAll"},
        {"simple_ctr": ["BinarizedTargetMeanValue", "Buckets"]},
    ],
)
def test_statistics_of_classes(kw):
    data = three_kinds()
    w = weights(400)
    model = trained(data, w, **kw)
    expected = recorded_leaves(model, data.X, data.y, w, cat_features=CATEGORIES)
    np.testing.assert_array_equal(leaves_of(model, data, w), expected)
    again = lt.Tracer(model, data.X, data.y, w).retrain(without=[])
    assert not again.structure_changed


def test_leaves_that_have_the_same_value():
    """Scores cannot distinguish such leaves; their weights confirm the replay all the same."""
    data = frame(many=True)
    model = trained(data, iterations=8)
    with pytest.raises(AssertionError, match="two leaves have the same value"):
        recorded_leaves(model, data.X, data.y, None, cat_features=CATEGORIES)
    tracer = lt.Tracer(model, data.X, data.y)
    assert tracer.fidelity.exact
    assert "target statistics of categories recomputed" in tracer.fidelity.verdict
    assert tracer.engine.ensemble.recorded is not None


def test_early_stopping():
    data = frame(many=True)
    w = weights(400)
    held = Pool(data.X_test, data.y_test, cat_features=CATEGORIES)
    model = trained(
        data, w, held, iterations=300, learning_rate=0.5, early_stopping_rounds=3, eval_metric="AUC"
    )
    assert model.tree_count_ < 100
    tracer = lt.Tracer(model, data.X, data.y, w)
    assert tracer.fidelity.exact
    assert not tracer.retrain(without=[]).structure_changed


@pytest.mark.parametrize(("rows", "numbers"), [(100_001, True), (200_001, True), (200_001, False)])
def test_many_rows(rows, numbers):
    """Sampling rows for borders uses the random generator that also orders the rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"town": rng.integers(0, 50, rows), "a": rng.normal(size=rows)})[
        ["town", "a"] if numbers else ["town"]
    ]
    y = (rng.normal(size=50)[X["town"]] + rng.normal(size=rows) > 0).astype(int)
    w = rng.random(rows) + 0.5
    model = CatBoost({**SMALL, "iterations": 2, "depth": 3, "loss_function": "Logloss"})
    model.fit(Pool(X, y, weight=w, cat_features=["town"]))
    tracer = lt.Tracer(model, X, y, w)
    assert tracer.fidelity.exact
    finished = final_leaves(model, Pool(X, cat_features=["town"]))
    assert np.any(tracer.engine.ensemble.leaves != finished)


def test_model_files(tmp_path):
    data = frame(many=True)
    w = weights(400)
    for policy in ("SymmetricTree", "Lossguide"):
        model = trained(data, w, grow_policy=policy, max_ctr_complexity=2)
        expected = lt.Tracer(model, data.X, data.y, w).influence(data.X_test, data.y_test).values
        for kind in ("cbm", "json"):
            model.save_model(tmp_path / f"model.{kind}", format=kind)
            tracer = lt.Tracer(tmp_path / f"model.{kind}", data.X, data.y, w)
            np.testing.assert_allclose(
                tracer.influence(data.X_test, data.y_test).values, expected, rtol=1e-5
            )


def test_categories_of_any_type():
    data = frame(many=True)
    model = trained(data)
    expected = leaves_of(model, data)
    towns = data.X["town"].astype(str)
    for X in (
        data.X.assign(town=towns, kind=data.X["kind"].astype(object)),
        data.X[["town", "d", "c", "b", "a", "kind"]],
        data.X.astype(object).to_numpy(),
        data.X.astype(object).to_numpy().tolist(),
    ):
        tracer = lt.Tracer(model, X, data.y)
        np.testing.assert_array_equal(tracer.engine.ensemble.leaves, expected)
    numbers = data.X.assign(town=towns.str[-2:].astype(int))
    counted = CatBoost({**SMALL, "loss_function": "Logloss"})
    counted.fit(Pool(numbers, data.y, cat_features=CATEGORIES))
    assert lt.Tracer(counted, numbers, data.y).fidelity.exact
    assert lt.Tracer(counted, numbers.astype({"town": str}), data.y).fidelity.exact


def test_pools():
    data = frame(many=True)
    model = trained(data)
    with says(
        lt.InvalidInput, "a Pool does not give the categories", "Tracer(model, X_train, y_train)"
    ):
        lt.Tracer(model, Pool(data.X, data.y, cat_features=CATEGORIES))
    test = Pool(data.X_test, data.y_test, cat_features=CATEGORIES)
    tracer = lt.Tracer(model, data.X, data.y)
    np.testing.assert_array_equal(
        tracer.influence(test).values, tracer.influence(data.X_test, data.y_test).values
    )  # test rows sit where the finished model puts them


def test_what_is_not_the_training_data():
    data = frame(many=True)
    w = weights(400)
    model = trained(data, w)
    with says(lt.InvalidInput, "statistics count 400 training rows, but X has 399"):
        lt.Tracer(model, data.X[:-1], data.y[:-1], w[:-1])
    with says(
        lt.FidelityError,
        "which the weights of the leaves do not confirm",
        "another version of CatBoost",
    ):
        lt.Tracer(model, data.X[::-1], data.y[::-1], w[::-1])
    with says(lt.FidelityError, "do not confirm"):
        lt.Tracer(model, data.X, data.y, w, params={"random_seed": 1})
    with says(lt.FidelityError, "step 1"):
        lt.Tracer(model, data.X, data.y)
    labels = data.y.copy()
    labels[[0, 1, 2, 3]] = labels[[3, 2, 1, 0]]
    assert not np.array_equal(labels, data.y)
    with says(lt.FidelityError, "do not confirm"):
        lt.Tracer(model, data.X, labels, w)


def test_limited_statistics_are_recorded():
    data = frame("number", many=True)
    model = trained(data, ctr_leaf_count_limit=5, iterations=8)
    tracer = lt.Tracer(model, data.X, data.y)
    assert "recorded by training the model again" in tracer.fidelity.verdict
    assert tracer.fidelity.max_error <= 1e-9
    found = tracer.engine.ensemble.leaves
    expected = recorded_leaves(model, data.X, data.y, None, cat_features=CATEGORIES)
    np.testing.assert_array_equal(found, expected)
    with says(lt.FidelityError, "comes out different"):
        lt.Tracer(model, data.X, data.y[::-1])


def test_refusals():
    data = frame(many=True)
    with says(lt.UnsupportedModel, "on a GPU", "task_type='CPU'", "one_hot_max_size"):
        lt.Tracer(trained(data), data.X, data.y, params={"task_type": "GPU"})
    numbers = frame("number", many=True)
    model = trained(numbers, simple_ctr="BinarizedTargetMeanValue:TargetBorderCount=3")
    with says(
        lt.UnsupportedModel, "BinarizedTargetMeanValue", "TargetBorderCount=1 only", "Borders"
    ):
        lt.Tracer(model, numbers.X, numbers.y)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_leaves_that_exploded(value):
    """CatBoost does not write such a model as JSON, from which splits on categories are read."""
    data = frame()
    model = CatBoostClassifier(**SMALL, cat_features=["kind"], one_hot_max_size=1)
    model.fit(data.X, data.y)
    values = model.get_leaf_values()
    values[0] = value
    model.set_leaf_values(values)
    with pytest.raises(lt.UnsupportedModel, match=r"exploded in training.* CatBoost says: "):
        lt.Tracer(model, data.X, data.y)


def test_counts_of_categories_need_no_order():
    data = frame(many=True)
    model = trained(data, simple_ctr="Counter", combinations_ctr="Counter")
    tracer = lt.Tracer(model, Pool(data.X, data.y, cat_features=CATEGORIES))
    assert tracer.fidelity.exact
    assert "statistics" not in tracer.fidelity.verdict


def test_retraining():
    data = frame(many=True)
    w = weights(400)
    for kw in (
        {},
        {"boosting_type": "Ordered", "max_ctr_complexity": 3},
        {"per_feature_ctr": ["5:Buckets:Prior=0.1"]},
    ):
        model = trained(data, w, **kw)
        tracer = lt.Tracer(model, data.X, data.y, w)
        again = tracer.retrain(without=[])
        assert not again.structure_changed
        raw = np.asarray(model.predict(data.X_test, prediction_type="RawFormulaVal"))
        np.testing.assert_array_equal(raw_scores(again, data.X_test), raw)
        less = tracer.retrain(without=[3])  # another number of rows, so another order of them
        assert less.structure_changed
        assert np.isfinite(less.scores(data.X_test)).all()


def test_default_classifier():
    """Only the category columns are given: two lines from a table to an answer."""
    data = frame(many=True)
    model = CatBoostClassifier(
        iterations=40, cat_features=CATEGORIES, verbose=0, allow_writing_files=False
    )
    model.fit(data.X, data.y)
    tracer = lt.Tracer(model, data.X, data.y)
    assert tracer.fidelity.max_error <= 1e-9
    top = tracer.influence(data.X_test, data.y_test).top(3)
    assert set(top["train_row"]) <= set(data.X.index)


def test_recording_confirms_every_row():
    """record_catboost trains twice and changes nothing; the replay gives CatBoost's scores of all rows."""
    d = frame(many=True)
    X = d.X.astype({"kind": str, "town": str})
    settings = {**SMALL, "cat_features": CATEGORIES}
    plain = CatBoostClassifier(**settings).fit(X, d.y)
    recorded = lt.record_catboost(CatBoostClassifier(**settings), X, d.y)
    np.testing.assert_array_equal(recorded.get_leaf_values(), plain.get_leaf_values())
    assert lt.record_catboost(plain, X, d.y) is plain
    for model in (plain, recorded):
        assert "recorded scores of all rows confirm" in lt.Tracer(model, X, d.y).fidelity.verdict
    plain._leaftrace_scores[3] += 1e-3
    assert "do not confirm" in lt.Tracer(plain, X, d.y).fidelity.verdict
    with pytest.raises(lt.UnsupportedModel, match="comes out different"):
        lt.record_catboost(recorded, X, np.roll(d.y, 1))
    with pytest.raises(lt.UnsupportedModel, match="for CatBoost models"):
        lt.record_catboost(object(), X, d.y)
