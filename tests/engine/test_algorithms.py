"""The paper's algorithms with every update set, against a transcription in plain Python."""

import numpy as np
import oracle
import pytest
from catboost_models import case, structure_of, tracer_of
from paper_algorithms import transcription, without_ties

import leaftrace as lt

UPDATE_SETS = [
    lt.AllPoints(),
    lt.SinglePoint(),
    lt.TopKLeaves(1),
    lt.TopKLeaves(3),
    lt.TopKLeaves(3, accumulate="updated"),
    lt.TopKLeaves(1000),
    lt.TopKLeaves(2, sample=50),
    lt.TopKLeaves(2, sample=50, accumulate="updated", seed=7),
]
SETTINGS = [
    "logloss newton 1",
    "logloss newton 5 plain",
    "logloss weights",
    "logloss boost from average",
    "rmse gradient",
    "poisson newton 5",
    "multiclass",
    "multiclass newton 3",
]


ROWS = np.array([3, 40, 77, *range(10, 34)])  # the first three without ties are compared


def score_change(structure, change, test_steps):
    return oracle.predict(structure, change, test_steps)


@pytest.mark.parametrize("update_set", UPDATE_SETS, ids=repr)
@pytest.mark.parametrize("name", SETTINGS)
def test_leaf_refit(name, update_set):
    c = case(name)
    tracer = tracer_of(c)
    structure, test_steps = structure_of(c, tracer)
    values = tracer.influence(c.X_test, c.y_test, method=lt.LeafRefit(update_set), rows=ROWS).values
    F = oracle.predict(structure, oracle.refit(structure, c.codes, c.w_total), test_steps)

    def loss_change(i):
        change = transcription(structure, c.codes, c.w_total, i, None, True, update_set)
        F_hat = F + score_change(structure, change, test_steps)
        return oracle.loss_value(structure.loss, F, c.test_codes) - oracle.loss_value(
            structure.loss, F_hat, c.test_codes
        )

    for place, expected in without_ties(ROWS, loss_change):
        np.testing.assert_allclose(values[place], expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("update_set", UPDATE_SETS, ids=repr)
@pytest.mark.parametrize("name", SETTINGS)
def test_leaf_influence(name, update_set):
    c = case(name)
    tracer = tracer_of(c)
    structure, test_steps = structure_of(c, tracer)
    values = tracer.influence(
        c.X_test, of="prediction", output=0, method=lt.LeafInfluence(update_set), rows=ROWS
    ).values

    def slope(i):
        def prediction(dw):
            change = transcription(structure, c.codes, c.w_total, i, dw, False, update_set)
            return score_change(structure, change, test_steps)[:, 0]

        return oracle.slope(prediction, 1e-3)

    for place, expected in without_ties(ROWS, slope):
        np.testing.assert_allclose(values[place], expected, atol=1e-6 * np.abs(expected).max())


def test_all_leaves_in_the_update_set_is_all_points():
    c = case("logloss newton 1")
    tracer = tracer_of(c)
    every, all_points = (
        tracer.influence(c.X_test, c.y_test, method=method, rows=range(40)).values
        for method in (lt.LeafInfluence(lt.TopKLeaves(16)), lt.LeafInfluence())
    )
    np.testing.assert_allclose(every, all_points, atol=1e-12 * np.abs(all_points).max())


def test_the_fast_names_are_the_same_methods():
    assert lt.FastLeafInfluence(lt.TopKLeaves(2)) == lt.LeafInfluence(lt.TopKLeaves(2))
    assert lt.FastLeafRefit(lt.TopKLeaves(2)) == lt.LeafRefit(lt.TopKLeaves(2))
