"""What to label next: scores and choices against their definitions.

Effects are compared with the oracle with the rows added, and with training again."""

from dataclasses import replace

import numpy as np
import oracle
import pandas as pd
import pytest
from catboost_models import case as catboost_case
from catboost_models import tracer_of
from contract import accuracy, prepared
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import stats
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._actions.acquire import acquire

# Class weights of several kinds, classes and numbers; the test rows are the pool as well.
SETTINGS = [
    "CatBoost: logloss, weights, class weights",
    "LightGBM: LGBMClassifier, balanced, scale_pos_weight, weights",
    "LightGBM: multiclass, class_weight, weights, l1, l2, max_delta_step",
    "LightGBM: poisson, weights, l2",
    "XGBoost: scale_pos_weight, weights",
    "scikit-learn: HistGradientBoosting, balanced classes, weights and l2",
]


@pytest.fixture(params=SETTINGS)
def setting(request):
    return prepared(request.param)


def extended(case, structure, test_steps, rows, codes):
    """Return the oracle's structure with these test rows added under these labels, and all labels."""
    steps = [
        [(np.r_[ids, new[rows]], L, o) for (ids, L, o), (new, _, _) in zip(step, test, strict=True)]
        for step, test in zip(structure.steps, test_steps, strict=True)
    ]
    factor = np.broadcast_to(structure.class_weight, len(case.w))
    new = [max(factor[case.data.codes == code], default=1.0) for code in codes]
    return replace(structure, steps=steps, class_weight=np.r_[factor, new]), np.r_[
        case.data.codes, codes
    ]


def test_effects_of_labels_are_slopes_of_a_refit(setting):
    """Also with class weights: a row has the weight of its class."""
    case, tracer, structure, test_steps = setting
    X = case.data.X_test
    y = case.data.y_test
    found = acquire(tracer, X, X, y, k=2)
    codes = range(len(tracer.classes)) if tracer.classes is not None else []
    for label, effects in zip(codes, found.by_label.values(), strict=False):
        for row, effect in zip(found.rows, effects, strict=True):
            both, labels = extended(case, structure, test_steps, [row], [float(label)])

            def loss_at(dw, both=both, labels=labels):
                fitted = oracle.refit(both, labels, np.r_[case.w, dw], n=len(case.w))
                return structure.loss_of(
                    oracle.predict(structure, fitted, test_steps), case.data.test_codes
                ).mean()

            scale = np.abs(tracer.influence(X, y, reduce="mean").values).max()
            assert effect == pytest.approx(
                oracle.slope(loss_at, 2e-3), abs=10 * accuracy(case) * scale
            )


def test_scores_and_choice(setting):
    """Compare with the definition, in a plain loop over rows and trees."""
    case, tracer, _, test_steps = setting
    X = case.data.X_test
    y = case.data.y_test
    k = 7
    found = acquire(tracer, X, X, y, k, diversity=1.5)
    if tracer.classes is not None:
        p = case.model.predict_proba(X) if hasattr(case.model, "predict_proba") else proba(case, X)
        labels = [np.full(len(y), c) for c in tracer.classes]
        names = [str(c) for c in tracer.classes]
        assert [str(v) for v in found.expected_label] == [
            names[c] for c in p.argmax(axis=1)[found.rows]
        ]
    else:
        mean = np.exp(case.raw(case.model, X).ravel())
        sd = np.sqrt(np.mean((mean - y) ** 2))
        labels = [np.clip(mean + s * sd, case.data.y.min(), case.data.y.max()) for s in (-1, 1)]
        p = np.full((len(y), 2), 0.5)
        names = ["low", "high"]
        np.testing.assert_allclose(found.expected_label, mean[found.rows], rtol=1e-6)
    effects = np.stack(
        [tracer.score_candidates(X, X, y, c, reduce="mean").values[:, 0] for c in labels], axis=1
    )
    score = np.sqrt((p * effects**2).sum(axis=1))
    np.testing.assert_allclose(found.scores, score, rtol=1e-5)
    assert list(found.by_label) == names
    ids = np.array([tree[0] for step in test_steps for tree in step])  # (trees, m)
    chosen = []
    for i in range(k):
        similarity = [
            max((np.mean(ids[:, x] == ids[:, c]) for c in chosen), default=0.0)
            for x in range(len(y))
        ]
        worth = [
            -1 if x in chosen else found.scores[x] * (1 - similarity[x]) ** 1.5
            for x in range(len(y))
        ]
        chosen.append(int(np.argmax(worth)))
        assert found.similarity[i] == pytest.approx(similarity[chosen[-1]])
    assert list(found.rows) == chosen
    plain = acquire(tracer, X, X, y, k, diversity=0)
    assert list(plain.rows) == list(np.argsort(-found.scores, kind="stable")[:k])


def proba(case, X):
    """Return the probabilities of a bare LightGBM booster."""
    p = case.model.predict(X)
    return p if p.ndim == 2 else np.stack([1 - p, p], axis=1)


def test_effects_of_labels_through_soft_splits():
    case, tracer, *_ = prepared(SETTINGS[1])
    X = case.data.X_test
    y = case.data.y_test
    soft = lt.StructureInfluence()
    found = acquire(tracer, X, X, y, 5, diversity=0, method=soft)
    p = case.model.predict_proba(X)
    effects = [
        tracer.score_candidates(X, X, y, np.full(len(y), c), method=soft, reduce="mean").values[
            :, 0
        ]
        for c in tracer.classes
    ]
    score = np.sqrt((p * np.transpose(effects) ** 2).sum(axis=1))
    np.testing.assert_allclose(found.scores, score, rtol=1e-4)  # passes in float32
    assert list(found.rows) == list(np.argsort(-found.scores, kind="stable")[:5])
    assert set(found.table["change_is"]) == {"first order, soft splits"}
    held = acquire(tracer, X, X, y, 5)
    assert np.abs(held.scores / found.scores - 1).max() > 0.01


def test_uncertainty():
    case, tracer, *_ = prepared(SETTINGS[1])
    X = case.data.X_test
    y = case.data.y_test
    found = acquire(tracer, X, X, y, 5, score="uncertainty", diversity=0)
    doubt = 1 - case.model.predict_proba(X).max(axis=1)
    np.testing.assert_allclose(found.scores, doubt, atol=1e-9)
    assert list(found.rows) == list(np.argsort(-doubt, kind="stable")[:5])


def test_check_against_the_oracle(setting):
    case, tracer, structure, test_steps = setting
    X = case.data.X_test
    y = case.data.y_test
    found = acquire(tracer, X, X, y, 4)
    assert found.effects is None
    rows = found.rows
    checked = found.check(y[rows], X, y, retrain=False)
    line = checked.effects.iloc[0]
    before = tracer.refit().loss(X, y).mean()
    assert line.before == pytest.approx(before)
    single = tracer.score_candidates(X[rows], X, y, y[rows], reduce="mean").values
    assert line.predicted == pytest.approx(single.sum(), rel=1e-6)
    both, labels = extended(case, structure, test_steps, rows, case.data.test_codes[rows])
    fitted = oracle.refit(both, labels, np.r_[case.w, np.ones(4)])
    expected = (
        structure.loss_of(
            oracle.predict(structure, fitted, test_steps), case.data.test_codes
        ).mean()
        - before
    )
    assert line.refitted == pytest.approx(expected, abs=1e-5 * abs(before))
    assert np.isnan(line.retrained)
    assert checked.advice.startswith("Not retrained")


def blobs(n, which, rng):
    """Return rows of two regions, each with its own rule for labels."""
    where = rng.choice(which, n)
    X = rng.normal(size=(n, 3)) + np.c_[8 * where, np.zeros(n), np.zeros(n)]
    y = np.where(where == 0, X[:, 1] > 0, X[:, 2] > 0).astype(int)
    return X, np.where(rng.random(n) < 0.05, 1 - y, y), where


def test_a_region_without_labels_is_asked_for():
    """A model trained almost only on one region should ask for rows of the other, and gain by them."""
    rng = np.random.default_rng(0)
    X, y, _ = blobs(300, [0] * 19 + [1], rng)
    X_pool, y_pool, where = blobs(600, [0, 1], rng)
    model = LGBMClassifier(
        n_estimators=30, num_leaves=7, min_child_samples=5, verbosity=-1, n_jobs=1
    ).fit(X, y)
    found = acquire(lt.Tracer(model, X, y), X_pool, *blobs(300, [0, 1], rng)[:2], k=20)
    assert where[found.rows].mean() > 0.7
    checked = found.check(y_pool[found.rows], *blobs(2000, [0, 1], rng)[:2])
    assert checked.outcome.retrained < 0
    assert checked.advice.startswith("Keep them")
    wrong = found.check(rng.permutation(y_pool[found.rows]), *blobs(2000, [0, 1], rng)[:2])
    assert wrong.outcome.retrained > checked.outcome.retrained
    assert "effects" in repr(checked)
    assert "20 of 600 rows to label next" in repr(checked)
    assert "change, first order" in checked._repr_html_()


def test_retrained_is_the_booster_with_the_rows_added():
    rng = np.random.default_rng(3)
    X, y, _ = blobs(200, [0, 1], rng)
    w = rng.random(200) + 0.3
    settings = {"n_estimators": 20, "num_leaves": 7, "verbosity": -1, "n_jobs": 1}
    old = LGBMClassifier(**settings).fit(X, y, w)
    tracer = lt.Tracer(old, X, y, w)
    X_pool, y_pool, _ = blobs(50, [0, 1], rng)
    found = acquire(tracer, X_pool, X, y, 10)
    rows = found.rows
    new = LGBMClassifier(**settings).fit(
        np.r_[X, X_pool[rows]], np.r_[y, y_pool[rows]], np.r_[w, np.ones(10)]
    )
    X_hold, y_hold, _ = blobs(300, [0, 1], rng)
    before, after = (-np.log(m.predict_proba(X_hold)[np.arange(300), y_hold]) for m in (old, new))
    checked = found.check(y_pool[rows], X_hold, y_hold)
    change = after - before
    assert checked.outcome.retrained == pytest.approx(change.mean(), abs=1e-6)
    low, high = stats.ttest_1samp(change, 0.0).confidence_interval(0.95)
    weak = "Not confirmed" if change.mean() < 0 else "No improvement"
    assert checked.advice.startswith("Keep them" if high < 0 else weak)
    assert f"{change.mean():+.4g} (95 % interval {low:+.3g} to {high:+.3g})" in checked.advice


def test_models_that_draw_rows_are_only_retrained():
    rng = np.random.default_rng(1)
    X, y, _ = blobs(300, [0, 1], rng)
    model = LGBMClassifier(
        n_estimators=10,
        num_leaves=7,
        subsample=0.7,
        subsample_freq=1,
        verbosity=-1,
        n_jobs=1,
        random_state=0,
    )
    tracer = lt.Tracer(model.fit(X, y), X, y)
    found = acquire(tracer, X[:50] + 0.1, X, y, 3).check([1, 0, 1], X, y)
    assert np.isnan(found.outcome.refitted)
    assert np.isfinite([found.outcome.predicted, found.outcome.retrained]).all()


def test_interrupted(monkeypatch):
    """Results finished before an interrupt are kept."""
    c = catboost_case("logloss newton 1")
    tracer = tracer_of(c)
    found = acquire(tracer, c.X_test, c.X_test, c.y_test, 3)

    def stop(**kw):
        raise KeyboardInterrupt

    monkeypatch.setattr(tracer, "retrain", stop)
    checked = found.check(c.y_test[found.rows], c.X_test, c.y_test)
    assert np.isfinite(checked.outcome.refitted)
    assert np.isnan(checked.outcome.retrained)
    assert checked.advice.startswith("Not retrained")


def test_names_and_labels_of_a_frame():
    c = catboost_case("categories and missing values")
    found = acquire(tracer_of(c), c.X_test, c.X_test, c.y_test, 4)
    table = found.table
    assert list(table.columns) == [
        "pool_row", "pool_position", "rank", "score", "similarity", "expected_label", "loss_change_if_no",
        "loss_change_if_yes", "change_is",
    ]  # fmt: skip
    assert list(table.pool_row) == list(c.X_test.index[found.rows]) == list(found.X_new.index)
    assert set(table.expected_label) <= {"no", "yes"}
    assert isinstance(found.X_new, pd.DataFrame)
    assert found.check(c.y_test[found.rows], c.X_test, c.y_test).outcome.retrained != 0


def test_numbers_of_fractions():
    """Labels of a cross-entropy model stay between 0 and 1."""
    c = catboost_case("cross entropy")
    found = acquire(tracer_of(c), c.X_test, c.X_test, c.y_test, 3)
    assert list(found.by_label) == ["low", "high"]
    p = 1 / (1 + np.exp(-c.model.predict(c.X_test, prediction_type="RawFormulaVal")))
    np.testing.assert_allclose(found.expected_label, p[found.rows], atol=1e-9)


def test_errors():
    c = catboost_case("logloss newton 1")
    tracer = tracer_of(c)
    args = (c.X_test, c.X_test, c.y_test)
    for k in (0, 21):
        with pytest.raises(lt.InvalidInput, match="ask for 1 to 20"):
            acquire(tracer, *args, k)
    with pytest.raises(lt.InvalidInput, match="diversity is -1"):
        acquire(tracer, *args, 2, diversity=-1)
    with pytest.raises(lt.InvalidInput, match="'effect' or, for classifiers"):
        acquire(tracer, *args, 2, score="entropy")
    with pytest.raises(lt.InvalidInput, match="needs the derivatives of all rows"):
        acquire(tracer, *args, 2, method=lt.LeafRefit())
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        acquire(c.model, *args, 2)
    with pytest.raises(lt.InvalidInput, match="y_test has 1 values"):
        acquire(tracer, c.X_test, c.X_test, [1], 2)
    with pytest.raises(lt.InvalidInput, match="y_new has 3 values"):
        acquire(tracer, *args, 2).check([0, 1, 1], *args[1:])
    number = catboost_case("rmse default rule")
    with pytest.raises(lt.InvalidInput, match="for classifiers"):
        acquire(
            tracer_of(number), number.X_test, number.X_test, number.y_test, 2, score="uncertainty"
        )
    X, y, _ = blobs(100, [0], np.random.default_rng(2))
    median = LGBMRegressor(objective="l1", n_estimators=3, verbosity=-1, n_jobs=1).fit(
        X, y + X[:, 0]
    )
    with pytest.raises(lt.UnsupportedModel, match="derivative"):
        acquire(lt.Tracer(median, X, y + X[:, 0]), X, X, y, 2)
    hinge = XGBClassifier(objective="binary:hinge", n_estimators=3, n_jobs=1).fit(X, y)
    with pytest.raises(lt.UnsupportedModel, match="no probabilities"):
        acquire(lt.Tracer(hinge, X, y), X, X, y, 2)
