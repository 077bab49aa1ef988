"""Models with objectives that users write, beyond the contract."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from boosters import binary, three_classes
from cases_own_objectives import FocalForCatBoost, focal, focal_loss
from catboost import CatBoostClassifier
from oracle import softmax

import leaftrace as lt

DATA = binary()
X, Y = DATA.X, DATA.y
SMALL = {"max_depth": 3, "nthread": 1}


@pytest.fixture(scope="module")
def booster():
    return xgb.train(
        SMALL, xgb.DMatrix(X, Y), 6, obj=lambda scores, rows: focal(scores, rows.get_label())
    )


@pytest.fixture(scope="module")
def tracer(booster):
    return lt.Tracer(booster, X, Y, params={"objective": focal, "loss": focal_loss})


def xgboost_softmax(y, scores):
    p = softmax(scores)
    return p - np.eye(3)[y.astype(int)], np.maximum(2 * p * (1 - p), 1e-16)


def test_softmax_as_an_own_objective_gives_what_softmax_gives():
    data = three_classes()
    settings = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}
    named = xgb.XGBClassifier(base_score=0.5, **settings).fit(data.X, data.y)
    own = xgb.XGBClassifier(objective=xgboost_softmax, **settings).fit(data.X, data.y)
    tracers = [lt.Tracer(model, data.X, data.y, dtype="float64") for model in (named, own)]
    for method in ("influence", "label_influence"):
        more = {"to": 1} if method == "label_influence" else {}
        ask = {"of": "prediction", "output": 2, **more}
        expected, found = (getattr(t, method)(data.X_test, **ask).values for t in tracers)
        # differences of float32 scores: the leaves of the two models differ in their last bit
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    probabilities = [t.refit(without=[3]).predict_proba(data.X_test) for t in tracers]
    np.testing.assert_allclose(*probabilities, atol=1e-6)


def test_labels_of_classes_that_a_booster_does_not_name():
    """LightGBM stores three outputs and no classes; whole numbers below three are class numbers."""
    data = three_classes()
    settings = {"num_class": 3, "num_leaves": 5, "verbosity": -1, "num_threads": 1}

    def own(scores, y):
        p = softmax(scores)
        return p - np.eye(3)[y.astype(int)], 1.5 * p * (1 - p)

    def train(params):
        return lgb.train({**settings, **params}, lgb.Dataset(data.X, data.codes), 6)

    named = train({"objective": "multiclass", "boost_from_average": False})
    nameless = train({"objective": lambda scores, rows: own(scores, rows.get_label())})
    rows = {"X_train": data.X, "y_train": data.codes, "dtype": "float64"}
    tracer = lt.Tracer(nameless, **rows, params={"objective": own})
    ask = {"of": "prediction", "output": 2}
    expected = lt.Tracer(named, **rows).label_influence(data.X_test, to=1, **ask)
    found = tracer.label_influence(data.X_test, to=1, **ask)
    # derivatives of float32 gradients: the leaves of the two models differ in their last bits
    tolerance = 1e-6 * np.abs(expected.values).max()
    np.testing.assert_allclose(found.values, expected.values, atol=tolerance)
    assert found.action == expected.action
    with pytest.raises(lt.InvalidInput, match="say with to= which class"):
        tracer.label_influence(data.X_test, **ask)


def test_soft_splits_of_an_own_objective():
    def logistic(margin, y):
        p = 1 / (1 + np.exp(-margin))
        return p - y, np.maximum(p * (1 - p), 1e-16)

    rows = xgb.DMatrix(X, Y)
    own = xgb.train(SMALL, rows, 4, obj=lambda scores, _: logistic(scores, Y))
    start = 1 / (1 + np.exp(-0.5))
    named = xgb.train({**SMALL, "objective": "binary:logistic", "base_score": start}, rows, 4)
    tracers = [
        lt.Tracer(own, X, Y, params={"objective": logistic}, dtype="float64"),
        lt.Tracer(named, X, Y, dtype="float64"),
    ]
    asked = {"of": "prediction", "method": lt.StructureInfluence()}
    found, expected = (t.influence(DATA.X_test[:3], **asked).values for t in tracers)
    # The scores of the two models differ in the last bit of float32.
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_the_third_derivative_can_be_given(tracer, booster):
    def third(margin, y):
        e = 1e-4
        up, down = (focal(margin + d, y)[1] for d in (e, -e))
        return (up - down) / (2 * e)

    params = {"objective": focal, "loss": focal_loss, "third": third}
    given = lt.Tracer(booster, X, Y, params=params, dtype="float64")
    without = {k: v for k, v in params.items() if k != "third"}
    exact = lt.Tracer(booster, X, Y, params=without, dtype="float64")
    a, b = (t.influence(DATA.X_test, DATA.y_test).values for t in (given, exact))
    np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max())
    wrong = {**params, "third": lambda margin, y: third(margin, y) + 1}
    wrong = lt.Tracer(booster, X, Y, params=wrong, dtype="float64")
    c = wrong.influence(DATA.X_test, DATA.y_test).values
    assert np.abs(c - b).max() > 1e-3 * np.abs(b).max()  # so it is used


def test_objectives_that_give_float32(tracer, booster):
    """Boosters take float32, so users return it; differences of such numbers are mostly rounding."""

    def rounded(margin, y):
        return tuple(np.float32(x) for x in focal(margin, y))

    params = {"objective": rounded, "loss": lambda m, y: np.float32(focal_loss(m, y))}
    found = lt.Tracer(booster, X, Y, params=params).influence(DATA.X_test, DATA.y_test).values
    expected = tracer.influence(DATA.X_test, DATA.y_test).values
    # A rounding of 6e-8 over a step of 0.01 or so, in g, h and the loss.
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_model_without_its_objective_says_what_to_pass(booster, tmp_path):
    with pytest.raises(lt.FidelityError, match=r"params=\{'objective': f\}"):
        lt.Tracer(booster, X, Y)
    trained = lgb.train(
        {"verbosity": -1, "objective": lambda scores, rows: focal(scores, rows.get_label())},
        lgb.Dataset(X, Y),
        3,
    )
    with pytest.raises(lt.UnsupportedModel, match=r"params=\{'objective': f\}"):
        lt.Tracer(trained, X, Y)
    model = CatBoostClassifier(
        loss_function=FocalForCatBoost(), eval_metric="Logloss", iterations=3, verbose=0,
        allow_writing_files=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y)
    path = tmp_path / "model.cbm"
    model.save_model(path)
    with pytest.raises(lt.UnsupportedModel, match="the other sign"):
        lt.Tracer(path, X, Y)
    assert lt.Tracer(path, X, Y, params={"objective": focal}).fidelity.exact


def test_losses_need_the_loss(booster):
    tracer = lt.Tracer(booster, X, Y, params={"objective": focal})
    with pytest.raises(lt.InvalidInput, match="'loss': L"):
        tracer.influence(DATA.X_test, DATA.y_test)
    with pytest.raises(lt.InvalidInput, match="'loss': L"):
        tracer.influence(DATA.X_test, DATA.y_test, method=lt.LeafRefit(), rows=[1])
    assert np.isfinite(tracer.influence(DATA.X_test, of="prediction").values).all()


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda m, y: m - y, "expected \\(grad, hess\\)"),
        (lambda m, y: (m - Y, np.ones_like(m)), "each row by itself|broadcast"),
        (lambda m, y: ((m - y) / len(m), np.ones_like(m)), "each row by itself"),
        (lambda m, y: ((m - y)[:3], np.ones_like(m)), "shape"),
        (lambda m, y: (m - y, np.full_like(m, np.nan)), "missing or infinite"),
    ],
)
def test_wrong_objectives(booster, objective, message):
    with pytest.raises(ValueError, match=message):
        lt.Tracer(booster, X, Y, params={"objective": objective})


def test_wrong_functions(booster):
    with pytest.raises(lt.InvalidInput, match="but no objective"):
        lt.Tracer(booster, X, Y, params={"loss": focal_loss})
    wrong = lt.Tracer(booster, X, Y, params={"objective": focal, "loss": lambda m, y: 1.0})
    with pytest.raises(lt.InvalidInput, match="one number a row"):
        wrong.influence(DATA.X_test, DATA.y_test)
    for third in (lambda m, y: np.zeros(3), lambda m, y: "none"):
        wrong = lt.Tracer(booster, X, Y, params={"objective": focal, "third": third})
        with pytest.raises(lt.InvalidInput, match=r"params\['third'\] gave .* one number a row"):
            wrong.influence(DATA.X_test, of="prediction")
    with pytest.raises(lt.InvalidInput, match=r"params\['third'\] is 'none'; expected a function"):
        lt.Tracer(booster, X, Y, params={"objective": focal, "third": "none"})


def test_retraining_uses_the_objective(tracer, booster):
    same = tracer.retrain(without=[])
    expected = booster.predict(xgb.DMatrix(DATA.X_test), output_margin=True)
    np.testing.assert_allclose(same.scores(DATA.X_test)[:, 0], expected, atol=1e-6)
    trained = lgb.LGBMClassifier(
        objective=lambda y, scores: focal(scores, y), n_estimators=4, verbosity=-1, n_jobs=1
    ).fit(X, Y)
    again = lt.Tracer(trained, X, Y).retrain(without=[])
    scores = trained.booster_.predict(DATA.X_test)
    np.testing.assert_allclose(again.scores(DATA.X_test)[:, 0], scores, atol=1e-12)
