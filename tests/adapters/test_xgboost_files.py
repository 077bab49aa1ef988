"""XGBoost files: what they do not keep is recovered, asked for where a refit needs it, and said."""

import json

import numpy as np
import pytest
import xgboost as xgb
from tests.support import boosters

import leaftrace as lt

NUMBERS = boosters.numbers()
LIMITS = {"min_child_weight": 12, "max_delta_step": 0}
FEW = np.argsort(NUMBERS.y)[:25]  # rows of a few leaves, which then have less weight than required


def trained(data=NUMBERS, **params):
    params = {"max_depth": 4, "nthread": 1, "base_score": 0.5} | params
    return xgb.train(params, xgb.DMatrix(data.X, data.y), 12)


def in_file(booster):
    return xgb.Booster(model_file=booster.save_raw("ubj"))


def refreshed(booster, keep, data=NUMBERS, **params):
    """XGBoost's own refit of all leaves on some of the rows; test predictions."""
    rows = xgb.DMatrix(data.X[keep], data.y[keep])
    settings = {
        "process_type": "update",
        "updater": "refresh",
        "refresh_leaf": True,
        "nthread": 1,
        "verbosity": 0,
    }
    again = xgb.train(settings | params, rows, booster.num_boosted_rounds(), xgb_model=booster)
    return again.predict(xgb.DMatrix(data.X_test), output_margin=True)


def test_min_child_weight_is_asked_for_where_a_refit_needs_it():
    booster = trained(min_child_weight=12)
    file = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y)
    given = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params=LIMITS)
    assert "keeps no min_child_weight (at most 12)" in file.fidelity.verdict
    assert "min_child_weight" not in given.fidelity.verdict
    keep = np.setdiff1d(np.arange(len(NUMBERS.y)), FEW)
    np.testing.assert_allclose(
        given.refit(without=FEW).predict(NUMBERS.X_test),
        refreshed(booster, keep, min_child_weight=12),
        atol=1e-5,  # float32 sums of XGBoost
    )
    with pytest.raises(lt.UnsupportedModel, match=r"params=\{'min_child_weight': \.\.\., 'max_del"):
        file.refit(without=FEW)


def test_a_report_leaves_out_refits_that_need_more():
    """The training rows behind a prediction need no setting, so there is a report, which says what it lacks."""
    booster = trained(min_child_weight=12)
    file, given = (
        lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params=params)
        for params in (None, LIMITS)
    )
    X, y = NUMBERS.X_test, NUMBERS.y_test
    without, whole = (lt.report(t, X, y, worst=4, top=50).data for t in (file, given))
    assert all(case["removal"] is not None for case in whole["cases"])
    assert any(case["removal"] is None for case in without["cases"])
    assert "params={'min_child_weight': ..., 'max_delta_step': ...}" in str(without["missing"])


@pytest.mark.parametrize(
    "method", [lt.LeafRefit(), lt.LeafRefit(lt.TopKLeaves(2)), lt.LeafRefit(lt.SinglePoint())]
)
def test_refits_of_single_rows_are_right_or_refused(method):
    booster = trained(min_child_weight=12)
    own = lt.Tracer(booster, NUMBERS.X, NUMBERS.y)
    file = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y)
    rows = np.arange(0, len(NUMBERS.y), 12)
    expected = own.influence(NUMBERS.X_test, of="prediction", method=method, rows=rows).values
    answered = []
    for place, row in enumerate(rows):
        try:
            found = file.influence(NUMBERS.X_test, of="prediction", method=method, rows=[row])
        except lt.UnsupportedModel:
            continue
        np.testing.assert_allclose(found.values[0], expected[place], rtol=1e-5, atol=1e-9)
        answered.append(row)
    assert 0 < len(answered) < len(rows)
    # Many rows at once are refused as soon as one of them is.
    with pytest.raises(lt.UnsupportedModel, match="settings of training that are not known"):
        file.influence(NUMBERS.X_test, of="prediction", method=method)


def test_actions_obey():
    booster = trained(min_child_weight=12)
    file = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y)
    given = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params=LIMITS)
    sets = [FEW, FEW[:20]]
    keep = np.setdiff1d(np.arange(len(NUMBERS.y)), FEW)
    scores = list(given.engine.scores_without(sets, NUMBERS.X_test[:2], ""))
    expected = refreshed(booster, keep, min_child_weight=12)
    np.testing.assert_allclose(scores[0][0], expected[0], atol=1e-5)
    with pytest.raises(lt.UnsupportedModel):
        list(file.engine.scores_without(sets, NUMBERS.X_test[:2], ""))
    for call in (
        lambda: lt.removal_impact(file, FEW, NUMBERS.X_test, NUMBERS.y_test, retrain=False),
        lambda: lt.removal_curve(file, FEW, NUMBERS.X_test, NUMBERS.y_test, counts=[20]),
    ):
        with pytest.raises(lt.UnsupportedModel, match="min_child_weight"):
            call()


def test_influence_does_not_need_the_limits():
    booster = trained(min_child_weight=12)
    own = lt.Tracer(booster, NUMBERS.X, NUMBERS.y)
    file = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y)
    np.testing.assert_array_equal(
        own.influence(NUMBERS.X_test, NUMBERS.y_test).values,
        file.influence(NUMBERS.X_test, NUMBERS.y_test).values,
    )


def test_a_bound_that_no_leaf_has_reached():
    """Leaves with large values reach the bound without their rows of small labels."""
    eta = 0.3
    base = float(NUMBERS.y.min())  # all leaves of the first tree are positive
    tracer = lt.Tracer(trained(eta=eta, base_score=base), NUMBERS.X, NUMBERS.y)
    longest = np.abs(tracer.engine.ensemble.values).max() / eta
    limits = {"min_child_weight": 1, "max_delta_step": 1.02 * longest}
    booster = trained(eta=eta, base_score=base, **limits)
    keep = np.flatnonzero(NUMBERS.y > 1)
    without = np.flatnonzero(NUMBERS.y <= 1)
    given = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params=limits)
    expected = refreshed(booster, keep, eta=eta, **limits)
    found = given.refit(without=without).predict(NUMBERS.X_test)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unbounded = refreshed(booster, keep, eta=eta, min_child_weight=1, max_delta_step=0)
    assert np.abs(unbounded - expected).max() > 1e-2
    file = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params={"min_child_weight": 1})
    assert "keeps no max_delta_step (none, or at least " in file.fidelity.verdict
    with pytest.raises(lt.UnsupportedModel, match="max_delta_step"):
        file.refit(without=without)


def loaded_forms(tmp_path, booster):
    """The same model as all forms that lost the settings of training."""
    booster.save_model(tmp_path / "m.json")
    booster.save_model(tmp_path / "m.ubj")
    evaluated = in_file(booster)
    evaluated.eval(xgb.DMatrix(NUMBERS.X, NUMBERS.y))
    wrapper = xgb.XGBRegressor(min_child_weight=12)
    wrapper.load_model(tmp_path / "m.ubj")
    return [tmp_path / "m.json", tmp_path / "m.ubj", in_file(booster), evaluated, wrapper]


def test_every_form_that_lost_its_settings(tmp_path):
    for model in loaded_forms(tmp_path, trained(min_child_weight=12, eta=0.2)):
        tracer = lt.Tracer(model, NUMBERS.X, NUMBERS.y)
        with pytest.raises(lt.UnsupportedModel, match="keeps no min_child_weight"):
            tracer.refit(without=FEW)


def test_forms_that_keep_their_settings():
    booster = trained(min_child_weight=12, eta=0.2)
    configured = in_file(booster)
    configured.load_config(booster.save_config())
    by_hand = xgb.Booster(LIMITS | {"max_delta_step": 1e9}, model_file=booster.save_raw("ubj"))
    expected = lt.Tracer(booster, NUMBERS.X, NUMBERS.y).refit(without=FEW).predict(NUMBERS.X_test)
    for model in (booster.copy(), configured, by_hand):
        tracer = lt.Tracer(model, NUMBERS.X, NUMBERS.y)
        found = tracer.refit(without=FEW).predict(NUMBERS.X_test)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_poisson_file_keeps_its_bound():
    data = boosters.numbers("counts")
    booster = trained(data, objective="count:poisson", max_delta_step=0.4)
    file = lt.Tracer(in_file(booster), data.X, data.y)
    assert "max_delta_step" not in file.fidelity.verdict
    config = json.loads(in_file(booster).save_config())["learner"]["objective"]
    assert float(config["poisson_regression_param"]["max_delta_step"]) == pytest.approx(0.4)


def test_leaves_at_zero_show_what_they_lacked():
    """Trees that never split, for want of weight, have a leaf of value zero."""
    booster = trained(min_child_weight=1e6)
    tracer = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y)
    assert tracer.fidelity.exact
    np.testing.assert_array_equal(
        tracer.refit(without=[0, 1]).predict(NUMBERS.X_test), np.float64(0.5)
    )
    with pytest.raises(lt.UnsupportedModel, match="of any size"):
        tracer.refit(added=(NUMBERS.X_test, NUMBERS.y_test))


def test_a_given_limit_that_the_leaves_contradict():
    with pytest.raises(lt.FidelityError, match=r"^min_child_weight=30 is not that of training"):
        lt.Tracer(
            in_file(trained(min_child_weight=12)),
            NUMBERS.X,
            NUMBERS.y,
            params={"min_child_weight": 30},
        )


MONOTONE = r"^likely monotone_constraints, .* pass params={'monotone_constraints': "


@pytest.mark.parametrize(
    ("params", "cause"),
    [
        ({"max_delta_step": 0.3}, r"^likely max_delta_step, .* pass params={'max_delta_step': "),
        ({"monotone_constraints": "(1,1,1)"}, MONOTONE),
        ({"monotone_constraints": "(-1)"}, MONOTONE),
    ],
    ids=["max_delta_step", "monotone from the first step on", "monotone in later steps"],
)
def test_bounds_of_leaf_values_are_named_as_the_cause(params, cause):
    with pytest.raises(lt.FidelityError, match=cause):
        lt.Tracer(in_file(trained(**params)), NUMBERS.X, NUMBERS.y)


@pytest.mark.parametrize("given", ["(1,0,-1)", (1, 0, -1), [1, 0, -1, 0]])
def test_constraints_of_a_file_in_any_form(given):
    booster = trained(
        monotone_constraints="(1,0,-1)", eta=0.17, reg_lambda=2.5, min_child_weight=12
    )
    expected = lt.Tracer(booster, NUMBERS.X, NUMBERS.y).influence(NUMBERS.X_test, NUMBERS.y_test)
    params = {"monotone_constraints": given}
    tracer = lt.Tracer(in_file(booster), NUMBERS.X, NUMBERS.y, params=params)
    assert tracer.fidelity.exact
    assert "taken to be none" not in tracer.fidelity.verdict
    found = tracer.influence(NUMBERS.X_test, NUMBERS.y_test)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    with pytest.raises(lt.UnsupportedModel, match="Pass params="):
        tracer.refit(without=FEW)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("(2,0)", "1, 0 or -1"),
        ({"age": 1}, "for age, which no column"),
        ("rising", "1, 0 or -1"),
        (2, "1, 0 or -1"),
    ],
)
def test_constraints_that_make_no_sense(given, words):
    with pytest.raises(lt.InvalidInput, match=words):
        lt.Tracer(in_file(trained()), NUMBERS.X, NUMBERS.y, params={"monotone_constraints": given})


def test_no_bound_is_named_where_no_leaf_shows_one():
    with pytest.raises(lt.FidelityError) as raised:
        lt.Tracer(in_file(trained()), NUMBERS.X, NUMBERS.y[::-1])
    assert "likely labels in another order" in str(raised.value)
