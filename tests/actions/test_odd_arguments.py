"""Every argument of every action and question, given something odd: a result or a clear error, nothing raw."""

import inspect

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import leaftrace as lt
from leaftrace._data.inputs import is_number, is_whole

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, 0] + 0.5 * RNG.normal(size=120) > 0).astype(int)
TEST = {"X_test": X[:12], "y_test": Y[:12]}
SOURCES = np.repeat(["a", "b", "c"], 40)
ODD = {
    "text": "abc",
    "NaN": np.nan,
    "part": 1.5,
    "whole": 2.0,
    "negative": -1,
    "empty": [],
    "list": [0],
    "object": object(),
    "table": np.array([[1, 2]]),
    "series": pd.Series([1, 2], index=[5, 6]),
}
# As small as they can be, because odd values of some arguments are accepted.
ACTIONS = {
    "fix": {"x": X[:1], "y": Y[:1], "max_rows": 2},
    "clean": {
        "X_val": X[:20],
        "y_val": Y[:20],
        "X_holdout": X[:20],
        "y_holdout": Y[:20],
        "max_rounds": 1,
    },
    "label_noise": {"X_val": X[:12], "y_val": Y[:12]},
    "gate": {"X_new": X[:20], "y_new": Y[:20], "X_test": X[:20], "y_test": Y[:20]},
    "influential_set": {"X": X[:1], "y": Y[:1], "k": 1},
    "group_effects": {"groups": SOURCES, **TEST},
    "removal_impact": {"rows": [1, 2], **TEST, "retrain": False},
    "source_values": {"source": SOURCES, "X": X[:12], "y": Y[:12], "pairs": 1},
    "data_values": {"X_val": X[:12], "y_val": Y[:12], "members": 6, "bag": 0.5},
    "acquire": {"X_pool": X[:12], **TEST, "k": 2},
    "mismatch": {"X_test": X[:80], "y_test": Y[:80], "retrain": False, "min_rows": 2},
}
QUESTIONS = {
    "noise_floor": {"X": X[:12], "y": Y[:12], "repeats": 3},
    "refit": {"without": [1]},
    "influence": TEST,
    "top": {**TEST, "k": 2},
    "label_influence": TEST,
    "score_candidates": {"X_new": X[:12], **TEST, "y_new": Y[:12]},
    "neighbours": {"X_test": X[:12], "k": 2},
    "positions": {"labels": [1]},
    "estimate": {"queries": 3},
}


@pytest.fixture(scope="module")
def tracer():
    model = LGBMClassifier(n_estimators=4, min_child_samples=5, n_jobs=1, verbose=-1)
    return lt.Tracer(model.fit(X, Y), X, Y, n_jobs=1)


def raw_errors(ask, usual, odd):
    """Return the arguments for which asking with this odd value ends in an error that is not ours."""
    found = {}
    for name in inspect.signature(ask).parameters:
        if name in ("tracer", "time_limit", "when"):
            continue
        try:
            ask(**{**usual, name: odd})
        except lt.LeaftraceError:
            pass
        except Exception as error:
            found[name] = repr(error)
    return found


def test_usual_arguments_are_answered(tracer):
    for name, usual in ACTIONS.items():
        assert getattr(lt, name)(tracer, **usual) is not None
    for name, usual in QUESTIONS.items():
        assert getattr(tracer, name)(**usual) is not None


@pytest.mark.parametrize("odd", ODD)
def test_odd_arguments_of_actions(tracer, odd):
    for name, usual in ACTIONS.items():
        assert not raw_errors(getattr(lt, name), {"tracer": tracer, **usual}, ODD[odd]), name


@pytest.mark.parametrize("odd", ODD)
def test_odd_arguments_of_questions(tracer, odd):
    for name, usual in QUESTIONS.items():
        assert not raw_errors(getattr(tracer, name), usual, ODD[odd]), name


def test_what_counts_as_a_number():
    """Whole numbers may be those of NumPy, or floats without a fraction."""
    values = [True, 2, 2.0, np.int64(2), np.float32(2), 2.5, np.nan, "2", None, [2]]
    assert [is_whole(value) for value in values] == [False, *[True] * 4, *[False] * 5]
    assert [is_number(value) for value in values] == [False, *[True] * 5, *[False] * 4]
