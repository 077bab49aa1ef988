"""Models of several numbers, beyond the contract: what users ask of them."""

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from cases_targets import two_targets
from sklearn.ensemble import ExtraTreesRegressor

import leaftrace as lt

DATA = two_targets()


@pytest.fixture(scope="module")
def tracer():
    model = xgb.train({"max_depth": 3, "nthread": 1}, xgb.DMatrix(DATA.X, DATA.y), 6)
    return lt.Tracer(model, DATA.X, DATA.y, dtype="float64")


def test_outputs_are_asked_for_by_number(tracer):
    with pytest.raises(lt.InvalidInput, match=r"predicts 2 numbers.*output=0, 1"):
        tracer.influence(DATA.X_test, of="prediction")
    both = [tracer.influence(DATA.X_test, of="prediction", output=k).values for k in (0, 1)]
    c = np.zeros((len(DATA.X_test), 2))
    c[:, 1] = 1
    np.testing.assert_allclose(tracer.influence(DATA.X_test, of=c).values, both[1], rtol=1e-9)
    assert np.abs(both[0] - both[1]).max() > 1e-3


@pytest.mark.parametrize("target", [0, 1])
def test_label_influence_is_the_slope_of_a_refit(tracer, target):
    values = tracer.label_influence(DATA.X_test, DATA.y_test, to=target, reduce="mean").values[:, 0]
    row = int(np.abs(values).argmax())

    def loss(change):
        y = DATA.y.copy()
        y[row, target] += change
        return tracer.refit(y=y).loss(DATA.X_test, DATA.y_test).mean()

    # a refit rounds scores to float32 as training does, so the step is not small
    assert (loss(0.25) - loss(-0.25)) / 0.5 == pytest.approx(values[row], rel=1e-3)


def test_labels_are_asked_for_by_number(tracer):
    with pytest.raises(lt.InvalidInput, match="2 labels; say with to=0, 1"):
        tracer.label_influence(DATA.X_test, DATA.y_test)


def test_labels_of_the_wrong_shape(tracer):
    for y in (DATA.y_test[:, 0], DATA.y_test[:, [0, 1, 0]], DATA.y_test[:-1]):
        with pytest.raises(lt.InvalidInput, match="expected 2 labels a row"):
            tracer.influence(DATA.X_test, y)


def test_labels_in_a_table_go_by_their_index():
    table = pd.DataFrame(DATA.X, index=[f"r{i}" for i in range(len(DATA.X))])
    table.columns = table.columns.astype(str)
    labels = pd.DataFrame(DATA.y, index=table.index)
    model = ExtraTreesRegressor(3, max_depth=3, random_state=0).fit(table, labels)
    shuffled = labels.sample(frac=1, random_state=0)
    assert lt.Tracer(model, table, shuffled).fidelity.exact


def test_actions_that_need_one_label_say_so(tracer):
    asked = {
        "label_noise": lambda: lt.label_noise(tracer),
        "fix": lambda: lt.fix(tracer, DATA.X_test[:1], 1.0),
        "report": lambda: lt.report(tracer, DATA.X_test, DATA.y_test),
        "influential_set": lambda: lt.influential_set(tracer, DATA.X_test, DATA.y_test, k=2),
    }
    for name, ask in asked.items():
        with pytest.raises(lt.InvalidInput, match=f"{name} is for models that predict one number"):
            ask()


def test_retraining_and_impact(tracer):
    same = tracer.retrain(without=[])
    np.testing.assert_allclose(
        same.scores(DATA.X_test), tracer.refit(without=[]).scores(DATA.X_test), atol=1e-5
    )
    impact = lt.removal_impact(tracer, [1, 2], DATA.X_test, DATA.y_test)
    assert np.isfinite(impact.answers["refitted"]).all()


def test_scores_of_several_numbers():
    """The R² of several targets is scikit-learn's; predictions that are no targets have none."""
    data = two_targets()
    forest = ExtraTreesRegressor(n_estimators=3, max_depth=4, random_state=0).fit(data.X, data.y)
    found = lt.Tracer(forest, data.X, data.y).refit(without=[]).score(data.X_test, data.y_test)
    assert found == pytest.approx(forest.score(data.X_test, data.y_test), rel=1e-12)
    quantiles = xgb.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=[0.2, 0.8], n_estimators=2, n_jobs=1
    ).fit(data.X, data.y[:, 0])
    model = lt.Tracer(quantiles, data.X, data.y[:, 0]).refit(without=[])
    with pytest.raises(lt.InvalidInput, match=r"predictions of shape \(\d+, 2\); use loss"):
        model.score(data.X_test, data.y_test[:, 0])
