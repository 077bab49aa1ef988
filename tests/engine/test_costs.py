"""Estimates of the cost of an answer, and the form that they choose."""

import numpy as np
import pytest
from catboost import CatBoostClassifier
from catboost_models import QUIET, case

import leaftrace as lt
from leaftrace._engine import costs, scored_pass
from leaftrace._tracer import estimates


@pytest.fixture(scope="module")
def shallow():
    """A model with few leaves, so that the leaf form is cheaper for a few dozen queries."""
    c = case("logloss newton 1")
    model = CatBoostClassifier(**QUIET, iterations=30, depth=2).fit(c.X, c.y)
    return model, c.X, c.y, np.tile(c.X_test, (20, 1)), np.tile(c.y_test, 20)


def test_the_leaf_form_is_chosen_and_gives_the_same(shallow):
    model, X, y, X_test, y_test = shallow
    row, leaf = (
        lt.Tracer(model, X, y, dtype="float64", memory_limit=limit) for limit in (200_000, None)
    )
    assert row.estimate(X_test).form == "row form"  # the pairs of leaves would not fit
    assert leaf.estimate(X_test).form == "leaf form"
    assert leaf.estimate(X_test[:1]).form == "row form"
    one = row.influence(X_test, y_test).values
    two = leaf.influence(X_test, y_test).values
    assert row.engine.space is None
    assert leaf.engine.space is not None
    np.testing.assert_allclose(two, one, atol=1e-12 * np.abs(one).max())
    np.testing.assert_allclose(
        leaf.label_influence(X_test, y_test).values,
        row.label_influence(X_test, y_test).values,
        atol=1e-12,
    )
    assert leaf.estimate(X_test[:1]).form == "leaf form"  # built now, so it costs nothing more


def test_more_work_costs_more(shallow):
    model, X, y, *_ = shallow
    tracer = lt.Tracer(model, X, y)
    for method in (None, lt.LeafInfluence(lt.SinglePoint()), lt.StructureInfluence()):
        kw = {"method": method}
        few = tracer.estimate(32, **kw)
        many = tracer.estimate(3200, **kw)
        assert few.seconds < many.seconds
        assert few.bytes < many.bytes
        assert 3200 * len(y) * 4 <= many.bytes
        assert tracer.estimate(3200, rows=[0, 1], **kw).bytes < many.bytes
    for method in (lt.LeafRefit(), lt.LeafInfluence(lt.TopKLeaves(2))):
        one, all_rows = (tracer.estimate(5, method=method, rows=rows) for rows in ([3], None))
        assert one.seconds < all_rows.seconds
    assert tracer.estimate(3200, reduce="mean").bytes < tracer.estimate(3200).bytes


def test_bytes_count_what_is_kept_and_the_result(shallow):
    model, X, y, *_ = shallow
    estimate = lt.Tracer(model, X, y, dtype="float64", n_jobs=1).estimate(1)
    effects = 2 * 30 * len(y) * 8
    block = len(y) * 8
    result = len(y) * 8
    assert estimate.bytes == effects + block + result


def test_an_estimate_reads_well():
    assert (
        repr(costs.Estimate(0.0123, 5_000_000, "row form"))
        == "Estimate(about 0.012 s, 5 MB; row form)"
    )
    assert (
        repr(costs.Estimate(75, 2_500_000_000, "leaf form"))
        == "Estimate(about 1 min 15 s, 2.5 GB; leaf form)"
    )
    assert "2 h 3 min" in repr(costs.Estimate(7380, 0, "forwards"))


def test_retraining_is_estimated_by_one_training(shallow):
    model, X, y, *_ = shallow
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    ten, one = (
        tracer.estimate(3, method=lt.Retrain(), rows=rows) for rows in (list(range(10)), [4])
    )
    assert ten.form == "retraining"
    assert ten.seconds == pytest.approx(10 * one.seconds)
    assert len(tracer.engine.retrainings._seconds) == 1
    tracer.engine.retrainings._seconds = [2.0, 9.0, 3.0]
    assert tracer.estimate(3, method=lt.Retrain(), rows=[4, 7]).seconds == 6
    with pytest.raises(lt.InvalidInput, match="LeafRefit and Retrain"):
        tracer.estimate(3, method=lt.baselines.BoostIn())


def test_trials_are_extended_by_a_straight_line(monkeypatch):
    monkeypatch.setattr(estimates, "_time_of", lambda work, count: 0.5 + 2e-3 * count)
    assert estimates._line(print, 100, 400, 10_000) == pytest.approx(0.5 + 20)
    assert estimates._line(print, 100, 400, 10_000, n_jobs=2) == pytest.approx(0.5 + 10)
    assert estimates._line(print, 400, 400, 800) == pytest.approx(2 * 1.3)
    monkeypatch.setattr(estimates, "_time_of", lambda work, count: 7e-3 * count)
    assert estimates._line(print, 100, 400, 10_000) == pytest.approx(70)


def test_finding_the_leaves_of_test_rows_counts(shallow, monkeypatch):
    model, X, y, *_ = shallow
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    monkeypatch.setattr(
        estimates, "_line", lambda work, few, many, n, n_jobs=1: 7.0 * n if n == 3000 else 0.0
    )
    large, small = (tracer.estimate(m, reduce="mean").seconds for m in (3000, 2999))
    assert large - small == pytest.approx(21_000)


@pytest.mark.parametrize("limit", [None, 50_000])
def test_trials_do_not_change_answers(limit):
    c = case("multiclass weights")
    tracers = [lt.Tracer(c.model, c.X, c.y, c.weight, memory_limit=limit) for _ in range(2)]
    for kw in ({}, {"method": lt.LeafRefit(), "rows": [0, 5]}, {"reduce": "mean"}):
        tracers[0].estimate(c.X_test, **kw)
        assert not tracers[0].engine.work.has_effects or kw
        first, second = (t.influence(c.X_test, c.y_test, **kw).values for t in tracers)
        np.testing.assert_array_equal(first, second)


def test_effects_are_kept_when_several_queries_were_asked(shallow, monkeypatch):
    """Large effects of rows are not filled in for the first queries; answers stay the same."""
    model, X, y, X_test, y_test = shallow
    kept, first = (lt.Tracer(model, X, y, dtype="float64", n_jobs=1) for _ in range(2))
    expected = kept.influence(X_test, y_test, reduce="mean").values
    assert kept.engine.work.has_effects
    monkeypatch.setattr(scored_pass, "LARGE_EFFECTS", 0)
    for _ in range(scored_pass.PASSES_BY_SCORES):
        assert first.estimate(X_test, reduce="mean").seconds > 0
        values = first.influence(X_test, y_test, reduce="mean").values
        # Both compute in float64, one from scores that went back by subtraction.
        np.testing.assert_allclose(values, expected, atol=1e-12 * np.abs(expected).max())
        assert not first.engine.work.has_effects
    assert first.engine.work.passes_by_scores == scored_pass.PASSES_BY_SCORES
    values = first.influence(X_test, y_test, reduce="mean").values
    assert first.engine.work.has_effects
    np.testing.assert_array_equal(values, expected)
    several = lt.Tracer(model, X, y, dtype="float64", n_jobs=1)
    several.influence(X_test[:2], y_test[:2])  # more than one column has them at once
    assert several.engine.work.has_effects


def test_passes_by_scores_do_not_depend_on_threads(shallow, monkeypatch):
    """Several blocks of rows for each thread, the last of them shorter; and more threads than blocks."""
    model, X, y, X_test, y_test = shallow
    monkeypatch.setattr(scored_pass, "LARGE_EFFECTS", 0)
    expected = lt.Tracer(model, X, y, n_jobs=1).influence(X_test, y_test, reduce="mean").values
    for rows in (len(y) // 7, len(y) + 1):
        monkeypatch.setattr(scored_pass, "ROWS_OF_SUMS", rows)
        tracers = [lt.Tracer(model, X, y, n_jobs=n_jobs) for n_jobs in (1, 2, 5)]
        values = [t.influence(X_test, y_test, reduce="mean").values for t in tracers]
        assert not any(t.engine.work.has_effects for t in tracers)
        for others in values[1:]:
            np.testing.assert_array_equal(others, values[0])
        # float32, with sums over leaves in another order
        np.testing.assert_allclose(values[0], expected, atol=1e-5 * np.abs(expected).max())
