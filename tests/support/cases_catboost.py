"""CatBoost models for the contract tests, and their structures read from CatBoost alone.

Where a model splits on target statistics of categories, its training rows sat in other leaves than the finished model
puts them in. CatBoost itself tells which: trained again with a metric that keeps the scores of all rows after each
tree, the score a tree adds to a row is the value of the row's leaf.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
from boosters import Case, binary, frame, numbers, split, three_classes, weights
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor, Pool
from oracle import Structure, sigmoid, tree_value

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 2}
SMALL = {**QUIET, "iterations": 25, "depth": 4}


# ---- losses, from CatBoost's documentation ----


def pinball(alpha):
    return lambda F, y: np.where(y > F[:, 0], alpha * (y - F[:, 0]), (1 - alpha) * (F[:, 0] - y))


def column(g, h):
    return g, h[..., None]


def huber(delta):
    def derivatives(A, y):
        r = A - y[:, None]
        return column(np.clip(r, -delta, delta), (np.abs(r) <= delta).astype(float))

    def value(F, y):
        r = np.abs(F[:, 0] - y)
        return np.where(r <= delta, r**2 / 2, delta * r - delta**2 / 2)

    return {"derivatives": derivatives, "loss_value": value}


def tweedie(p):
    def derivatives(A, y):
        u = y[:, None] * np.exp((1 - p) * A)
        v = np.exp((2 - p) * A)
        return column(v - u, (p - 1) * u + (2 - p) * v)

    return {
        "derivatives": derivatives,
        "loss_value": lambda F, y: (
            y * np.exp((1 - p) * F[:, 0]) / (p - 1) + np.exp((2 - p) * F[:, 0]) / (2 - p)
        ),
    }


def lq(q):
    def derivatives(A, y):
        r = A - y[:, None]
        return column(q * np.sign(r) * np.abs(r) ** (q - 1), q * (q - 1) * np.abs(r) ** (q - 2))

    return {"derivatives": derivatives, "loss_value": lambda F, y: np.abs(F[:, 0] - y) ** q}


def expectile(alpha):
    alpha = float(np.float32(alpha))

    def c(r):
        return np.where(r < 0, alpha, 1 - alpha)

    def derivatives(A, y):
        r = A - y[:, None]
        return column(2 * c(r) * r, 2 * c(r))

    return {
        "derivatives": derivatives,
        "loss_value": lambda F, y: c(F[:, 0] - y) * (F[:, 0] - y) ** 2,
    }


def one_vs_all(A, y):
    p = sigmoid(A)
    K = A.shape[1]
    return p - np.eye(K)[y.astype(int)], (p * (1 - p))[..., None] * np.eye(K)


def one_vs_all_value(F, y):
    return (np.logaddexp(0, F) - np.eye(F.shape[1])[y.astype(int)] * F).sum(axis=1)


def weighted_quantile(x, w, alpha, delta):
    """The lowest x with alpha of the weight up to it, moved by delta so that it falls between the x."""
    order = np.argsort(x, kind="stable")
    q = x[order][min(np.searchsorted(np.cumsum(w[order]), alpha * w.sum() - 2e-16), len(x) - 1)]
    if delta:
        q += (
            -delta if w[x < q].sum() + alpha * w[x == q].sum() >= alpha * w.sum() - 2e-16 else delta
        )
    return float(np.float32(q))


def quantile(alpha, delta=1e-6):
    def leaf(ids, L, residual, y, w):
        out = np.zeros(L)
        r = np.float32(residual).astype(float)
        for k in np.unique(ids):
            out[k] = weighted_quantile(r[ids == k], np.ones(np.sum(ids == k)), alpha, delta)
        return out

    base = {"base_value": lambda y, w: np.array([weighted_quantile(y, w, alpha, delta)])}
    return {"leaf": leaf, "loss_value": pinball(alpha), **base}


def log_cosh_leaf(ids, L, residual, y, w):
    """The root of sum tanh(c - r), by bisection until it is known to 1e-9; the lower end, rounded to float32."""
    out = np.zeros(L)
    for k in np.unique(ids):
        r = np.float32(residual[ids == k]).astype(float)
        low = r.min()
        high = r.max()
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if np.tanh(middle - r).sum() > 0 else (middle, high)
        out[k] = np.float32(low)
    return out


def log_cosh_derivatives(A, y):
    r = A - y[:, None]
    return column(np.tanh(r), np.cosh(r) ** -2.0)


LOG_COSH = {
    "derivatives": log_cosh_derivatives,
    "loss_value": lambda F, y: np.log(np.cosh(F[:, 0] - y)),
}
SETTINGS = {
    "Tweedie:variance_power=1.3": tweedie(1.3),
    "Huber:delta=0.6": huber(0.6),
    "Lq:q=2.5": lq(2.5),
    "Expectile:alpha=0.7": expectile(0.7),
    "MultiClassOneVsAll": {
        "derivatives": one_vs_all,
        "loss_value": one_vs_all_value,
        "diagonal": True,
    },
    "MAE": quantile(0.5),
    "Quantile:alpha=0.7": quantile(0.7),
}
LOSSES = {
    "RMSE": "squared",
    "Logloss": "logistic",
    "CrossEntropy": "logistic",
    "Poisson": "poisson",
}


# ---- structures ----


def paths(left):
    """Factors of the inner iterations that backtracking may have come to: a rejection halves a step and uses up one."""
    if left == 0:
        yield []
        return
    for rejected in range(left):
        for rest in paths(left - rejected - 1):
            yield [0.5**rejected, *rest]
    yield []


def found_path(structure, t, A, y, w, target, count):
    """The inner iterations that give the model's own leaf values."""
    (ids, L, o) = structure.steps[t][0]
    lam = structure.l2 * w.sum() / len(y)

    def error(scales):
        return np.abs(tree_value(structure, ids, L, o, scales, A, y, w, lam, t) - target).max()

    return next(p for p in paths(count) if p and error(p) <= 3e-7 * max(1e-3, np.abs(target).max()))


def leaf_table(model):
    counts = [int(c) for c in model.get_tree_leaf_counts()]
    values = np.asarray(model.get_leaf_values()).reshape(sum(counts), -1)
    return counts, np.split(values, np.cumsum(counts)[:-1])


def final_leaves(model, pool):
    return model.calc_leaf_indexes(pool).astype(int).T


class Scores:
    """A metric of nothing that keeps the scores and labels it is shown."""

    seen: list = []  # noqa: RUF012  CatBoost copies the metric, not what its class holds

    def is_max_optimal(self):
        return False

    def get_final_error(self, error, weight):
        return 0.0

    def evaluate(self, approxes, target, weight):
        self.seen.append((np.array(approxes).T.copy(), np.array(target)))
        return 0.0, 1.0


def shown(params, pool):
    """The model trained with these parameters, and what `Scores` saw."""
    Scores.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CatBoost would like numba for the metric
        model = CatBoost({**params, "eval_metric": Scores()}).fit(pool)
    return model, list(Scores.seen)


def recorded_leaves(model, X, y, w, cat_features):
    """(trees, n) leaves of the training rows in training, from CatBoost's own scores."""
    params = {**model.get_params(), "loss_function": model.get_all_params()["loss_function"]}
    again, seen = shown(params, Pool(X, y, weight=w, cat_features=cat_features))
    np.testing.assert_array_equal(again.get_leaf_values(), model.get_leaf_values())
    # CatBoost shows rows in an order of its own, the same for all labels: with their numbers for labels it tells which.
    other = {k: v for k, v in params.items() if k not in ("class_weights", "auto_class_weights")}
    other |= {"loss_function": "RMSE", "iterations": 1, "boost_from_average": False}
    rows = shown(other, Pool(X, np.arange(len(y), dtype=float), cat_features=cat_features))[1][0][
        1
    ].astype(int)
    before = np.tile(np.asarray(model.get_scale_and_bias()[1], float), (len(y), 1)).reshape(
        len(y), -1
    )
    leaves = np.empty((len(seen), len(y)), int)
    for t, ((scores, _), values) in enumerate(zip(seen, leaf_table(model)[1], strict=True)):
        distance = np.abs((scores - before)[:, None] - values).max(axis=2)  # (n, L)
        distance[:, np.all(values == 0, axis=1)] = np.inf  # leaves without rows
        assert np.all((distance < 1e-9).sum(axis=1) == 1), (
            "two leaves have one value: the scores cannot tell them apart"
        )
        leaves[t, rows] = distance.argmin(axis=1)
        before = scores
    return leaves


def structure(case):
    """Of any of these cases; test rows' steps."""
    model = case.model
    d = case.data
    p = model.get_all_params()
    (counts, values) = leaf_table(model)
    categories = model.get_cat_feature_indices()
    offset = (
        0.0
        if case.baseline is None
        else np.float32(case.baseline).astype(float).reshape(len(d.y), -1)
    )
    ids = final_leaves(model, Pool(d.X, cat_features=categories))
    if getattr(case, "on_targets", False):
        ids = recorded_leaves(model, d.X, d.y, case.weight, categories)
    factor = np.ones(len(d.y))
    if p.get("class_weights"):
        factor = np.float32(p["class_weights"]).astype(float)[d.codes.astype(int)]
    loss = p["loss_function"]
    own = LOG_COSH if loss == "LogCosh" else SETTINGS.get(loss, {})
    if loss == "LogCosh" and p["leaf_estimation_method"] == "Exact":
        own = {"leaf": log_cosh_leaf, "loss_value": LOG_COSH["loss_value"]}
    count = p["leaf_estimation_iterations"]
    averaged = bool(p.get("boost_from_average"))
    out = Structure(
        loss=LOSSES.get(loss, "softmax"),
        steps=[[(leaves, L, 0)] for leaves, L in zip(ids, counts, strict=True)],
        K=values[0].shape[1],
        O=values[0].shape[1],
        newton=p["leaf_estimation_method"] == "Newton",
        l2=float(np.float32(p["l2_leaf_reg"])),
        lr=float(np.float32(p["learning_rate"])),
        scales=[[1.0] * count] * len(counts),
        base="mean" if averaged else model.get_scale_and_bias()[1],
        offset=offset,
        class_weight=factor,
        **({k: v for k, v in own.items() if k != "base_value" or averaged}),
    )
    if p.get("model_shrink_rate"):
        out = shrinking(out, p, values)
    if count > 1 and p["leaf_estimation_backtracking"] != "No":
        out = backtracked(out, case, values, count)
    tests = final_leaves(model, Pool(d.X_test, cat_features=categories))
    return out, [[(leaves, L, 0)] for leaves, L in zip(tests, counts, strict=True)]


def shrinking(out, p, values):
    """All scores, the starting one too, are multiplied by 1 - rate * learning rate or 1 - rate / t before step t."""
    T = len(values)
    rate = float(np.float32(p["model_shrink_rate"]))
    constant = p["model_shrink_mode"] == "Constant"
    by = [1.0, *(1 - rate * out.lr if constant else 1 - rate / t for t in range(1, T))]
    moves = [[]]
    for t in range(1, T):
        weight = [
            np.prod(by[r + 1 : t]) for r in range(t - 1)
        ]  # of the steps before t - 1, before they shrink again
        moves.append([(-1, np.prod(by[:t]) * (by[t] - 1)), (t - 1, by[t])])
        moves[-1] += [(r, c * (by[t] - 1)) for r, c in enumerate(weight)]
    return replace(out, moves=[*moves, [(T - 1, 1.0)]], base=out.base)


def backtracked(out, case, values, count):
    y = case.data.codes
    w = case.w * out.class_weight
    A = (
        np.tile(np.reshape(case.model.get_scale_and_bias()[1], (-1,)).astype(float), (len(y), 1))
        + out.offset
    )
    scales = []
    for t, target in enumerate(values):
        scales.append(found_path(out, t, A, y, w, target, count))
        A = A + target[out.steps[t][0][0]]
    return replace(out, scales=scales)


def own_refit(case, w):
    """CatBoost on the leaves' bits, one tree at a time, from the scores of the trees before."""
    keep = w > 0
    model = case.model
    p = model.get_all_params()
    (counts, _) = leaf_table(model)
    out, test_steps = structure(case)
    y = case.data.codes[keep]
    w = (w * out.class_weight)[keep]
    base = np.float32(np.average(y, weights=w)) if p.get("boost_from_average") else 0.0
    A = np.full(len(y), float(base))
    F = np.full(len(case.data.y_test), float(base))
    names = (
        "learning_rate",
        "l2_leaf_reg",
        "leaf_estimation_method",
        "leaf_estimation_iterations",
        "loss_function",
    )
    for step, test, L in zip(out.steps, test_steps, counts, strict=True):
        leaves = step[0][0][keep]
        values = np.zeros(L)
        values[leaves] = one_tree({k: p[k] for k in names}, leaves, L.bit_length() - 1, y, w, A)
        A = A + values[leaves]
        F = F + values[test[0][0]]
    return F[:, None]


def one_tree(params, leaves, depth, y, w, A):
    """Predictions of a tree that tells all these leaves apart; the greedy search may need some noise to find one."""
    bits = (leaves[:, None] >> np.arange(depth) & 1).astype(np.float32)
    params = {
        **QUIET,
        **params,
        "iterations": 1,
        "depth": depth,
        "bootstrap_type": "No",
        "boost_from_average": False,
    }
    for seed in range(100):
        tree = CatBoost({**params, "random_strength": 3 * seed, "random_seed": seed})
        tree.fit(Pool(bits, y, weight=w, baseline=A))
        if len(np.unique(tree.calc_leaf_indexes(bits))) == len(np.unique(leaves)):
            return tree.predict(bits, prediction_type="RawFormulaVal")
    raise AssertionError("no tree tells all leaves apart")


# ---- cases ----


def raw(model, X):
    return np.asarray(model.predict(X, prediction_type="RawFormulaVal")).reshape(len(X), -1)


class CatBoostCase(Case):
    """Rows count in CatBoost's l2 term, so a weight of zero is no removal. ``on_targets``: with target statistics."""

    on_targets = False


def make(
    name,
    data,
    estimator=CatBoost,
    weighted=False,
    baseline=None,
    on_targets=False,
    early=False,
    **kw,
):
    def fit(X, y, sample_weight, given):
        categories = (
            [i for i, t in enumerate(X.dtypes) if str(t) == "category"]
            if hasattr(X, "dtypes")
            else None
        )
        pool = Pool(X, y, weight=sample_weight, baseline=given, cat_features=categories)
        held = (data.X_test, data.y_test) if early else None
        return estimator(**{**SMALL, **kw}).fit(pool, eval_set=held)

    extra = {"tolerance": kw.pop("tolerance", 1e-9), "smooth": kw.pop("smooth", True)}
    if kw.pop("refit", False):
        extra["own_refit"] = own_refit
    if estimator is CatBoost:
        kw, settings = {}, kw
        estimator = lambda **more: CatBoost({**more, **settings})  # noqa: E731
    case = CatBoostCase(
        name,
        data,
        fit,
        raw,
        structure,
        weight=weights(len(data.y)) if weighted else None,
        baseline=baseline,
        ordered=on_targets,
        counts_rows=True,
        **extra,
    )
    case.on_targets = on_targets
    return case


def three_kinds():
    """Three classes with category columns."""
    d = frame("number", many=True)
    score = np.r_[d.y, d.y_test]
    codes = np.digitize(score, np.quantile(score, [0.33, 0.66])).astype(float)
    return split(pd.concat([d.X, d.X_test]), np.array(["A", "B", "C"])[codes.astype(int)], codes)


def cases():
    baseline = np.random.default_rng(7).normal(size=len(binary().y))
    classifier = CatBoostClassifier
    regressor = CatBoostRegressor
    yield "default classifier", binary(text=True), {"estimator": classifier, "depth": None}
    yield "default regressor", numbers(), {"estimator": regressor, "depth": None, "refit": True}
    yield (
        "default classifier of three classes (multiclass)",
        three_classes(),
        {"estimator": classifier, "depth": 3},
    )
    yield "logloss, weights, class weights", binary(), {
        "estimator": classifier, "weighted": True, "auto_class_weights": "Balanced",
    }  # fmt: skip
    yield "logloss, 3 Newton steps with backtracking", binary(), {
        "estimator": classifier, "leaf_estimation_iterations": 3, "learning_rate": 0.5, "l2_leaf_reg": 0.3,
    }  # fmt: skip
    yield (
        "logloss, baseline",
        binary(),
        {"estimator": classifier, "baseline": baseline, "iterations": 12},
    )
    yield "cross entropy from the average, Depthwise, Bernoulli", numbers("fractions"), {
        "loss_function": "CrossEntropy", "boost_from_average": True, "grow_policy": "Depthwise", "subsample": 0.6,
        "bootstrap_type": "Bernoulli",
    }  # fmt: skip
    yield "poisson, weights, gradient steps", numbers("counts"), {
        "loss_function": "Poisson", "leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 2,
        "leaf_estimation_backtracking": "No", "weighted": True,
    }  # fmt: skip
    yield "one-vs-all, weights", three_classes(text=True), {
        "loss_function": "MultiClassOneVsAll", "weighted": True, "depth": 3,
    }  # fmt: skip
    yield (
        "tweedie",
        numbers("positive"),
        {"loss_function": "Tweedie:variance_power=1.3", "weighted": True},
    )
    yield (
        "huber",
        numbers(),
        {"loss_function": "Huber:delta=0.6", "weighted": True, "iterations": 12},
    )
    yield "lq", numbers(), {"loss_function": "Lq:q=2.5"}
    yield "expectile", numbers(), {"loss_function": "Expectile:alpha=0.7", "iterations": 12}
    yield (
        "log-cosh, Newton",
        numbers(),
        {"loss_function": "LogCosh", "leaf_estimation_method": "Newton"},
    )
    yield "log-cosh", numbers(), {"loss_function": "LogCosh", "smooth": False}
    yield "absolute error", numbers(), {"loss_function": "MAE", "smooth": False}
    yield (
        "quantile, weights",
        numbers(),
        {"loss_function": "Quantile:alpha=0.7", "smooth": False, "weighted": True},
    )
    yield (
        "shrinking model",
        numbers(),
        {"loss_function": "RMSE", "model_shrink_rate": 0.3, "learning_rate": 0.3},
    )
    yield "shrinking model, ever less", numbers(), {
        "loss_function": "RMSE", "model_shrink_rate": 0.3, "model_shrink_mode": "Decreasing", "weighted": True,
    }  # fmt: skip
    yield "early stopping", numbers(), {
        "estimator": regressor, "early": True, "iterations": 200, "learning_rate": 0.4, "early_stopping_rounds": 3,
    }  # fmt: skip
    yield (
        "categories one-hot, missing values",
        frame(),
        {"estimator": classifier, "one_hot_max_size": 5},
    )
    yield "categories by target statistics, weights", frame(many=True), {
        "estimator": classifier, "weighted": True, "on_targets": True, "leaf_estimation_iterations": 1, "refit": True,
    }  # fmt: skip
    yield "categories by target statistics, numbers", frame("number", many=True), {
        "estimator": regressor, "on_targets": True, "depth": None,
    }  # fmt: skip
    yield "combinations of categories, Ordered", frame(many=True), {
        "estimator": classifier, "weighted": True, "on_targets": True, "boosting_type": "Ordered", "depth": 5,
        "max_ctr_complexity": 4, "one_hot_max_size": 3, "random_seed": 11,
    }  # fmt: skip
    yield "categories, multiclass, Lossguide", three_kinds(), {
        "estimator": classifier, "weighted": True, "on_targets": True, "grow_policy": "Lossguide", "max_leaves": 8,
        "simple_ctr": ["Buckets:Prior=0.3", "Borders"], "class_weights": [1.0, 2.0, 0.5],
    }  # fmt: skip


CASES = {
    name: (lambda name=name, data=data, kw=kw: make(name, data, **kw)) for name, data, kw in cases()
}
