"""LightGBM models for the contract tests, and their structures read from LightGBM alone."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
from boosters import Case, Data, binary, frame, numbers, three_classes, weights
from oracle import Structure, sigmoid, softmax
from scipy.sparse import csr_matrix

VERSION = tuple(int(part) for part in lgb.__version__.split(".")[:2])
QUIET = {"verbosity": -1, "num_threads": 1, "force_row_wise": True}
SMALL = {**QUIET, "num_leaves": 12, "min_data_in_leaf": 8, "learning_rate": 0.15}
DEFAULTS = {
    "objective": "regression", "boosting": "gbdt", "data_sample_strategy": "bagging", "learning_rate": 0.1,
    "lambda_l1": 0.0, "lambda_l2": 0.0, "max_delta_step": 0.0, "cat_l2": 10.0, "path_smooth": 0.0, "bagging_freq": 0,
    "bagging_fraction": 1.0, "pos_bagging_fraction": 1.0, "neg_bagging_fraction": 1.0, "bagging_seed": 3,
    "top_rate": 0.2, "other_rate": 0.1, "drop_rate": 0.1, "skip_drop": 0.5, "max_drop": 50, "drop_seed": 4,
    "uniform_drop": False, "xgboost_dart_mode": False, "boost_from_average": True, "num_class": 1, "sigmoid": 1.0,
    "is_unbalance": False, "scale_pos_weight": 1.0, "alpha": 0.9, "fair_c": 1.0, "poisson_max_delta_step": 0.7,
    "tweedie_variance_power": 1.5,
}  # fmt: skip


# ---- objectives: derivatives, loss, starting score ----


def one(g, h):
    """Derivatives of one output, from functions of score and label."""

    def derivatives(A, y):
        a = A[:, 0]
        return g(a, y)[:, None], (h(a, y) * np.ones(len(y)))[:, None, None]

    return derivatives


def logistic(c):
    def value(F, y):
        return np.logaddexp(0, c * F[:, 0]) - y * c * F[:, 0]

    def h(a, y):
        return c * c * sigmoid(c * a) * sigmoid(-c * a)

    return one(lambda a, y: c * (sigmoid(c * a) - y), h), value


def one_against_all(c, K):
    def derivatives(A, y):
        p = sigmoid(c * A)
        return c * (p - np.eye(K)[y.astype(int)]), (c * c * p * (1 - p))[:, :, None] * np.eye(K)

    def value(F, y):
        return (np.logaddexp(0, c * F) - c * F * np.eye(K)[y.astype(int)]).sum(axis=1)

    return derivatives, value


def all_classes(K):
    def derivatives(A, y):
        p = softmax(A)
        return p - np.eye(K)[y.astype(int)], (K / (K - 1) * p * (1 - p))[:, :, None] * np.eye(K)

    return (
        derivatives,
        lambda F, y: np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)],
    )


def formulas(p):
    """(derivatives, loss value) of an objective with smooth leaves."""
    a = p["alpha"]
    c = p["fair_c"]
    rho = p["tweedie_variance_power"]
    return {
        "regression": (
            one(lambda f, y: f - y, lambda f, y: 1.0),
            lambda F, y: (F[:, 0] - y) ** 2 / 2,
        ),
        "huber": (
            one(lambda f, y: np.clip(f - y, -a, a), lambda f, y: 1.0),
            lambda F, y: np.where(
                np.abs(F[:, 0] - y) <= a,
                (F[:, 0] - y) ** 2 / 2,
                a * np.abs(F[:, 0] - y) - a * a / 2,
            ),
        ),
        "fair": (
            one(
                lambda f, y: c * (f - y) / (np.abs(f - y) + c),
                lambda f, y: c * c / (np.abs(f - y) + c) ** 2,
            ),
            lambda F, y: c * c * (np.abs(F[:, 0] - y) / c - np.log(1 + np.abs(F[:, 0] - y) / c)),
        ),
        "poisson": (
            one(lambda f, y: np.exp(f) - y, lambda f, y: np.exp(f + p["poisson_max_delta_step"])),
            lambda F, y: np.exp(F[:, 0]) - y * F[:, 0],
        ),
        "gamma": (
            one(lambda f, y: 1 - y * np.exp(-f), lambda f, y: y * np.exp(-f)),
            lambda F, y: F[:, 0] + y * np.exp(-F[:, 0]),
        ),
        "tweedie": (
            one(
                lambda f, y: np.exp((2 - rho) * f) - y * np.exp((1 - rho) * f),
                lambda f, y: (
                    (2 - rho) * np.exp((2 - rho) * f) - (1 - rho) * y * np.exp((1 - rho) * f)
                ),
            ),
            lambda F, y: (
                np.exp((2 - rho) * F[:, 0]) / (2 - rho)
                - y * np.exp((1 - rho) * F[:, 0]) / (1 - rho)
            ),
        ),
        "binary": logistic(p["sigmoid"]),
        "cross_entropy": logistic(1.0),
        "multiclass": all_classes(p["num_class"]) if p["num_class"] > 1 else None,
        "multiclassova": one_against_all(p["sigmoid"], p["num_class"]),
    }[p["objective"]]


def start(p, class_weight):
    """(y, w) -> starting score. class_weight: of each class number, as the wrapper has it."""

    def score(y, w):
        if class_weight is not None:
            w = w * class_weight[y.astype(int)]
        if p["num_class"] > 1:
            share = np.bincount(y.astype(int), w, p["num_class"]) / w.sum()
            return (
                np.log(share / (1 - share)) / p["sigmoid"]
                if p["objective"] == "multiclassova"
                else np.log(share)
            )
        mean = (w * y).sum() / w.sum()
        if p["objective"] in ("poisson", "gamma", "tweedie"):
            return np.array([np.log(mean)])
        if p["objective"] in ("binary", "cross_entropy"):
            return np.array([np.log(mean / (1 - mean)) / p["sigmoid"]])
        return np.array([mean])

    return score


def percentile(v, w, alpha, weighted):
    """Of values with weights."""
    if len(v) == 1:
        return v[0]
    if not weighted:
        down = np.sort(v)[::-1]
        at = (len(v) - 1) * (1 - alpha) if VERSION >= (4, 1) else len(v) * (1 - alpha) - 1
        k = int(np.floor(at))
        if k < 0:
            return down[0]
        return down[-1] if k + 1 >= len(v) else down[k] - (down[k] - down[k + 1]) * (at - k)
    order = np.argsort(v, kind="stable")
    v = v[order]
    total = np.cumsum(w[order])
    share = total[-1] * alpha
    k = min(int((total <= share).sum()), len(v) - 1)
    if k in (0, len(v) - 1):
        return v[k]
    if VERSION < (4, 7):
        gap = total[k + 1] - total[k]
        return v[k - 1] + (share - total[k]) / gap * (v[k] - v[k - 1]) if gap >= 1 else v[k]
    gap = total[k] - total[k - 1]
    return v[k - 1] + (share - total[k - 1]) / gap * (v[k] - v[k - 1]) if gap >= 1 else v[k - 1]


def quantile_leaves(p, weighted):
    """What replaces derivatives for regression_l1, quantile and mape."""
    relative = p["objective"] == "mape"
    alpha = float(np.float32(p["alpha"])) if p["objective"] == "quantile" else 0.5

    def scaled(y, w):
        return (
            np.float32(np.float32(1 / np.maximum(1, np.abs(y))) * np.float32(w)).astype(float)
            if relative
            else w
        )

    def leaf(ids, L, residual, y, w):
        out = np.zeros(L)
        for k in np.unique(ids[w > 0]):
            here = (ids == k) & (w > 0)
            out[k] = percentile(residual[here], scaled(y, w)[here], alpha, weighted or relative)
        return out

    def value(F, y):
        r = y - F[:, 0]
        if p["objective"] == "quantile":
            return np.maximum(alpha * r, (alpha - 1) * r)
        return np.abs(r) / (np.maximum(1, np.abs(y)) if relative else 1.0)

    def base(y, w):
        return np.float32([percentile(y, scaled(y, w), alpha, weighted or relative)]).astype(float)

    return leaf, value, base


# ---- rows and trees drawn at random ----


class Random:
    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (214013 * self.x + 2531011) % 2**32
        return (self.x // 2**16 % 2**15) / 2**15


def bags(p, y, T):
    """For each iteration 1 for rows in the bag."""
    n = len(y)
    balanced = (
        p["objective"] == "binary" and min(p["pos_bagging_fraction"], p["neg_bagging_fraction"]) < 1
    )
    if not p["bagging_freq"] or not (balanced or p["bagging_fraction"] < 1):
        return None
    chance = np.full(n, p["bagging_fraction"])
    if balanced:
        chance = np.where(y > 0, p["pos_bagging_fraction"], p["neg_bagging_fraction"])
    randoms = [Random(p["bagging_seed"] + block) for block in range(n // 1024 + 1)]
    out = []
    for t in range(T):
        if t % p["bagging_freq"] == 0:
            out.append(np.array([float(randoms[i // 1024].next() < chance[i]) for i in range(n)]))
        else:
            out.append(out[-1])
    return out


def goss(p, booster, case, derivatives, start_score):
    """For each iteration 1 for rows of large gradients, a multiple for some others; at most 1024 rows."""
    X = case.data.X
    y = np.float32(case.data.codes).astype(float)
    n = len(y)
    random = Random(p["bagging_seed"])
    out = []
    top = int(n * p["top_rate"])
    other = int(n * p["other_rate"])
    for t in range(booster.num_trees() // p["num_class"]):
        drawn = np.ones(n)
        if t >= int(1 / p["learning_rate"]):
            A = booster.predict(X, raw_score=True, num_iteration=t).reshape(n, -1)
            g, h = derivatives(A, y)
            w = case.w[:, None]
            size = np.abs(np.float32(w * g) * np.float32(w * np.einsum("nkk->nk", h))).sum(axis=1)
            threshold = np.sort(size)[-top]
            picked = 0
            large = 0
            for i in range(n):
                if size[i] >= threshold:
                    large += 1
                else:
                    drawn[i] = 0
                    if random.next() < (other - picked) / (n - i - (top - large)):
                        drawn[i] = (n - top) / other
                        picked += 1
        out.append(drawn)
    return out


def dart(p, T):
    """Learning rates, and what is added to the scores before each iteration: -1 is the starting score."""
    random = Random(p["drop_seed"])
    lr = p["learning_rate"]
    size = []
    weight = []
    total = 0.0
    rates = []
    moves = []
    back = []
    for t in range(T):
        dropped = []
        if random.next() >= p["skip_drop"]:
            mean = total / t if t else 1.0
            limit = p["max_drop"] / (t if p["uniform_drop"] else total * mean) if t else 1.0
            for i in range(t):
                chance = min(p["drop_rate"], limit) * (
                    1.0 if p["uniform_drop"] else weight[i] / mean
                )
                if random.next() < chance:
                    dropped.append(i)
                    if len(dropped) == p["max_drop"]:
                        break
        k = len(dropped)
        out = [(i, -size[i]) for i in dropped]
        moves.append(([(t - 1, 1.0)] if t else []) + with_base(back) + with_base(out))
        rates.append(lr / (1 + k) if not p["xgboost_dart_mode"] else lr / (lr + k) if k else lr)
        for i in dropped:
            others = k + (lr if p["xgboost_dart_mode"] else 1)
            size[i] *= k / others
            total -= weight[i] / others  # not what is taken off the weight, as XGBoost counts
            weight[i] *= k / others
        back = [(i, size[i]) for i in dropped]
        size.append(1.0)
        weight.append(rates[-1])
        total += rates[-1]
    return rates, [*moves, [(T - 1, 1.0), *with_base(back)]]


def with_base(moves):
    """The first trees take the starting score with them."""
    return [*moves, *[(-1, factor) for i, factor in moves if i == 0]]


# ---- structures ----


def nodes(tree):
    """(node, leaves below it) of every node of a dumped tree."""
    if "leaf_index" in tree:
        return [(tree, [tree["leaf_index"]])]
    left = nodes(tree["left_child"])
    right = nodes(tree["right_child"])
    return [(tree, left[0][1] + right[0][1]), *left, *right]


def many_categories(split, kinds):
    return split["decision_type"] == "==" and kinds[split["split_feature"]] > 4


def more_l2(tree, L, kinds, cat_l2):
    """(L,) cat_l2 of the leaves below a split of many categories against many."""
    out = np.zeros(L)
    for node, _ in nodes(tree):
        for child in (node.get("left_child"), node.get("right_child")):
            if child and "leaf_index" in child and many_categories(node, kinds):
                out[child["leaf_index"]] = cat_l2
    return out


def leaning(tree, L, smooth):
    """For each leaf the nodes it leans on: (leaves below, share, more l2)."""
    paths = [None] * L

    def visit(node, path):
        below = np.array(nodes(node)[0][1])
        n = node.get("leaf_count", node.get("internal_count"))
        a = n / (n + smooth) if path else 1.0
        path = [(b, (1 - a) * share, 0.0) for b, share, _ in path] + [(below, a, 0.0)]
        if "leaf_index" in node:
            paths[node["leaf_index"]] = path
        else:
            visit(node["left_child"], path)
            visit(node["right_child"], path)

    visit(tree, [])
    return paths


def structure(case, kinds=None, class_weight=None, rates=None, **settings):
    """Oracle's structure of a model trained with these settings. kinds: number of bins of category columns."""
    p = {**DEFAULTS, **settings}
    booster = getattr(case.model, "booster_", case.model)
    K = p["num_class"]
    trees = booster.dump_model()["tree_info"]
    T = len(trees) // K
    counts = [tree["num_leaves"] for tree in trees]
    y = np.float32(case.data.codes).astype(float)

    def steps(X):
        ids = booster.predict(X, pred_leaf=True).reshape(-1, len(trees)).astype(int)
        return [[(ids[:, t * K + k], counts[t * K + k], k) for k in range(K)] for t in range(T)]

    weighted = case.weight is not None
    more = {}
    averaged = p["boost_from_average"] and case.baseline is None
    base = start(p, class_weight)
    if p["objective"] in ("regression_l1", "quantile", "mape"):
        derivatives = None
        (leaf, value, base) = quantile_leaves(p, weighted)
        more["leaf"] = leaf
    else:
        derivatives, value = formulas(p)
    row_weight = np.ones(len(y)) if class_weight is None else class_weight[y.astype(int)]
    rate = p["learning_rate"] if rates is None else rates
    moves = None
    if p["boosting"] == "dart":
        rate, moves = dart(p, T)
    elif p["boosting"] == "rf":
        rate = 1.0
        moves = [*[[]] * T, [(t, 1 / T) for t in range(T)]]
    drawn = bags(p, y, T)
    if p["data_sample_strategy"] == "goss":
        drawn = goss(p, booster, case, derivatives, base)
    label_weight = np.ones((len(y), K))
    if p["is_unbalance"] or p["scale_pos_weight"] != 1:
        for k in range(K):
            positive = (y == k) if K > 1 else (y > 0)
            ratio = (
                (~positive).sum() / positive.sum() if p["is_unbalance"] else p["scale_pos_weight"]
            )
            label_weight[:, k] = np.where(
                positive, max(ratio, 1), max(1 / ratio, 1) if p["is_unbalance"] else 1
            )
    if K == 1:
        row_weight = row_weight * label_weight[:, 0]
    elif drawn is None and np.any(label_weight != 1):
        drawn = [np.ones(len(y))] * T
    if drawn is not None:
        more["sample"] = [
            [d * (label_weight[:, k] if K > 1 else 1.0) for k in range(K)] for d in drawn
        ]
    dumped = [tree["tree_structure"] for tree in trees]
    if kinds is not None:
        l2 = [more_l2(tree, L, kinds, p["cat_l2"]) for tree, L in zip(dumped, counts, strict=True)]
        more["more_l2"] = [l2[t * K : (t + 1) * K] for t in range(T)]
    if p["path_smooth"]:
        more["paths"] = [
            [leaning(tree, L, p["path_smooth"])] for tree, L in zip(dumped, counts, strict=True)
        ]
    made = Structure(
        loss=p["objective"],
        steps=steps(case.data.X),
        K=K,
        O=1,
        newton=True,
        l2=p["lambda_l2"],
        lr=rate,
        scales=[[1.0]] * T,
        base=0.0,
        l2_scales=False,
        offset=0.0 if case.baseline is None else np.reshape(case.baseline, (len(y), K)),
        moves=moves,
        l1=p["lambda_l1"],
        max_step=p["max_delta_step"] or np.inf,
        derivatives=derivatives,
        loss_value=value,
        base_value=base if averaged else None,
        class_weight=row_weight,
        **more,
    )
    return made, steps(case.data.X_test)


# ---- models ----


def raw(model, X):
    booster = getattr(model, "booster_", model)
    F = np.asarray(booster.predict(X, raw_score=True)).reshape(X.shape[0], -1)
    forest = "\naverage_output" in booster.model_to_string()[:2000]
    return (
        F / booster.current_iteration() if forest else F
    )  # raw_score leaves out what predict() divides by


def train(data, rounds=15, weighted=False, baseline=None, callbacks=(), **settings):
    """A case of lightgbm.train with these settings; `structure` of the same."""
    params = {**SMALL, **settings}
    like = {k: v for k, v in params.items() if k in DEFAULTS}

    def fit(X, y, weight, given):
        rows = lgb.Dataset(X, y, weight=weight, init_score=given)
        return lgb.train(params, rows, rounds, callbacks=list(callbacks))

    def refit(case, w):
        again = case.model.refit(
            case.data.X, case.data.y, decay_rate=0.0, weight=w, init_score=case.baseline
        )
        return raw(again, case.data.X_test)

    drawn = params.get("bagging_freq", 0) > 0 or params.get("data_sample_strategy") == "goss"
    plain = params.get("boosting", "gbdt") == "gbdt" and not drawn and not params.get("path_smooth")
    return Case(
        name="",
        data=data,
        fit=fit,
        raw=raw,
        structure=lambda case: structure(case, **like),
        weight=weights(len(data.codes)) if weighted else None,
        baseline=baseline,
        smooth=params.get("objective") not in ("regression_l1", "quantile", "mape"),
        ordered=drawn,
        counts_rows=True,
        own_refit=refit if plain and params.get("boost_from_average") is False else None,
    )


def wrapper(kind, data, like, weighted=False, **settings):
    """A case of LGBMClassifier or LGBMRegressor with these settings, like `structure`'s with those of ``like``."""

    def fit(X, y, weight, given):
        return kind(**QUIET, **settings).fit(X, y, sample_weight=weight, init_score=given)

    return Case(
        name="",
        data=data,
        fit=fit,
        raw=raw,
        structure=lambda case: structure(case, **like),
        weight=weights(len(data.codes)) if weighted else None,
        counts_rows=True,
    )


KINDS = [0, 0, 0, 0, 4, 30]  # bins of the columns of `frame`: categories and one for others


def classifier_defaults():
    """Strings for classes, missing values, two columns of categories."""
    like = {"objective": "binary", "kinds": KINDS}
    return wrapper(lgb.LGBMClassifier, frame(many=True), like, n_estimators=20)


def regressor_defaults():
    return wrapper(lgb.LGBMRegressor, frame("number", many=True), {"kinds": KINDS}, n_estimators=20)


def three_classes_defaults():
    like = {"objective": "multiclass", "num_class": 3}
    return wrapper(lgb.LGBMClassifier, three_classes(text=True), like, n_estimators=12)


def balanced_classes():
    data = binary(text=True)
    share = np.bincount(data.codes.astype(int)) / len(data.codes)
    like = {
        "objective": "binary",
        "scale_pos_weight": 1.7,
        "lambda_l2": 0.5,
        "class_weight": 1 / (2 * share),
    }
    settings = {"class_weight": "balanced", "scale_pos_weight": 1.7, "reg_lambda": 0.5}
    return wrapper(lgb.LGBMClassifier, data, like, True, n_estimators=15, **settings)


def weighted_classes():
    more = {"max_delta_step": 0.9, "lambda_l1": 0.3, "lambda_l2": 0.7}
    like = {
        "objective": "multiclass",
        "num_class": 3,
        "class_weight": np.array([1.0, 2.5, 1.0]),
        **more,
    }
    return wrapper(
        lgb.LGBMClassifier,
        three_classes(text=True),
        like,
        True,
        n_estimators=12,
        class_weight={"barolo": 2.5},
        **more,
    )


def early_stopping():
    case = train(numbers())

    def fit(X, y, weight, given):
        rows = lgb.Dataset(X, y)
        held = lgb.Dataset(case.data.X_test, case.data.y_test, reference=rows)
        model = lgb.train(
            SMALL,
            rows,
            200,
            valid_sets=[held],
            callbacks=[lgb.early_stopping(5, verbose=False)],
            keep_training_booster=True,
        )
        assert 5 < model.best_iteration < 100
        return model

    case.fit = fit
    return case


def sparse():
    data = numbers()
    holes = np.random.default_rng(6).random((len(data.y) + len(data.y_test), data.X.shape[1])) < 0.4
    X = csr_matrix(np.where(holes, 0, np.concatenate([data.X, data.X_test])))
    n = len(data.y)
    case = train(
        Data(X[:n], data.y, data.codes, X[n:], data.y_test, data.test_codes),
        zero_as_missing=True,
        extra_trees=True,
    )
    return case


def schedule():
    case = train(
        numbers(),
        weighted=True,
        callbacks=[lgb.reset_parameter(learning_rate=lambda t: 0.3 * 0.9**t)],
    )
    case.structure = lambda case: structure(case, rates=[0.3 * 0.9**t for t in range(15)])
    return case


def continued():
    """Six iterations, then nine more of another learning rate."""
    case = train(numbers())

    def fit(X, y, weight, given):
        first = lgb.train(SMALL, lgb.Dataset(X, y), 6)
        return lgb.train({**SMALL, "learning_rate": 0.05}, lgb.Dataset(X, y), 9, init_model=first)

    case.fit = fit
    case.structure = lambda case: structure(case, rates=[0.15] * 6 + [0.05] * 9)
    return case


def scores(data, K=1):
    return np.random.default_rng(4).normal(size=(len(data.codes), K)).squeeze() * 0.3


ROUNDS = {"objective": "multiclass", "num_class": 3, "rounds": 10}

CASES = {
    "LGBMClassifier, defaults": classifier_defaults,
    "LGBMRegressor, defaults": regressor_defaults,
    "LGBMClassifier, defaults, multiclass": three_classes_defaults,
    "regression, weights, l1, l2, max_delta_step": lambda: train(
        numbers(),
        weighted=True,
        lambda_l1=1.0,
        lambda_l2=2.0,
        max_delta_step=0.5,
        boost_from_average=False,
    ),
    "huber, weights": lambda: train(  # an alpha that no residual comes close to
        numbers(), 8, True, objective="huber", alpha=1.25, boost_from_average=False
    ),
    "fair": lambda: train(numbers(), objective="fair", fair_c=0.8),
    "poisson, weights, l2": lambda: train(
        numbers("counts"), weighted=True, objective="poisson", lambda_l2=1.0
    ),
    "gamma, no starting score": lambda: train(
        numbers("positive"), objective="gamma", boost_from_average=False
    ),
    "tweedie, weights": lambda: train(
        numbers("positive"), weighted=True, objective="tweedie", tweedie_variance_power=1.3
    ),
    "cross_entropy, weights": lambda: train(
        numbers("fractions"), weighted=True, objective="cross_entropy"
    ),
    "binary, sigmoid, is_unbalance": lambda: train(
        binary(), objective="binary", sigmoid=0.7, is_unbalance=True
    ),
    "LGBMClassifier, balanced, scale_pos_weight, weights": balanced_classes,
    "multiclass, class_weight, weights, l1, l2, max_delta_step": weighted_classes,
    "multiclassova, weights, scale_pos_weight": lambda: train(
        three_classes(),
        10,
        True,
        objective="multiclassova",
        num_class=3,
        sigmoid=1.2,
        scale_pos_weight=1.8,
    ),
    "init_score": lambda: train(
        binary(),
        weighted=True,
        baseline=scores(binary()),
        objective="binary",
        boost_from_average=False,
    ),
    "multiclass, init_score": lambda: train(
        three_classes(), baseline=scores(three_classes(), 3), **ROUNDS
    ),
    "bagging, weights": lambda: train(
        numbers(), weighted=True, bagging_fraction=0.6, bagging_freq=2
    ),
    "binary, bagging of classes": lambda: train(
        binary(),
        objective="binary",
        pos_bagging_fraction=0.5,
        neg_bagging_fraction=0.8,
        bagging_freq=1,
    ),
    "multiclass, bagging": lambda: train(
        three_classes(), bagging_fraction=0.7, bagging_freq=1, **ROUNDS
    ),
    "GOSS": lambda: train(
        binary(), objective="binary", data_sample_strategy="goss", learning_rate=0.25
    ),
    "GOSS, weights": lambda: train(
        binary(), weighted=True, objective="binary", data_sample_strategy="goss", learning_rate=0.25
    ),
    "DART, weights": lambda: train(
        numbers(), weighted=True, boosting="dart", drop_rate=0.3, skip_drop=0.2
    ),
    "DART as in XGBoost, bagging": lambda: train(
        binary(),
        objective="binary",
        boosting="dart",
        drop_rate=0.3,
        skip_drop=0.2,
        xgboost_dart_mode=True,
        bagging_fraction=0.6,
        bagging_freq=1,
    ),
    "multiclass, DART": lambda: train(
        three_classes(), boosting="dart", uniform_drop=True, drop_rate=0.3, skip_drop=0.2, **ROUNDS
    ),
    "forest": lambda: train(
        binary(), objective="binary", boosting="rf", bagging_fraction=0.6, bagging_freq=1
    ),
    "early stopping": early_stopping,
    "sparse, zero_as_missing, extra_trees": sparse,
    "schedule of learning rates, weights": schedule,
    "continued training": continued,
    "path_smooth, l2": lambda: train(numbers(), path_smooth=4.0, lambda_l2=0.5),
    "regression_l1, weights": lambda: train(numbers(), weighted=True, objective="regression_l1"),
    "quantile, bagging": lambda: train(
        numbers(), objective="quantile", alpha=0.3, bagging_fraction=0.6, bagging_freq=1
    ),
    "mape": lambda: train(numbers("positive"), objective="mape"),
}
if VERSION >= (4, 6):  # earlier ones fail a check of their own
    CASES["quantised, leaves renewed"] = lambda: train(
        numbers(), use_quantized_grad=True, quant_train_renew_leaf=True
    )
