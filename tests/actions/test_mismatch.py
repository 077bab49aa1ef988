"""Groups whose weight to increase or decrease: parts against oracles, the whole on planted mismatches."""

import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import oracle
import pandas as pd
import pytest
from catboost import CatBoostClassifier, Pool
from contract import prepared
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.optimize import minimize
from scipy.stats import t
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._actions.mismatch.action import mismatch
from leaftrace._actions.mismatch.group_weights import descend, mean_slopes, measured_slopes, project
from leaftrace._actions.mismatch.partition import by_tree, by_values, label_column, table_column
from leaftrace._actions.statistics import student
from leaftrace._data.time_limit import TimeLimit
from leaftrace._engine.engine import Engine

# ---- slopes and steps ----

SLOPE_CASES = (
    "CatBoost: logloss, 3 Newton steps with backtracking",
    "CatBoost: default classifier of three classes (multiclass)",
    "XGBoost: scale_pos_weight, weights",
    "XGBoost: penalties and bounds",
    "LightGBM: LGBMClassifier, balanced, scale_pos_weight, weights",
    "LightGBM: poisson, weights, l2",
    "scikit-learn: HistGradientBoosting, balanced classes, weights and l2",
    "scikit-learn: GradientBoosting, multiclass, weights",
)


@pytest.mark.parametrize("name", SLOPE_CASES)
def test_slopes_at_other_weights(name):
    """Compare with finite differences of the oracle, at weights the model was not trained with."""
    made, tracer, structure, test_steps = prepared(name)
    w = made.w * np.random.default_rng(0).uniform(0.5, 2.0, len(made.w))
    slopes = tracer.engine.slopes_at(
        tracer.refit(sample_weight=w), made.data.X_test, made.data.y_test
    )

    def loss(i, dw):
        fit = oracle.refit(structure, made.data.codes, w + dw * (np.arange(len(w)) == i))
        return structure.loss_of(
            oracle.predict(structure, fit, test_steps), made.data.test_codes
        ).mean()

    rows = np.r_[np.argsort(slopes)[[0, -1]], 5, 60]
    expected = [oracle.slope(lambda e, i=i: loss(i, e), 2e-3) for i in rows]
    scale = np.abs(slopes).max()
    np.testing.assert_allclose(slopes[rows], expected, atol=max(2e-6, 10 * made.tolerance) * scale)
    at_own = tracer.influence(made.data.X_test, made.data.y_test, reduce="mean").values[:, 0]
    assert np.abs(at_own - slopes)[rows].max() > 1e-3 * scale  # other weights, other slopes
    again = tracer.engine.slopes_at(tracer.refit(), made.data.X_test, made.data.y_test)
    np.testing.assert_allclose(again, at_own, atol=max(1e-6, 10 * made.tolerance) * scale)


def test_mean_slopes_are_weighted_means():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 4, 50)
    w = rng.random(50)
    slopes = rng.normal(size=50)
    expected = pd.DataFrame({"g": code, "w": w, "ws": w * slopes}).groupby("g").sum()
    found = mean_slopes(code, w, slopes)
    np.testing.assert_allclose(found, expected.ws / expected.w - np.average(slopes, weights=w))


def test_projection_is_the_nearest_point():
    rng = np.random.default_rng(1)
    for _ in range(20):
        f = rng.normal(1, 2, 5)
        W = rng.integers(1, 100, 5).astype(float)

        def distance(x, f=f, W=W):
            return (W * (x - f) ** 2).sum() / W.sum()

        found = project(f, W, 0.2, 5.0)
        assert W @ found == pytest.approx(W.sum())
        assert found.min() >= 0.2
        assert found.max() <= 5.0
        kept = {"type": "eq", "fun": lambda x, W=W: W @ (x - 1) / W.sum()}
        other = minimize(
            distance, np.ones(5), bounds=[(0.2, 5.0)] * 5, constraints=kept, method="SLSQP"
        )
        assert distance(found) == pytest.approx(other.fun, rel=1e-4)


def test_quantiles_of_student():
    for freedom in (9, 19):  # the fewest there can be, and the most
        for groups in (1, 8, 100):
            assert student(0.025 / groups, freedom) == pytest.approx(
                t.isf(0.025 / groups, freedom), rel=5e-3
            )


# ---- partitions ----


@pytest.fixture(scope="module")
def mixed():
    """Return tables with text, categories, many and few different numbers, and missing values."""
    rng = np.random.default_rng(2)
    n = 600
    X = pd.DataFrame(
        {
            "town": rng.choice(np.array(["Rome", "Bonn", None], dtype=object), n),
            "kind": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "age": rng.normal(40, 10, n),
            "flag": rng.integers(0, 2, n),
            "floor": rng.integers(0, 5, n),
        }
    )
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    y = rng.choice(["no", "yes"], n)
    return X[:400], y[:400], X[400:], y[400:]


def columns_of(mixed, names, bins=5):
    X, y, X_test, y_test = mixed
    return [
        *(table_column(X, X_test, name, bins) for name in names),
        label_column(y, y_test, "y", bins, True),
    ]


def test_groups_by_values(mixed):
    X, y, X_test, y_test = mixed
    found = by_values(columns_of(mixed, ["town", "kind"]), len(y))
    for table, labels, code in ((X, y, found.train), (X_test, y_test, found.test)):
        town = [
            "town is missing" if v is None else f"town = {v}"
            for v in table.town.astype(object).where(table.town.notna(), None)
        ]
        names = [
            f"{a} and kind = {b} and y = {c}"
            for a, b, c in zip(town, table.kind, labels, strict=True)
        ]
        assert [found.names[c] for c in code] == names
    assert len(found.names) == 18
    numbers = by_values(columns_of(mixed, ["age"], 2), len(y))
    assert {name.split(" and ")[0].split(" ")[1] for name in numbers.names} == {"<", ">=", "is"}


def test_test_rows_like_no_training_row(mixed):
    X, y, X_test, y_test = mixed
    strange = X_test.assign(town="Oslo")
    found = by_values(columns_of((X, y, strange, y_test), ["town"]), len(y))
    assert (found.test == -1).all()


def holds(phrase, X, y):
    """Return which rows belong to a group, read from the words of its name."""
    out = np.ones(len(X), bool)
    for part in phrase.split(" and "):
        name, sign, value = re.fullmatch(r"(\w+) (=|<|>=|is not|is) (.+)", part).groups()
        x = pd.Series(y, index=X.index) if name == "y" else X[name]
        if value == "missing":
            true = x.isna() if sign == "is" else x.notna()
        elif sign in ("<", ">="):
            number = float(value.removesuffix(" or missing"))
            true = (
                x < number
                if sign == "<"
                else (x >= number) | (value.endswith("missing") & x.isna())
            )
        else:
            true = x.astype(str) == value if sign == "=" else ~(x.astype(str) == value)
        out &= true.to_numpy()
    return out


@pytest.mark.parametrize(
    "planted",
    [
        lambda X, y: (X.kind == "b").to_numpy(),
        lambda X, y: ((X.age < 35) & (y == "yes")).to_numpy(),
        lambda X, y: (X.town.isna() & (X.flag == 1)).to_numpy(),
        lambda X, y: X.age.isna().to_numpy(),
        lambda X, y: ((X.floor >= 2) & (X.floor < 4)).to_numpy(),
    ],
)
def test_tree_finds_what_was_planted(mixed, planted):
    """Slopes differ only in one region; the leaves are that region and the rest."""
    X, y, X_test, y_test = mixed
    columns = columns_of(mixed, X.columns, 32)
    inside = planted(X, y)
    w = np.random.default_rng(3).random(len(y)) + 0.5
    found = by_tree(columns, w, np.where(inside, -3.0, 0.1), 8, 5)
    for g, name in enumerate(found.names):
        np.testing.assert_array_equal(holds(name, X, y), found.train == g, err_msg=name)
        np.testing.assert_array_equal(holds(name, X_test, y_test), found.test == g, err_msg=name)
    pure = [inside[found.train == g].mean() for g in range(len(found.names))]
    edge = (
        3 if planted(X.assign(age=0.0), y).sum() != inside.sum() else 0
    )  # of 32 bins, none ends exactly at 35
    assert sum(min(p, 1 - p) * (found.train == g).sum() for g, p in enumerate(pure)) <= 2 * edge


def test_tree_splits_where_it_gains_most(mixed):
    """Compare the first split with all possible ones, by the definition."""
    X, y, *_ = mixed
    rng = np.random.default_rng(4)
    columns = columns_of(mixed, X.columns, 32)
    for _ in range(5):
        w = rng.random(len(y)) + 0.5
        r = rng.normal(size=len(y))
        found = by_tree(columns, w, r, 2, 20)

        def gain(left, w=w, r=r):
            parts = [(w[s] @ r[s]) ** 2 / w[s].sum() for s in (left, ~left)]
            return sum(parts) - (w @ r) ** 2 / w.sum()

        sides = [X[c].isna().to_numpy() for c in ("town", "age")]
        sides += [
            (X[c].astype(str) == v).to_numpy()
            for c in ("town", "kind")
            for v in X[c].dropna().unique()
        ]
        sides += [(X[c] < v).to_numpy() for c in ("flag", "floor") for v in range(1, 5)] + [
            y == "yes"
        ]
        sides += [(X.age < edge).to_numpy() for edge in columns[2].lower[1:]]
        best = max(gain(s) for s in sides if 20 <= s.sum() <= len(y) - 20)
        assert gain(found.train == 0) == pytest.approx(best)
        assert np.bincount(found.train).min() >= 20


def test_tree_stops(mixed):
    columns = columns_of(mixed, ["kind"])
    n = len(mixed[1])
    flat = by_tree(columns, np.ones(n), np.full(n, 0.3), 8, 5)
    assert flat.names == ["all rows"]
    noise = np.random.default_rng(5).normal(size=n)
    assert len(by_tree(columns, np.ones(n), noise, 4, 5).names) == 4
    assert len(by_tree(columns, np.ones(n), noise, 100, 5).names) <= 6  # there are no more


# ---- the whole ----

MAKERS = {
    "CatBoost": lambda: CatBoostClassifier(
        iterations=30, depth=4, learning_rate=0.2, verbose=0, allow_writing_files=False, thread_count=1,
        cat_features=["kind"],
    ),
    "LightGBM": lambda: LGBMClassifier(n_estimators=30, num_leaves=8, verbose=-1, n_jobs=1),
    "XGBoost": lambda: XGBClassifier(n_estimators=30, max_depth=3, learning_rate=0.2, n_jobs=1, enable_categorical=True
    ),
    "scikit-learn": lambda: HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, learning_rate=0.2, early_stopping=True, categorical_features="from_dtype",
        random_state=0,
    ),
}  # fmt: skip


def draw(n, seed):
    """Draw rows of three kinds, and labels that depend on the kind and on numbers."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    X["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], n), ["blue", "green", "red"])
    X.loc[rng.random(n) < 0.05, "a"] = np.nan
    score = X["a"].fillna(0) + 0.5 * X["b"] - 1 + rng.logistic(size=n)
    return X, (score > 0).to_numpy(int)


def filtered(X, y, share=0.1, seed=1):
    """Remove most red rows of class 1, as the paper filters Hospital; return weights of the rest."""
    hit = ((X["kind"] == "red") & (y == 1)).to_numpy()
    keep = ~hit | (np.random.default_rng(seed).random(len(y)) < share)
    weight = np.random.default_rng(seed).uniform(0.8, 1.2, int(keep.sum()))
    return X[keep].reset_index(drop=True), y[keep], weight


def trained(maker, X, y, weight=None):
    with threadpool_limits(1, "openmp"):
        return maker().fit(X, y, sample_weight=weight)


@cache
def case(library):
    """Return (how to make the model, its tracer, X_test, y_test)."""
    X, y, weight = filtered(*draw(1500, 0))
    model = trained(MAKERS[library], X, y, weight)
    return MAKERS[library], lt.Tracer(model, X, y, weight, n_jobs=1), *draw(1200, 7)


@pytest.fixture(params=MAKERS)
def planted(request):
    return case(request.param)


def log_loss(model, X, y):
    with threadpool_limits(1, "openmp"):
        p = np.asarray(model.predict_proba(X), float)[:, 1]
    return -np.where(y == 1, np.log(p), np.log1p(-p))


def test_planted_mismatch_is_named_and_mended(planted):
    """Check groups by values, and every number of the result against pandas and real training."""
    maker, tracer, X_test, y_test = planted
    red = (X_test["kind"] == "red").to_numpy()
    found = mismatch(tracer, X_test, y_test, ["kind"], others=(X_test[~red], y_test[~red]))
    first = found.table.iloc[0]
    assert (first.group, first.direction) == ("kind = red and y = 1", "increase the weight")
    assert first.factor > 1.5
    assert found.improved
    assert found.advice.startswith("Increase the weight of `kind = red and y = 1`")

    X = tracer.X_train
    y = tracer.y_train
    w = tracer.sample_weight
    names = "kind = " + X["kind"].astype(str) + " and y = " + y.astype(str)
    test_names = "kind = " + X_test["kind"].astype(str) + " and y = " + y_test.astype(str)
    table = found.table.set_index("group")
    assert dict(table.rows) == dict(names.value_counts())
    for group, line in table.iterrows():
        assert line.train_share == pytest.approx(w[names == group].sum() / w.sum())
        assert line.test_share == pytest.approx((test_names == group).mean())
    np.testing.assert_allclose(found.sample_weight, w * table.factor[names].to_numpy())
    assert found.sample_weight.sum() == pytest.approx(w.sum())  # the total is kept, bounds are kept
    assert table.factor.between(1 / 5, 5).all()

    order = np.random.default_rng(0).permutation(len(y_test))
    unseen = order[:600]
    chose = order[600:]
    np.testing.assert_array_equal(found.unseen, unseen)
    influence = tracer.influence(X_test.iloc[chose], y_test[chose], reduce="mean").values[:, 0]
    total = np.average(influence, weights=w)
    for group, line in table.iterrows():
        inside = (names == group).to_numpy()
        mean = np.average(influence[inside], weights=w[inside]) - total
        assert line.mean_influence == pytest.approx(mean, rel=1e-3, abs=1e-9)
    again = trained(maker, X, y, found.sample_weight)
    refit = tracer.refit(sample_weight=found.sample_weight)
    before = trained(maker, X, y, w)
    parts = (unseen, chose, np.flatnonzero(~red))
    for effect, rows in zip(found.effects.itertuples(), parts, strict=True):
        part = X_test.iloc[rows], y_test[rows]
        change = log_loss(again, *part) - log_loss(before, *part)
        assert effect.before == pytest.approx(log_loss(before, *part).mean(), rel=1e-5)
        assert effect.retrained == pytest.approx(change.mean(), abs=1e-5)
        assert effect.refitted == pytest.approx(
            log_loss(refit, *part).mean() - log_loss(before, *part).mean(), abs=1e-5
        )
        margin = t.isf(0.025, len(rows) - 1) * change.std(ddof=1) / np.sqrt(len(rows))
        np.testing.assert_allclose(
            [effect.low, effect.high], np.add(change.mean(), [-margin, margin]), atol=1e-5
        )
    slopes = tracer.influence(X_test.iloc[unseen], y_test[unseen], reduce="mean").values[:, 0]
    assert found.judged[0].predicted == pytest.approx((found.sample_weight - w) @ slopes, rel=1e-4)


def test_planted_mismatch_is_found_without_a_hint(planted):
    """Groups come from a tree over all columns, and from a slice alone."""
    _, tracer, X_test, y_test = planted
    red = (X_test["kind"] == "red").to_numpy()
    found = mismatch(tracer, X_test[red], y_test[red])
    assert found.improved
    up = found.table[found.table.direction == "increase the weight"].iloc[0]
    inside = holds(up.group, tracer.X_train, tracer.y_train)
    assert inside.sum() == up.rows
    assert ((tracer.X_train["kind"] == "red") & (tracer.y_train == 1))[inside].all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("library", ["LightGBM", "CatBoost"])
def test_nothing_is_claimed_where_nothing_is(library, seed):
    (X, y) = draw(800, 100 + seed)
    (X_test, y_test) = draw(1200, 200 + seed)
    tracer = lt.Tracer(trained(MAKERS[library], X, y), X, y, n_jobs=1)
    found = mismatch(tracer, X_test, y_test, ["kind"] if seed % 2 else None, seed=seed)
    assert not found.improved
    assert found.advice.startswith(("No improvement", "Not confirmed"))


def test_directions_are_rarely_wrong_by_chance():
    """Count draws of test rows in which the interval of a group misses its true slope.

    It is 5 % for a single group, and less for all groups together."""
    (X, y) = draw(800, 0)
    (X_all, y_all) = draw(2000, 1)
    tracer = lt.Tracer(trained(MAKERS["LightGBM"], X, y), X, y, n_jobs=1)
    values = tracer.influence(X_all, y_all).values  # (n, 2000)

    class Known:
        """A stand-in for a tracer that looks up its answers for rows of X_all."""

        sample_weight = np.ones(len(y))

        def influence(self, rows, labels, reduce):
            return SimpleNamespace(values=values[:, rows].mean(axis=1, keepdims=True))

    code = np.arange(len(y)) % 2 + 2 * y
    rng = np.random.default_rng(0)
    true = mean_slopes(code, Known.sample_weight, values.mean(axis=1))
    wrong = np.zeros(2)
    for _ in range(200):
        rows = rng.integers(0, len(y_all), 200)
        mean, error, clear = measured_slopes(Known(), rows, y_all[rows], code, 0.95)
        np.testing.assert_array_equal(clear, np.abs(mean) > t.isf(0.025 / 4, 19) * error)
        far = np.abs(mean - true) / error
        wrong += far[0] > t.isf(0.025, 19), far.max() > t.isf(0.025 / 4, 19)
    assert 2 <= wrong[0] <= 19  # 10 expected
    assert wrong[1] <= 19  # 10 at most: groups are not independent


def test_numbers():
    """Regression: labels are put into bins, and rows with large labels were removed."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(3000, 3)), columns=["a", "b", "y"]
    )  # one column has the label's name
    y = (X["a"] + 0.5 * X["b"]).to_numpy() + rng.normal(size=3000)
    keep = (y[:1500] < 1) | (rng.random(1500) < 0.1)
    model = LGBMRegressor(n_estimators=30, num_leaves=8, verbose=-1, n_jobs=1).fit(
        X[:1500][keep], y[:1500][keep]
    )
    tracer = lt.Tracer(model, X[:1500][keep], y[:1500][keep], n_jobs=1)
    found = mismatch(tracer, X[1500:], y[1500:], [], bins=4)
    assert len(found.table) == 4
    up = found.table[found.table.direction == "increase the weight"]
    assert up.iloc[0].group == found.table.group[found.table.group.str.startswith("y >= ")].item()
    assert found.improved
    named = mismatch(tracer, X[1500:], y[1500:], ["y"], bins=2, retrain=False)
    assert all(
        re.fullmatch(r"y (<|>=) \S+ and the label (<|>=) \S+", name) for name in named.table.group
    )
    assert not named.improved
    assert named.advice.startswith("Not retrained")
    assert named.effects.retrained.isna().all()
    assert (named.effects.low < named.effects.refitted).all()


def test_arrays_and_text_labels():
    X, y, _ = filtered(*draw(2000, 0))
    X_test, y_test = draw(1500, 7)
    arrays = [np.column_stack([x[["a", "b", "c"]], x["kind"] == "red"]) for x in (X, X_test)]
    labels = np.where(y == 1, "yes", "no")
    model = LGBMClassifier(n_estimators=30, num_leaves=8, verbose=-1, n_jobs=1).fit(
        arrays[0], labels
    )
    tracer = lt.Tracer(model, arrays[0], labels, n_jobs=1)
    found = mismatch(tracer, arrays[1], np.where(y_test == 1, "yes", "no"), [3])
    assert found.table.group[0] == "column 3 = 1 and y = yes"
    assert found.improved


def test_descent_lowers_the_refitted_loss():
    X, y, weight = filtered(*draw(1000, 0))
    tracer = lt.Tracer(trained(MAKERS["LightGBM"], X, y, weight), X, y, weight, n_jobs=1)
    X_test, y_test = draw(800, 7)
    code = ((X["kind"] == "red") & (y == 1)).to_numpy(int)

    def loss(f):
        return tracer.refit(sample_weight=weight * f[code]).loss(X_test, y_test).mean()

    W = np.bincount(code, weight)
    high = np.linspace(1, 5, 41)  # the total weight is fixed, so there is one number to choose
    curve = [loss(np.array([1 - (h - 1) * W[1] / W[0], h])) for h in high]
    f, interrupted = descend(tracer, X_test, y_test, code, 5.0, 20, TimeLimit(None))
    assert not interrupted
    assert loss(f) - min(curve) < 0.02 * (
        curve[0] - min(curve)
    )  # the last steps gain less than 1 % each


def test_interrupts(monkeypatch):
    _, tracer, X_test, y_test = case("LightGBM")
    whole = mismatch(tracer, X_test, y_test, ["kind"], steps=3, retrain=False)

    def stop(self, *args, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lt.Tracer, "retrain", stop)
        found = mismatch(tracer, X_test, y_test, ["kind"], steps=3)
    np.testing.assert_array_equal(found.sample_weight, whole.sample_weight)
    assert found.model is None
    assert not found.improved
    assert found.advice.startswith("Not retrained")
    slopes_at = Engine.slopes_at
    calls = []

    def second(self, *args):
        calls.append(1)
        return stop(self) if len(calls) == 2 else slopes_at(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "slopes_at", second)
        found = mismatch(tracer, X_test, y_test, ["kind"], steps=3)
    assert found.judged[0].refitted < 0  # the first step stays
    assert found.model is None
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "slopes_at", stop)
        found = mismatch(tracer, X_test, y_test, ["kind"], steps=3)
    assert found.advice.startswith("Interrupted")
    np.testing.assert_array_equal(found.sample_weight, tracer.sample_weight)


def test_weights_of_rows_held_out():
    """Rows held out by early stopping keep their weights; otherwise retraining would get zeros."""
    _, tracer, *_ = case("scikit-learn")
    given = filtered(*draw(1500, 0))[2]
    np.testing.assert_array_equal(tracer.sample_weight, given)
    other = given * np.random.default_rng(0).uniform(0.5, 2.0, len(given))
    followed = tracer.follow(tracer.retrain(sample_weight=other))
    np.testing.assert_array_equal(followed.sample_weight, other)


def test_prints():
    _, tracer, X_test, y_test = case("LightGBM")
    found = mismatch(tracer, X_test, y_test, "kind", retrain=False)
    changes = ["change", "verdict", "measured", "predicted", "refitted", "retrained"]
    assert list(found.effects.columns[:9]) == ["of", "before", "after", *changes]
    assert "kind = red and y = 1" in repr(found)
    assert "<table" in found._repr_html_()


def test_errors():
    _, tracer, X_test, y_test = case("LightGBM")
    for problem, arguments in (
        (
            "features names the column 'age', but the columns are 'a', 'b', 'c', 'kind'",
            {"features": ["age"]},
        ),
        ("by is 'leaf'", {"by": "leaf"}),
        ("by='values' needs features", {"by": "values"}),
        ("max_factor is 1.0", {"max_factor": 1.0}),
        ("steps is 0", {"steps": 0}),
        ("bins is 1", {"features": ["a"], "bins": 1}),
    ):
        with pytest.raises(lt.InvalidInput, match=re.escape(problem)):
            mismatch(tracer, X_test, y_test, **arguments)
    with pytest.raises(lt.InvalidInput, match="X_test has 79 rows; pass at least 80"):
        mismatch(tracer, X_test[:79], y_test[:79])
    with pytest.raises(lt.InvalidInput, match="y_test has 3 values"):
        mismatch(tracer, X_test, y_test[:3])
    with pytest.raises(lt.InvalidInput, match="does not know"):
        mismatch(tracer, X_test, np.full(len(y_test), 9))
    with pytest.raises(lt.InvalidInput, match="pass a leaftrace"):
        mismatch(None, X_test, y_test)
    other, median, *_ = prepared("scikit-learn: HistGradientBoosting, quantile, weights")
    with pytest.raises(lt.UnsupportedModel, match="derivative"):
        mismatch(median, other.data.X_test, other.data.y_test)


def test_pools_have_no_columns():
    X, y = draw(400, 0)
    model = CatBoostClassifier(
        iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1
    )
    pool = Pool(X[["a", "b"]], y)
    tracer = lt.Tracer(model.fit(pool), pool, n_jobs=1)
    with pytest.raises(
        lt.InvalidInput, match="X_train is a Pool, whose columns are not known here"
    ):
        mismatch(tracer, X[["a", "b"]], y)
    assert len(mismatch(tracer, X[["a", "b"]], y, [], retrain=False).table) == 2
