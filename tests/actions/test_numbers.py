"""Numbers that users pass to actions: what is no such number is refused in a sentence, before any training."""

import numpy as np
import pytest
from boosters import numbers
from lightgbm import LGBMRegressor

import leaftrace as lt

DATA = numbers()
TEST = DATA.X_test[:5], DATA.y_test[:5]
NO_NUMBERS = ["x", np.nan, -1, 1.5, [], [2], {}]


def model(seed=0):
    return LGBMRegressor(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1, random_state=seed)


@pytest.fixture(scope="module")
def tracer():
    return lt.Tracer(model().fit(DATA.X, DATA.y), DATA.X, DATA.y)


CALLS = {
    "data_values": (
        lambda tracer, more: lt.data_values(tracer, *TEST, **{"members": 4, "bag": 0.5, **more}),
        ["members", "bag", "seed"],
    ),
    "ensemble_influence": (
        lambda tracer, more: lt.ensemble_influence(model, DATA.X, DATA.y, *TEST, **more),
        ["members", "bag", "seed"],
    ),
    "influential_set": (
        lambda tracer, more: lt.influential_set(tracer, *TEST, **{"k": 2, "rounds": 1, **more}),
        ["k", "rounds", "confirm", "seed"],
    ),
    "noise_floor": (
        lambda tracer, more: tracer.noise_floor(*TEST, **{"repeats": 3, **more}),
        ["repeats", "removed", "seed"],
    ),
    "group_effects": (
        lambda tracer, more: lt.group_effects(tracer, np.arange(len(DATA.y)) % 2, *TEST, **more),
        ["path"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_number_is_refused(tracer, name):
    call, arguments = CALLS[name]
    for argument in arguments:
        for value in NO_NUMBERS:
            with pytest.raises(lt.InvalidInput, match=rf"^{argument} is "):
                call(tracer, {argument: value})


def test_labels_of_rows_are_single_values(tracer):
    with pytest.raises(lt.InvalidInput, match="single values"):
        tracer.positions([[1], [2]])
