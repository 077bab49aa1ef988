"""Real CatBoost models, the same tests for every setting.

The replay gives the model's leaf values, and every number of leaftrace equals an independent refit."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
from catboost import CatBoostRegressor
from catboost_models import CASES, QUIET, case, structure_of, tracer_of
from contract import extreme_and_other_rows
from raw_scores import raw_scores

import leaftrace as lt

STEP = 2e-3  # change of a weight; the five-point rule's error is of relative order (STEP / (H + lam))^4


@pytest.fixture(scope="module", params=CASES)
def setting(request):
    return case(request.param)


def test_fidelity(setting):
    fidelity = tracer_of(setting).fidelity
    assert fidelity.exact, fidelity.verdict
    assert fidelity.max_error <= 1e-11
    assert "exact" in fidelity.verdict
    assert len(fidelity.per_step) == setting.model.tree_count_


def test_the_oracle_gives_the_models_predictions(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    F = oracle.predict(structure, oracle.refit(structure, c.codes, c.w_total), test_steps)
    expected = np.asarray(c.model.predict(c.X_test, prediction_type="RawFormulaVal")).reshape(
        F.shape
    )
    np.testing.assert_allclose(F, expected, atol=2e-6)  # float32 rounding of the base score
    np.testing.assert_allclose(
        raw_scores(tracer.refit(without=[]), c.X_test).reshape(F.shape), expected, atol=1e-6
    )


def test_influence_on_the_mean_loss_is_the_slope_of_a_refit(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    values = tracer.influence(c.X_test, c.y_test, reduce="mean").values[:, 0]

    def loss_at(i, dw):  # dw is a change of the sample weight, which class weights multiply
        w = c.w_total + dw * c.class_weight[i] * np.eye(len(c.codes))[i]
        F = oracle.predict(structure, oracle.refit(structure, c.codes, w), test_steps)
        return oracle.loss_value(structure.loss, F, c.test_codes).mean()

    rows = extreme_and_other_rows(values, 5)
    slopes = [oracle.slope(lambda e, i=i: loss_at(i, e), STEP) for i in rows]
    # A base score rounded to float32 moves all derivatives by about 1e-7 of themselves.
    tolerance = 1e-7 if tracer.engine.ensemble.base_rule else 1e-8
    np.testing.assert_allclose(values[rows], slopes, rtol=0, atol=tolerance * np.abs(values).max())


def test_influence_on_single_predictions(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    K = structure.K
    output = K - 1
    values = tracer.influence(c.X_test, of="prediction", output=output).values
    i = int(np.abs(values).max(axis=1).argmax())

    def prediction(dw):
        w = c.w_total + dw * c.class_weight[i] * np.eye(len(c.codes))[i]
        return oracle.predict(structure, oracle.refit(structure, c.codes, w), test_steps)[:, output]

    tolerance = 2e-7 if tracer.engine.ensemble.base_rule else 1e-8
    np.testing.assert_allclose(
        values[i], oracle.slope(prediction, STEP), atol=tolerance * np.abs(values).max()
    )


def test_float32_keeps_five_digits(setting):
    c = setting
    exact = tracer_of(c).influence(c.X_test, c.y_test).values
    single = tracer_of(c, dtype="float32").influence(c.X_test, c.y_test).values
    assert single.dtype == np.float32
    assert np.all(np.abs(single - exact).max(axis=0) <= 1e-5 * np.abs(exact).max(axis=0))


def test_leaf_refit_is_a_refit_without_the_row(setting):
    c = setting
    tracer = tracer_of(setting, dtype="float32")
    structure, test_steps = structure_of(c, tracer)
    influence = tracer.influence(c.X_test, c.y_test, reduce="mean").values[:, 0]
    rows = extreme_and_other_rows(influence, 5)
    values = tracer.influence(c.X_test, c.y_test, method=lt.LeafRefit(), rows=rows).values
    assert values.shape == (len(rows), len(c.y_test))

    def losses(keep):
        fitted = oracle.refit(structure.rows(keep), c.codes[keep], c.w_total[keep])
        return oracle.loss_value(
            structure.loss, oracle.predict(structure, fitted, test_steps), c.test_codes
        )

    everyone = np.arange(len(c.codes))
    expected = np.array([losses(everyone) - losses(everyone[everyone != i]) for i in rows])
    # The float32 base score of the model again: differences of losses keep about 1e-6 of themselves.
    np.testing.assert_allclose(values, expected, atol=1e-4 * np.abs(expected).max())


def test_group_refit(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    group = np.arange(0, len(c.codes), 7)
    keep = np.setdiff1d(np.arange(len(c.codes)), group)
    fitted = oracle.refit(structure.rows(keep), c.codes[keep], c.w_total[keep])
    F = oracle.predict(structure, fitted, test_steps)
    refitted = tracer.refit(without=group)
    np.testing.assert_allclose(refitted.scores(c.X_test), F, atol=1e-6)
    np.testing.assert_allclose(
        refitted.loss(c.X_test, c.y_test),
        oracle.loss_value(structure.loss, F, c.test_codes),
        atol=1e-6,
    )


def test_label_influence_is_the_slope_of_a_refit(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    if structure.loss == "softmax":
        pytest.skip("classes, not numbers: see test_label_influence_of_classes")
    values = tracer.label_influence(c.X_test, c.y_test, reduce="mean").values[:, 0]

    def loss_at(i, dy):
        y = c.codes + dy * np.eye(len(c.codes))[i]
        F = oracle.predict(structure, oracle.refit(structure, y, c.w_total), test_steps)
        return oracle.loss_value(structure.loss, F, c.test_codes).mean()

    rows = extreme_and_other_rows(values)
    slopes = [oracle.slope(lambda e, i=i: loss_at(i, e), STEP) for i in rows]
    tolerance = 1e-6 if tracer.engine.ensemble.base_rule else 1e-8
    np.testing.assert_allclose(values[rows], slopes, rtol=0, atol=tolerance * np.abs(values).max())


def test_candidates_are_slopes_at_weight_zero(setting):
    c = setting
    tracer = tracer_of(setting)
    structure, test_steps = structure_of(c, tracer)
    values = tracer.score_candidates(
        c.X_test[:3], c.X_test, c.y_test, c.y_test[:3], reduce="mean"
    ).values[:, 0]
    n = len(c.codes)
    y = np.r_[c.codes, c.test_codes[:3]]
    both = [
        [(np.r_[ids, new[:3]], L, o) for (ids, L, o), (new, _, _) in zip(step, test, strict=True)]
        for step, test in zip(structure.steps, test_steps, strict=True)
    ]
    offset = (
        structure.offset
        if not np.ndim(structure.offset)
        else np.r_[structure.offset, np.zeros((3, 1))]
    )
    extended = replace(structure, steps=both, offset=offset)
    of_class = [max(c.class_weight[c.codes == code], default=1.0) for code in c.test_codes[:3]]

    def loss_at(i, dw):
        w = np.r_[c.w_total, dw * np.multiply(of_class, np.eye(3)[i])]
        F = oracle.predict(structure, oracle.refit(extended, y, w, n=n), test_steps)
        return oracle.loss_value(structure.loss, F, c.test_codes).mean()

    slopes = [oracle.slope(lambda e, i=i: loss_at(i, e), STEP) for i in range(3)]
    scale = np.abs(tracer.influence(c.X_test, c.y_test, reduce="mean").values).max()
    tolerance = 1e-6 if tracer.engine.ensemble.base_rule else 1e-8
    np.testing.assert_allclose(values, slopes, rtol=0, atol=tolerance * scale)


def test_leaves_of_many_rows(monkeypatch):
    """Leaves are computed for some rows at a time; a pool with groups of rows cannot be split."""
    catboost = pytest.importorskip("catboost")
    from leaftrace._adapters.catboost import pools

    X = np.random.default_rng(0).normal(size=(250, 3))
    model = catboost.CatBoostRegressor(
        iterations=5, depth=3, verbose=0, allow_writing_files=False
    ).fit(X, X[:, 0])
    monkeypatch.setattr(pools, "ROWS_AT_ONCE", 100)
    for pool in (catboost.Pool(X), catboost.Pool(X, group_id=np.arange(250) // 7)):
        np.testing.assert_array_equal(pools.leaf_numbers(model, pool), model.calc_leaf_indexes(X).T)


def test_rescaled_model():
    """set_scale_and_bias forgets the bias of training, which follows from the labels."""
    c = case("rmse default rule")
    model = CatBoostRegressor(**QUIET, iterations=5).fit(c.X, c.y)
    before = lt.Tracer(model, c.X, c.y, dtype="float64")
    plain = model.predict(c.X_test)
    base = model.get_scale_and_bias()[1]
    model.set_scale_and_bias(-2.0, 7.0)
    tracer = lt.Tracer(model, c.X, c.y, dtype="float64")
    assert tracer.fidelity.max_error < 1e-12
    refitted = before.refit(without=[3]).predict(c.X_test)
    expected = -2 * (refitted - base) + 7
    np.testing.assert_allclose(tracer.refit(without=[3]).predict(c.X_test), expected, atol=1e-12)
    np.testing.assert_allclose(
        tracer.refit(without=[3]).model.predict(c.X_test), expected, atol=1e-12
    )
    again = before.retrain(without=[3]).predict(c.X_test)
    expected = -2 * (again - base) + 7
    np.testing.assert_allclose(tracer.retrain(without=[3]).predict(c.X_test), expected, atol=1e-12)
    values = tracer.influence(c.X_test, of="prediction").values
    expected = -2 * before.influence(c.X_test, of="prediction").values
    np.testing.assert_allclose(values, expected, atol=1e-12)
    np.testing.assert_allclose(model.predict(c.X_test), -2 * (plain - base) + 7, atol=1e-12)
    with pytest.raises(lt.UnsupportedModel, match=r"rescaled .* with a baseline"):
        lt.Tracer(model, c.X, c.y, baseline=np.zeros(len(c.y)))
