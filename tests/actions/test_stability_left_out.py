"""Ensemble influence on the rows left out of each bag, against a loop over the members."""

import lightgbm as lgb
import numpy as np
import pytest
from boosters import frame, numbers, weights
from catboost import CatBoostClassifier

import leaftrace as lt
from leaftrace import ensemble_influence, goals


def light(seed):
    return lgb.LGBMRegressor(
        n_estimators=8,
        colsample_bytree=0.5,
        random_state=seed,
        verbosity=-1,
        num_threads=1,
        force_row_wise=True,
    )


def cat(seed):
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return CatBoostClassifier(
        **quiet, iterations=6, depth=4, cat_features=["kind"], random_seed=seed
    )


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@pytest.mark.parametrize(
    ("data", "make", "weighted"), [(numbers(), light, True), (frame(), cat, False)]
)
def test_values_are_those_of_a_plain_loop(data, make, weighted):
    X = data.X
    y = data.y
    n = len(y)
    w = weights(len(y)) if weighted else None
    found = ensemble_influence(make, X, y, members=5, bag=0.7, seed=3, sample_weight=w, n_jobs=1)
    total = np.zeros(n)
    count = np.zeros(n)
    for member in found.members:
        inside = np.flatnonzero(member.bag)
        outside = np.flatnonzero(~member.bag)
        assert abs(len(inside) - 0.7 * n) < 1
        given = {} if w is None else {"sample_weight": w[inside]}
        model = make(member.seed).fit(take(X, inside), y[inside], **given)
        tracer = lt.Tracer(model, take(X, inside), y[inside], *given.values(), n_jobs=1)
        each = tracer.influence(
            take(X, outside), y[outside]
        ).values  # a column for each row left out
        total[inside] += len(inside) / n * each.mean(axis=1)
        count[inside] += 1
    expected = total / count
    assert found.influence.values.shape == (n, 1)
    np.testing.assert_allclose(
        found.influence.values[:, 0], expected, atol=2e-6 * np.abs(expected).max()
    )
    assert "the mean loss of the rows left out of each bag" in found.title


def test_confirm_judges_by_the_rows_left_out():
    data = numbers()
    found = ensemble_influence(light, data.X, data.y, members=3, bag=0.7, n_jobs=1)
    rows = np.asarray(found.top(3).train_row)
    effects = found.confirm(rows).effects
    before = []
    after = []
    for member in found.members:
        inside = np.flatnonzero(member.bag)
        outside = np.flatnonzero(~member.bag)
        rest = np.setdiff1d(inside, rows)
        again = light(member.seed).fit(data.X[rest], data.y[rest])
        for model, losses in ((member.model, before), (again, after)):
            losses.append(np.mean((model.predict(data.X[outside]) - data.y[outside]) ** 2) / 2)
    assert effects.of[0] == "RMSE of the rows left out of each bag"
    old, new = (np.sqrt(2 * np.mean(losses)) for losses in (before, after))
    assert effects.before[0] == pytest.approx(old, rel=1e-5)
    assert effects.retrained[0] == pytest.approx(new - old, rel=1e-3)


def test_a_goal():
    """The mean score of the rows left out is the average of `of="prediction"` over them."""
    data = numbers()
    goal = goals.Goal(
        lambda F: float(F.mean()), lambda F: np.ones_like(F) / len(F), name="mean_score"
    )
    found = ensemble_influence(light, data.X, data.y, members=3, bag=0.7, of=goal, n_jobs=1)
    total, count = np.zeros((2, len(data.y)))
    for member in found.members:
        inside = np.flatnonzero(member.bag)
        outside = np.flatnonzero(~member.bag)
        tracer = lt.Tracer(member.model, data.X[inside], data.y[inside], n_jobs=1)
        values = tracer.influence(data.X[outside], of="prediction").values.mean(axis=1)
        total[inside] += member.bag.mean() * values
        count[inside] += 1
    expected = total / count
    np.testing.assert_allclose(
        found.influence.values[:, 0], expected, atol=2e-6 * np.abs(expected).max()
    )
    assert found.influence.of == "mean_score"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"bag": 1.0}, "no row is left out"),
        ({"y_test": np.zeros(3)}, "without X_test; pass both"),
        ({"of": "prediction"}, "of= is 'loss' or a goal"),
        ({"of": np.ones((3, 1))}, "of= is 'loss' or a goal"),
        ({"reduce": "sum"}, "it is the mean over the rows left out"),
    ],
)
def test_what_cannot_be_asked(more, words):
    data = numbers()
    with pytest.raises(lt.InvalidInput, match=words):
        ensemble_influence(light, data.X, data.y, members=4, **more)
