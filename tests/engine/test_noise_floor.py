"""The noise floor: a loop of retrainings in the test is the oracle."""

import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

import leaftrace as lt

RNG = np.random.default_rng(11)
X = pd.DataFrame(RNG.normal(size=(260, 5)), columns=list("abcde"))
Y = (X.a + X.b * X.c + RNG.normal(size=260) > 0).astype(int).to_numpy()
TEST = X[200:]
TEST_LABELS = Y[200:]
X = X[:200]
Y = Y[:200]
X.index = [f"r{i}" for i in range(200)]
W = np.ones(200)
W[5] = 60.0  # a row whose effect stands out


def fit(rows):
    model = lgb.LGBMClassifier(n_estimators=12, num_leaves=8, verbose=-1, n_jobs=1)
    return model.fit(X.iloc[rows], Y[rows], sample_weight=W[rows])


def raw(model, rows=TEST):
    return model.booster_.predict(rows, raw_score=True)


def losses(scores):
    """(m,) losses of the test rows with these raw scores (m,)."""
    return np.logaddexp(0, np.where(TEST_LABELS == 1, -scores, scores))


@pytest.fixture(scope="module")
def model():
    return fit(np.arange(200))


@pytest.fixture(scope="module")
def tracer(model):
    return lt.Tracer(model, X, Y, W, dtype="float64", n_jobs=1)


@pytest.fixture(scope="module")
def measured(model):
    """A tracer with a noise floor of 8 retrainings without a random row."""
    tracer = lt.Tracer(model, X, Y, W, dtype="float64", n_jobs=1)
    return tracer, tracer.noise_floor(TEST, TEST_LABELS, repeats=8, seed=3)


@pytest.fixture(scope="module")
def moved(model, measured):
    """(8, m) raw scores of the test rows without the random rows, less those of the model."""
    _, floor = measured
    return np.array([raw(fit(np.delete(np.arange(200), rows))) for rows in floor.rows]) - raw(model)


def bound(changes):
    """(queries,) from (repeats, queries): Student's t about zero, and the largest."""
    rms = np.sqrt((changes**2).mean(axis=0))
    return np.maximum(stats.t.ppf(0.975, len(changes)) * rms, np.abs(changes).max(axis=0))


def test_floor_is_that_of_the_loop(model, measured, moved):
    """Changes of scores and losses, and the bounds made from them, are those of the test's loop."""
    _, floor = measured
    assert floor.rows.shape == (8, 1)
    np.testing.assert_allclose(floor.moves[:, :, 0], moved, atol=1e-12)
    change = losses(raw(model) + moved) - losses(raw(model))
    np.testing.assert_allclose(floor.loss_changes, change, atol=1e-12)
    table = floor.table
    # The quantile of Student's t is an expansion, within half a percent from eight degrees on.
    np.testing.assert_allclose(table.prediction_noise, bound(moved), rtol=5e-3)
    np.testing.assert_allclose(table.loss_noise, bound(change), rtol=5e-3)
    assert floor.mean_loss == pytest.approx(bound(change.mean(axis=1)[:, None])[0], rel=5e-3)
    assert list(table.test_row) == list(TEST.index)
    assert repr(floor).startswith("NoiseFloor(8 retrainings without a random row; 60 test rows: ")
    assert "\n" not in repr(floor)


def marks(change, limit):
    return np.where(np.abs(change) > limit, "yes", "no").tolist()


def test_tables_mark_what_stands_out(model, measured, moved):
    """`top`, in one go and streamed, `neighbours` and saved results compare each change."""
    tracer, _ = measured
    limit = bound(losses(raw(model) + moved) - losses(raw(model)))
    influence = tracer.influence(TEST, TEST_LABELS)
    np.testing.assert_allclose(influence.noise, limit, rtol=5e-3)
    top = influence.top(200)
    of_row = dict(zip(TEST.index, influence.noise, strict=True))
    expected = marks(top.loss_change_if_removed, top.test_row.map(of_row))
    assert list(top.above_noise) == expected
    assert set(expected) == {"yes", "no"}
    assert set(top.change_is) == {"first order, trees fixed"}
    streamed = tracer.top(TEST, TEST_LABELS, 200)
    assert list(streamed.above_noise) == expected
    near = tracer.neighbours(TEST, 20, y_test=TEST_LABELS)
    assert list(near.above_noise) == marks(near.loss_change_if_removed, near.test_row.map(of_row))
    above = expected.count("yes")
    assert f"above noise: {above:,} of 12,000 changes" in repr(influence)
    assert "above_noise" in influence._repr_html_()


def test_other_questions_about_the_same_rows(model, measured, moved):
    """Means, predictions, goals and single rows have bounds of their own."""
    tracer, _ = measured
    change = losses(raw(model) + moved) - losses(raw(model))
    one = tracer.influence(TEST, TEST_LABELS, reduce="mean")
    np.testing.assert_allclose(one.noise, bound(change.mean(axis=1)[:, None]), rtol=5e-3)
    scores = tracer.influence(TEST, of="prediction", method=lt.LeafRefit(), rows=[1, 2])
    np.testing.assert_allclose(scores.noise, bound(moved), rtol=5e-3)
    assert set(scores.top(2).change_is) == {"refitted, trees fixed"}
    # A single row is found again by its leaves; of several in the same, the one that moved most counts.
    leaves = model.booster_.predict(TEST, pred_leaf=True)
    for row in range(10):
        alike = np.flatnonzero((leaves == leaves[row]).all(axis=1))
        most = alike[(moved[:, alike] ** 2).sum(axis=0).argmax()]
        single = tracer.influence(TEST[row : row + 1], of="prediction")
        np.testing.assert_allclose(single.noise, bound(moved)[[most]], rtol=5e-3)
    weights = np.linspace(-1, 1, len(TEST))
    total = tracer.influence(TEST, of=weights, reduce="sum")
    np.testing.assert_allclose(total.noise, bound((moved @ weights)[:, None]), rtol=5e-3)


def test_what_was_not_measured_is_empty(measured, tracer):
    """Rows that were not measured, other numbers of rows and other tracers have no marks."""
    noisy, _ = measured
    mixed = pd.concat([TEST[:2], X[:1]])
    labels = np.append(TEST_LABELS[:2], Y[0])
    top = noisy.influence(mixed, labels).top(3)
    assert set(top.above_noise[:6]) <= {"yes", "no"}
    assert list(top.above_noise[6:]) == [""] * 3
    whole = noisy.influence(mixed, labels, reduce="mean")
    assert np.isnan(whole.noise).all()
    assert "not measured for these test rows" in repr(whole)
    assert "above_noise" not in tracer.influence(TEST, TEST_LABELS).top(2)
    assert "above_noise" not in noisy.label_influence(TEST, TEST_LABELS).top(2)
    assert "above_noise" not in noisy.influence(TEST, TEST_LABELS, method=lt.baselines.TreeSim()).top(2)  # fmt: skip
    impact = lt.removal_impact(noisy, [1, 2, 3], TEST, TEST_LABELS)
    assert "above_noise" not in impact.effects


def test_saved_results_keep_their_marks(measured, tmp_path):
    tracer, _ = measured
    influence = tracer.influence(TEST, TEST_LABELS)
    influence.save(tmp_path / "influence.npz")
    loaded = lt.Influence.load(tmp_path / "influence.npz")
    pd.testing.assert_frame_equal(loaded.top(5), influence.top(5))
    assert "above_noise" not in influence.mean().top(2)


def test_removal_of_a_group(model):
    """`removal_impact` compares with as many random rows, in each of its effects."""
    tracer = lt.Tracer(model, X, Y, W, dtype="float64", n_jobs=1)
    floor = tracer.noise_floor(TEST, TEST_LABELS, removed=12, repeats=6, seed=1)
    assert floor.rows.shape == (6, 12)
    assert "6 retrainings without 12 random rows" in repr(floor)

    def shares(scores):
        return 1 / (1 + np.exp(-scores))

    before = raw(model)
    by_loop = [raw(fit(np.delete(np.arange(200), rows))) for rows in floor.rows]

    def effects(scores):
        return [
            np.abs(shares(scores) - shares(before)).mean(),
            np.abs(shares(scores) - shares(before)).max(),
            float(((scores > 0) != (before > 0)).sum()),
            (losses(scores) - losses(before)).mean(),
        ]

    random = np.array([effects(scores) for scores in by_loop])
    half = stats.t.ppf(0.975, 5) * random.std(axis=0, ddof=1) * np.sqrt(1 + 1 / 6)
    limit = np.maximum(random.mean(axis=0) + half, random.max(axis=0))
    limit[3] = bound(random[:, 3:])[0]
    gone = np.flatnonzero(Y == 1)[:12]  # of one class, which is more than noise
    own = np.array(effects(raw(fit(np.delete(np.arange(200), gone)))))
    # No effect is so near its bound that the expansion of Student's t (0.7 % here) decides.
    assert (np.abs(own / limit - 1) > 0.02).all()
    result = lt.removal_impact(tracer, gone, TEST, TEST_LABELS)
    assert list(result.effects.above_noise) == marks(own, limit)
    assert json.dumps(result.audit())


def test_random_rows_are_rarely_marked(model):
    """Retraining without random rows stands out of retraining without random rows in few cases.

    At most one in twenty is marked for each test row. The bound is itself random, from 8
    retrainings, and test rows share it, so twice that is allowed.
    """
    tracer = lt.Tracer(model, X, Y, W, dtype="float64", n_jobs=1)
    tracer.noise_floor(TEST, TEST_LABELS, repeats=8, seed=5)
    rows = np.random.default_rng(6).choice(200, 30, replace=False)
    influence = tracer.influence(TEST, TEST_LABELS, method=lt.Retrain(), rows=rows)
    top = influence.top(30)
    assert len(top) == 30 * 60
    assert (top.above_noise == "yes").mean() < 0.1
    assert set(top.change_is) == {"retrained"}


def test_a_row_that_decides_is_marked():
    """A label of a thousand among zeros moves predictions beyond what random rows do."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 3))
    y = rng.normal(size=150)
    y[7] = 1000.0
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5, random_state=0)
    tracer = lt.Tracer(model.fit(rows, y), rows, y, n_jobs=1)
    floor = tracer.noise_floor(rows[7:8], repeats=5, seed=2)
    assert "predictions stand out from" in repr(floor)
    assert np.isnan(floor.mean_loss)
    assert list(floor.table) == ["test_row", "prediction_noise"]
    top = tracer.influence(rows[7:8], of="prediction", method=lt.LeafRefit()).top(150)
    assert (top.train_row[0], top.above_noise[0]) == (7, "yes")
    # The other rows of its leaves share it out anew; rows elsewhere do not stand out.
    assert (top.above_noise == "yes").sum() < 15


def test_classes_keep_some_rows():
    """Random rows are drawn so that no class loses all of its rows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    y = np.array([1] * 2 + [0] * 58)
    model = lgb.LGBMClassifier(n_estimators=3, min_child_samples=1, verbose=-1, n_jobs=1)
    tracer = lt.Tracer(model.fit(rows, y), rows, y, n_jobs=1)
    floor = tracer.noise_floor(rows[:4], removed=30, repeats=20)
    assert all(len(set(y) - set(np.delete(y, gone))) == 0 for gone in floor.rows)
    with pytest.raises(lt.InvalidInput, match="a class has none left"):
        tracer.noise_floor(rows[:4], removed=59)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"repeats": 2}, "3 or more"), ({"repeats": 3.5}, "3 or more"), ({"removed": 0}, "from 1 to 199"),
     ({"removed": 200}, "from 1 to 199")],
)  # fmt: skip
def test_arguments(tracer, arguments, message):
    with pytest.raises(lt.InvalidInput, match=message):
        tracer.noise_floor(TEST, TEST_LABELS, **arguments)


def test_early_stopping_is_repeated_in_each():
    """Retrainings of the floor stop by the tracer's eval_set, and the floor says so."""

    def stopped(rows):
        data = lgb.Dataset(X.iloc[rows], Y[rows])
        held = data.create_valid(TEST, TEST_LABELS)
        params = {
            "objective": "binary", "num_leaves": 6, "verbose": -1, "num_threads": 1, "early_stopping_round": 4
        }  # fmt: skip
        return lgb.train(params, data, 200, valid_sets=[held])

    whole = stopped(np.arange(200))
    tracer = lt.Tracer(whole, X, Y, eval_set=(TEST, TEST_LABELS), n_jobs=1)
    floor = tracer.noise_floor(TEST, TEST_LABELS, repeats=3)
    for rows, moves in zip(floor.rows, floor.moves, strict=True):
        other = stopped(np.delete(np.arange(200), rows))
        expected = other.predict(TEST, raw_score=True) - whole.predict(TEST, raw_score=True)
        np.testing.assert_allclose(moves[:, 0], expected, atol=1e-12)
    assert "Early stopping was repeated" in floor.note
    kept = lt.Tracer(whole, X, Y, n_jobs=1).noise_floor(TEST, TEST_LABELS, repeats=3)
    assert "Retraining kept the" in kept.note
