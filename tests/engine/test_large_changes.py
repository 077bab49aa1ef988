"""Removals that change a model beyond recognition, where differences of scores lose their digits.

The models explode: learning rate 1, no l2, few positive labels, weights over decades."""

from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import oracle
import pytest
from catboost import CatBoostClassifier
from lightgbm_structure import structure
from raw_scores import raw_scores
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._adapters.catboost.losses import Expectile
from leaftrace._engine.large_changes import _jumps_of
from leaftrace._model.general_losses import Hinge

EXPLODING = {
    "learning_rate": 1.0,
    "lambda_l2": 0.0,
    "min_data_in_leaf": 5,
    "num_leaves": 8,
    "verbosity": -1,
    "num_threads": 1,
    "force_row_wise": True,
}


def rare(seed, positives):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5))
    y = np.zeros(300)
    y[np.argsort(X[:, 0] + rng.normal(size=300))[-positives:]] = 1
    return X, y


def fractions(seed, decades):
    """Return rows with labels from 0 to 1 and weights from 10 ** -decades to 10 ** decades."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5))
    y = 1 / (1 + np.exp(-X[:, 0] - rng.normal(size=300)))
    w = 10 ** rng.uniform(-decades, decades, 300)
    return X, np.float32(y).astype(float), np.float32(w).astype(float)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_removals_are_those_of_lightgbms_own_refit(dtype):
    X, y = rare(2, 15)
    settings = {**EXPLODING, "objective": "binary", "boost_from_average": False}
    model = lgb.train(settings, lgb.Dataset(X, y), 15)
    tracer = lt.Tracer(model, X, y, dtype=dtype)
    assert np.abs(tracer.engine.ensemble.values).max() > 100  # it has exploded
    rows = np.flatnonzero(y)[:8]
    before = model.predict(X, raw_score=True)
    own = []
    for row in rows:
        keep = np.arange(300) != row
        again = model.refit(X[keep], y[keep], decay_rate=0.0).predict(X, raw_score=True)
        np.testing.assert_allclose(
            raw_scores(tracer.refit(without=[row]), X), again, atol=1e-11 * np.abs(again).max()
        )
        own.append(again - before)
    found = -tracer.influence(X, of="prediction", method=lt.LeafRefit(), rows=rows).values
    changes = np.array(own)
    assert np.abs(changes).max() > 20
    # The results are float32 numbers.
    error = np.abs(found - changes).max(axis=1) / np.abs(changes).max(axis=1)
    assert error.max() < 1e-5
    sets = [np.array([row]) for row in rows]
    scores = np.array(list(tracer.engine.scores_without(sets, X[:8], "refits")))[:, 0]
    wanted = before[:8] + np.diagonal(changes[:, :8])
    np.testing.assert_allclose(scores, wanted, atol=1e-5 * np.abs(before).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (rare(1, 7), {"objective": "binary", "data_sample_strategy": "goss"}),
        (fractions(1, 2), {"objective": "cross_entropy", "bagging_freq": 1}),
        (fractions(3, 3), {"objective": "cross_entropy", "bagging_freq": 1}),
    ],
)
def test_rows_one_by_one_are_removed_as_in_a_group(data, settings, dtype):
    X, y, *weights = data
    weight = weights[0] if weights else None
    more = {**EXPLODING, "bagging_fraction": 0.6 if "bagging_freq" in settings else 1.0, **settings}
    model = lgb.train(more, lgb.Dataset(X, y, weight=weight), 20)
    tracer = lt.Tracer(model, X, y, weight, dtype=dtype)
    rows = np.random.default_rng(0).choice(300, 8, replace=False)
    before = raw_scores(tracer.refit(without=[]), X)
    expected = np.array([raw_scores(tracer.refit(without=[row]), X) - before for row in rows])
    found = -tracer.influence(X, of="prediction", method=lt.LeafRefit(), rows=rows).values
    size = np.abs(expected).max(axis=1)
    # Rows that change next to nothing have the rounding of the scores, which are large.
    error = np.abs(found - expected).max(axis=1) / np.maximum(size, 1e-4 * np.abs(before).max())
    assert size.max() > 50
    assert error.max() < 1e-5


def oracle_scores(program, y, steps):
    """Return the oracle's scores after a refit. Its exp may overflow, which is the right limit of a sigmoid."""
    with np.errstate(over="ignore"):
        return oracle.predict(program, oracle.refit(program, y, np.ones(len(y))), steps)[:, 0]


@pytest.mark.parametrize("seed", [1, 4])
def test_groups_are_removed_from_goss_as_by_the_oracle(seed):
    X, y = rare(seed, 7)
    settings = {**EXPLODING, "objective": "binary", "data_sample_strategy": "goss"}
    model = lgb.train(settings, lgb.Dataset(X, y), 20)
    tracer = lt.Tracer(model, X, y)
    rows = SimpleNamespace(X=X, codes=y, X_test=X)
    case = SimpleNamespace(model=model, data=rows, weight=None, baseline=None, w=np.ones(300))
    with np.errstate(over="ignore"):
        program, steps = structure(case, **settings)
    before = model.predict(X, raw_score=True)
    again = oracle_scores(program, y, steps)
    np.testing.assert_allclose(again, before, atol=1e-6 * np.abs(before).max())  # float32 gradients
    rng = np.random.default_rng(0)
    positives = np.flatnonzero(y)
    changes = []
    for size in (1, 8, 30):
        group = np.union1d(rng.choice(300, size, replace=False), positives[: size // 8])
        keep = np.setdiff1d(np.arange(300), group)
        expected = oracle_scores(program.rows(keep), y[keep], steps)
        changes.append(np.abs(expected - before).max())
        found = tracer.refit(without=group).scores(X)[:, 0]
        # The refit rounds gradients to float32, as LightGBM does, and the scores are large.
        np.testing.assert_allclose(found, expected, atol=1e-4 * changes[-1])
    assert max(changes) > 1000


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("l2", [0, 1e-3])
def test_softmax_leaves_with_next_to_no_l2(l2, dtype):
    """All scores of a row may rise together, which only l2 prevents; sums in float32 must not do it."""
    X, _, w = fractions(1, 2)
    rng = np.random.default_rng(1)
    y = np.digitize(X[:, 0] + rng.normal(size=300), [-2.0, 2.0])
    settings = {"iterations": 15, "depth": 3, "learning_rate": 1.0, "l2_leaf_reg": l2}
    quiet = {"logging_level": "Silent", "allow_writing_files": False, "thread_count": 1}
    model = CatBoostClassifier(loss_function="MultiClass", **settings, **quiet)
    model.fit(X, y, sample_weight=w)
    tracer = lt.Tracer(model, X, y, w, dtype=dtype)
    rows = rng.choice(300, 10, replace=False)
    before = tracer.refit(without=[]).scores(X)[:, 1]
    expected = np.array([tracer.refit(without=[row]).scores(X)[:, 1] - before for row in rows])
    ask = {"of": "prediction", "output": 1, "rows": rows}
    found = -tracer.influence(X, method=lt.LeafRefit(), **ask).values
    # Sums of float32 numbers over weights of four decades; without the care, they are off by 3.9.
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_only_row_of_a_class():
    """Without it next to nothing is left of the leaves of its class, whose sums training rounded to float32."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.array([0, *[1, 2] * 5, 1])
    model = XGBClassifier(
        n_estimators=3, max_depth=2, reg_lambda=0.0, min_child_weight=0.0, n_jobs=1
    )
    tracer = lt.Tracer(model.fit(X, y), X, y, dtype="float64")
    expected = tracer.refit(without=[0]).scores(X)[:, 0] - tracer.refit(without=[]).scores(X)[:, 0]
    ask = {"of": "prediction", "output": 0, "rows": [0]}
    found = -tracer.influence(X, method=lt.LeafRefit(), **ask).values[0]
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_that_come_to_lie_where_the_gradient_jumps(dtype):
    """Without a row the starting score is 1 or -1, and with leaves of zero that is where hinge loss has its kink."""
    X = np.random.default_rng(2).normal(size=(20, 4))
    y = np.arange(20) % 2
    model = XGBClassifier(
        objective="binary:hinge",
        n_estimators=8,
        max_depth=3,
        reg_alpha=2.0,
        subsample=0.8,
        n_jobs=1,
    )
    tracer = lt.Tracer(model.fit(X, y), X, y, dtype=dtype)
    before = tracer.refit(without=[]).scores(X)[:, 0]
    expected = np.array([tracer.refit(without=[row]).scores(X)[:, 0] - before for row in range(20)])
    found = -tracer.influence(X, of="prediction", method=lt.LeafRefit()).values
    # Refits and differences round float32 numbers differently; without the care, they are 0.17 apart.
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_update_sets_do_not_follow_large_changes():
    X, y = rare(1, 7)
    settings = {**EXPLODING, "objective": "binary", "data_sample_strategy": "goss"}
    tracer = lt.Tracer(lgb.train(settings, lgb.Dataset(X, y), 20), X, y)
    with pytest.raises(lt.InvalidInput, match="TopKLeaves cannot follow"):
        tracer.influence(X[:5], y[:5], method=lt.LeafRefit(lt.TopKLeaves(4)))


def test_refits_that_are_not_finite_are_refused():
    X, y = rare(0, 15)
    settings = {**EXPLODING, "objective": "binary", "learning_rate": 0.1}
    tracer = lt.Tracer(lgb.train(settings, lgb.Dataset(X, y), 5), X, y)
    with pytest.raises(lt.InvalidInput, match="no starting score"):
        tracer.refit(without=np.flatnonzero(y))


def test_second_derivatives_that_jump_count_where_leaves_divide_by_them():
    """Those of the expectile loss do so at the label, where a leaf of one row without l2 puts the score."""
    assert _jumps_of(Expectile(0.7), newton=True) == [0.0]
    assert _jumps_of(Expectile(0.7), newton=False) == []
    assert _jumps_of(Expectile(0.5), newton=True) == []
    assert _jumps_of(Hinge(), newton=False) == [0.0]
