"""XGBoost settings for the contract. What the oracle needs is read from XGBoost's JSON and its documentation of the
formulas, and random draws are made again in plain Python integers; nothing here uses leaftrace."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import boosters
import numpy as np
import xgboost as xgb
from boosters import Case
from oracle import Structure, sigmoid, softmax

VERSION = tuple(map(int, xgb.__version__.split(".")[:2]))


def f32(x):
    return np.float32(x).astype(float)


# ---- reading a booster ----


def booster_of(model):
    return model if isinstance(model, xgb.Booster) else model.get_booster()


def rounds_of(model):
    """Rounds the model predicts with: the scikit-learn classes stop at the best iteration."""
    booster = booster_of(model)
    if isinstance(model, xgb.Booster) or booster.attr("best_iteration") is None:
        return booster.num_boosted_rounds()
    return int(booster.attr("best_iteration")) + 1


def matrix(X, **more):
    return xgb.DMatrix(X, enable_categorical=True, **more)


def raw(model, X):
    F = booster_of(model).predict(
        matrix(X), output_margin=True, iteration_range=(0, rounds_of(model))
    )
    return F.astype(float).reshape(len(F), -1)


def steps_of(model, X):
    """Steps of the oracle; its leaves are all nodes of a tree, most of them without rows."""
    booster = booster_of(model)
    rounds = rounds_of(model)
    gb = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    forest = gb.get("gbtree", gb)["model"]
    ids = booster.predict(matrix(X), pred_leaf=True, iteration_range=(0, rounds))
    ids = ids.reshape(len(ids), -1).astype(int)
    vectors = int(forest["trees"][0]["tree_param"]["size_leaf_vector"]) > 1
    trees = [
        (
            ids[:, t],
            int(forest["trees"][t]["tree_param"]["num_nodes"]),
            0 if vectors else forest["tree_info"][t],
        )
        for t in range(ids.shape[1])
    ]
    if gb["name"] == "dart":
        return [[tree] for tree in trees]
    edges = forest["iteration_indptr"][: rounds + 1]
    return [trees[a:b] for a, b in pairwise(edges)]


def config_of(model):
    """All training parameters by name, the objective's last."""
    config = json.loads(booster_of(model).save_config())["learner"]
    found = {}

    def walk(part):
        for name, value in part.items():
            if isinstance(value, dict):
                walk(value)
            elif isinstance(value, str):
                found[name] = value

    walk(config)
    walk(config["objective"])
    return found


# ---- XGBoost's formulas ----


def diagonal(h):
    return h[:, :, None] * np.eye(h.shape[1])


def derivatives(objective, p):
    def of(A, y):
        t = y[:, None]
        if objective in ("binary:logistic", "reg:logistic", "binary:logitraw"):
            q = sigmoid(A)
            return q - t, (q * (1 - q))[..., None]
        if objective.startswith("multi:"):
            q = softmax(A)
            return q - np.eye(A.shape[1])[y.astype(int)], diagonal(2 * q * (1 - q))
        if objective == "count:poisson":
            return np.exp(A) - t, np.exp(A + f32(p["max_delta_step"]))[..., None]
        if objective == "reg:gamma":
            return 1 - t * np.exp(-A), (t * np.exp(-A))[..., None]
        if objective == "reg:tweedie":
            a = 1 - f32(p["tweedie_variance_power"])
            b = 2 - f32(p["tweedie_variance_power"])
            return -t * np.exp(a * A) + np.exp(b * A), (-t * a * np.exp(a * A) + b * np.exp(b * A))[
                ..., None
            ]
        if objective == "reg:pseudohubererror":
            d = f32(p["huber_slope"])
            z = A - t
            root = np.sqrt(1 + z**2 / d**2)
            return z / root, (d**2 / ((d**2 + z**2) * root))[..., None]
        if objective == "reg:squaredlogerror":
            h = (1 - np.log1p(A) + np.log1p(t)) / (A + 1) ** 2
            return (np.log1p(A) - np.log1p(t)) / (A + 1), np.maximum(h, 1e-6)[..., None]
        if objective == "binary:hinge":
            s = 2 * t - 1
            counts = (s * A < 1).astype(float)
            return -s * counts, counts[..., None]
        return A - t, np.ones((*A.shape, 1))

    return of


def loss_value(objective, p):
    def of(F, y):
        f = F[:, 0]
        if objective in ("binary:logistic", "reg:logistic", "binary:logitraw"):
            return np.logaddexp(0, f) - y * f
        if objective.startswith("multi:"):
            return np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)]
        if objective == "count:poisson":
            return np.exp(f) - y * f
        if objective == "reg:gamma":
            return f + y * np.exp(-f)
        if objective == "reg:tweedie":
            a = 1 - f32(p["tweedie_variance_power"])
            b = 2 - f32(p["tweedie_variance_power"])
            return -y * np.exp(a * f) / a + np.exp(b * f) / b
        if objective == "reg:pseudohubererror":
            d = f32(p["huber_slope"])
            return d**2 * (np.sqrt(1 + ((f - y) / d) ** 2) - 1)
        if objective == "reg:squaredlogerror":
            return (np.log1p(f) - np.log1p(y)) ** 2 / 2
        if objective == "binary:hinge":
            return np.maximum(0, 1 - (2 * y - 1) * f)
        if objective == "reg:absoluteerror":
            return np.abs(y - f) / 2
        if objective == "reg:quantileerror":
            a = alpha_of(p)
            return np.maximum(a * (y - f), (a - 1) * (y - f))
        return (f - y) ** 2 / 2

    return of


def alpha_of(p):
    alpha = json.loads(p["quantile_alpha"])
    return f32(alpha[0] if isinstance(alpha, list) else alpha)


def base_value(objective, p, weighted, scale_pos_weight):
    """The estimated starting score: (y, w) -> (K,), w before scale_pos_weight."""
    g_h = derivatives(objective, p)

    def newton(y, w):
        w = w * np.where(y == 1, scale_pos_weight, 1.0)
        g, h = g_h(np.zeros((len(y), 1)), y)
        return np.array([-(w @ g[:, 0]) / (w @ h[:, 0, 0])])

    def of(y, w):
        if objective.startswith("multi:"):
            K = int(p["num_class"])
            share = np.bincount(y.astype(int), w, K) / w.sum()
            logs = np.log(share + 1e-6)
            return (
                logs - logs.mean()
                if VERSION >= (3, 2)
                else share
                if VERSION >= (3, 1)
                else np.full(K, 0.5)
            )
        if objective == "binary:hinge":
            return np.array([float(newton(y, w)[0] > 0) if VERSION >= (2, 1) else 0.5])
        if objective in ("reg:absoluteerror", "reg:quantileerror"):
            alpha = 0.5 if objective == "reg:absoluteerror" else alpha_of(p)
            return np.array([quantile(y, w, alpha, weighted)])
        if (
            objective in ("reg:pseudohubererror", "reg:squaredlogerror")
            or VERSION < (3, 0)
            or scale_pos_weight != 1
        ):
            return newton(y, w)
        mean = np.array([w @ y / w.sum()])
        if objective in ("binary:logistic", "reg:logistic"):
            return np.log(mean / (1 - mean))
        return np.log(mean) if objective in ("count:poisson", "reg:gamma", "reg:tweedie") else mean

    return of


def quantile(x, w, alpha, weighted):
    """Weighted: the first value whose cumulated weight reaches alpha of all; otherwise between two values."""
    order = np.argsort(f32(x), kind="stable")
    x = f32(x)[order]
    w = w[order]
    if weighted:
        below = np.cumsum(np.float32(w), dtype=np.float32)
        return x[min(int((below < np.float32(below[-1] * alpha)).sum()), len(x) - 1)]
    n = len(x)
    if alpha <= 1 / (n + 1):
        return x[0]
    if alpha >= n / (n + 1):
        return x[-1]
    place = alpha * (n + 1)
    k = int(np.floor(place)) - 1
    return x[k] + (place - 1 - k) * (x[k + 1] - x[k])


def quantile_leaf(alpha, weighted):
    def of(ids, L, residual, y, w):
        out = np.zeros(L)
        for leaf in np.unique(ids[w > 0]):
            here = (ids == leaf) & (w > 0)
            out[leaf] = quantile(residual[here], w[here], alpha, weighted)
        return out

    return of


def link(objective, base_score):
    if objective in ("binary:logistic", "reg:logistic"):
        return np.log(base_score / (1 - base_score))
    return (
        np.log(base_score)
        if objective in ("count:poisson", "reg:gamma", "reg:tweedie")
        else base_score
    )


# ---- XGBoost's random draws, in Python integers ----


def words(seed):
    """The 32-bit words of mt19937(seed)."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    return lambda: generator.getrandbits(32)


def uniform(word):
    low = word()
    return (low + (word() << 32)) / 2**64


def rows_by_congruence(word, n, subsample):
    x = word()
    drawn = []
    for _ in range(n):
        x = x * 16807 % 2**63
        drawn.append((x - 1) / 2**63 < subsample)
    return np.array(drawn, float)


def draws(n, p, trees, dart=None):
    """(rows of each tree, dropped trees of each round): ``trees`` a round each a count."""
    word = words(int(p["seed"]))
    subsample = float(np.float32(p["subsample"]))
    exact = p["tree_method"] == "exact"
    old = VERSION < (2, 1)
    rows = []
    dropped = []
    count = 0
    if old and not exact:
        word()
    for number, new in enumerate(trees):
        if dart is not None:
            dropped.append([i for i in range(count) if uniform(word) < float(np.float32(dart))])
        if number == 0 and not exact and not old:
            word()
        for _ in range(new):
            if exact and old:
                word()
            if subsample == 1:
                drawn = np.ones(n)
            elif exact:
                drawn = np.array([uniform(word) < subsample for _ in range(n)], float)
            else:
                drawn = rows_by_congruence(word, n, subsample)
            if exact and not old:
                word()
            rows.append(drawn)
        count += new
    return rows, dropped


def dart_moves(dropped, new, rate):
    """What DART does to the scores before each tree, and at last; normalize_type "tree"."""
    weight = []
    moves = []
    after = []
    for drop in dropped:
        moves.append(after + [(i, -weight[i]) for i in drop])
        moves += [[] for _ in range(new - 1)]
        first = len(weight)
        k = len(drop)
        for i in drop:
            weight[i] *= k / (k + rate / new)
        weight += [1 / (k + rate / new) if k else 1.0] * new
        after = [(i, weight[i]) for i in [*drop, *range(first, len(weight))]]
    return [*moves, after]


# ---- cases ----


def structure(case, given=None):
    """``given``: training parameters where the model does not know them."""
    model = case.model
    data = case.data
    p = config_of(case.model) | (given or {})
    objective = p["objective"]
    booster = booster_of(model)
    details = json.loads(bytes(booster.save_raw("json")))["learner"]
    steps = steps_of(model, data.X)
    n = len(data.y)
    K = max(1, int(p["num_class"]))
    vectors = K > 1 and p["multi_strategy"] == "multi_output_tree"
    npt = int(p["num_parallel_tree"])
    rate = f32(p["learning_rate"])
    bound = f32(p["max_delta_step"])
    spw = f32(p.get("scale_pos_weight", 1))
    stored = np.atleast_1d(json.loads(details["learner_model_param"]["base_score"])).astype(float)
    base = np.broadcast_to(link(objective, stored), K)
    offset = 0.0
    estimated = details["learner_model_param"]["boost_from_average"] == "1"
    if case.baseline is not None:
        estimated = False
        offset = f32(case.baseline).reshape(n, K) - base
    sample = moves = None
    counts = [len(step) for step in steps]
    if details["gradient_booster"]["name"] == "dart":
        counts = [npt * K] * (len(steps) // (npt * K))
        rows, dropped = draws(n, p, counts, p["rate_drop"])
        moves = dart_moves(dropped, npt * K, rate)
    else:
        rows, _ = draws(n, p, counts)
    if float(p["subsample"]) < 1:
        edges = np.cumsum([0, *[len(step) for step in steps]])
        sample = [rows[a:b] for a, b in pairwise(edges)]
    # A leaf at min_child_weight, by default one row of weight one, becomes zero with any less weight. The slope is that
    # of more weight, so the oracle's bound is where the steps of a finite difference do not reach it.
    slack = 0.01 if objective == "reg:squarederror" and case.weight is None else 0.0
    leaf = None
    if objective in ("reg:absoluteerror", "reg:quantileerror"):
        leaf = quantile_leaf(
            0.5 if objective == "reg:absoluteerror" else alpha_of(p), case.weight is not None
        )
    return Structure(
        loss=objective,
        steps=steps,
        K=K,
        O=K if vectors else 1,
        newton=True,
        l2=f32(p["reg_lambda"]),
        lr=rate / npt,
        scales=[[1.0]] * len(steps),
        base=base,
        l2_scales=False,
        offset=offset,
        sample=sample,
        moves=moves,
        l1=f32(p["reg_alpha"]),
        max_step=bound or np.inf,
        min_hessian=f32(p["min_child_weight"]) - slack,
        derivatives=derivatives(objective, p),
        loss_value=loss_value(objective, p),
        base_value=base_value(objective, p, case.weight is not None, spw) if estimated else None,
        leaf=leaf,
        diagonal=True,
        class_weight=np.where(data.codes == 1, spw, 1.0) if "scale_pos_weight" in p else 1.0,
    ), steps_of(model, data.X_test)


def refresh(params):
    """XGBoost's own refit of all leaves. It keeps the base score, so it is for models that were given one."""

    def refit(case, w):
        rounds = case.model.num_boosted_rounds()
        params_now = {
            **params,
            "process_type": "update",
            "updater": "refresh",
            "refresh_leaf": True,
            "verbosity": 0,
        }
        rows = matrix(case.data.X, label=case.data.y, weight=w, base_margin=case.baseline)
        return raw(xgb.train(params_now, rows, rounds, xgb_model=case.model), case.data.X_test)

    return refit


def coded(data):
    """Labels as XGBoost takes them: whole numbers for classes."""
    return boosters.Data(
        data.X,
        data.codes.astype(int),
        data.codes,
        data.X_test,
        data.test_codes.astype(int),
        data.test_codes,
    )


def case(name, data, fit, weight=False, **more):
    weights = boosters.weights(len(data.y)) if weight else None
    more = {"structure": structure, "tolerance": 5e-7, **more}
    return Case(name, data, fit, raw, weight=weights, **more)


def boosted(name, data, rounds=15, refreshed=False, weight=False, baseline=None, **params):
    """A Booster."""
    params = {"max_depth": 4, "seed": 7, "nthread": 1, **params}
    objective = params.get("objective", "reg:squarederror")
    if objective.startswith("multi:"):
        params["num_class"] = 3

    def fit(X, y, w, margin):
        return xgb.train(params, matrix(X, label=y, weight=w, base_margin=margin), rounds)

    return case(
        name,
        data,
        fit,
        weight,
        baseline=baseline,
        smooth=objective not in ("reg:absoluteerror", "reg:quantileerror"),
        ordered=params.get("subsample", 1) < 1,
        own_refit=refresh(params) if refreshed else None,
    )


def wrapped(name, data, estimator, weight=False, ordered=False, **arguments):
    """One of the scikit-learn classes."""

    def fit(X, y, w, margin):
        return estimator(n_jobs=1, **arguments).fit(X, y, sample_weight=w, base_margin=margin)

    return case(name, data, fit, weight, ordered=ordered)


def stopped_early():
    data = boosters.numbers()

    def fit(X, y, w, margin):
        model = xgb.XGBRegressor(n_jobs=1, n_estimators=40, max_depth=3, early_stopping_rounds=3)
        return model.fit(
            X, y, sample_weight=w, eval_set=[(data.X_test, data.y_test)], verbose=False
        )

    found = case("early stopping", data, fit, weight=True)
    assert rounds_of(found.model) < booster_of(found.model).num_boosted_rounds() < 40
    return found


def loaded():
    """A file keeps no training parameters."""
    data = coded(boosters.binary())
    params = {
        "max_depth": 3,
        "eta": 0.17,
        "reg_lambda": 2.5,
        "objective": "binary:logistic",
        "nthread": 1,
    }

    def fit(X, y, w, margin):
        booster = xgb.train(params, matrix(X, label=y, weight=w), 12)
        return xgb.Booster(model_file=booster.save_raw("ubj"))

    def read(c):
        return structure(c, {"learning_rate": "0.17", "reg_lambda": "2.5"})

    return case("loaded", data, fit, weight=True, structure=read)


def binary():
    return coded(boosters.binary())


def three_classes():
    return coded(boosters.three_classes())


def some_scores(data):
    return np.float32(0.3 * np.random.default_rng(4).normal(size=len(data.y)))


CASES = {
    "XGBRegressor defaults": lambda: wrapped("reg", boosters.numbers(), xgb.XGBRegressor, n_estimators=15),
    "XGBClassifier defaults": lambda: wrapped("clf", binary(), xgb.XGBClassifier, n_estimators=15),
    "XGBClassifier defaults, multiclass": lambda: wrapped("multi", three_classes(), xgb.XGBClassifier, n_estimators=7),
    "XGBRFRegressor defaults": lambda: wrapped(
        "forest", boosters.numbers(), xgb.XGBRFRegressor, ordered=True, n_estimators=12
    ),
    "XGBRFClassifier defaults": lambda: wrapped(
        "forest", binary(), xgb.XGBRFClassifier, ordered=True, n_estimators=12
    ),
    "categories and missing values": lambda: wrapped(
        "frame", coded(boosters.frame()), xgb.XGBClassifier, enable_categorical=True, n_estimators=12, max_depth=4
    ),
    "many categories, approx": lambda: wrapped(
        "frame",
        boosters.frame("number", many=True),
        xgb.XGBRegressor,
        enable_categorical=True,
        tree_method="approx",
        n_estimators=12,
    ),
    "scale_pos_weight, weights": lambda: wrapped(
        "spw", binary(), xgb.XGBClassifier, weight=True, scale_pos_weight=2.5, n_estimators=12, max_depth=3
    ),
    "early stopping": stopped_early,
    "loaded from a file": loaded,
    "penalties and bounds": lambda: boosted(
        "limits",
        boosters.numbers(),
        weight=True,
        refreshed=True,
        reg_alpha=1.5,
        reg_lambda=0.3,
        max_delta_step=0.6,
        min_child_weight=4,
        gamma=0.2,
        base_score=0.2,
    ),
    "exact, pruned": lambda: boosted(
        "exact", boosters.numbers(), refreshed=True, tree_method="exact", gamma=0.8, base_score=0.5
    ),
    "lossguide, columns sampled": lambda: boosted(
        "lossguide",
        binary(),
        weight=True,
        refreshed=True,
        objective="binary:logistic",
        grow_policy="lossguide",
        max_leaves=9,
        min_child_weight=0.4,
        colsample_bynode=0.5,
        base_score=0.4,
    ),
    "multiclass, parallel trees": lambda: boosted(
        "parallel",
        three_classes(),
        8,
        weight=True,
        refreshed=True,
        objective="multi:softmax",
        num_parallel_tree=2,
        colsample_bynode=0.5,
        base_score=0.5,
    ),
    "multiclass, vector leaves": lambda: boosted(
        "vectors",
        three_classes(),
        12,
        weight=True,
        objective="multi:softprob",
        multi_strategy="multi_output_tree",
        tree_method="hist",
        min_child_weight=0.01,
    ),
    "baseline": lambda: boosted(
        "baseline",
        boosters.numbers(),
        weight=True,
        refreshed=True,
        baseline=some_scores(boosters.numbers()),
    ),
    "subsample": lambda: boosted("rows", boosters.numbers(), weight=True, subsample=0.6, colsample_bytree=0.7),
    "subsample, exact": lambda: boosted(
        "rows", binary(), objective="binary:logistic", tree_method="exact", subsample=0.7
    ),
    "subsample, multiclass": lambda: boosted(
        "rows", three_classes(), 8, objective="multi:softprob", subsample=0.7, weight=True, min_child_weight=0.4
    ),
    "dart": lambda: boosted(
        "dart", binary(), weight=True, objective="binary:logistic", booster="dart", rate_drop=0.3
    ),
    "dart, subsample, multiclass": lambda: boosted(
        "dart", three_classes(), 8, objective="multi:softprob", booster="dart", rate_drop=0.2, subsample=0.8
    ),
    "poisson": lambda: boosted(
        "poisson", boosters.numbers("counts"), weight=True, refreshed=True, objective="count:poisson", base_score=2.0
    ),
    "poisson, estimated start": lambda: boosted(
        "poisson", boosters.numbers("counts"), weight=True, objective="count:poisson", max_delta_step=0.4
    ),
    "gamma": lambda: boosted("gamma", boosters.numbers("positive"), weight=True, objective="reg:gamma"),
    "tweedie": lambda: boosted(
        "tweedie", boosters.numbers("positive"), weight=True, objective="reg:tweedie", tweedie_variance_power=1.3
    ),
    "pseudo-Huber": lambda: boosted(
        "huber",
        boosters.numbers(),
        weight=True,
        objective="reg:pseudohubererror",
        huber_slope=0.7,
        max_depth=3,
        eval_metric="rmse",  # 2.0.0 fails on its default one
    ),
    "squared log error": lambda: boosted(
        "log", boosters.numbers("positive"), weight=True, objective="reg:squaredlogerror"
    ),
    "logistic of fractions": lambda: boosted("fractions", boosters.numbers("fractions"), objective="reg:logistic"),
    "logitraw": lambda: boosted("raw", binary(), weight=True, objective="binary:logitraw"),
    "hinge": lambda: boosted("hinge", binary(), 8, weight=True, objective="binary:hinge"),
    "absolute error": lambda: boosted("mae", boosters.numbers(), 10, objective="reg:absoluteerror"),
    "quantile error, weights, subsample": lambda: boosted(
        "quantile", boosters.numbers(), 9, weight=True, objective="reg:quantileerror", quantile_alpha=0.3, subsample=0.8
    ),
}  # fmt: skip
