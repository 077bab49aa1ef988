"""Verdicts on test rows: each is checked on data made so that its facts are known."""

import lightgbm
import numpy as np
import pandas as pd
import pytest

import leaftrace as lt
from leaftrace._data.cells import open_cell_tables
from leaftrace._views.report.differences import column_scales, differing_columns
from leaftrace._views.report.explained_rows import both_sides, choose_rows
from leaftrace._views.report.similar import SIMILAR, similar_rows
from leaftrace._views.report.unusual import unusual_values
from leaftrace._views.report.verdicts import (
    EXCEPTION,
    REFITTED,
    RETRAINED,
    RIGHT,
    STILL_WRONG,
    UNPREDICTABLE,
    UNUSUAL,
    WRONG_LABELS,
    Verdict,
    rests_on,
    summary,
    verdicts,
)


@pytest.fixture(scope="module")
def world():
    """Two classes by the sign of x; beyond u = 5 labels are a toss, and at x = 3 five are wrong."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-2, 2, 600)
    u = draw.uniform(0, 8, 600)
    X = pd.DataFrame({"x": x, "u": u, "town": "Ulm"})
    y = (x > 0).astype(int)
    y[u > 5] = draw.integers(0, 2, (u > 5).sum())
    apart = pd.DataFrame({"x": np.full(5, 3.0), "u": np.full(5, 1.0), "town": "Ulm"})
    X = pd.concat([X, apart], ignore_index=True)
    X["town"] = X.town.astype("category")
    y = np.append(y, [0] * 5)
    X.index = [f"r{i}" for i in range(len(X))]
    settings = {"n_estimators": 30, "num_leaves": 8, "min_child_samples": 5, "verbose": -1}
    model = lightgbm.LGBMClassifier(**settings, n_jobs=1).fit(X, y)
    return model, lt.Tracer(model, X, y, n_jobs=1), X, y


def judge(tracer, X, y, **how):
    X = X.astype({"town": tracer.X_train.town.dtype})
    rows = choose_rows(tracer, X, y, np.arange(len(X)), 1)
    sides = list(both_sides(rows.influence(np.arange(len(X))), 5))
    return verdicts(rows, sides, *open_cell_tables(tracer.X_train, X, ()), **how)


def at(x, u, town="Ulm"):
    return pd.DataFrame({"x": [x], "u": [u], "town": [town]})


def test_each_verdict_on_data_that_calls_for_it(world):
    _, tracer, _, _ = world
    X = pd.concat([at(1.0, 2.0), at(1.0, 2.0), at(3.0, 1.0), at(1.0, -9.0)])
    right, exception, wrong, unusual = judge(tracer, X, np.array([1, 0, 1, 0]))
    tosses = pd.concat([at(x, 6.5) for x in np.linspace(-1.5, 1.5, 10)])
    assert UNPREDICTABLE in {
        one.kind for y in (0, 1) for one in judge(tracer, tosses, np.full(10, y))
    }
    assert right.kind == RIGHT
    assert exception.kind == EXCEPTION
    assert wrong.kind == WRONG_LABELS
    assert "r600" in wrong.facts
    assert unusual.kind == UNUSUAL
    assert "u = -9.0 (no training row is as low)" in unusual.facts
    assert [one.evidence for one in (right, exception, wrong)] == ["", STILL_WRONG, REFITTED]
    assert summary([right, wrong, wrong]) == (
        "Verdicts on 3 test rows: possibly wrong labels behind it (2), predicted right (1)."
    )
    assert rests_on([right, wrong, wrong]) == (
        f"Evidence: {REFITTED} (2). Noise of retraining: not measured."
    )


def test_wrong_labels_are_confirmed_by_the_refit(world):
    """Without the rows that are named, the library's own refit of the leaves is right."""
    _, tracer, X, _ = world
    asked = at(3.0, 1.0).astype({"town": X.town.dtype})
    [verdict] = judge(tracer, asked, np.array([1]))
    assert tracer.engine.unchanged.predict(asked)[0] == 0
    gone = np.arange(600, 605)
    assert verdict.facts.startswith("without only the 5 training rows")
    assert tracer.refit(gone).predict(asked)[0] == 1


def test_similar_rows_are_those_that_share_leaves_in_the_library(world):
    model, tracer, X, y = world
    rows = choose_rows(tracer, X.iloc[:3], y[:3], None, 3)
    leaves = model.predict(X, pred_leaf=True)
    for j, found in enumerate(similar_rows(rows, np.arange(3))):
        share = (leaves == leaves[j]).mean(axis=1)
        nearest = np.sort(share)[::-1][:SIMILAR]
        assert found.closeness == pytest.approx(nearest.mean(), rel=1e-6)
        np.testing.assert_allclose(np.sort(share[found.rows])[::-1], nearest)


def test_unusual_values_are_counted(world):
    """Tails hold fewer than one in a thousand rows, whatever the type of the table."""
    draw = np.random.default_rng(1)
    train = np.column_stack([draw.normal(size=5000), np.r_[np.zeros(3), np.ones(4997)]])
    test = np.array([[0.0, 1.0], [0.0, 0.0], [8.0, 1.0], [np.nan, 1.0]])
    for X, X_test in ((train, test), (pd.DataFrame(train), pd.DataFrame(test))):
        found = unusual_values(*open_cell_tables(X, X_test, ()), np.arange(4))
        assert [len(one) for one in found] == [0, 1, 1, 0]
        assert "= 0.0 (0.06% of training rows are as low)" in found[1][0]
    _, _, X, _ = world
    asked = at(0.0, 1.0, "Bonn")
    assert "no training row has it" in str(
        unusual_values(*open_cell_tables(X, asked, ()), np.array([0]))
    )
    assert unusual_values(*open_cell_tables(X, asked, ["town"]), np.array([0])) == [[]]


def test_wrong_labels_are_confirmed_by_retraining(world):
    """A suspicion of wrong labels is kept only if training again without them gives the right class."""
    model, tracer, X, y = world
    asked = at(3.0, 1.0).astype({"town": X.town.dtype})
    [verdict] = judge(tracer, asked, np.array([1]), retrain=True)
    assert (verdict.kind, verdict.evidence) == (WRONG_LABELS, RETRAINED)
    again = lightgbm.LGBMClassifier(**model.get_params()).fit(X[:600], y[:600])
    assert again.predict(asked)[0] == 1


def test_noise_of_retraining_is_in_the_verdict(world):
    """A row that models without a random row are right about by chance is not blamed on labels."""
    model, _, X, y = world
    tracer = lt.Tracer(model, X, y, n_jobs=1)  # a floor belongs to its tracer
    asked = pd.concat([at(x, 6.5) for x in np.linspace(-2, 2, 30)]).astype({"town": X.town.dtype})
    score = model.predict_proba(asked)[:, 1]
    close = asked.iloc[[np.abs(score - 0.5).argmin(), np.abs(score - 0.5).argmax()]]
    wrong = 1 - model.predict(close)
    floor = tracer.noise_floor(close, wrong, repeats=6)
    after = score_of(model, close)[None] + floor.moves[..., 0]  # (repeats, rows)
    right = ((after > 0) == wrong).sum(axis=0)
    near, far = judge(tracer, close, wrong)
    assert right[0] >= 2
    assert not right[1]
    assert near.kind == UNPREDICTABLE
    assert near.facts.startswith(f"{right[0]} of 6 models trained again")
    assert near.evidence == RETRAINED
    assert far.evidence != RETRAINED
    before = model.predict_proba(close)[:, 1]
    moved = np.abs(1 / (1 + np.exp(-after)) - before).max(axis=0)
    assert f"by up to {moved[1]:.4g}"[:12] in far.noise
    assert "not measured" not in rests_on([near, far])
    assert str(Verdict(RIGHT, "")) == "Predicted right."


def score_of(model, X):
    return model.predict(X, raw_score=True)


def test_many_rows_are_compared_by_a_sample(world, monkeypatch):
    _, tracer, X, y = world
    monkeypatch.setattr("leaftrace._views.report.similar.MAX_COMPARED", 0)
    monkeypatch.setattr("leaftrace._views.report.similar._LEAST", 200)
    rows = choose_rows(tracer, X.iloc[:3], y[:3], None, 3)
    [found, *_] = similar_rows(rows, np.arange(3))
    assert found.words == "20 most similar of 200 training rows"
    assert set(found.rows) <= set(np.linspace(0, 604, 200).astype(int))


def test_columns_that_differ_are_named_or_counted():
    """A row that differs in five columns does not look as if it differed in three."""
    X = pd.DataFrame(
        [list("aaaaa"), list("bbaaa"), list("bbbba"), list("bbbbb")], columns=list("vwxyz")
    )
    train, test = open_cell_tables(X, X[:1], ())
    named = differing_columns(train, test, np.arange(4), 0, column_scales(train), 3)
    assert named == ["", "v, w", "v, w, x, y", "v, w, x and 2 more"]
