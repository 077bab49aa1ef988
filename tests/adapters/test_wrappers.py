"""Models as they are wrapped: searches, transformed labels, models made of several others.

Expected values are those of the wrappers' own predictions with refitted members, and finite
differences of them. GradientBoosting computes in float64, so that differences keep their digits.
"""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from boosters import binary
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import leaftrace as lt

rng = np.random.default_rng(0)
N = 120
X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"], index=np.arange(N) + 1000)
NUMBERS = np.exp(X["a"].to_numpy() + 0.3 * rng.normal(size=N))
CLASSES = np.array(["low", "mid", "top"])[np.digitize(NUMBERS, [0.7, 1.4])]
TWO = np.where(NUMBERS > 1, "yes", "no")
TEST = pd.DataFrame(rng.normal(size=(5, 3)), columns=["a", "b", "c"])
STEP = 1e-4


def classifier(seed=0, **settings):
    return GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=seed, **settings)


def regressor(seed=0, **settings):
    return GradientBoostingRegressor(n_estimators=4, max_depth=2, random_state=seed, **settings)


def slope(tracer, row, number):
    """Return the slope of a number of refitted models in the weight of a row, by differences."""
    w = np.ones(tracer.n_rows)
    w[row] += STEP
    up = number(tracer.refit(sample_weight=w))
    w[row] -= 2 * STEP
    return (up - number(tracer.refit(sample_weight=w))) / (2 * STEP)


# ---- one model inside ----

GRID = {"max_depth": [1, 2]}
SEARCHES = {
    "GridSearchCV": lambda: GridSearchCV(classifier(), GRID, cv=2),
    "RandomizedSearchCV": lambda: RandomizedSearchCV(classifier(), GRID, n_iter=1, cv=2),
    "HalvingGridSearchCV": lambda: HalvingGridSearchCV(classifier(), GRID, cv=2),
    "of a pipeline": lambda: GridSearchCV(
        make_pipeline(StandardScaler(), classifier()),
        {"gradientboostingclassifier__max_depth": [2]},
        cv=2,
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches(name):
    search = SEARCHES[name]().fit(X, TWO)
    tracer = lt.Tracer(search, X, TWO)
    assert type(search).__name__ in repr(tracer)
    same = lt.Tracer(search.best_estimator_, X, TWO)
    found = tracer.influence(TEST, TWO[:5]).values
    np.testing.assert_array_equal(found, same.influence(TEST, TWO[:5]).values)
    before = search.predict_proba(TEST)
    for altered in (tracer.refit([3, 4]), tracer.retrain([3, 4])):
        assert type(altered.model) is type(search)
        own = altered.model.predict_proba(TEST)
        np.testing.assert_allclose(altered.predict_proba(TEST), own, atol=1e-12)
        assert np.abs(own - before).max() > 1e-6
    np.testing.assert_array_equal(search.predict_proba(TEST), before)
    assert tracer.follow(tracer.retrain([3])).n_rows == N - 1


def test_search_without_a_model():
    search = GridSearchCV(classifier(), GRID, cv=2, refit=False).fit(X, TWO)
    with pytest.raises(lt.UnsupportedModel, match=r"no best_estimator_.*refit=True"):
        lt.Tracer(search, X, TWO)


# ---- several models inside ----


def two(kind):
    return [("first", kind()), ("second", kind(1, learning_rate=0.5, max_features=1))]


MODELS = {
    "VotingClassifier": (VotingClassifier(two(classifier), voting="soft", weights=[1, 2]), CLASSES),
    "VotingRegressor": (VotingRegressor(two(regressor)), NUMBERS),
    "StackingClassifier": (StackingClassifier(two(classifier), cv=2), CLASSES),
    "StackingRegressor": (
        StackingRegressor(two(regressor), LinearRegression(), cv=2, passthrough=True),
        NUMBERS,
    ),
    "CalibratedClassifierCV": (CalibratedClassifierCV(classifier(), cv=3), CLASSES),
    "CalibratedClassifierCV, shuffled": (
        CalibratedClassifierCV(classifier(), cv=KFold(2, shuffle=True, random_state=3)),
        TWO,
    ),
    "CalibratedClassifierCV, one model": (
        CalibratedClassifierCV(classifier(), cv=2, ensemble=False),
        TWO,
    ),
    "Pipeline": (
        make_pipeline(StandardScaler(), VotingClassifier(two(classifier), voting="soft")),
        TWO,
    ),
    "GridSearchCV": (GridSearchCV(VotingRegressor(two(regressor)), {"weights": [[1, 3]]}), NUMBERS),
}


@pytest.fixture(scope="module")
def opened():
    """Models with their tracers, opened once."""
    made = {}
    for name, (model, y) in MODELS.items():
        model.fit(X, y)
        made[name] = model, y, lt.Tracer(model, X, y, dtype="float64", n_jobs=1)
    return made


def response(model, rows):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def chosen(probability):
    """Return the probability that is meant by "prediction", or numbers as they are."""
    if probability.ndim == 1:
        return probability
    which = probability.argmax(axis=1) if probability.shape[1] > 2 else 1
    return lambda p: p[np.arange(len(p)), which]


@pytest.mark.parametrize("name", MODELS)
def test_models_made_of_others(opened, name):
    model, y, tracer = opened[name]
    y_test = y[:5]
    before = response(model, TEST)
    unchanged = tracer.refit()
    ours = (
        response if unchanged.combination.classes is not None else lambda m, rows: m.predict(rows)
    )
    np.testing.assert_allclose(ours(unchanged, TEST), before, atol=1e-12)
    refitted = tracer.refit(without=[3, 4])
    assert type(refitted.model) is type(model)
    np.testing.assert_allclose(ours(refitted, TEST), response(refitted.model, TEST), atol=1e-12)
    assert refitted.predict(TEST).tolist() == refitted.model.predict(TEST).tolist()
    assert np.abs(ours(refitted, TEST) - before).max() > 1e-6
    np.testing.assert_array_equal(response(model, TEST), before)
    on_loss = tracer.influence(TEST, y_test)
    on_prediction = tracer.influence(TEST, of="prediction")
    number = chosen(before)
    for row in (3, 70):
        expected = slope(tracer, row, lambda m: m.loss(TEST, y_test))
        np.testing.assert_allclose(on_loss.values[row], expected, rtol=1e-5, atol=1e-9)
        if callable(number):
            expected = slope(tracer, row, lambda m: number(m.predict_proba(TEST)))
        else:
            expected = slope(tracer, row, lambda m: m.predict(TEST))
        np.testing.assert_allclose(on_prediction.values[row], expected, rtol=1e-5, atol=1e-9)
    mean = tracer.influence(TEST, y_test, reduce="mean")
    np.testing.assert_allclose(mean.values[:, 0], on_loss.values.mean(axis=1), atol=1e-12)
    assert mean.top(3)["train_row"].isin(X.index).all()


@pytest.mark.parametrize("name", ["VotingClassifier", "CalibratedClassifierCV"])
def test_a_column_a_member(opened, name):
    _, y, tracer = opened[name]
    found = tracer.by_member(TEST, y[:5])
    assert found.test_index.tolist() == list(tracer.members)
    codes = np.searchsorted(tracer.classes, y) if name == "VotingClassifier" else y
    for column, (member, rows) in enumerate(tracer.member_rows.items()):
        inner = tracer.members[member].engine.source.model
        alone = lt.Tracer(inner, X.iloc[rows], codes[rows], dtype="float64")
        expected = np.zeros(N)
        expected[rows] = alone.influence(TEST, codes[:5], reduce="mean").values[:, 0]
        np.testing.assert_allclose(found.values[:, column], expected, atol=1e-15)


def test_folds_that_are_random_are_asked_for(opened):
    cv = StratifiedKFold(3, shuffle=True)
    folds = list(cv.split(X, TWO))
    model = CalibratedClassifierCV(classifier(), cv=folds).fit(X, TWO)
    assert lt.Tracer(model, X, TWO).fidelity.exact  # a list of folds stays what it is
    for unknown in (cv, iter(folds), ShuffleSplit(3), GroupKFold(3)):
        model.cv = unknown
        with pytest.raises(
            lt.UnsupportedModel, match=r"pass them: Tracer.of_folds\(model, X, y, fold"
        ):
            lt.Tracer(model, X, TWO)
    tracer = lt.Tracer.of_folds(model, X, TWO, folds)
    assert [rows.tolist() for rows in tracer.member_rows.values()] == [r.tolist() for r, _ in folds]


def test_what_has_no_derivatives():
    hard = lt.Tracer(VotingClassifier(two(classifier)).fit(X, TWO), X, TWO)
    steps = StackingRegressor(two(regressor), DecisionTreeRegressor(max_depth=2), cv=2)
    isotonic = CalibratedClassifierCV(classifier(), cv=2, method="isotonic").fit(X, TWO)
    for tracer, y in (
        (hard, TWO),
        (lt.Tracer(steps.fit(X, NUMBERS), X, NUMBERS), NUMBERS),
        (lt.Tracer(isotonic, X, TWO), TWO),
    ):
        with pytest.raises(lt.UnsupportedModel, match=r"use by_member|Use by_member"):
            tracer.influence(TEST, y[:5])
        assert tracer.by_member(TEST, y[:5]).shape == (N, 2)
        refitted = tracer.refit([3, 4])
        assert refitted.predict(TEST).tolist() == refitted.model.predict(TEST).tolist()


def test_members_without_trees():
    voting = VotingClassifier(
        [("trees", classifier()), ("line", LogisticRegression())], voting="soft"
    )
    voting.fit(X, TWO)
    with pytest.raises(
        lt.UnsupportedModel, match=r"'line'.*fidelity=\"warn\" goes on with this member"
    ):
        lt.Tracer(voting, X, TWO)
    with pytest.warns(lt.FidelityWarning, match="'line'.* is held as it is"):
        tracer = lt.Tracer(voting, X, TWO, fidelity="warn", dtype="float64")
    assert "held as they are: line" in repr(tracer)
    expected = slope(tracer, 3, lambda m: m.loss(TEST, TWO[:5]))
    np.testing.assert_allclose(tracer.influence(TEST, TWO[:5]).values[3], expected, rtol=1e-5)


def test_other_questions_are_for_a_member(opened):
    tracer = opened["VotingClassifier"][2]
    for ask in (
        lambda: lt.label_noise(tracer),
        lambda: tracer.neighbours(TEST),
        lambda: tracer.label_influence(TEST, CLASSES[:5]),
        lambda: lt.group_effects(tracer, "a", TEST, CLASSES[:5]),
    ):
        with pytest.raises(lt.UnsupportedModel, match=r"tracer.members\['first'\]"):
            ask()
    with pytest.raises(lt.InvalidInput, match=r"LeafInfluence.. or StructureInfluence"):
        tracer.influence(TEST, CLASSES[:5], method=lt.LeafRefit())
    with pytest.raises(lt.InvalidInput, match="none is out of its fold"):
        tracer.out_of_fold()
    added = tracer.refit(added=(TEST, CLASSES[:5]))
    assert np.abs(added.predict_proba(TEST) - tracer.refit().predict_proba(TEST)).max() > 1e-6


# ---- folds ----


def test_lightgbm_cv():
    y = (NUMBERS > 1).astype(int)
    settings = {"objective": "binary", "verbose": -1, "min_data_in_leaf": 5}
    done = lgb.cv(settings, lgb.Dataset(X, y), 5, nfold=3, return_cvbooster=True)
    splitter = StratifiedKFold(3, shuffle=True, random_state=0)  # those of lightgbm.cv
    tracer = lt.Tracer.of_folds(done["cvbooster"], X, y, splitter)
    assert tracer.fidelity.exact
    refitted = tracer.refit([3])
    assert type(refitted.model) is lgb.CVBooster
    expected = np.mean(refitted.model.predict(TEST), axis=0)
    np.testing.assert_allclose(refitted.predict_proba(TEST)[:, 1], expected, atol=1e-12)
    with pytest.raises(lt.InvalidInput, match="folds is missing"):
        lt.Tracer.of_folds(done["cvbooster"], X, y)


def test_out_of_fold_loss():
    """The influence on the cross-validated loss is the slope of the loss that scikit-learn measures."""
    done = cross_validate(
        regressor(), X, NUMBERS, cv=KFold(3), return_estimator=True, return_indices=True
    )
    tracer = lt.Tracer.of_folds(done, X, NUMBERS, dtype="float64")

    def loss(altered):
        errors = [
            0.5 * (model.predict(X.iloc[rows]) - NUMBERS[rows]) ** 2
            for model, rows in zip(altered.model, done["indices"]["test"], strict=True)
        ]
        return np.concatenate(errors).mean()

    found = tracer.out_of_fold()
    for row in (3, 70):
        np.testing.assert_allclose(found.values[row, 0], slope(tracer, row, loss), rtol=1e-5)
    with pytest.raises(lt.InvalidInput, match="folds has 2 folds for 3 models"):
        lt.Tracer.of_folds(done["estimator"], X, NUMBERS, [np.arange(5), np.arange(9)])
    with pytest.raises(lt.InvalidInput, match="fold 0 is no set of training rows"):
        lt.Tracer.of_folds(done["estimator"], X, NUMBERS, [[500]] * 3)


# ---- one row ----


def test_one_row():
    """A row of a DataFrame and a single label are taken as a table of one row."""
    table = X.assign(town=pd.Categorical(np.where(TWO == "yes", "Rome", "Oslo")))
    model = lgb.LGBMClassifier(n_estimators=3, verbose=-1).fit(table, TWO)
    tracer = lt.Tracer(model, table, TWO)
    expected = tracer.influence(table.iloc[[7]], TWO[[7]])
    found = tracer.influence(table.iloc[7], TWO[7])
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.test_index.tolist() == [1007]
    assert len(tracer.top(table.iloc[7], "yes", k=3)) == 3
    numbers = lt.Tracer(regressor().fit(X, NUMBERS), X, NUMBERS)
    refitted = numbers.refit([3])
    assert refitted.predict(X.iloc[7]) == refitted.predict(X.iloc[[7]])
    assert refitted.loss(X.iloc[7], 2.0) == refitted.loss(X.iloc[[7]], [2.0])
    assert len(numbers.neighbours(X.iloc[7], 2)) == 2
    with pytest.raises(lt.InvalidInput, match="y_test has 1 values but X has 5 rows"):
        tracer.influence(table.iloc[:5], "yes")


def test_no_test_rows():
    """Every model says the same of them, whichever library would have refused them."""
    data = binary()
    makers = (
        make_pipeline(StandardScaler(), lgb.LGBMClassifier(n_estimators=2, verbose=-1)),
        GradientBoostingClassifier(n_estimators=2),
        VotingClassifier([("a", GradientBoostingClassifier(n_estimators=2))], voting="soft"),
        CalibratedClassifierCV(GradientBoostingClassifier(n_estimators=2), cv=2),
    )
    for model in makers:
        model.fit(data.X, data.y)
        made_of_others = isinstance(model, (VotingClassifier, CalibratedClassifierCV))
        tracer = (lt.MembersTracer if made_of_others else lt.Tracer)(model, data.X, data.y)
        with pytest.raises(lt.InvalidInput, match="X_test has no rows"):
            tracer.influence(data.X[:0], data.y[:0])


def test_rows_that_the_steps_of_a_pipeline_refuse():
    data = binary()
    model = make_pipeline(StandardScaler(), lgb.LGBMClassifier(n_estimators=2, verbose=-1))
    tracer = lt.Tracer(model.fit(data.X, data.y), data.X, data.y)
    with pytest.raises(
        lt.InvalidInput, match=r"steps of this pipeline cannot read these rows: .*feat"
    ):
        tracer.influence(data.X[:, :1], data.y)
    words = np.full(data.X[:2].shape, "word")
    with pytest.raises(lt.InvalidInput, match="cannot read these rows: could not convert string"):
        tracer.refit(without=[1]).predict(words)
