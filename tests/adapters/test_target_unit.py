"""Models that are trained on transformed labels: everything that people read is in the target's unit.

Expected values come from `predict` of refitted wrappers, which is scikit-learn's own code, and from
central differences of it.
"""

import json
import pickle
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, QuantileTransformer, StandardScaler

import leaftrace as lt
from leaftrace import baselines
from leaftrace._actions.clean.proposals import relabel
from leaftrace._actions.common import first_order
from leaftrace._actions.effects import unit_of
from leaftrace._views.cli import main

rng = np.random.default_rng(0)
N = 120
X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"], index=np.arange(N) + 1000)
Y = 1000 * np.exp(X["a"].to_numpy() + 0.3 * rng.normal(size=N))
TEST = pd.DataFrame(rng.normal(size=(5, 3)), columns=["a", "b", "c"])
Y_TEST = 1000 * np.exp(TEST["a"].to_numpy() + 0.5)
W = rng.uniform(0.5, 2, N)
STEP = 1e-4
HOW = {
    "log": {"func": np.log, "inverse_func": np.exp},
    "falling": {"func": lambda y: 1e3 / y, "inverse_func": lambda z: 1e3 / z},
    "sqrt": {"func": np.sqrt, "inverse_func": np.square},
    "power": {"transformer": PowerTransformer()},
    "quantile": {"transformer": QuantileTransformer(n_quantiles=20, output_distribution="normal")},
}


def regressor(**settings):
    return GradientBoostingRegressor(n_estimators=4, max_depth=2, random_state=0, **settings)


@pytest.fixture(scope="module", params=HOW)
def opened(request):
    """A model, its tracer, and whether it has weights."""
    inner = make_pipeline(StandardScaler(), regressor())
    weights = None if request.param == "power" else W
    if weights is not None:
        inner = regressor()
    model = TransformedTargetRegressor(inner, **HOW[request.param])
    model.fit(X, Y, **({} if weights is None else {"sample_weight": weights}))
    return model, lt.Tracer(model, X, Y, weights, dtype="float64")


def losses(refitted, X=TEST, y=Y_TEST):
    """Half the squared errors of the wrapper's own predictions."""
    return 0.5 * (refitted.model.predict(X) - y) ** 2


def slope(refitted_at, at, step, number):
    """The slope of a number of refitted models, by differences."""
    return (number(refitted_at(at + step)) - number(refitted_at(at - step))) / (2 * step)


def weighted(tracer, row):
    """Refits with another weight of a row."""

    def refitted(weight):
        w = tracer.sample_weight.copy()
        w[row] = weight
        return tracer.refit(sample_weight=w)

    return refitted


def test_predictions(opened):
    model, tracer = opened
    refitted = tracer.refit([3, 4])
    assert type(refitted.model) is TransformedTargetRegressor
    np.testing.assert_allclose(refitted.predict(TEST), refitted.model.predict(TEST), rtol=1e-12)
    assert refitted.score(X, Y) == pytest.approx(refitted.model.score(X, Y))
    effects = tracer.influence(TEST, of="prediction").values
    for row in (3, 70):
        at = tracer.sample_weight[row]
        expected = slope(weighted(tracer, row), at, STEP, lambda m: m.model.predict(TEST))
        np.testing.assert_allclose(effects[row], expected, rtol=1e-5, atol=1e-6)
    mean = tracer.influence(TEST, of="prediction", reduce="mean").values
    np.testing.assert_allclose(mean[:, 0], effects.mean(axis=1), rtol=1e-9, atol=1e-9)
    removed = tracer.influence(TEST, of="prediction", method=lt.LeafRefit(), rows=[3]).values[0]
    expected = model.predict(TEST) - tracer.refit([3]).model.predict(TEST)
    np.testing.assert_allclose(removed, expected, atol=1e-6)


def test_losses(opened):
    """The loss is half the squared error in the target's unit, to the label as it was given."""
    model, tracer = opened
    expected = 0.5 * (model.predict(TEST) - Y_TEST) ** 2
    np.testing.assert_allclose(tracer.engine.as_trained.loss(TEST, Y_TEST), expected, rtol=1e-9)
    assert unit_of(tracer.engine.criterion).name == "RMSE"
    effects = tracer.influence(TEST, Y_TEST).values
    for row in (3, 70):
        at = tracer.sample_weight[row]
        expected = slope(weighted(tracer, row), at, STEP, losses)
        # Differences lose digits: losses are 1e5 and more, and the step is 1e-4.
        np.testing.assert_allclose(effects[row], expected, rtol=1e-5, atol=1e-3)
    mean = tracer.influence(TEST, Y_TEST, reduce="mean")
    np.testing.assert_allclose(mean.values[:, 0], effects.mean(axis=1), rtol=1e-9)
    removed = tracer.influence(TEST, Y_TEST, method=lt.LeafRefit(), rows=[3]).values[0]
    expected = losses(tracer.refit([])) - losses(tracer.refit([3]))
    np.testing.assert_allclose(removed, expected, rtol=1e-6, atol=1e-4)


def test_labels(opened):
    """Derivatives in labels are in labels as they were given."""
    _, tracer = opened
    rows = np.flatnonzero((np.quantile(Y, 0.1) < Y) & (np.quantile(Y, 0.9) > Y))[[2, 9]]
    effects = tracer.label_influence(TEST, Y_TEST, rows=rows).values
    for i, row in enumerate(rows):

        def relabelled(label, row=row):
            y = Y.copy()
            y[row] = label
            return tracer.refit(y=y)

        expected = slope(relabelled, Y[row], 1e-3, losses)
        np.testing.assert_allclose(effects[i], expected, rtol=1e-4, atol=1e-3)


def test_retraining(opened):
    """The transformer, and the steps before the model, stay as they were fitted."""
    model, tracer = opened
    retrained = tracer.retrain([3], y=Y + 0.1)
    y = model.transformer_.transform(np.delete(Y + 0.1, 3)[:, None])[:, 0]
    rows = X.drop(1003)
    steps = model.regressor_[:-1] if hasattr(model.regressor_, "steps") else None
    weights = None if steps is not None else np.delete(W, 3)
    again = regressor().fit(rows if steps is None else steps.transform(rows), y, weights)
    raw = again.predict(TEST if steps is None else steps.transform(TEST))[:, None]
    expected = model.transformer_.inverse_transform(raw)[:, 0]
    np.testing.assert_allclose(retrained.predict(TEST), expected, rtol=1e-9)
    follower = tracer.follow(retrained)
    np.testing.assert_array_equal(follower.engine.own_codes, np.delete(Y + 0.1, 3))
    expected = 0.5 * (expected - Y_TEST) ** 2
    np.testing.assert_allclose(follower.engine.as_trained.loss(TEST, Y_TEST), expected, rtol=1e-9)


def rmse(refitted, X, y):
    return np.sqrt(np.mean((refitted.model.predict(X) - y) ** 2))


def test_actions(opened):
    """Tables of actions have errors of the wrapper's own predictions."""
    model, tracer = opened
    unchanged = rmse(tracer.refit([]), TEST, Y_TEST)
    impact = lt.removal_impact(tracer, [3, 4], TEST, Y_TEST).effects
    line = impact[impact.of == "RMSE"].iloc[0]
    assert line.before == pytest.approx(unchanged, rel=1e-6)
    expected = rmse(tracer.refit([3, 4]), TEST, Y_TEST) - unchanged
    assert line.refitted == pytest.approx(expected, rel=1e-6)
    source = np.repeat(["first", "second", "third"], N // 3)
    values = lt.source_values(tracer, source, TEST, Y_TEST)
    without = tracer.refit(source == "second")
    expected = rmse(without, TEST, Y_TEST) - unchanged
    assert values.leave_one_out[1] == pytest.approx(expected, rel=1e-6)
    groups = lt.group_effects(tracer, source, TEST, Y_TEST, refit=True)
    assert groups.in_unit()["refitted"][1, 0] == pytest.approx(expected, rel=1e-6)
    fixed = lt.fix(tracer, TEST.iloc[[0]], Y_TEST[0], max_rows=12)
    error = abs(model.predict(TEST.iloc[[0]])[0] - Y_TEST[0])
    before = fixed.effects.before
    assert before.to_numpy() == pytest.approx([model.predict(TEST.iloc[[0]])[0], error], rel=1e-6)


def test_suggested_labels(opened):
    """Labels that actions suggest are in the unit of the labels."""
    model, tracer = opened
    noise = lt.label_noise(tracer, TEST, Y_TEST)
    predicted = noise.predicted_label
    assert np.corrcoef(np.log(predicted), np.log(Y))[0, 1] > 0.5
    assert 0.5 < np.median(predicted) / np.median(Y) < 2
    rows = np.array([7, 20])
    changed = Y.copy()
    changed[rows] = predicted[rows]
    found = first_order(tracer, TEST, Y_TEST, tracer.engine.training_set(y=changed))
    step = model.transformer_.transform(changed[:, None]) - model.transformer_.transform(Y[:, None])
    y = model.transformer_.transform(Y[:, None])
    part = 1e-4

    def moved(share):
        back = model.transformer_.inverse_transform(y + share * step)[:, 0]
        return losses(tracer.refit(y=np.where(changed == Y, Y, back))).mean()

    expected = (moved(part) - moved(-part)) / (2 * part)
    assert found == pytest.approx(expected, rel=1e-3)
    cleaned = relabel(tracer, TEST, Y_TEST, 0.02)
    new = cleaned.y[cleaned.y != Y]
    assert len(new)
    assert np.all((new > Y.min() / 3) & (new < Y.max() * 3))


METHODS = [
    lt.LeafInfluence(),
    lt.LeafRefit(),
    lt.StructureInfluence(),
    baselines.BoostIn(),
    baselines.BoostInLCA(),
    baselines.TreeSim(),
    baselines.TREX(),
]


@pytest.mark.parametrize("factor", [4.0, -0.5])
def test_a_linear_transform_changes_nothing(factor):
    """Every answer is that of the regressor without a wrapper, which is trained on the labels themselves."""
    plain = regressor(init="zero").fit(X, Y)
    how = {"func": lambda y: factor * y, "inverse_func": lambda z: z / factor}
    model = TransformedTargetRegressor(regressor(init="zero"), **how).fit(X, Y)
    same, tracer = (lt.Tracer(m, X, Y, dtype="float64") for m in (plain, model))
    for method in METHODS:
        for of in ("loss", "prediction"):
            if of == "prediction" and isinstance(method, (baselines.BoostInLCA, baselines.TreeSim)):
                continue
            found = tracer.influence(TEST, Y_TEST, method=method, of=of).values
            expected = same.influence(TEST, Y_TEST, method=method, of=of).values
            size = np.abs(expected).max()
            np.testing.assert_allclose(found, expected, atol=1e-6 * size, err_msg=f"{method} {of}")
    with pytest.raises(lt.UnsupportedModel, match="transforms them; label_influence"):
        tracer.influence(TEST, method=baselines.AXIL(), of="prediction")
    found, expected = (t.label_influence(TEST, Y_TEST).values for t in (tracer, same))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    found, expected = (
        t.score_candidates(TEST, TEST, Y_TEST, Y_TEST, reduce="mean").values for t in (tracer, same)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found, expected = (
        t.score_candidates(TEST, TEST, Y_TEST, reduce="mean").values for t in (tracer, same)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    found, expected = (lt.label_noise(t, TEST, Y_TEST) for t in (tracer, same))
    np.testing.assert_allclose(found.predicted_label, expected.predicted_label, rtol=1e-9)
    np.testing.assert_allclose(found.label_score, expected.label_score, rtol=1e-6)


def test_vertical_transform():
    """Where the transform has no slope, derivatives in labels are refused, and no others."""
    y = Y - Y.min()
    model = TransformedTargetRegressor(regressor(), func=np.sqrt, inverse_func=np.square).fit(X, y)
    tracer = lt.Tracer(model, X, y, dtype="float64")
    with pytest.raises(lt.InvalidInput, match=r"1 of these training labels .* no slope.*rows="):
        tracer.label_influence(TEST, Y_TEST)
    assert np.isfinite(tracer.label_influence(TEST, Y_TEST, rows=y > 0).values).all()


def test_quantile_errors():
    """A model of quantiles is measured by the quantile error, which has a meaning in every unit."""
    inner = regressor(loss="quantile", alpha=0.8)
    model = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp).fit(X, Y)
    tracer = lt.Tracer(model, X, Y, dtype="float64")
    error = Y_TEST - model.predict(TEST)
    expected = np.maximum(0.8 * error, -0.2 * error)
    np.testing.assert_allclose(tracer.engine.as_trained.loss(TEST, Y_TEST), expected, rtol=1e-9)
    assert unit_of(tracer.engine.criterion).name == "mean quantile loss"


def test_square_roots_of_lightgbm():
    """reg_sqrt is a transform, too: LightGBM's own predictions and metrics are in the target's unit."""
    model = lgb.train(
        {"reg_sqrt": True, "num_leaves": 5, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1},
        lgb.Dataset(X.to_numpy(), Y),
        5,
    )
    tracer = lt.Tracer(model, X.to_numpy(), Y, dtype="float64")
    rows = TEST.to_numpy()

    def half_squares(refitted):
        return 0.5 * (refitted.model.predict(rows) - Y_TEST) ** 2

    effects = tracer.influence(rows, Y_TEST).values
    expected = slope(weighted(tracer, 3), 1.0, 1e-3, half_squares)
    # The starting score is rounded to float32 in training: refits move it by steps of 1e-7.
    np.testing.assert_allclose(effects[3], expected, rtol=1e-2, atol=1.0)
    found = tracer.refit([3]).loss(rows, Y_TEST)
    np.testing.assert_allclose(found, half_squares(tracer.refit([3])), rtol=1e-6)


def test_command_line(tmp_path, monkeypatch, capsys):
    """Text columns get the categories that the model inside the wrapper keeps; errors are in the target's unit."""
    monkeypatch.chdir(tmp_path)
    table = X.assign(town=np.where(X["b"] > 0, "Rome", "Oslo"), price=Y)
    table.to_csv("train.csv", index=False)
    table = pd.read_csv("train.csv").astype({"town": "category"})
    rows = table.drop(columns="price")
    inner = lgb.LGBMRegressor(n_estimators=5, min_child_samples=5, verbose=-1, n_jobs=1)
    model = TransformedTargetRegressor(inner, **{"func": np.log, "inverse_func": np.exp})
    Path("model.pkl").write_bytes(pickle.dumps(model.fit(rows, table["price"])))
    call = [
        "explain",
        "model.pkl",
        "--train",
        "train.csv",
        "--target",
        "price",
        "--test",
        "train.csv",
    ]
    assert main([*call, "--worst", "1", "--allow-pickle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["test_rows"][0]
    errors = np.abs(model.predict(rows) - table["price"])
    assert said["position"] == errors.argmax()
    assert said["error"] == pytest.approx(errors.max(), rel=1e-6)
    tracer = lt.Tracer(model, rows, table["price"])
    first = said["training_rows"][0]
    at = [said["position"]]
    found = tracer.influence(rows.iloc[at], table["price"].iloc[at]).change[first["position"], 0]
    assert first["error_change_if_removed"] == pytest.approx(found / errors.max(), rel=1e-4)
