"""StructureInfluence is the derivative of the soft program that tests/support/soft_program.py writes out."""

import pickle

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from soft_program import SoftProgram
from xgboost import XGBClassifier, XGBRegressor, XGBRFRegressor

import leaftrace as lt
from leaftrace._engine import soft_splits
from leaftrace._engine.kept_choices import choice_bytes
from leaftrace._engine.scored_pass import goes_by_scores
from leaftrace._model.kernels import numpy as twins

N = 60
STEP = 1e-5  # of weights: differences of the program are exact to about 1e-9
XGB = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1}
LGB = {"n_estimators": 3, "num_leaves": 4, "min_child_samples": 3, "verbose": -1, "n_jobs": 1}
CAT = {
    "iterations": 3,
    "depth": 2,
    "verbose": 0,
    "thread_count": 1,
    "leaf_estimation_iterations": 1,
}
HGB = {"max_iter": 3, "max_leaf_nodes": 4, "min_samples_leaf": 3}


def table(missing=False, categories=False):
    """Return rows whose numbers have fewer different values than bins."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(np.round(rng.normal(size=(N, 3)) * 3) / 3, columns=["a", "b", "c"])
    signal = X["a"] + X["b"] ** 2 + rng.normal(size=N) * 0.3
    if missing:
        X = X.mask(rng.random(X.shape) < 0.15)
    if categories:
        X["few"] = pd.Categorical(rng.choice(["u", "v", "w"], N))
        X["many"] = pd.Categorical(rng.choice(list("abcdefg"), N))
        signal = signal + (X["few"] == "u") - X["many"].isin(["a", "b", "c"])
    return X, signal.to_numpy()


def classes(signal, K=2):
    return np.digitize(signal, np.quantile(signal, np.arange(1, K) / K))


def labels(X, signal, kind):
    """Return numbers (kind 0), classes (their number), or two columns of either."""
    two = np.column_stack([signal, 2 * X["b"] - X["a"] ** 2])
    if kind == "targets":
        return two
    if kind == "labels":
        return (two > np.median(two, axis=0)).astype(int)
    return classes(signal, kind) if kind else signal


CASES = {
    "XGBoost": (XGBRegressor(**XGB), 0, {}),
    "XGBoost, missing values": (XGBRegressor(**XGB), 0, {"missing": True}),
    "XGBoost, columns drawn, l1": (XGBClassifier(**XGB, colsample_bynode=0.5, reg_alpha=0.2), 2, {}),
    "XGBoost, rows drawn, three classes": (XGBClassifier(**XGB, subsample=0.8, seed=3), 3, {}),
    "XGBoost, categories": (
        XGBClassifier(**XGB, enable_categorical=True, max_cat_to_onehot=5), 2, {"categories": True}
    ),
    "XGBoost, vectors": (XGBClassifier(**XGB, multi_strategy="multi_output_tree"), 3, {}),
    "XGBoost, largest step": (XGBClassifier(**XGB, max_delta_step=0.3, reg_alpha=0.1), 2, {}),
    "XGBoost, vectors with a limit": (
        XGBClassifier(**XGB, multi_strategy="multi_output_tree", min_child_weight=4), 3, {}
    ),
    "XGBoost, trees side by side": (XGBRFRegressor(**XGB, seed=1), 0, {}),
    "LightGBM": (LGBMRegressor(**LGB), 0, {"missing": True}),
    "LightGBM, estimated rows": (LGBMClassifier(**LGB | {"min_child_samples": 12}), 2, {}),
    "LightGBM, largest step, columns drawn": (LGBMRegressor(**LGB, max_delta_step=0.2, colsample_bytree=0.7), 0, {}),
    "LightGBM, categories": (LGBMClassifier(**LGB, min_data_per_group=2, cat_smooth=1), 2, {"categories": True}),
    "LightGBM, bagging, classes": (LGBMClassifier(**LGB, subsample=0.7, subsample_freq=1), 3, {}),
    "HistGradientBoosting": (HistGradientBoostingRegressor(**HGB), 0, {"missing": True}),
    "HistGradientBoosting, categories": (
        HistGradientBoostingClassifier(**HGB, categorical_features="from_dtype"), 2, {"categories": True}
    ),
    "GradientBoosting": (GradientBoostingClassifier(n_estimators=3, max_depth=2, subsample=0.8, random_state=0), 2, {}),
    "RandomForest": (RandomForestClassifier(n_estimators=3, max_depth=2, random_state=0), 3, {}),
    "CatBoost": (CatBoostRegressor(**CAT), 0, {"missing": True}),
    "CatBoost, Lossguide": (CatBoostClassifier(**CAT, grow_policy="Lossguide", max_leaves=4), 2, {}),
    "CatBoost, class weights": (CatBoostClassifier(**CAT, class_weights=[1, 2.5]), 2, {}),
    "CatBoost, three classes": (CatBoostClassifier(**CAT), 3, {}),
    "XGBoost, two targets": (XGBRegressor(**XGB), "targets", {}),
    "XGBoost, two targets in vectors": (XGBRegressor(**XGB, multi_strategy="multi_output_tree"), "targets", {}),
    "XGBoost, two labels": (XGBClassifier(**XGB), "labels", {}),
    "RandomForest, two targets": (RandomForestRegressor(n_estimators=3, max_depth=2, random_state=0), "targets", {}),
    "CatBoost, MultiRMSE": (CatBoostRegressor(**CAT, loss_function="MultiRMSE"), "targets", {}),
    "CatBoost, MultiLogloss": (CatBoostClassifier(**CAT, loss_function="MultiLogloss"), "labels", {}),
    "CatBoost, RMSEWithUncertainty": (CatBoostRegressor(**CAT, loss_function="RMSEWithUncertainty"), 0, {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def opened():
    """Return a function that gives tracer and table of a case, trained once."""
    known = {}

    def open_case(name):
        if name not in known:
            model, K, kind = CASES[name]
            X, signal = table(**kind)
            y = labels(X, signal, K)
            known[name] = lt.Tracer(model.fit(X, y), X, y, dtype="float64"), X
        return known[name]

    return open_case


@pytest.mark.parametrize("name", CASES)
def test_influence_is_the_slope_of_the_soft_program(opened, name):
    """Also: <u, J v> = <J' u, v>, with all outputs of all test rows in u and all weights in v."""
    tracer, X = opened(name)
    e = tracer.engine.ensemble
    program = SoftProgram(tracer, X[:6], 1.0)
    rng = np.random.default_rng(0)
    u = rng.normal(size=(6, e.n_outputs))
    goal = u[:, 0] if e.n_outputs == 1 else u
    found = tracer.influence(X[:6], of=goal, reduce="sum", method=lt.StructureInfluence()).values[
        :, 0
    ]
    fixed = tracer.influence(X[:6], of=goal, reduce="sum").values[:, 0]
    directions = [np.eye(N)[7], np.eye(N)[31], rng.normal(size=N)]
    for v in directions:
        move = STEP * v * e.w_factor
        slope = ((program.scores(e.w + move) - program.scores(e.w - move)) * u).sum() / (2 * STEP)
        # Rounded starting scores, rates and labels of boosters leave 1e-7.
        np.testing.assert_allclose(found @ v, slope, rtol=1e-6, atol=1e-7)
    assert np.abs(found - fixed).max() > 1e-3 * np.abs(fixed).max()


def test_a_low_temperature_gives_leaf_influence(opened):
    tracer, X = opened("XGBoost")
    fixed = tracer.influence(X[:5], of="prediction").values
    soft = tracer.influence(X[:5], of="prediction", method=lt.StructureInfluence(1e-13)).values
    np.testing.assert_allclose(soft, fixed, atol=1e-12)


@pytest.mark.parametrize("name", ["XGBoost", "LightGBM, bagging, classes", "RandomForest"])
def test_a_second_pass_by_kept_derivatives_gives_the_same(opened, name):
    """The first pass of a tracer computes them from scores, which change in place from step to step."""
    tracer, X = opened(name)
    fresh = tracer.follow(tracer.retrain())
    small = tracer.follow(tracer.retrain())
    small.engine.work.use_less_memory(2_000)
    method = lt.StructureInfluence()
    first, second, anew = (
        one.influence(X[:9], of="prediction", method=method, output=0).values
        for one in (fresh, fresh, small)
    )
    assert fresh.engine.work.keeps_derivatives
    assert not small.engine.work.keeps_derivatives
    assert np.array_equal(first, second)
    # Blocks of other widths are summed in another order.
    np.testing.assert_allclose(anew, first, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "XGBoost, missing values",
        "XGBoost, categories",
        "GradientBoosting",
        "CatBoost, Lossguide",
        "CatBoost, class weights",
        "CatBoost, three classes",
    ],
)
def test_the_twin_gives_the_same(opened, name, monkeypatch):
    """One query has a way of its own through the kernel, in which it is summed with the terms of rows.

    It has another one where these sums are kept from an earlier pass.
    """
    tracer, X = opened(name)
    method = lt.StructureInfluence(0.7)

    def answers():
        monkeypatch.setattr(tracer.engine.work, "soft_choices", {})
        return [tracer.influence(X[:m], of="prediction", method=method).values for m in (1, 5, 1)]

    native = answers()
    monkeypatch.setattr(soft_splits, "kernels", twins)
    for found, twin in zip(native, answers(), strict=True):
        np.testing.assert_allclose(found, twin, rtol=1e-9, atol=1e-12)


def test_blocks_threads_rows_and_memory_change_nothing(opened):
    """Also: means over test rows are means of columns, and float32 differs by rounding."""
    tracer, X = opened("LightGBM, bagging, classes")
    y = np.asarray(tracer.y_train)
    method = lt.StructureInfluence()
    whole = tracer.influence(X[:40], y[:40], method=method).values
    one = tracer.influence(X[37:38], y[37:38], method=method).values[:, 0]
    np.testing.assert_allclose(whole[:, 37], one, rtol=1e-12, atol=1e-15)
    some = tracer.influence(X[:40], y[:40], method=method, rows=[3, 50]).values
    np.testing.assert_array_equal(some, whole[[3, 50]])
    mean = tracer.influence(X[:40], y[:40], method=method, reduce="mean").values[:, 0]
    np.testing.assert_allclose(mean, whole.mean(axis=1), rtol=1e-9, atol=1e-12)
    model = tracer.engine.source.refitted_model(tracer.engine.ensemble)
    for settings in ({"n_jobs": 1}, {"n_jobs": 2}, {"memory_limit": 20_000}):
        again = lt.Tracer(model, X, y, dtype="float64", fidelity="warn", **settings)
        values = again.influence(X[:40], y[:40], method=method).values
        np.testing.assert_allclose(values, whole, rtol=1e-9, atol=1e-12)
    rounded = (
        lt.Tracer(model, X, y, fidelity="warn").influence(X[:40], y[:40], method=method).values
    )
    np.testing.assert_allclose(rounded, whole, atol=2e-5 * np.abs(whole).max())


def test_one_query_with_little_memory(opened):
    """Effects that are not kept are computed in the pass over scores, which gives the same."""
    tracer, X = opened("XGBoost")
    y = np.asarray(tracer.y_train)
    model = tracer.engine.source.refitted_model(tracer.engine.ensemble)
    ask = {"method": lt.StructureInfluence(), "reduce": "mean"}
    kept, small = (
        lt.Tracer(model, X, y, dtype="float64", fidelity="warn", memory_limit=limit)
        for limit in (None, 1_000)
    )
    assert goes_by_scores(small.engine.work.trace, 1)
    assert not small.engine.work.keeps_effects
    expected = kept.influence(X[:40], y[:40], **ask).values
    found = small.influence(X[:40], y[:40], **ask).values
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_what_passes_keep(opened):
    """Trees are kept at one temperature and within the memory limit; an estimate keeps none."""
    tracer, X = opened("XGBoost")
    y = np.asarray(tracer.y_train)
    model = tracer.engine.source.refitted_model(tracer.engine.ensemble)
    again = lt.Tracer(model, X, y, fidelity="warn")
    work = again.engine.work
    splits = again.engine.soft_splits
    again.estimate(X[:3], method=lt.StructureInfluence())
    assert not any(work.soft_choices.values())
    first, further = (
        again.influence(X[:40], y[:40], method=lt.StructureInfluence(), reduce="mean").values
        for _ in range(2)
    )
    np.testing.assert_allclose(further, first, rtol=1e-5, atol=1e-6 * np.abs(first).max())
    kept = work.soft_choices[1.0]
    assert sorted(kept) == [r for r, tree in enumerate(splits.search.trees) if len(tree.left)]
    total = sum(tree.nbytes for tree in kept.values())
    assert total <= choice_bytes(again.engine.ensemble, splits.search, splits.bins)
    again.influence(X[:1], y[:1], method=lt.StructureInfluence(0.5))
    assert list(work.soft_choices) == [0.5]
    work.use_less_memory(1_000)
    again.influence(X[:1], y[:1], method=lt.StructureInfluence())
    assert work.soft_choices == {}


def test_a_tracer_that_keeps_trees_is_pickled_without_them(opened):
    tracer, X = opened("XGBoost")
    ask = {"method": lt.StructureInfluence(), "of": "prediction"}
    expected = tracer.influence(X[:4], **ask).values
    again = pickle.loads(pickle.dumps(tracer))
    assert tracer.engine.work.soft_choices
    assert again.engine.work.soft_choices == {}
    found = again.influence(X[:4], **ask).values
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_tables_say_what_they_show(opened):
    tracer, X = opened("XGBoost")
    y = tracer.y_train
    top = tracer.top(X[:3], y[:3], 2, method=lt.StructureInfluence())
    assert set(top["change_is"]) == {"first order, soft splits"}
    influence = tracer.influence(X[:3], y[:3], method=lt.StructureInfluence())
    assert set(influence.top(2)["change_is"]) == {"first order, soft splits"}
    pd.testing.assert_frame_equal(top, influence.top(2))
    assert "StructureInfluence(temperature=1.0)" in influence.method


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan, np.inf, "1", None])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(lt.InvalidInput, match="a number above 0"):
        lt.StructureInfluence(temperature)


def test_trees_that_change_after_they_were_grown_are_refused():
    X, signal = table()
    model = XGBRegressor(**XGB, booster="dart", rate_drop=0.5, seed=2).fit(X, signal)
    with pytest.raises(lt.UnsupportedModel, match="dropped or scaled"):
        lt.Tracer(model, X, signal).influence(X[:2], signal[:2], method=lt.StructureInfluence())


def test_monotone_models_are_refused():
    X, signal = table()
    model = XGBRegressor(**XGB, monotone_constraints="(1)").fit(X, signal)
    tracer = lt.Tracer(model, X, signal)
    with pytest.raises(
        lt.UnsupportedModel, match="gains of this model depend on the values of other nodes"
    ):
        tracer.influence(X[:2], signal[:2], method=lt.StructureInfluence())
    # methods that choose by themselves do without
    assert len(lt.influential_set(tracer, X[:1], k=2, of="prediction").table) <= 2


def test_leaves_that_are_quantiles_are_refused():
    X, signal = table()
    model = LGBMRegressor(**LGB, objective="mae").fit(X, signal)
    with pytest.raises(lt.UnsupportedModel, match="percentile"):
        lt.Tracer(model, X, signal).influence(X[:2], signal[:2], method=lt.StructureInfluence())
