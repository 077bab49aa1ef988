"""Fixing a prediction: results are checked by training with the libraries and by the oracle's refit."""

from functools import cache

import boosters
import numpy as np
import oracle
import pytest
import small_models as models
import xgboost as xgb
from catboost import Pool
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from small_models import SMALL, trained_without
from training_sets import take
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace._actions.effects import NOT_MEASURED
from leaftrace._actions.fix.action import Fix, fix
from leaftrace._actions.fix.search import smallest

MODELS = {
    "CatBoost": models.CATBOOST,
    "CatBoost, three classes": models.CATBOOST_THREE,
    "LightGBM": (lambda: LGBMClassifier(**SMALL, num_leaves=8, verbose=-1), boosters.binary),
    "LightGBM, numbers": models.LIGHTGBM_NUMBERS,
    "XGBoost, three classes": models.XGBOOST_THREE,
    "XGBoost, Poisson": (
        lambda: XGBRegressor(**SMALL, max_depth=3, objective="count:poisson"),
        lambda: boosters.numbers("counts"),
    ),
    "XGBoost, hinge": (
        lambda: XGBClassifier(**SMALL, max_depth=3, objective="binary:hinge"),
        boosters.binary,
    ),
    "HistGradientBoosting, categories, missing values": models.HIST_CATEGORIES,
    "HistGradientBoosting, numbers": (
        lambda: HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=10),
        boosters.numbers,
    ),
    "RandomForest": (
        lambda: RandomForestClassifier(
            20, max_depth=5, random_state=0, bootstrap=False, max_features=3
        ),
        boosters.binary,
    ),
}
WEIGHTED = {"CatBoost", "LightGBM", "XGBoost, three classes", "HistGradientBoosting, numbers"}
NUMBERS = {"LightGBM, numbers", "XGBoost, Poisson", "HistGradientBoosting, numbers"}


@cache
def prepared(name):
    make, data = MODELS[name]
    data = data()
    w = boosters.weights(len(data.y)) if name in WEIGHTED else None
    tracer = lt.Tracer(base(name), data.X, data.y, w, dtype="float64", n_jobs=1)
    return make, data, w, tracer


@cache
def base(name):
    """Return the model as first trained."""
    make, data = MODELS[name]
    data = data()
    return make().fit(
        data.X, data.y, sample_weight=boosters.weights(len(data.y)) if name in WEIGHTED else None
    )


def trained(name, y=None, without=()):
    """Return the model trained again by its library."""
    make, data, w, _ = prepared(name)
    return trained_without(make, data.X, data.y if y is None else y, w, without)


def wrong_rows(name, count):
    """Return test rows that the model predicts wrong, or with the largest errors for numbers."""
    _, data, _, _ = prepared(name)
    answer = np.ravel(base(name).predict(data.X_test))
    if name in NUMBERS:
        return np.argsort(-np.abs(answer - data.y_test))[:count]
    return np.flatnonzero(answer != data.y_test)[:count]


def others(data, row):
    rest = np.delete(np.arange(len(data.y_test)), row)
    return {"X_test": take(data.X_test, rest), "y_test": data.y_test[rest]}


@cache
def found(name, row, action="remove", **more) -> Fix:
    _, data, _, tracer = prepared(name)
    return fix(
        tracer,
        take(data.X_test, [row]),
        data.y_test[row],
        **others(data, row),
        action=action,
        **more,
    )


@pytest.mark.parametrize("action", ["remove", "relabel"])
@pytest.mark.parametrize("name", MODELS)
def test_fixed_is_what_the_library_says_after_training_again(name, action):
    if name in NUMBERS and action == "relabel":
        pytest.skip("relabelling is for classes")
    _, data, _, tracer = prepared(name)
    rows = wrong_rows(name, 2)
    assert len(rows) == 2
    for row in rows:
        result = found(name, row, action)
        if action == "remove":
            again = trained(name, without=result.rows)
        else:
            labels = data.y.copy()
            labels[result.rows] = data.y_test[row]
            np.testing.assert_array_equal(result.table["new_label"], data.y_test[row])
            assert (data.y[result.rows] != data.y_test[row]).all()
            again = trained(name, labels)
        x = take(data.X_test, [row])
        assert (
            result.fixed
            == says_right(name, again, row)
            == any(a.retrained > 0 for a in result.attempts)
        )
        assert result.small == (len(result.rows) <= max(5, 0.02 * len(data.y)))
        if result.small:
            assert result.title.startswith("Fixed" if result.fixed else "Not fixed")
        else:
            how = "only" if result.fixed else "not even"
            assert result.title.startswith(f"No small set fixes it: {how} with")
            assert "not a few wrong ones" in result.advice
            assert "allows more" not in result.advice
        gains = result.cost is not None and sum(result.cost) < 0
        if result.fixed and action == "relabel" and not gains:
            assert ("not suggested" in result.advice) or ("overfits" in result.advice)
        assert 1 <= len(set(result.rows.tolist())) == len(result.rows) <= len(data.y) // 10
        np.testing.assert_array_equal(result.table["given_label"], data.y[result.rows])
        # With the trees fixed, one row fewer is not enough, if the first attempt was the right one.
        first = result.attempts[0]
        if len(result.attempts) == 1 and first.rows > 1 and first.refitted > 0:
            fewer = result.rows[:-1]
            change = {"without": fewer}
            if action == "relabel":
                labels[result.rows[-1]] = data.y[result.rows[-1]]
                change = {"y": labels}
            code = None if name in NUMBERS else tracer.engine.labels(data.y_test[[row]], 1, "y")[0]
            assert not is_right(tracer.refit(**change), x, code, data.y_test[row], tracer)


def says_right(name, model, row):
    """Tell whether a model of the library predicts the class right, or halves the first error."""
    _, data, _, _ = prepared(name)
    answer, first = (np.ravel(m.predict(take(data.X_test, [row])))[0] for m in (model, base(name)))
    y = data.y_test[row]
    return abs(answer - y) < abs(first - y) / 2 if name in NUMBERS else answer == y


def is_right(model, x, code, y, tracer):
    F = model.scores(x)[0]
    if code is None:
        answers = [m.source.ensemble.loss.response(m.scores(x))[0] for m in (model, tracer.refit())]
        return abs(answers[0] - y) < abs(answers[1] - y) / 2
    return (F[0] > 0) == (code == 1) if len(F) == 1 else F.argmax() == code


def test_most_are_fixed():
    """Most rows are fixed; otherwise the test above would mostly check failures."""
    asked = [
        (name, action)
        for name in MODELS
        for action in ("remove", "relabel")[: 1 + (name not in NUMBERS)]
    ]
    results = [found(name, row, action) for name, action in asked for row in wrong_rows(name, 2)]
    assert np.mean([r.fixed for r in results]) > 0.7


def catboost_oracle(name):
    """Return (structure, steps of the test rows, codes of the training rows, weights).

    All are read from CatBoost alone."""
    _, data, w, _ = prepared(name)
    model = base(name)
    structure, steps = oracle.from_catboost(model, data.X)
    return (
        structure,
        steps(data.X_test),
        np.float32(np.ones(len(data.y)) if w is None else w).astype(float),
        model,
    )


def oracle_scores(structure, steps, codes, w, row):
    F = oracle.predict(structure, oracle.refit(structure, codes, w), steps)
    return F[row]


@pytest.mark.parametrize("name", ["CatBoost", "CatBoost, three classes"])
def test_effects_are_those_of_the_oracle_and_of_training_again(name):
    _, data, _, _ = prepared(name)
    structure, steps, w, model = catboost_oracle(name)
    number = {label: i for i, label in enumerate(model.classes_)}
    codes, test_codes = (np.array([float(number[v]) for v in y]) for y in (data.y, data.y_test))
    row = wrong_rows(name, 1)[0]
    result = found(name, row)
    code = int(test_codes[row])

    def scalars(F):
        K = len(F)
        two = np.array([-F[0], F[0]]) if K == 1 else F
        margin = two[code] if K == 1 else F[code] - np.delete(F, code).max()
        p = oracle.sigmoid(two[code]) if K == 1 else oracle.softmax(F[None])[0, code]
        return np.array([p, -np.log(p), margin])

    direction = np.zeros(len(w))
    direction[result.rows] = -w[result.rows]
    # A row of weight zero still counts in the number of rows that scales l2, so refits remove it.
    kept = np.setdiff1d(np.arange(len(w)), result.rows)
    start = scalars(oracle_scores(structure, steps, codes, w, row))
    slope = oracle.slope(
        lambda e: scalars(oracle_scores(structure, steps, codes, w + e * direction, row)), 1e-3
    )
    without = scalars(oracle_scores(structure.rows(kept), steps, codes[kept], w[kept], row)) - start
    again = trained(name, without=result.rows)
    F = np.ravel(again.predict(data.X_test[[row]], prediction_type="RawFormulaVal"))
    retrained = scalars(F) - start
    lines = result.effects.iloc[:3]
    assert list(lines["of"]) == [
        f"probability of {data.y_test[row]} for x",
        "log loss of x",
        "margin of x (raw score of its class above the others)",
    ]
    for column, expected in (
        ("before", start),
        ("predicted", slope),
        ("refitted", without),
        ("retrained", retrained),
        ("change", retrained),
        ("after", start + retrained),
    ):
        np.testing.assert_allclose(lines[column], expected, rtol=1e-5, atol=1e-6, err_msg=column)


@pytest.mark.parametrize("name", ["CatBoost", "CatBoost, three classes"])
def test_rows_come_in_the_order_of_the_oracles_derivatives(name):
    _, data, _, _ = prepared(name)
    structure, steps, w, model = catboost_oracle(name)
    number = {label: i for i, label in enumerate(model.classes_)}
    codes = np.array([float(number[v]) for v in data.y])
    row = wrong_rows(name, 1)[0]
    result = found(name, row)
    code = number[data.y_test[row]]
    first = result.rows[: result.attempts[0].rows]

    def margin(i, e):
        moved = w.copy()
        moved[i] *= 1 - e
        F = oracle_scores(structure, steps, codes, moved, row)
        return (2 * code - 1) * F[0] if len(F) == 1 else F[code] - np.delete(F, code).max()

    gains = np.asarray(result.table["margin_change_if_removed"])
    assert (np.diff(gains[: len(first)]) <= 0).all()
    for i, gain in list(zip(first, gains, strict=False))[:3]:
        np.testing.assert_allclose(gain, oracle.slope(lambda e, i=i: margin(i, e), 1e-3), rtol=1e-4)
    rest = np.random.default_rng(0).choice(
        np.setdiff1d(np.arange(len(w)), result.rows), 8, replace=False
    )
    assert max(oracle.slope(lambda e, i=i: margin(i, e), 1e-3) for i in rest) <= gains[
        len(first) - 1
    ] * (1 + 1e-6)


def test_relabelling_is_the_oracles_refit_with_other_labels():
    name = "CatBoost"
    _, data, _, _ = prepared(name)
    structure, steps, w, model = catboost_oracle(name)
    row = wrong_rows(name, 1)[0]
    result = found(name, row, "relabel")
    sign = 1 if data.y_test[row] == model.classes_[1] else -1
    codes = (data.y == model.classes_[1]).astype(float)
    before = sign * oracle_scores(structure, steps, codes, w, row)[0]
    step = np.zeros(len(w))
    step[result.rows] = sign  # a code of 0 becomes 1, or the other way
    slope = oracle.slope(
        lambda e: sign * oracle_scores(structure, steps, codes + e * step, w, row)[0], 1e-3
    )
    after = sign * oracle_scores(structure, steps, codes + step, w, row)[0]
    line = result.effects.iloc[2]
    np.testing.assert_allclose(
        [line["before"], line["predicted"], line["refitted"]],
        [before, slope, after - before],
        rtol=1e-5,
    )


def test_the_cost_is_the_change_of_the_mean_loss_of_the_other_rows():
    name = "CatBoost"
    _, data, _, _ = prepared(name)
    row = wrong_rows(name, 1)[0]
    result = found(name, row)
    rest = others(data, row)

    def losses(model):
        F = model.predict(rest["X_test"], prediction_type="RawFormulaVal")
        return np.logaddexp(0, F) - (rest["y_test"] == model.classes_[1]) * F

    rise = losses(trained(name, without=result.rows)) - losses(base(name))
    cost, half = result.cost
    np.testing.assert_allclose(cost, rise.mean(), rtol=1e-9)
    low, high = stats.ttest_1samp(rise, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(half, (high - low) / 2, rtol=1e-4)  # quantiles are an expansion
    line = result.effects.iloc[3]
    np.testing.assert_allclose(
        [line["before"], line["retrained"]], [losses(base(name)).mean(), rise.mean()], rtol=1e-9
    )
    # Nothing is claimed within the interval, and one retraining decides nothing beyond it.
    assert line["verdict"] == ("" if low <= 0 <= high else NOT_MEASURED)


def test_the_advice_warns_of_overfitting():
    """The advice depends on the interval of the cost: on worse rows, on similar rows, on real rows."""
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = next(r for r in wrong_rows(name, 4) if found(name, r).fixed)
    x = data.X_test[[row]]
    y = data.y_test[row]
    opposite = next(label for label in np.unique(data.y) if label != y)
    twins = np.repeat(x, 5, axis=0)
    worse, better = (
        fix(tracer, x, y, X_test=twins, y_test=np.repeat(label, 5)) for label in (opposite, y)
    )
    assert worse.cost[0] > 0 > better.cost[0]
    assert "this overfits x" in worse.advice
    assert "Other predictions may gain too" in better.advice
    for result in (worse, better):
        assert "from one retraining to the next was not measured" in result.advice
        assert result.effects["verdict"].iloc[-1] == NOT_MEASURED
    cost, half = found(name, row).cost
    assert abs(cost) < half
    assert "no difference that can be told" in found(name, row).advice


def test_one_test_row_has_no_interval():
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = next(r for r in wrong_rows(name, 4) if found(name, r).fixed)
    other = np.delete(np.arange(len(data.y_test)), row)[:1]
    alone = fix(
        tracer,
        data.X_test[[row]],
        data.y_test[row],
        X_test=data.X_test[other],
        y_test=data.y_test[other],
    )
    assert alone.cost[1] == np.inf
    assert "no difference that can be told" in alone.advice


def several_retrainings(action):
    """Return a fix whose first set of rows was not confirmed by retraining."""
    for name in ("CatBoost", "LightGBM") if action == "relabel" else ("LightGBM, numbers",):
        for row in wrong_rows(name, 8):
            result = found(name, row, action)
            if result.fixed and len(result.attempts) > 2:
                return name, row, result
    raise AssertionError("every first retraining confirmed")


@pytest.mark.parametrize("action", ["remove", "relabel"])
def test_an_unconfirmed_set_is_enlarged_and_then_made_as_small_as_retraining_allows(action):
    name, row, result = several_retrainings(action)
    attempts = result.attempts
    assert (
        attempts[0].retrained <= 0 < attempts[0].refitted
    )  # the prediction with fixed trees was too good
    assert attempts[1].rows >= 1.25 * attempts[0].rows
    confirmed = [a.rows for a in attempts if a.retrained > 0]
    assert len(result.rows) == min(confirmed)
    assert len(result.rows) - 1 in [a.rows for a in attempts if a.retrained <= 0]
    assert f"{len(attempts)} retrainings" in result.advice
    _, data, _, _ = prepared(name)
    for attempt in attempts:  # those whose rows are all known
        if attempt.rows <= len(result.rows):
            labels = data.y.copy()
            rows = result.rows[: attempt.rows]
            labels[rows] = data.y_test[row]
            again = trained(name, labels) if action == "relabel" else trained(name, without=rows)
            assert says_right(name, again, row) == (attempt.retrained > 0)


def interrupt(monkeypatch, after):
    """Raise Ctrl-C in a retraining after this many."""
    retrain = lt.Tracer.retrain
    calls = []

    def counted(*arguments, **more):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return retrain(*arguments, **more)

    monkeypatch.setattr(lt.Tracer, "retrain", counted)


def test_more_rows_are_chosen_by_the_retrained_model(monkeypatch):
    """More rows are ranked by influence in a model that was trained without the first set.

    With one score, influence on the loss has the same order as influence on the margin."""
    name, row, whole = several_retrainings("remove")
    _, data, w, tracer = prepared(name)
    interrupt(monkeypatch, 2)  # before rows are put back
    x = take(data.X_test, [row])
    first = whole.attempts[0].rows
    rows = fix(tracer, x, data.y_test[row]).rows
    keep = np.setdiff1d(np.arange(len(data.y)), rows[:first])
    model = trained(name, without=rows[:first])
    again = lt.Tracer(
        model, take(data.X, keep), data.y[keep], None if w is None else w[keep], dtype="float64"
    )
    rise = (
        again.influence(x, data.y_test[[row]]).values[:, 0] * again.sample_weight
    )  # of the loss, by each row
    assert len(rows) - first >= 4
    np.testing.assert_array_equal(
        rows[first:], keep[np.argsort(-rise, kind="stable")][: len(rows) - first]
    )


def test_ctrl_c_before_anything_is_confirmed(monkeypatch):
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = wrong_rows(name, 1)[0]
    whole = found(name, row)
    interrupt(monkeypatch, 0)
    result = fix(tracer, data.X_test[[row]], data.y_test[row], **others(data, row))
    assert result.interrupted
    assert not result.fixed
    assert result.model is None
    assert result.cost is None
    np.testing.assert_array_equal(result.rows, whole.rows[: whole.attempts[0].rows])
    assert np.isnan(result.effects["retrained"]).all()
    assert np.isfinite(result.effects["refitted"]).all()
    assert "nothing is confirmed" in result.advice


def test_ctrl_c_keeps_the_best_set_so_far(monkeypatch):
    name, row, whole = several_retrainings("relabel")
    _, data, _, tracer = prepared(name)
    ask = dict(**others(data, row), action="relabel")
    done = 1 + next(
        i for i, a in enumerate(whole.attempts) if a.retrained > 0
    )  # confirmed, not yet made smaller
    for after in (1, done):
        with monkeypatch.context() as patch:
            interrupt(patch, after)
            result = fix(tracer, take(data.X_test, [row]), data.y_test[row], **ask)
        assert result.interrupted
        assert result.attempts == whole.attempts[:after]
        assert len(result.rows) == whole.attempts[after - 1].rows
        assert result.fixed == (after == done)
        assert "Ctrl-C" in result.advice


def test_limits_and_candidates():
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = next(r for r in wrong_rows(name, 4) if found(name, r).attempts[0].rows > 4)
    x = data.X_test[[row]]
    y = data.y_test[row]
    few = fix(tracer, x, y, max_rows=2)
    assert len(few.rows) == 2
    assert few.fixed == (trained(name, without=few.rows).predict(x)[0] == y)
    np.testing.assert_array_equal(few.rows, found(name, row).rows[:2])
    assert few.cost is None
    allowed = np.zeros(len(data.y), bool)
    allowed[found(name, row).rows[1::2]] = True
    some = fix(tracer, x, y, rows=allowed)
    assert allowed[some.rows].all()
    none = fix(
        tracer, x, y, rows=np.flatnonzero(data.y == y)[:1], action="relabel"
    )  # it has that label
    assert not none.fixed
    assert len(none.rows) == 0
    assert none.title == "Not fixed"


def test_rows_ranked_through_soft_splits():
    """The first set has the rows of largest derivatives of the margin by that method."""
    _, data, _, tracer = prepared("LightGBM")
    row = wrong_rows("LightGBM", 1)[0]
    x = data.X_test[[row]]
    soft = lt.StructureInfluence()
    result = fix(tracer, x, data.y_test[row], method=soft)
    side = 1 if data.y_test[row] == tracer.classes[1] else -1
    gains = side * tracer.influence(x, of="prediction", method=soft).change[:, 0]
    first = result.attempts[0].rows
    order = np.argsort(-gains, kind="stable")[:first]
    held = fix(tracer, x, data.y_test[row])
    assert list(order) != list(held.rows[:first])
    np.testing.assert_array_equal(result.rows[:first], order[: len(result.rows)])
    np.testing.assert_allclose(
        result.table["margin_change_if_removed"], gains[result.rows], rtol=1e-5
    )
    assert set(result.table["change_is"]) == {"first order, soft splits"}


@pytest.mark.parametrize("action", ["remove", "relabel"])
def test_a_rare_class_keeps_a_row(action):
    """However many of its rows speak against the right label, no model is asked for without the class."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = (X[:, 0] > 1.6).astype(int)  # 8 rows, and 20 may be changed
    model = XGBClassifier(n_estimators=20, n_jobs=1).fit(X, y)
    x = np.array([[2.5, 0.0, 0.0]])
    assert model.predict(x) == [1]
    result = fix(lt.Tracer(model, X, y), x, 0, action=action)
    assert len(result.attempts)
    assert max(attempt.rows for attempt in result.attempts) <= 20
    assert np.delete(y, result.rows).any()


def test_a_right_prediction_is_left_alone(monkeypatch):
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = np.setdiff1d(np.arange(20), wrong_rows(name, 20))[0]
    interrupt(monkeypatch, 0)  # would show
    result = fix(tracer, data.X_test[[row]], data.y_test[row], **others(data, row))
    assert result.fixed
    assert len(result.rows) == len(result.attempts) == 0
    assert "Nothing to fix" in repr(result)


def test_tolerance_of_numbers():
    name = "LightGBM, numbers"
    _, data, _, tracer = prepared(name)
    row = wrong_rows(name, 1)[0]
    x = data.X_test[[row]]
    y = data.y_test[row]
    error = abs(base(name).predict(x)[0] - y)
    result = fix(tracer, x, y, tolerance=0.9 * error)
    assert list(result.effects["of"]) == ["prediction of x", "error of x"]
    assert abs(result.effects["before"][1] - error) < 1e-6
    assert (result.effects["verdict"] == "better").all()
    assert result.fixed == (abs(trained(name, without=result.rows).predict(x)[0] - y) < 0.9 * error)
    assert len(result.rows) <= len(found(name, row).rows)


def test_a_booster_whose_labels_are_numbers():
    """xgboost.train takes labels from 0 to 1. A prediction is right on the correct side of 0.5."""
    data = boosters.binary()
    settings = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "eta": 0.3}
    model = xgb.train(settings, xgb.DMatrix(data.X, data.y), 20)
    tracer = lt.Tracer(model, data.X, data.y, n_jobs=1)
    row = np.flatnonzero((model.predict(xgb.DMatrix(data.X_test)) > 0.5) != data.y_test)[0]
    for action in ("remove", "relabel"):
        result = fix(tracer, data.X_test[[row]], data.y_test[row], action=action)
        y = data.y.copy()
        keep = np.arange(len(data.y))
        if action == "relabel":
            y[result.rows] = data.y_test[row]
        else:
            keep = np.setdiff1d(keep, result.rows)
        again = xgb.train(settings, xgb.DMatrix(data.X[keep], y[keep]), 20)
        p = again.predict(xgb.DMatrix(data.X_test[[row]]))[0]
        assert result.fixed == ((p > 0.5) == data.y_test[row])
    with pytest.raises(lt.InvalidInput, match="a share and no class"):
        fix(tracer, data.X_test[[row]], 0.3)


def test_a_pool_has_the_label():
    name = "CatBoost"
    _, data, _, tracer = prepared(name)
    row = wrong_rows(name, 1)[0]
    result = fix(tracer, Pool(data.X_test[[row]], data.y_test[[row]]))
    np.testing.assert_array_equal(result.rows, found(name, row).rows)


def test_it_prints():
    name = "CatBoost, three classes"
    result = found(name, wrong_rows(name, 1)[0])
    assert result.title in repr(result)
    assert result.advice in repr(result)
    assert "retrained" in result._repr_html_()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": slice(0, 2)}, "one row, as a table"),
        ({"x": 0}, "one row, as a table"),
        ({"y": None}, "y is missing"),
        ({"y": "neither"}, "neither"),
        ({"action": "forget"}, "'remove' or 'relabel'"),
        ({"max_rows": 0}, "allow 1 row or more"),
        ({"method": lt.LeafRefit()}, "needs the derivatives of all rows"),
        ({"method": lt.StructureInfluence(), "action": "relabel"}, "derivatives in the labels"),
        ({"tolerance": 0.1}, "for predictions of numbers"),
        ({"y_test": ["cancer"]}, "X_test and y_test go together"),
        ({"X_test": np.zeros((3, 30))}, "X_test and y_test go together"),
        ({"X_test": np.zeros((3, 30)), "y_test": ["cancer"]}, "1 values but X has 3 rows"),
        ({"rows": [100_000]}, "positions of training rows go from 0"),
    ],
)
def test_what_is_refused(change, message):
    _, data, _, tracer = prepared("CatBoost")
    ask = {"x": data.X_test[:1], "y": data.y_test[0]} | change
    if "x" in change:
        ask["x"] = data.X_test[change["x"]]
    with pytest.raises(lt.InvalidInput, match=message):
        fix(tracer, **ask)


def test_what_is_refused_of_numbers_and_quantiles():
    _, data, _, tracer = prepared("LightGBM, numbers")
    with pytest.raises(lt.InvalidInput, match="use action='remove'"):
        fix(tracer, data.X_test[:1], data.y_test[0], action="relabel")
    with pytest.raises(lt.InvalidInput, match="above zero"):
        fix(tracer, data.X_test[:1], data.y_test[0], tolerance=0.0)
    exact = float(tracer.refit(without=[]).predict(data.X_test[:1])[0])
    assert fix(tracer, data.X_test[:1], exact).fixed
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        fix("model", data.X_test[:1], data.y_test[0])
    median = LGBMRegressor(**SMALL, objective="regression_l1", num_leaves=8, verbose=-1).fit(
        data.X, data.y
    )
    with pytest.raises(lt.UnsupportedModel, match="instead of having a derivative"):
        fix(lt.Tracer(median, data.X, data.y, n_jobs=1), data.X_test[:1], data.y_test[0])


def test_smallest():
    for most in (1, 2, 7, 40):
        for guess in {1, (most + 1) // 2, most}:
            for need in range(1, most + 3):
                probes = []
                k = smallest(
                    lambda k, need=need, probes=probes: probes.append(k) or k >= need, guess, most
                )
                assert k == min(need, most)
                assert len(probes) <= 2 * np.log2(most) + 2
