"""The removal curve: every point is compared with its own refit or training."""

from itertools import islice

import numpy as np
import pytest
from catboost import CatBoost, Pool
from catboost_models import case

import leaftrace as lt
from leaftrace._actions import curve as module


@pytest.fixture(
    scope="module", params=["logloss class weights", "multiclass weights", "rmse weights"]
)
def setting(request):
    c = case(request.param)
    tracer = lt.Tracer(c.model, c.X, c.y, c.weight)
    return tracer, c, (c.X_test[:10], c.y_test[:10]), (c.X_test[10:], c.y_test[10:])


def loss_of(c, model, X, codes):
    """Return the mean loss of CatBoost's own raw predictions."""
    F = np.asarray(model.predict(X, prediction_type="RawFormulaVal"))
    if c.name.startswith("rmse"):
        return np.mean((F - codes) ** 2) / 2
    if F.ndim == 1:
        return np.mean(np.logaddexp(0, F) - codes * F)
    p = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    return -np.mean(np.log(p[np.arange(len(p)), codes.astype(int)]))


def test_points(setting):
    tracer, c, val, hold = setting
    influence = tracer.influence(*val)
    curve = lt.removal_curve(tracer, influence, *hold, counts=[9, 3], retrain=True, draws=2, seed=4)
    order = np.argsort(
        (-influence.values * tracer.sample_weight[:, None]).mean(axis=1), kind="stable"
    )
    assert curve.removed.tolist() == [0, 3, 9]
    rng = np.random.default_rng(4)
    drawn = [rng.permutation(len(c.y)) for _ in range(2)]
    before = loss_of(c, c.model, hold[0], c.test_codes[10:])

    def trained(rows):
        keep = np.setdiff1d(np.arange(len(c.y)), rows)
        weight = None if c.weight is None else c.weight[keep]
        # CatBoost's defaults depend on the number of rows; retraining keeps those of the first model.
        own = {
            k: c.model.get_all_params()[k]
            for k in ("loss_function", "learning_rate", "leaf_estimation_iterations")
        }
        model = CatBoost({**c.model.get_params(), **own}).fit(
            Pool(c.X[keep], c.y[keep], weight=weight)
        )
        return loss_of(c, model, hold[0], c.test_codes[10:])

    def refitted(rows):
        return np.mean(tracer.refit(rows).loss(*hold))

    # float32 of labels and weights in CatBoost
    for ours, make in ((curve.refitted, refitted), (curve.retrained, trained)):
        np.testing.assert_allclose(ours, [before, make(order[:3]), make(order[:9])], rtol=1e-6)
    for ours, make in ((curve.random_refitted, refitted), (curve.random_retrained, trained)):
        mean = [np.mean([make(rows[:k]) for rows in drawn]) for k in (3, 9)]
        np.testing.assert_allclose(ours, [before, *mean], rtol=1e-6)
    np.testing.assert_array_equal(curve.table["retrained"], curve.retrained)


def test_harmful_rows_are_worth_removing(setting):
    """Removing harmful rows lowers the loss of the rows that were used to rank them."""
    tracer, _, val, _ = setting
    same = tuple(np.array(part) for part in val)  # equal rows under another name
    curve = lt.removal_curve(tracer, tracer.influence(*val), *same, counts=[5])
    assert curve.refitted[1] < curve.refitted[0]
    assert curve.refitted[1] < curve.random_refitted[1]
    assert "lowest without the first 5 rows" in curve.advice
    assert "confirm it on others" in curve.advice
    assert "retrain=True" in curve.advice
    assert np.isnan(curve.retrained[1:]).all()


def test_goals_where_more_is_better(setting):
    tracer, _, val, hold = setting
    if tracer.classes is None or len(tracer.classes) > 2:
        pytest.skip("for two classes")
    influence = tracer.influence(*val, of=lt.goals.AUC())
    assert influence.lower_is_better is False
    curve = lt.removal_curve(tracer, influence, *hold, counts=[4], draws=1)
    harmful = influence.top(4, effect="harmful")["train_row"].to_numpy()
    np.testing.assert_allclose(curve.refitted[1], tracer.refit(harmful).loss(*hold).mean())


def test_an_order_of_ones_own(setting):
    tracer, _, _, hold = setting
    curve = lt.removal_curve(tracer, [7, 3, 11], *hold, counts=[2, 3], draws=1)
    np.testing.assert_allclose(curve.refitted[1], tracer.refit([7, 3]).loss(*hold).mean())
    few = lt.removal_curve(tracer, [7], *hold, draws=1)
    assert few.removed[-1] == 1
    n = tracer.n_rows
    every = lt.removal_curve(tracer, np.arange(n)[::-1], *hold, draws=1)
    assert every.removed[-1] == round(0.2 * n)


def test_errors(setting):
    tracer, c, val, hold = setting
    influence = tracer.influence(*val)
    for bad, message in (
        ({"order": tracer.influence(*hold)}, "chosen by these very rows"),
        ({"order": tracer.influence(*val, rows=[1, 2])}, "order is an Influence of 2 rows"),
        ({"order": [1, 1]}, "each of them once"),
        ({"order": [-1]}, "order has -1"),
        ({"order": []}, "at least one training row"),
        ({"counts": [0]}, "whole numbers of rows to remove, from 1 to"),
        ({"counts": [2.5]}, "whole numbers"),
        ({"counts": [tracer.n_rows]}, "whole numbers"),
        ({"draws": 0}, "draws is 0"),
    ):
        with pytest.raises(lt.InvalidInput, match=message):
            lt.removal_curve(
                **(
                    {"tracer": tracer, "order": influence, "X_hold": hold[0], "y_hold": hold[1]}
                    | bad
                )
            )
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        lt.removal_curve(c.model, influence, *hold)
    if tracer.classes is not None:
        one = np.flatnonzero(c.codes == 0)
        with pytest.raises(lt.InvalidInput, match="a class has none left"):
            lt.removal_curve(tracer, one, *hold, counts=[len(one)])


def test_interrupted(setting, monkeypatch):
    tracer, _, val, hold = setting
    real = module.losses_without

    def stops(*args):
        yield from islice(real(*args), 2)  # two orders at the first point
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "losses_without", stops)
    curve = lt.removal_curve(tracer, tracer.influence(*val), *hold, counts=[2, 6], draws=1)
    assert curve.interrupted
    assert curve.advice.startswith("Interrupted. ")
    assert np.isfinite(curve.refitted).tolist() == [True, True, False]
    np.testing.assert_allclose(curve.refitted[0], tracer.refit().loss(*hold).mean())
