"""Label noise: every score against its definition.

The definitions use staged predictions of the libraries, or the oracle's refit."""

from functools import cache, partial

import boosters
import numpy as np
import oracle
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from catboost_models import QUIET
from contract import prepared
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.stats import rankdata, ttest_1samp
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._actions.noise import path as left_out_path
from leaftrace._actions.noise import suspicion
from leaftrace._actions.noise.action import label_noise

SMALL = {"n_estimators": 20, "learning_rate": 0.2, "n_jobs": 1}
KAPPA = {"cancer": 1.0, "healthy": 3.0}  # class weights


def staged_catboost(model, X):
    return [
        np.asarray(F).reshape(len(X), -1)
        for F in model.staged_predict(X, prediction_type="RawFormulaVal")
    ]


def staged_xgboost(model, X):
    ends = range(1, model.get_booster().num_boosted_rounds() + 1)
    return [
        model.predict(X, output_margin=True, iteration_range=(0, t)).reshape(len(X), -1)
        for t in ends
    ]


def staged_lightgbm(model, X):
    ends = range(1, model.booster_.num_trees() // model.booster_.num_model_per_iteration() + 1)
    return [model.predict(X, raw_score=True, num_iteration=t).reshape(len(X), -1) for t in ends]


def staged_sklearn(model, X):
    with threadpool_limits(1):  # a pass for each tree, so threads would mostly wait
        return [np.asarray(F).reshape(len(X), -1) for F in model.staged_decision_function(X)]


def catboost_numbers():
    return CatBoostRegressor(**QUIET, iterations=30, depth=4, leaf_estimation_iterations=3)


MODELS = {  # make, data, with weights, staged scores, class weights in the order of the classes
    "CatBoost, categories, missing values, text": (
        lambda: CatBoostClassifier(**QUIET, iterations=25, depth=4, cat_features=["kind"], one_hot_max_size=5),
        boosters.frame, True, staged_catboost, [1.0, 1.0],
    ),
    "CatBoost, three classes, text": (
        lambda: CatBoostClassifier(**QUIET, iterations=15, depth=3, loss_function="MultiClass"),
        lambda: boosters.three_classes(text=True), True, staged_catboost, [1.0, 1.0, 1.0],
    ),
    "XGBoost, three classes": (
        lambda: XGBClassifier(**SMALL, max_depth=3), boosters.three_classes, True, staged_xgboost, [1.0, 1.0, 1.0],
    ),
    "LightGBM, class weights, text": (
        lambda: LGBMClassifier(**SMALL, num_leaves=8, class_weight=KAPPA, verbose=-1),
        lambda: boosters.binary(text=True), True, staged_lightgbm, list(KAPPA.values()),
    ),
    "HistGradientBoosting, categories, missing values": (
        lambda: HistGradientBoostingClassifier(max_iter=12, categorical_features="from_dtype", random_state=0),
        boosters.frame, False, staged_sklearn, [1.0, 1.0],
    ),
    "CatBoost, numbers": (catboost_numbers, boosters.numbers, True, staged_catboost, None),
    "LightGBM, numbers": (
        lambda: LGBMRegressor(**SMALL, num_leaves=8, verbose=-1), boosters.numbers, False, staged_lightgbm, None,
    ),
}  # fmt: skip


@cache
def trained(name):
    """Return (data, model, tracer, staged scores of the training rows, class weights)."""
    make, get, weighted, staged, kappa = MODELS[name]
    d = get()
    w = boosters.weights(len(d.y)) if weighted else None
    model = make().fit(d.X, d.y, sample_weight=w)
    X = d.X.to_numpy(dtype=object) if hasattr(d.X, "iloc") and "CatBoost" in name else d.X
    return (
        d,
        model,
        lt.Tracer(model, d.X, d.y, w, dtype="float64", n_jobs=1),
        staged(model, X),
        kappa,
    )


def probabilities(F, kappa):
    """Return probabilities (n, classes) without the effect of class weights."""
    P = oracle.softmax(np.column_stack([np.zeros(len(F)), F]) if F.shape[1] == 1 else F)
    P = P / np.array(kappa)
    return P / P.sum(axis=1, keepdims=True)


def column(noise, name):
    return np.asarray(noise.scores[name])


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_staged_predictions(name):
    d, _, tracer, staged, kappa = trained(name)
    noise = label_noise(tracer)
    y = d.codes
    rows = np.arange(len(d.y))
    if kappa is None:
        detector = np.abs(staged[-1][:, 0] - y)
        margin = [np.abs(F[:, 0] - y) for F in staged]
        loss = [0.5 * (F[:, 0] - y) ** 2 for F in staged]
        gradient = margin
    else:
        detector = 1 - probabilities(staged[-1], kappa)[rows, y.astype(int)]
        plain = [probabilities(F, np.ones(len(kappa))) for F in staged]
        loss = [-np.log(P[rows, y.astype(int)]) for P in plain]
        logs = [np.log(P) for P in plain]
        margin = [np.delete(L[i], int(y[i])).max() - L[i, int(y[i])] for L in logs for i in rows]
        margin = np.reshape(margin, (len(staged), -1))
        distance = [P - np.eye(len(kappa))[y.astype(int)] for P in plain]
        gradient = [
            np.abs(r[:, 1]) if r.shape[1] == 2 else np.sqrt((r**2).sum(axis=1)) for r in distance
        ]
    close = {"rtol": 1e-4, "atol": 1e-5}  # boosters round scores to float32
    np.testing.assert_allclose(column(noise, "detector"), detector, **close)
    for score, path in {"margin": margin, "loss": loss, "gradient": gradient}.items():
        np.testing.assert_allclose(
            column(noise, score), np.mean(path, axis=0), **close, err_msg=score
        )


@pytest.mark.parametrize("name", MODELS)
def test_the_default_is_the_mixture_it_says(name):
    _, _, tracer, _, kappa = trained(name)
    noise = label_noise(tracer)
    detector, left_out, path = (column(noise, s) for s in ("detector", "left_out", "path"))
    m = np.sqrt(max(0.0, 1 - detector.mean() / left_out.mean()))
    assert noise.memorised == pytest.approx(m)
    assert 0.05 < m < 0.9
    u = (1 - m) * left_out + m * path
    if kappa is None:
        u = u / suspicion.spread(noise.predicted_label, left_out)
        np.testing.assert_allclose(noise.label_score, 2.0**-u)
        np.testing.assert_array_equal(noise.is_label_issue, u > 3.5 * 1.4826)
    else:
        np.testing.assert_allclose(noise.label_score, 1 - u, atol=1e-12)
        assert (noise.predicted_label != noise.given_label)[noise.is_label_issue].all()
    np.testing.assert_allclose(column(noise, "default"), u)


# ---- without the row's own contribution ----

ONE_STEP = [  # exact for leaves of one step and one output, away from bounds
    "XGBoost: scale_pos_weight, weights",
    "LightGBM: GOSS",
    "XGBoost: poisson",
    "LightGBM: LGBMClassifier, balanced, scale_pos_weight, weights",
    "LightGBM: LGBMRegressor, defaults",
    "LightGBM: multiclass, bagging",
    "scikit-learn: HistGradientBoosting, balanced classes, weights and l2",
    "scikit-learn: HistGradientBoosting, leaves of single rows, interaction_cst",
    "scikit-learn: HistGradientBoosting, early stopping, class weights",
]


def own_pull(structure, y, w, i, keep=0.0):
    """Return how much of row i's score comes from the row itself, after each step (T, K).

    Each leaf is computed again without the row, or with this share of it."""
    base, values = oracle.refit(structure, y, w)
    weight = w * structure.class_weight
    lam = structure.l2 * weight.sum() / len(y) if structure.l2_scales else structure.l2
    A = np.tile(base, (len(y), 1)) + structure.offset
    own = np.zeros(structure.K)
    out = []
    for t, step in enumerate(structure.steps):
        A = oracle.move(structure, t, structure.steps, base, values, A)
        for r, (ids, L, o) in enumerate(step):
            here = weight * (1 if structure.sample is None else structure.sample[t][r])
            here = np.where(np.arange(len(y)) == i, keep * here, here)
            more = 0.0 if structure.more_l2 is None else structure.more_l2[t][r]
            left = oracle.tree_value(
                structure, ids, L, o, structure.scales[t], A, y, here, lam + more, t, r
            )
            factor = (
                sum(f for moves in structure.moves for q, f in moves if q == t)
                if structure.moves
                else 1.0
            )
            own[o : o + structure.O] += factor * (values[t][r] - left)[ids[i]]
        out.append(own.copy())
    return np.array(out)


@pytest.mark.parametrize("name", ONE_STEP)
def test_own_pull_is_that_of_the_leaves_without_the_row(name):
    case, tracer, structure, _ = prepared(name)
    rows = [0, 7, 31, 64]
    found = np.array([own[rows] for _, own in left_out_path.path(tracer)])  # (T, rows, K)
    for i, pull in zip(rows, np.moveaxis(found, 1, 0), strict=True):
        expected = own_pull(structure, case.data.codes, case.w, i)
        np.testing.assert_allclose(
            pull, expected, atol=3e-6 * np.abs(found).max(), err_msg=f"row {i}"
        )


def test_own_pull_where_trees_are_dropped_and_put_back_is_that_of_the_end():
    case, tracer, structure, _ = prepared("LightGBM: DART, weights")
    [(A, own)] = left_out_path.path(tracer)
    np.testing.assert_allclose(A, case.raw(case.model, case.data.X), atol=1e-6)
    for i in (0, 7, 31):
        expected = own_pull(structure, case.data.codes, case.w, i)[-1]
        np.testing.assert_allclose(own[i], expected, atol=3e-6 * np.abs(own).max())


def test_own_pull_of_smoothed_leaves_is_to_first_order():
    case, tracer, structure, _ = prepared("LightGBM: path_smooth, l2")
    *_, (_, own) = left_out_path.path(tracer)
    for i in (0, 7, 31):
        slope = own_pull(structure, case.data.codes, case.w, i, keep=1 - 1e-5)[-1] / 1e-5
        np.testing.assert_allclose(own[i], slope, atol=1e-4 * np.abs(own).max())


def test_own_pull_of_several_inner_steps_is_close():
    """Ten inner iterations and vector leaves are approximated to first order, from the first iteration."""
    for name in ("CatBoost, categories, missing values, text", "CatBoost, three classes, text"):
        d, model, tracer, _, _ = trained(name)
        X = d.X.to_numpy(dtype=object) if hasattr(d.X, "iloc") else d.X
        p = model.get_all_params()
        structure, _ = oracle.from_catboost(model, X)
        structure = oracle.replace(
            structure, scales=[[1.0] * p["leaf_estimation_iterations"]] * len(structure.steps)
        )
        *_, (_, own) = left_out_path.path(tracer)
        rows = np.arange(0, 100, 4)
        w = np.float32(boosters.weights(len(d.y))).astype(float)
        expected = np.array([own_pull(structure, d.codes, w, i)[-1] for i in rows])
        error = np.abs(own[rows] - expected).max() / np.abs(expected).max()
        assert error < 0.1, (name, error)


def test_a_forest_is_averaged_over_the_trees_that_keep_others_in_the_leaf():
    d = boosters.numbers()
    model = RandomForestRegressor(12, random_state=0).fit(d.X, d.y)
    noise = label_noise(lt.Tracer(model, d.X, d.y, dtype="float64"))
    n = len(d.y)
    leaves = model.apply(d.X)
    left = np.full((n, 12), np.nan)
    for t, drawn in enumerate(model.estimators_samples_):
        count = np.bincount(drawn, minlength=n)
        for i in range(n):
            others = np.where(np.arange(n) == i, 0, count * (leaves[:, t] == leaves[i, t]))
            if others.any():
                left[i, t] = np.average(d.y, weights=others)
    lonely = np.isnan(left).all(axis=1)  # their only information is their own label
    assert 0 < lonely.sum() < 10
    assert np.isnan(left[~lonely]).any()
    left[lonely] = model.predict(d.X)[lonely, None]
    np.testing.assert_allclose(
        column(noise, "left_out"), np.abs(d.y - np.nanmean(left, axis=1)), atol=1e-7
    )


def test_self_influence_is_the_own_loss_without_the_own_pull():
    case, tracer, structure, _ = prepared("XGBoost: scale_pos_weight, weights")
    found = column(label_noise(tracer), "self_influence")
    y = case.data.codes
    w = case.w
    F = oracle.predict(structure, oracle.refit(structure, y, w), structure.steps)
    for i in (0, 31, 64):
        with_, without = (
            structure.loss_of(x[None], y[i : i + 1])[0]
            for x in (F[i], F[i] - own_pull(structure, y, w, i)[-1])
        )
        assert found[i] == pytest.approx(without - with_, rel=1e-4, abs=1e-7)


def test_exact_self_influence_is_a_finite_difference_of_the_refit():
    for name in ("XGBoost: scale_pos_weight, weights", "LightGBM: multiclass, bagging"):
        case, tracer, structure, _ = prepared(name)
        y = case.data.codes
        w = case.w
        found = column(label_noise(tracer, score="self_influence_exact"), "self_influence_exact")
        for i in (0, 31, 64):
            loss = partial(own_loss, structure, y, w, i)
            expected = -w[i] * oracle.slope(loss, 2e-3)
            assert found[i] == pytest.approx(expected, rel=1e-4, abs=1e-6 * np.abs(found).max()), (
                name
            )


def own_loss(structure, y, w, i, step):
    """Return the loss of row i, with its weight changed by this step."""
    fitted = oracle.refit(structure, y, w + step * (np.arange(len(y)) == i))
    return structure.loss_of(oracle.predict(structure, fitted, structure.steps), y)[i]


# ---- the parts ----


def test_confident_learning_counts_as_its_definition():
    rng = np.random.default_rng(0)
    P = rng.dirichlet([1, 1, 1], 200)
    codes = rng.integers(0, 3, 200)
    threshold = [np.mean([P[i, c] for i in range(200) if codes[i] == c]) for c in range(3)]
    count = 0
    for i in range(200):
        sure = [c for c in range(3) if P[i, c] >= threshold[c]]
        count += bool(sure) and max(sure, key=lambda c: P[i, c]) != codes[i]
    assert suspicion.confident_count(P, codes) == count > 0
    # No row is assigned to a class without rows.
    assert suspicion.confident_count(np.column_stack([P, np.ones(200)]), codes) == count


def test_ranks_and_spread():
    x = np.array([3.0, 1.0, 3.0, -2.0, 7.0])
    np.testing.assert_allclose(suspicion.relative_ranks(x), (rankdata(x) - 1) / 4)
    prediction = np.linspace(0, 1, 4000)
    residual = np.abs(np.random.default_rng(0).normal(size=4000)) * (1 + 3 * prediction)
    expected = 0.6745 * (1 + 3 * prediction)
    assert np.abs(suspicion.spread(prediction, residual) / expected - 1)[400:-400].max() < 0.1
    assert suspicion.spread(prediction[:5], np.zeros(5)).min() > 0


def test_relabelling_gains_what_label_influence_says():
    d, _, tracer, _, _ = trained("XGBoost, three classes")
    noise = label_noise(tracer, d.X_test, d.y_test)
    P = np.asarray(noise.scores["relabel"])
    rows = np.arange(len(d.y))
    towards = np.stack(
        [
            tracer.label_influence(d.X_test, d.y_test, reduce="mean", to=c).change[:, 0]
            for c in range(3)
        ]
    )
    for i in rows[noise.is_label_issue]:
        assert P[i] == pytest.approx(-towards[int(noise.predicted_label[i]), i], rel=1e-6)
    np.testing.assert_array_equal(
        column(noise, "influence"), tracer.influence(d.X_test, d.y_test, reduce="mean").values[:, 0]
    )


# ---- what it is for ----


def digits(n=1500, seed=0):
    """Return two overlapping classes with a tenth of the labels flipped, and rows with true labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 3000, 6))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=len(X)) > 0.3).astype(int)
    flips = np.zeros(n, bool)
    flips[rng.choice(n, n // 10, replace=False)] = True
    return (
        X[:n],
        np.where(flips, 1 - y[:n], y[:n]),
        flips,
        (X[n:-1000], y[n:-1000]),
        (X[-1000:], y[-1000:]),
    )


def auc(flips, noise, name="default"):
    return roc_auc_score(flips, column(noise, name))


def test_an_overfitted_model_is_seen_through():
    X, y, flips, _, _ = digits()
    tracer = lt.Tracer(
        LGBMClassifier(n_estimators=200, num_leaves=31, verbose=-1, n_jobs=1).fit(X, y), X, y
    )
    noise = label_noise(tracer)
    assert noise.memorised > 0.5
    assert "memorised" in noise.advice
    assert auc(flips, noise) > auc(flips, noise, "detector") + 0.03
    assert auc(flips, noise) > 0.85


def test_class_weights_accuse_nobody():
    X, y, flips, _, _ = digits()
    model = XGBClassifier(n_estimators=30, max_depth=3, scale_pos_weight=8, n_jobs=1).fit(X, y)
    noise = label_noise(lt.Tracer(model, X, y))
    naive = -model.predict_proba(X)[np.arange(len(y)), y]
    assert auc(flips, noise) > roc_auc_score(flips, naive) + 0.05
    assert noise.is_label_issue[y == 0].mean() < 2 * flips.mean()


def test_clean_validation_rows_help_and_noisy_ones_are_left_aside():
    X, y, flips, (X_val, y_val), _ = digits()
    tracer = lt.Tracer(
        CatBoostClassifier(**QUIET, iterations=60, depth=4, learning_rate=0.1).fit(X, y), X, y
    )
    plain = label_noise(tracer)
    helped = label_noise(tracer, X_val, y_val)
    surprise = 1 - tracer.refit().predict_proba(X_val)[np.arange(len(y_val)), y_val]
    less = 1 - surprise.mean() / column(plain, "left_out").mean()
    assert helped.validation_weight == pytest.approx(less * 2000 / 3000)
    assert helped.validation_weight > 0.05
    assert auc(flips, helped) > auc(flips, plain)
    flipped = np.where(np.random.default_rng(1).random(len(y_val)) < 0.15, 1 - y_val, y_val)
    noisy = label_noise(tracer, X_val, flipped)
    assert noisy.validation_weight == 0
    assert "not used" in noisy.advice
    np.testing.assert_array_equal(noisy.rank()["train_row"], plain.rank()["train_row"])
    # The same numbers, assigned in the opposite order.
    np.testing.assert_array_equal(np.sort(helped.label_score), np.sort(plain.label_score))
    weight = helped.validation_weight
    expected = rankdata(1 - plain.label_score) + weight * rankdata(column(helped, "relabel"))
    assert np.corrcoef(rankdata(expected), rankdata(column(helped, "default")))[0, 1] > 1 - 1e-9


def test_flags_find_most_flips_and_are_mostly_right():
    X, y, flips, _, _ = digits()
    tracer = lt.Tracer(
        CatBoostClassifier(**QUIET, iterations=60, depth=4, learning_rate=0.1).fit(X, y), X, y
    )
    noise = label_noise(tracer)
    assert flips[noise.is_label_issue].mean() > 0.6
    assert noise.is_label_issue[flips].mean() > 0.6
    np.testing.assert_array_equal(
        noise.predicted_label[noise.is_label_issue], 1 - y[noise.is_label_issue]
    )


def test_wrong_numbers_are_found_where_they_are_outliers():
    X = np.random.default_rng(2).normal(size=(1200, 4))
    y = X[:, 0] + 0.2 * np.exp(X[:, 1]) * np.random.default_rng(3).normal(size=1200)
    wrong = np.random.default_rng(4).choice(1200, 40, replace=False)
    y[wrong] += 4
    tracer = lt.Tracer(LGBMRegressor(**SMALL, verbose=-1).fit(X, y), X, y)
    noise = label_noise(tracer)
    found = np.flatnonzero(noise.is_label_issue)
    assert len(np.intersect1d(found, wrong)) >= 36
    assert len(found) < 100
    np.testing.assert_array_equal(np.asarray(noise.rank(3)["given_label"]), y[noise.indices()[:3]])


# ---- the interface of cleanlab ----


def test_tables_have_cleanlabs_form():
    d, _, tracer, _, _ = trained("CatBoost, categories, missing values, text")
    noise = label_noise(tracer)
    issues = noise.get_issues()
    assert list(issues.columns) == [
        "is_label_issue",
        "label_score",
        "given_label",
        "predicted_label",
    ]
    assert len(issues) == len(d.y)
    assert issues["is_label_issue"].dtype == bool
    assert issues["label_score"].between(0, 1).all()
    np.testing.assert_array_equal(issues["given_label"], d.y)
    assert set(issues["predicted_label"]) <= {"yes", "no"}
    flagged = issues[issues["is_label_issue"]].sort_values("label_score")
    assert len(flagged) > 3
    np.testing.assert_allclose(issues["label_score"].iloc[noise.indices()], flagged["label_score"])
    assert list(noise.issues["train_row"]) == list(d.X.index[noise.indices()])
    assert noise.rank()["label_score"].is_monotonic_increasing
    assert len(noise.rank(7)) == 7
    assert f"{len(flagged)} of {len(d.y)}" in repr(noise)
    assert "confirm(" in repr(noise)
    assert "<table" in noise._repr_html_()


def test_another_score_gives_its_own_order():
    d, _, tracer, _, _ = trained("LightGBM, class weights, text")
    for score in ("detector", "margin", "influence", "relabel"):
        noise = label_noise(tracer, d.X_test, d.y_test, score=score)
        values = column(noise, score)[[int(i) for i in noise.rank()["train_row"]]]
        assert (np.diff(values) <= 0).all()
        assert noise.rank()["label_score"].is_monotonic_increasing
        assert (noise.predicted_label != noise.given_label)[noise.is_label_issue].all()


def test_pools_carry_their_labels():
    d = boosters.frame()
    w = boosters.weights(len(d.y))
    X, X_test = (x.assign(kind=x["kind"].astype(str)) for x in (d.X, d.X_test))
    pool = Pool(X, d.y, cat_features=["kind"], weight=w)
    model = CatBoostClassifier(**QUIET, iterations=25, depth=4, one_hot_max_size=5).fit(pool)
    tracer = lt.Tracer(model, pool)
    held = Pool(X_test, d.y_test, cat_features=["kind"])
    one = label_noise(tracer, held)
    two = label_noise(tracer, X_test, d.y_test)
    np.testing.assert_array_equal(one.label_score, two.label_score)
    assert set(one.given_label) == {"yes", "no"}
    assert one.confirm(X_test[:9], d.y_test[:9], k=3, retrain=False).effects is not None


# ---- confirming ----


def losses(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), np.asarray(y)])


def test_confirm_is_the_librarys_own_retraining():
    X, y, _, _, (X_hold, y_hold) = digits()
    make = lambda: LGBMClassifier(**SMALL, num_leaves=8, verbose=-1)  # noqa: E731
    model = make().fit(X, y)
    noise = label_noise(lt.Tracer(model, X, y, n_jobs=1))
    assert noise.effects is None
    rows = noise.indices()
    for action, other in (
        ("relabel", make().fit(X, np.where(np.isin(np.arange(len(y)), rows), 1 - y, y))),
        ("remove", make().fit(np.delete(X, rows, axis=0), np.delete(y, rows))),
    ):
        done = noise.confirm(X_hold, y_hold, action=action)
        effect = done.effects.iloc[0]
        before = losses(model, X_hold, y_hold).mean()
        assert effect["before"] == pytest.approx(before, rel=1e-6)
        assert effect["retrained"] == pytest.approx(
            losses(other, X_hold, y_hold).mean() - before, abs=1e-6
        )
        assert effect["refitted"] < 0
        assert effect["predicted"] < 0
        assert action in effect["of"]
        rises = losses(other, X_hold, y_hold) - losses(model, X_hold, y_hold)
        expected = ttest_1samp(rises, 0).confidence_interval(0.95)
        np.testing.assert_allclose(done.interval, expected, rtol=1e-3)  # a series gives Student's t
        assert done.confirmed == (expected.high < 0)
        assert ("is suggested" in done.advice) == done.confirmed
    few = noise.confirm(X_hold, y_hold, k=5, retrain=False)
    assert "5 rows" in few.effects["of"].iloc[0]
    assert np.isnan(few.effects["retrained"].iloc[0])
    assert "nothing is confirmed" in few.advice
    assert few.confirmed is None
    assert few.interval is None


def right_by_construction(n=3000, seed=0):
    """Return rows whose labels are what happened, partly by chance, so that none is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(int)


ACCUSING = ("wrong label", "look wrong", "looks wrong", "surely wrong", "likely wrong")


def test_right_labels_that_surprise_the_model_are_not_called_wrong_and_not_relabelled():
    X, y = right_by_construction()
    model = LGBMClassifier(**SMALL, num_leaves=8, verbose=-1).fit(X[:1500], y[:1500])
    noise = label_noise(lt.Tracer(model, X[:1500], y[:1500]))
    assert len(noise.indices()) > 50  # surprising, and right
    assert "surprise the model" in noise.title
    assert "is suggested only if confirm(" in noise.advice
    confirmed = noise.confirm(X[1500:], y[1500:])
    assert confirmed.interval[0] > 0
    assert confirmed.confirmed is False
    assert "does harm" in confirmed.advice
    assert "Keep them as they are" in confirmed.advice
    for text in (repr(noise), repr(confirmed)):
        assert not any(words in text for words in (*ACCUSING, "is suggested:"))


def test_a_change_within_chance_is_not_confirmed():
    X, y, _, _, _ = digits()
    other, y_other = X[1000:1030], y[1000:1030]
    model = LGBMClassifier(**SMALL, num_leaves=8, verbose=-1).fit(X[:1000], y[:1000])
    noise = label_noise(lt.Tracer(model, X[:1000], y[:1000])).confirm(other, y_other, k=2)
    assert noise.interval[0] < 0 < noise.interval[1]
    assert noise.confirmed is False
    assert "does not confirm" in noise.advice


def test_planted_flips_are_still_suggested_for_relabelling():
    X = np.random.default_rng(0).normal(size=(2500, 6))
    y = (X[:, 0] + X[:, 1] > 0.3).astype(int)
    flips = np.random.default_rng(1).permutation(1500) < 150
    given = np.where(flips, 1 - y[:1500], y[:1500])
    model = LGBMClassifier(**SMALL, num_leaves=8, verbose=-1).fit(X[:1500], given)
    noise = label_noise(lt.Tracer(model, X[:1500], given)).confirm(X[1500:], y[1500:])
    assert flips[noise.indices()].mean() > 0.8
    assert noise.confirmed
    assert f"Relabelling {len(noise.indices())} rows is suggested" in noise.advice


def test_confirm_relabels_numbers_and_classes_as_the_user_writes_them(monkeypatch):
    asked = []
    retrain = lt.Tracer.retrain
    monkeypatch.setattr(lt.Tracer, "retrain", lambda self, t: asked.append(t.y) or retrain(self, t))
    for name in ("CatBoost, three classes, text", "CatBoost, numbers"):
        d, _, tracer, _, kappa = trained(name)
        noise = label_noise(tracer)
        noise.confirm(d.X_test, d.y_test, k=4)
        rows = [int(i) for i in noise.rank(4)["train_row"]]
        expected = np.array(d.y)
        expected[rows] = np.asarray(noise.predicted_label)[rows]
        assert kappa is None or (expected[rows] != d.y[rows]).all()
        np.testing.assert_array_equal(asked[-1], expected)


def test_an_interrupted_retraining_leaves_the_rest(monkeypatch):
    d, _, tracer, _, _ = trained("LightGBM, class weights, text")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lt.Tracer, "retrain", stop)
    effect = label_noise(tracer).confirm(d.X_test, d.y_test, k=3).effects.iloc[0]
    assert np.isfinite([effect["before"], effect["predicted"], effect["refitted"]]).all()
    assert np.isnan(effect["retrained"])


def test_models_without_derivatives_do_with_what_they_have():
    d = boosters.numbers()
    model = LGBMRegressor(**SMALL, objective="quantile", alpha=0.6, verbose=-1).fit(d.X, d.y)
    tracer = lt.Tracer(model, d.X, d.y)
    noise = label_noise(tracer, d.X_test[:10], d.y_test[:10])
    assert "quantiles" in noise.advice
    assert "not used" in noise.advice
    assert noise.memorised == 0
    np.testing.assert_allclose(
        column(noise, "left_out"), np.abs(model.predict(d.X) - d.y), atol=1e-6
    )
    assert "influence" not in noise.scores
    effect = noise.confirm(d.X_test[10:], d.y_test[10:], k=3).effects.iloc[0]
    assert np.isnan(effect["predicted"])
    assert np.isfinite([effect["refitted"], effect["retrained"]]).all()
    with pytest.raises(lt.UnsupportedModel, match="derivative"):
        label_noise(tracer, d.X_test, d.y_test, score="influence")


def test_a_hinge_and_a_forest_have_something_like_probabilities():
    X, y, flips, _, _ = digits(600)
    for model in (
        XGBClassifier(**SMALL, max_depth=3, objective="binary:hinge"),
        RandomForestClassifier(30, random_state=0, n_jobs=1),
    ):
        noise = label_noise(lt.Tracer(model.fit(X, y), X, y))
        assert 0 <= noise.label_score.min() < noise.label_score.max() <= 1
        assert auc(flips, noise) > 0.75, type(model).__name__


def test_a_class_that_would_vanish_is_said():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(800, 3))
    y = (rng.random(800) < 0.08).astype(int)  # random labels: all rows of class 1 surprise
    y[:40] = 1
    X[:8] += 6
    noise = label_noise(
        lt.Tracer(LGBMClassifier(**SMALL, min_child_samples=60, verbose=-1).fit(X, y), X, y)
    )
    share = noise.is_label_issue[y == 1].mean()
    assert (f"labelled 1, {share:.0%}" in noise.advice) == (share > 0.5)
    assert share > 0.5


def test_flags_everywhere_are_no_finding():
    """If classes look the same, confident learning flags half of the rows, which is no finding."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 3))
    y = rng.integers(0, 3, 600)
    noise = label_noise(lt.Tracer(XGBClassifier(**SMALL, max_depth=2).fit(X, y), X, y))
    assert noise.is_label_issue.mean() > 0.25
    assert "cannot tell" in noise.advice


def test_errors_say_what_to_do():
    d, _, tracer, _, _ = trained("LightGBM, class weights, text")
    noise = label_noise(tracer, d.X_test, d.y_test)
    for call, words in (
        (lambda: label_noise(tracer, score="best"), "'left_out'"),
        (lambda: label_noise(tracer, score="influence"), "validation set"),
        (lambda: label_noise(tracer, y_val=d.y_test), "X_val"),
        (lambda: label_noise(tracer, d.X_test, d.y_test[:-1]), "y_val has 19 values"),
        (lambda: label_noise(tracer, d.X_test), "y_val"),
        (lambda: label_noise("model"), "Tracer"),
        (lambda: noise.rank(0), "from 1 to"),
        (lambda: noise.rank(1.5), "k is 1.5; it is a number of training rows"),
        (lambda: noise.rank("a"), "k is .a."),
        (lambda: noise.confirm(d.X_test, d.y_test), "validation rows"),
        (lambda: noise.confirm(d.X, d.y), "training rows"),
        (lambda: noise.confirm(d.X[:0], d.y[:0]), "no rows"),
        (lambda: noise.confirm(d.X_test[:9], d.y_test[:9], action="drop"), "'remove'"),
        (lambda: noise.confirm(d.X_test[:9], d.y_test[:9], k=10**6), "from 1 to"),
    ):
        with pytest.raises(lt.InvalidInput, match=words):
            call()


def test_nothing_wrong_is_said():
    X = np.repeat([[0.0], [1.0]], 40, axis=0)
    y = np.repeat([0, 1], 40)
    noise = label_noise(lt.Tracer(LGBMClassifier(**SMALL, verbose=-1).fit(X, y), X, y))
    assert not noise.is_label_issue.any()
    assert len(noise.issues) == 0
    assert "No label" in noise.advice
    with pytest.raises(lt.InvalidInput, match="k="):
        noise.confirm(X[:3], y[:3])
