"""Sets of rows that move a number most, against the oracle over all sets and against real training."""

from itertools import combinations

import numpy as np
import oracle
import pandas as pd
import pytest
from contract import accuracy, prepared
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace._actions.influential.search import Question
from leaftrace._engine.retrainings import Retrainings

CANDIDATES = np.arange(10)
CASES = (
    "XGBoost: scale_pos_weight, weights",
    "XGBoost: XGBClassifier defaults, multiclass",
    "LightGBM: regression, weights, l1, l2, max_delta_step",
    "CatBoost: logloss, weights, class weights",
)


@pytest.fixture(scope="module")
def twins():
    """Return a tracer of one split: two equal rows on the left, and on the right one of five differs."""
    X = np.array([0, 0, 1, 1, 1, 1, 1.0])[:, None]
    y = np.array([10, 10, 2, 0, 0, 0, 0.0])
    model = XGBRegressor(
        n_estimators=1, max_depth=1, learning_rate=1.0, reg_lambda=0.1, base_score=0.0, min_child_weight=0, n_jobs=1
    )  # fmt: skip
    return lt.Tracer(model.fit(X, y), X, y, dtype="float64"), np.array([[0.0], [1.0]])


@pytest.fixture(scope="module")
def classes():
    """Return a tracer of three classes, of which one has three rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(40, 3)), columns=["a", "b", "c"], index=[f"r{i}" for i in range(40)]
    )
    y = np.where(X["a"] > 0.3, 1, 0)
    y[:3] = 2
    model = XGBClassifier(n_estimators=4, max_depth=2, colsample_bynode=0.7, n_jobs=1)
    return lt.Tracer(model.fit(X, y), X, y, dtype="float64"), X, y


def oracle_changes(name, sets):
    """Return the changes of the mean test loss without each set, by plain refits."""
    case, _, structure, test_steps = prepared(name)

    def mean_loss(keep):
        fit = oracle.refit(structure.rows(keep), case.data.codes[keep], case.w[keep])
        return structure.loss_of(
            oracle.predict(structure, fit, test_steps), case.data.test_codes
        ).mean()

    def size(keep):  # in the unit of the target
        loss = mean_loss(keep)
        return np.sqrt(2 * loss) if "regression" in name else loss

    every = np.arange(len(case.w))
    before = size(every)
    return np.array([size(np.delete(every, list(rows))) - before for rows in sets])


@pytest.mark.parametrize("name", CASES)
def test_all_sets_of_two_by_the_oracle(name):
    """Search all 45 sets of two of ten rows, in both directions, and check what the others find."""
    case, tracer, *_ = prepared(name)
    sets = list(combinations(CANDIDATES, 2))
    changes = oracle_changes(name, sets)
    tolerance = 30 * accuracy(case) * np.abs(changes).max()
    X, y = case.data.X_test, case.data.y_test
    for direction, best in (("raise", np.argmax(changes)), ("lower", np.argmin(changes))):
        found = lt.influential_set(
            tracer, X, y, 2, direction=direction, rows=CANDIDATES, search_all=True
        )
        assert found.refitted == pytest.approx(changes[best], abs=tolerance)
        assert set(found.rows) == set(sets[best])
        assert found.direction == direction
        for method in (lt.LeafRefit(), lt.LeafInfluence()):
            greedy = lt.influential_set(
                tracer, X, y, 2, direction=direction, rows=CANDIDATES, method=method
            )
            assert set(greedy.rows) <= set(CANDIDATES)
            exact = oracle_changes(name, [greedy.rows])[0]
            assert greedy.refitted == pytest.approx(exact, abs=tolerance)
            if method == lt.LeafRefit():  # its first row is the best single one
                singles = oracle_changes(name, CANDIDATES[:, None])
                best_single = (np.argmax if direction == "raise" else np.argmin)(singles)
                assert greedy.rows[0] == CANDIDATES[best_single]
    either = lt.influential_set(tracer, X, y, 2, rows=CANDIDATES, search_all=True)
    assert either.refitted == pytest.approx(changes[np.argmax(np.abs(changes))], abs=tolerance)
    influence = tracer.influence(X, y, reduce="mean").change[:, 0]
    root = either.before if "regression" in name else 1.0  # d sqrt(2 L) = dL / sqrt(2 L)
    assert either.predicted == pytest.approx(influence[either.rows].sum() / root, rel=1e-6)


def test_where_first_order_fails(twins):
    """Each of two equal rows changes little alone. First order misses the pair, at once and in rounds."""
    tracer, X = twins
    sizes = {"k": 2, "of": "prediction", "direction": "lower"}
    without_pair = -(20 / 2.1) / 2  # the leaf of the first test row loses its rows
    at_once = (10 / 1.1 - 20 / 2.1) / 2 - (2 / 5.1) / 2
    found = lt.influential_set(tracer, X, **sizes, method=lt.LeafRefit())
    assert found.rows.tolist() == [0, 1]  # equal rows leave by position
    assert found.rounds.tolist() == [1, 2]
    assert found.refitted == pytest.approx(without_pair, rel=1e-6)
    assert found.before == pytest.approx((20 / 2.1 + 2 / 5.1) / 2, rel=1e-6)
    assert found.one_shot.tolist() == [2, 0]
    assert found.effects.refitted.tolist() == pytest.approx([without_pair, at_once], rel=1e-6)
    rounds = lt.influential_set(tracer, X, **sizes, method=lt.LeafInfluence())
    assert rounds.rows.tolist() == [2, 0]
    best = lt.influential_set(tracer, X, **sizes, search_all=True)
    assert sorted(best.rows) == [0, 1]
    assert repr(found) == (
        "InfluentialSet(without 2 rows the mean prediction of 2 test rows changes by -4.76 refitted)"
    )
    assert found.table.refitted_so_far.tolist() == pytest.approx(
        [(10 / 1.1 - 20 / 2.1) / 2, without_pair], rel=1e-6
    )
    assert "confirm=5" in found.advice
    assert "<table" in found._repr_html_()


def test_rows_that_would_move_it_back_stay(twins):
    tracer, X = twins
    found = lt.influential_set(
        tracer, X[1:], k=5, of="prediction", direction="lower", method=lt.LeafInfluence()
    )
    assert found.rows.tolist() == [2]
    nothing = lt.influential_set(
        tracer,
        X[1:],
        k=1,
        of="prediction",
        direction="lower",
        rows=[0, 1],
        method=lt.LeafInfluence(),
    )
    assert not len(nothing.rows)
    assert nothing.refitted == 0.0
    assert repr(nothing) == "InfluentialSet(no rows lower the prediction of a test row)"
    assert nothing.advice.startswith("No row")


def test_a_set_that_moves_it_the_other_way_is_called_so():
    """First order lowers the loss of a rare row by leaving out others of its class; the refit raises it."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = (X[:, 0] > 1.6).astype(int)
    tracer = lt.Tracer(XGBClassifier(n_estimators=20, n_jobs=1).fit(X, y), X, y)
    x = np.array([[2.5, 0.0, 0.0]])
    found = lt.influential_set(tracer, x, [1], 10, direction="lower")
    assert found.predicted < 0 < found.refitted
    assert found.title.endswith("but without them the log loss of a test row does not fall")
    assert found.advice.startswith("These rows do not do what was asked")
    other = lt.influential_set(tracer, x, [1], 10, direction="raise")
    assert other.refitted > 0
    assert "rises most" in other.title
    assert other.advice.startswith("Refitted")


def test_rounds_rank_by_the_model_without_the_rows_so_far():
    """Compare the ranking of a later round with finite differences of the oracle."""
    name = "XGBoost: scale_pos_weight, weights"
    case, tracer, structure, test_steps = prepared(name)
    gone = np.array([3, 40, 17])
    keep = np.delete(np.arange(len(case.w)), gone)
    queries = tracer.engine.queries(case.data.X_test, case.data.y_test, "loss", "mean", None, None)[
        0
    ]
    question = Question(tracer, queries, None, np.ones(len(case.w), bool), 5)
    found = question.first_order(question.refit(gone), lt.LeafInfluence())
    assert not found[gone].any()

    def loss(i, dw):
        w = case.w[keep] + dw * (keep == i)
        fit = oracle.refit(structure.rows(keep), case.data.codes[keep], w)
        return structure.loss_of(
            oracle.predict(structure, fit, test_steps), case.data.test_codes
        ).mean()

    rows = np.r_[np.argsort(found)[[0, -1]], 5]
    expected = [
        -tracer.sample_weight[i] * oracle.slope(lambda e, i=i: loss(i, e), 2e-3) for i in rows
    ]
    np.testing.assert_allclose(found[rows], expected, atol=1e-5 * np.abs(found).max())


def test_soft_splits_rank_by_default(classes):
    tracer, X, y = classes
    soft = tracer.influence(X[5:9], y[5:9], reduce="mean", method=lt.StructureInfluence()).change[
        :, 0
    ]
    found = lt.influential_set(tracer, X[5:9], y[5:9], 4, direction="raise", rounds=1)
    assert found.rows.tolist() == np.argsort(-soft, kind="stable")[:4].tolist()
    # Refitted leaf values are not rounded as those of the model.
    np.testing.assert_allclose(found.table.loss_change_if_removed, soft[found.rows], rtol=1e-6)
    assert set(found.table.change_is) == {"first order, soft splits"}
    assert found.labels.tolist() == [f"r{i}" for i in found.rows]
    assert found.method == "StructureInfluence"
    again = lt.influential_set(tracer, X[5:9], y[5:9], 4, direction="raise", rounds=4)
    assert again.rounds.tolist() == [1, 2, 3, 4]
    assert again.rows[0] == found.rows[0]
    # The second row is the first of a ranking without the first one.
    question = Question(
        tracer,
        tracer.engine.queries(X[5:9], y[5:9], "loss", "mean", None, None)[0],
        tracer.engine.soft_splits.bins.codes(tracer.engine.source.split_columns(X[5:9])),
        np.ones(40, bool),
        4,
    )
    ranking = question.first_order(question.refit(again.rows[:1]), lt.StructureInfluence())
    assert again.rows[1] == np.argmax(ranking)


def test_a_class_keeps_a_row(classes):
    tracer, X, y = classes
    found = lt.influential_set(tracer, X[:1], y[:1], 3, rows=[0, 1, 2], direction="raise")
    assert len(found.rows) == 2
    whole = lt.influential_set(tracer, X[:1], y[:1], 3, rows=[0, 1, 2, 3], search_all=True)
    assert 3 in whole.rows


def test_predictions_and_goals(classes):
    """The predicted class stays the one of the model as it is, even if the set changes it."""
    tracer, X, _ = classes
    before = tracer.engine.unchanged.scores(X[:1])[0]
    found = lt.influential_set(tracer, X[:1], k=5, of="prediction", direction="lower")
    after = tracer.refit(found.rows).scores(X[:1])[0]
    assert found.refitted == pytest.approx(after[before.argmax()] - before.max(), abs=1e-6)
    other = lt.influential_set(tracer, X[:1], k=5, of="prediction", output=0, direction="raise")
    assert other.refitted > 0
    assert other.before == pytest.approx(before[0])


def test_confirmed_by_real_training(classes, monkeypatch):
    """Train again by hand on the rows that each retraining had."""
    tracer, X, y = classes
    train = Retrainings.train
    kept = []

    def watched(self, training, threads):
        kept.append(training.keep)
        return train(self, training, threads)

    monkeypatch.setattr(Retrainings, "train", watched)
    found = lt.influential_set(tracer, X[5:15], y[5:15], 4, direction="raise", confirm=3)

    def mean_loss(keep):
        model = XGBClassifier(n_estimators=4, max_depth=2, colsample_bynode=0.7, n_jobs=1)
        p = model.fit(X.iloc[keep], y[keep]).predict_proba(X[5:15])
        return -np.log(p[np.arange(10), y[5:15]]).mean()

    losses = np.array([mean_loss(keep) for keep in kept]).reshape(3, 3)  # random, set, at once
    random = losses[:, 0] - mean_loss(np.arange(40))
    changes = losses[:, 1] - losses[:, 0]
    for number in range(3):
        drawn, both, at_once = (set(range(40)) - set(k) for k in kept[3 * number : 3 * number + 3])
        assert len(drawn) == 4
        assert both == drawn | set(found.rows)
        assert at_once == drawn | set(found.one_shot)
        assert not drawn & set(found.rows)
    assert found.retrained == pytest.approx(changes.mean(), abs=1e-6)
    assert found.noise >= np.abs(random).max() - 1e-6
    assert found.interval[0] < found.retrained < found.interval[1]
    assert found.effects.retrained[1] == pytest.approx(
        (losses[:, 2] - losses[:, 0]).mean(), abs=1e-6
    )
    assert set(found.effects.above_noise) <= {"yes", "no"}
    assert "Retrained 3 times" in found.advice


def test_an_interrupt_keeps_the_rounds_so_far(classes, monkeypatch):
    tracer, X, y = classes
    whole = lt.influential_set(tracer, X[5:9], y[5:9], 4, direction="raise", rounds=4)
    first_order = Question.first_order
    calls = []

    def stops(self, model, method):
        calls.append(method)
        if len(calls) == 4:  # two for the model itself
            raise KeyboardInterrupt
        return first_order(self, model, method)

    monkeypatch.setattr(Question, "first_order", stops)
    part = lt.influential_set(tracer, X[5:9], y[5:9], 4, direction="raise", rounds=4, confirm=3)
    assert part.interrupted
    assert part.rows.tolist() == whole.rows[:2].tolist()
    assert part.advice.startswith("Interrupted.")
    assert np.isnan(part.retrained)


def test_errors(classes, twins):
    tracer, X, y = classes
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        lt.influential_set("model", X, y)
    for k in (0, 40, 100, 2.5, True):
        with pytest.raises(lt.InvalidInput, match="from 1 to 39 here"):
            lt.influential_set(tracer, X[:1], y[:1], k)
    with pytest.raises(lt.InvalidInput, match="from 1 to 2 here"):
        lt.influential_set(tracer, X[:1], y[:1], 3, rows=[4, 5])
    with pytest.raises(lt.InvalidInput, match="direction is 'up'"):
        lt.influential_set(tracer, X[:1], y[:1], direction="up")
    with pytest.raises(lt.InvalidInput, match=r"one of lt\.goals"):
        lt.influential_set(tracer, X[:1], y[:1], of=np.ones((1, 3)))
    with pytest.raises(lt.InvalidInput, match="method is 'soft'"):
        lt.influential_set(tracer, X[:1], y[:1], method="soft")
    with pytest.raises(lt.InvalidInput, match="rounds is 0"):
        lt.influential_set(tracer, X[:1], y[:1], rounds=0)
    for confirm in (1, 2, -3, True, 3.5):
        with pytest.raises(lt.InvalidInput, match="3 or more, or 0"):
            lt.influential_set(tracer, X[:1], y[:1], confirm=confirm)
    with pytest.raises(lt.InvalidInput, match="sets of 10 of 40 training rows"):
        lt.influential_set(tracer, X[:1], y[:1], search_all=True)
    with pytest.raises(lt.InvalidInput, match="needs the labels"):
        lt.influential_set(twins[0], twins[1], k=1)
