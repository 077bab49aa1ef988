"""Scores of training rows between the steps of rankers: equal ones, and LightGBM's wrong ones."""

from functools import cache

import cases_ranking as data
import numpy as np
import pytest

import leaftrace as lt
from leaftrace._engine.coupled_passes import CoupledPasses


@cache
def traced(name):
    case = data.CASES[name]()
    tracer = lt.Tracer(case.model, data.X, data.Y, qid=data.SIZES, dtype="float64")
    return case, tracer


@pytest.mark.parametrize("name", ["LightGBM: lambdarank", "LightGBM: lambdarank, bags of queries"])
def test_points_that_are_not_kept(name, monkeypatch):
    """Without memory for the points of all steps, they are computed again, to the last digit."""
    _, tracer = traced(name)
    queries = tracer.engine.queries(data.X_TEST, None, "prediction", None, None, None)[0]
    kept, again = (CoupledPasses(tracer.engine.work) for _ in range(2))
    monkeypatch.setattr(again, "_keeps_points", lambda: False)
    every = slice(0, len(queries))
    expected = kept.slopes(queries, every, frozen=False).weights
    found = again.slopes(queries, every, frozen=False).weights
    np.testing.assert_array_equal(found, expected)


def test_the_bug_of_query_bags_is_announced():
    case, tracer = traced("LightGBM: lambdarank, bags of queries")
    assert "wrong rows" in tracer.fidelity.verdict
    np.testing.assert_array_equal(np.array(tracer.engine.ensemble.added), case.times)
    assert case.times.max() > 1
    assert case.times.min() == 0
