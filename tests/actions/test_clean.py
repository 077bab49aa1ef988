"""Cleaning a training set: proposals of a round, when rounds end, the effect that is reported."""

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, Pool
from lightgbm import LGBMClassifier, LGBMRegressor
from raw_scores import raw_scores
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace._actions.clean.action import clean
from leaftrace._actions.clean.proposals import relabel, remove, reweight, worst
from leaftrace._actions.statistics import paired_interval

RNG = np.random.default_rng
NAMES = np.array(["no", "yes"], dtype=object)


def signal(X):
    return 2 * X[:, 0] * (X[:, 1] > 0) + np.sin(2 * X[:, 2]) - X[:, 3] ** 2 / 2


class Case:
    """A model of noisy training rows, with validation and hold-out rows that have true labels."""

    def __init__(self, model, X, y, truth, held, weight=None):
        self.truth = truth
        self.wrong = y != truth
        self.held = held
        self.model = model.fit(X, y) if weight is None else model.fit(X, y, sample_weight=weight)
        self.tracer = lt.Tracer(self.model, X, y, weight, n_jobs=1)


def parts(X, y, n):
    third = (len(y) - n) // 2
    take = X.iloc if hasattr(X, "iloc") else X
    return (
        take[:n],
        y[:n],
        (take[n : n + third], y[n : n + third], take[n + third :], y[n + third :]),
    )


def binary(model, noise=0.2, n=700, weighted=False, text=False, missing=False, seed=0):
    rng = RNG(seed)
    X = rng.normal(size=(n + 800, 5))
    y = (signal(X) > 0).astype(int)
    if missing:
        X[rng.random(X.shape) < 0.05] = np.nan
    X, truth, held = parts(X, NAMES[y] if text else y, n)
    flip = rng.random(n) < noise
    given = np.where(flip, NAMES[1 - y[:n]] if text else 1 - truth, truth)
    return Case(model, X, given, truth, held, rng.random(n) + 0.5 if weighted else None)


def regression(model, weighted=False):
    rng = RNG(1)
    X = pd.DataFrame(rng.normal(size=(1500, 5)), columns=list("abcde"))
    y = signal(X.to_numpy()) + 0.1 * rng.normal(size=1500)
    X, truth, held = parts(X, y, 700)
    given = np.where(rng.random(700) < 0.15, rng.permutation(truth) + 2, truth)
    return Case(model, X, given, truth, held, rng.random(700) + 0.5 if weighted else None)


def digits(model):
    """Return real data of four clearly different classes, with a fifth of the labels replaced."""
    X, y = load_digits(n_class=4, return_X_y=True)
    order = RNG(2).permutation(len(y))
    X, truth, held = parts(X[order], y[order], 360)
    rng = RNG(3)
    return Case(
        model,
        X,
        np.where(rng.random(360) < 0.2, (truth + rng.integers(1, 4, 360)) % 4, truth),
        truth,
        held,
    )


LIGHT = {"n_estimators": 25, "num_leaves": 15, "verbose": -1, "n_jobs": 1}
EXTREME = {"n_estimators": 25, "max_depth": 4, "n_jobs": 1}
CAT = {"iterations": 30, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
CASES = {
    "lightgbm": lambda: binary(LGBMClassifier(**LIGHT)),
    "catboost, text, weights, class weights, missing": lambda: binary(
        CatBoostClassifier(**CAT, class_weights=[1.0, 2.0]), weighted=True, text=True, missing=True
    ),
    "xgboost, four classes": lambda: digits(XGBClassifier(**EXTREME)),
    "xgboost regression, weights": lambda: regression(XGBRegressor(**EXTREME), weighted=True),
    "sklearn, early stopping": lambda: binary(
        HistGradientBoostingClassifier(
            max_iter=60, early_stopping=True, random_state=0, max_leaf_nodes=15
        )
    ),
    "lightgbm regression": lambda: regression(LGBMRegressor(**LIGHT)),
}


@lru_cache
def case(name):
    return CASES[name]()


@lru_cache
def cleaned(name, action="remove", **kw):
    c = case(name)
    return clean(c.tracer, *c.held, action=action, **kw)


# ---- the whole ----


@pytest.mark.parametrize(
    ("name", "action"),
    [
        *[("lightgbm", action) for action in ("remove", "relabel", "reweight", "auto")],
        *[
            ("catboost, text, weights, class weights, missing", action)
            for action in ("relabel", "reweight")
        ],
        *[("xgboost, four classes", action) for action in ("remove", "reweight")],
        *[("xgboost regression, weights", action) for action in ("remove", "reweight")],
        ("sklearn, early stopping", "auto"),
        ("lightgbm regression", "relabel"),
    ],
)
def test_it_finds_wrong_labels_and_improves_the_model(name, action):
    c = case(name)
    found = cleaned(name, action)
    assert found.improved, found
    assert found.interval[1] < 0
    assert "No improvement" not in found.advice
    if action != "reweight":  # which moves all rows
        assert c.wrong[found.rows].mean() > 2 * c.wrong.mean()
    if action == "relabel" and c.tracer.classes is not None:
        assert (found.labels == c.truth).mean() > (c.tracer.y_train == c.truth).mean()
    if action == "reweight":
        assert found.sample_weight[c.wrong].sum() < 0.9 * c.tracer.sample_weight[c.wrong].sum()
    again = c.tracer.retrain(found.without, y=found.labels, sample_weight=found.sample_weight)
    np.testing.assert_allclose(found.model.scores(c.held[2]), again.scores(c.held[2]), atol=1e-6)
    refitted = c.tracer.refit(found.without, y=found.labels, sample_weight=found.sample_weight)
    levels = [model.loss(*c.held[2:]).mean() for model in (c.tracer.refit(), refitted, again)]
    if "regression" in name:  # in the unit of the labels
        levels = [np.sqrt(2 * level) for level in levels]
    line = found.effects.iloc[0]
    np.testing.assert_allclose(line.refitted, levels[1] - levels[0], rtol=1e-6)
    np.testing.assert_allclose([line.before, line.after], [levels[0], levels[2]], rtol=1e-6)
    assert (line.measured, line.verdict) == ("retrained", "better")


def test_the_promise_is_that_of_the_library():
    """Hold-out losses before and after equal those of models that LightGBM itself trains."""
    c = case("lightgbm")
    found = cleaned("lightgbm")
    X = c.tracer.X_train
    y = c.tracer.y_train
    (_, _, X_new, y_new) = c.held
    keep = np.delete(np.arange(len(y)), found.without)

    def losses(rows):
        p = LGBMClassifier(**LIGHT).fit(X[rows], y[rows]).predict_proba(X_new)
        return -np.log(p[np.arange(len(y_new)), y_new])

    before = losses(np.arange(len(y)))
    after = losses(keep)
    np.testing.assert_allclose(found.effects.before[0], before.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.effects.retrained[0], (after - before).mean(), rtol=1e-5)
    test = stats.ttest_1samp(after - before, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(found.interval, test, rtol=1e-4)
    np.testing.assert_array_equal(found.rows, found.without)


@pytest.mark.parametrize("seed", range(4))
def test_clean_data_stay_as_they_are(seed):
    c = binary(LGBMClassifier(**LIGHT), noise=0.0, seed=seed)
    found = clean(c.tracer, *c.held)
    assert not found.improved
    assert found.advice.startswith(("No improvement", "Not confirmed"))
    assert not len(found.rows)
    assert not len(found.without)
    assert found.model is None
    np.testing.assert_array_equal(found.labels, c.tracer.y_train)
    np.testing.assert_array_equal(found.sample_weight, c.tracer.sample_weight)
    assert found.rounds
    assert str(found).count("\n") > len(found.rounds)


# ---- which rows choose, which rows judge ----


def test_the_hold_out_has_no_part_in_the_choice():
    c = case("lightgbm")
    found = cleaned("lightgbm", "auto")
    X_val, y_val, X_new, y_new = c.held
    other = clean(c.tracer, X_val, y_val, X_new[::2], 1 - y_new[::2], action="auto")
    assert not other.improved  # true rows do not help to predict wrong labels
    assert not len(other.rows)
    assert len(other.rounds) == len(found.rounds)
    for a, b in zip(found.rounds, other.rounds, strict=True):
        assert (a.action, a.share, a.rows, a.validation_loss, a.judged) == (
            b.action, b.share, b.rows, b.validation_loss, b.judged,
        )  # fmt: skip
        np.testing.assert_array_equal(a.change.removed, b.change.removed)
        np.testing.assert_array_equal(a.change.y, b.change.y)


def test_a_half_of_the_validation_rows_chooses_and_the_other_judges():
    c = case("lightgbm")
    found = cleaned("lightgbm")
    X, y = c.held[:2]
    order = RNG(0).permutation(len(y))
    halves = order[: len(y) // 2], order[len(y) // 2 :]
    before = c.tracer.refit().loss(X, y)
    for turn, r in enumerate(found.rounds):
        after = c.tracer.retrain(r.change).loss(X, y)
        judging = halves[1 - turn % 2]
        np.testing.assert_allclose(r.judged, (after - before)[judging].mean(), rtol=1e-9)
        np.testing.assert_allclose(r.validation_loss, after.mean(), rtol=1e-9)
        before = after if r.kept else before
    other = y.copy()
    other[halves[1]] = 1 - other[halves[1]]
    first = clean(c.tracer, X, other, *c.held[2:], max_rounds=1).rounds[0]
    np.testing.assert_array_equal(first.change.removed, found.rounds[0].change.removed)
    assert first.judged > 0
    assert not first.kept


def test_rounds_go_on_while_they_help_and_the_last_kept_is_the_answer():
    found = cleaned("lightgbm")
    kept = [r.kept for r in found.rounds]
    assert kept == [r.judged < 0 for r in found.rounds]
    assert kept.count(False) == 3
    assert not kept[-1]
    for turn, r in enumerate(found.rounds):
        assert r.share == 0.03 / 2 ** kept[:turn].count(False)
    last = [r for r in found.rounds if r.kept][-1]
    np.testing.assert_array_equal(found.without, last.change.removed)
    assert found.model.rows.keep.size == len(found.labels) - last.rows
    assert len(found.table) == len(kept)
    few = clean(case("lightgbm").tracer, *case("lightgbm").held, max_rounds=2)
    assert [r.rows for r in few.rounds] == [r.rows for r in found.rounds[:2]]


def test_auto_takes_what_a_refit_finds_better_for_the_half_that_judges():
    c = case("lightgbm")
    first = cleaned("lightgbm", "auto").rounds[0]
    X, y = c.held[:2]
    order = RNG(0).permutation(len(y))
    proposing = np.sort(order[: len(y) // 2])
    judging = np.sort(order[len(y) // 2 :])
    refitted = {
        action: c.tracer.refit(propose(c.tracer, X[proposing], y[proposing], 0.03))
        .loss(X[judging], y[judging])
        .mean()
        for action, propose in (("remove", remove), ("relabel", relabel))
    }
    assert first.action == min(refitted, key=lambda action: refitted[action])


def test_pools_are_tables_with_labels():
    c = case("catboost, text, weights, class weights, missing")
    X_val, y_val, X_new, y_new = c.held
    plain = clean(c.tracer, *c.held, max_rounds=2)
    tracer = lt.Tracer(
        c.model, Pool(c.tracer.X_train, c.tracer.y_train, weight=c.tracer.sample_weight), n_jobs=1
    )
    pooled = clean(tracer, Pool(X_val, y_val), None, Pool(X_new, y_new), None, max_rounds=2)
    np.testing.assert_array_equal(pooled.without, plain.without)
    np.testing.assert_allclose(pooled.interval, plain.interval, rtol=1e-6)


@pytest.mark.parametrize("finished", [0, 2])
def test_an_interrupt_leaves_what_was_finished(monkeypatch, finished):
    c = case("lightgbm")
    whole = cleaned("lightgbm")
    calls = []
    retrain = lt.Tracer.retrain

    def interrupted(self, *args, **kw):
        calls.append(1)
        if len(calls) > finished:
            raise KeyboardInterrupt
        return retrain(self, *args, **kw)

    monkeypatch.setattr(lt.Tracer, "retrain", interrupted)
    found = clean(c.tracer, *c.held)
    assert found.interrupted
    assert found.advice.startswith("Interrupted after")
    assert len(found.rounds) == finished
    assert found.improved == (finished > 0)
    if finished:
        np.testing.assert_array_equal(found.without, whole.rounds[finished - 1].change.removed)


def test_the_interval_covers_what_it_says():
    """Check the coverage on normal differences of losses, and on skewed ones mostly near zero."""
    rng = RNG(5)
    draws = {
        "normal": lambda m: rng.normal(0.3, 1.0, m),
        "skewed": lambda m: np.where(
            rng.random(m) < 0.7, 0.1 * rng.normal(size=m), rng.exponential(1.0, m)
        ),
    }
    for name, mean, m in (("normal", 0.3, 20), ("normal", 0.3, 200), ("skewed", 0.3, 400)):
        intervals = [paired_interval(draws[name](m)) for _ in range(3000)]
        covered = np.mean([low < mean < high for low, high in intervals])
        assert 0.935 < covered < 0.965, (
            name,
            m,
            covered,
        )  # three standard errors of the simulation


# ---- what a round proposes ----


def test_the_worst_rows_are_those_of_the_largest_first_order_gain():
    c = case("catboost, text, weights, class weights, missing")
    X, y = c.held[:2]
    slopes = c.tracer.influence(X, y, reduce="mean").values[:, 0] * c.tracer.sample_weight
    rows = worst(c.tracer, X, y, 0.05)
    assert len(rows) == 35
    np.testing.assert_array_equal(rows, np.argsort(-slopes)[:35])
    np.testing.assert_array_equal(remove(c.tracer, X, y, 0.05).removed, np.sort(rows))
    every = worst(c.tracer, X, y, 1.0)
    assert set(every) == set(np.flatnonzero(slopes > 0))


def test_no_class_loses_its_last_rows():
    rng = RNG(7)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    y[:4] = 2  # the validation rows lack one class, so all training rows of that class do harm
    model = LGBMClassifier(**LIGHT, min_child_samples=2).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    X_val = X[4:]
    y_val = y[4:]
    harm = tracer.influence(X_val, y_val, reduce="mean").values[:4, 0]
    assert (harm > 0).all()
    rows = worst(tracer, X_val, y_val, 1.0)
    assert set(rows[rows < 4]) == set(np.argsort(-harm)[:2])
    found = clean(tracer, X_val, y_val, X_val, y_val, batch=0.5)
    for r in found.rounds:
        assert np.count_nonzero(np.delete(y, r.change.removed) == 2) >= 2


def test_new_labels_are_those_of_the_model_without_the_rows():
    c = case("catboost, text, weights, class weights, missing")
    rows = worst(c.tracer, *c.held[:2], 0.1)
    labels = relabel(c.tracer, *c.held[:2], 0.1).y
    p = c.tracer.refit(without=rows).predict_proba(c.tracer.X_train[rows])
    np.testing.assert_array_equal(labels[rows], np.where(p[:, 1] > 0.5, "yes", "no"))
    rest = np.delete(np.arange(len(labels)), rows)
    np.testing.assert_array_equal(labels[rest], c.tracer.y_train[rest])
    c = case("lightgbm regression")
    rows = worst(c.tracer, *c.held[:2], 0.1)
    labels = relabel(c.tracer, *c.held[:2], 0.1).y
    np.testing.assert_allclose(
        labels[rows], raw_scores(c.tracer.refit(without=rows), c.tracer.X_train)[rows], rtol=1e-6
    )
    assert (
        np.abs(labels - c.truth)[c.wrong].mean()
        < np.abs(c.tracer.y_train - c.truth)[c.wrong].mean()
    )


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_weights_move_along_the_gradient_within_their_bounds(share):
    c = case("xgboost regression, weights")
    w = c.tracer.sample_weight
    slopes = c.tracer.influence(*c.held[:2], reduce="mean").values[:, 0].astype(float)
    slopes -= w @ slopes / w.sum()
    new = reweight(c.tracer, *c.held[:2], share, w, 2.0).sample_weight
    assert new.min() >= 0
    assert (new <= 2 * w).all()
    if share < 0.9:
        np.testing.assert_allclose(np.abs(new - w).sum(), share * w.sum(), rtol=1e-6)
    inside = (new > 0) & (new < 2 * w)
    step = (w - new)[inside] / (w * slopes)[inside]
    np.testing.assert_allclose(step, np.median(step), rtol=1e-4)
    assert (np.sign(new - w) == -np.sign(slopes)).all()


# ---- bad input ----


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": "mend"}, "'relabel'"),
        ({"batch": 0.0}, "share of the training rows"),
        ({"batch": 3}, "share of the training rows"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"cap": 0.5}, "cap is 0.5"),
        ({"y_val": None}, "y_val is missing"),
        ({"y_holdout": [1]}, "y_holdout has 1 values"),
        ({"y_holdout": np.full(400, 7)}, "y_holdout has label"),
        ({"X_val": np.zeros((5, 5)), "y_val": np.zeros(5)}, "at least 20"),
        ({"X_holdout": np.zeros((400, 4))}, "4 columns"),
        ({"tracer": "model"}, "leaftrace.Tracer"),
    ],
)
def test_bad_input_is_refused_before_the_work(monkeypatch, change, words):
    c = case("lightgbm")
    monkeypatch.setattr(lt.Tracer, "retrain", lambda *_: pytest.fail("retrained"))
    given = dict(
        zip(
            ("tracer", "X_val", "y_val", "X_holdout", "y_holdout"), (c.tracer, *c.held), strict=True
        )
    )
    with pytest.raises(lt.InvalidInput, match=words):
        clean(**(given | change))


def test_models_without_derivatives_are_refused():
    X = RNG(0).normal(size=(200, 3))
    model = LGBMRegressor(**LIGHT, objective="mae").fit(X, X[:, 0])
    with pytest.raises(lt.UnsupportedModel, match="derivative"):
        clean(lt.Tracer(model, X, X[:, 0]), X, X[:, 0], X, X[:, 0])
