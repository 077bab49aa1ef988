"""scikit-learn models for the contract tests, and their structures read from scikit-learn alone."""

from __future__ import annotations

import numpy as np
import sklearn
from boosters import Case, binary, frame, numbers, three_classes, weights
from oracle import Structure, sigmoid
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])

# ---- quantiles, as scikit-learn takes them ----


def lower_quantile(values, w, q):
    """The smallest value with at least the share q of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(w[order])
    return values[order][np.searchsorted(total, q * total[-1])]


def middle(values, w):
    """Half the weight on either side; between two values if it splits there."""
    order = np.argsort(values, kind="stable")
    values = values[order]
    total = np.cumsum(w[order])
    k = int(np.argmax(total >= total[-1] / 2))
    return values[k] if total[k] != total[-1] / 2 else (values[k] + values[k + 1]) / 2


def by_leaf(function):
    """(ids, L, residual, y, w) -> (L,) from a function of the residuals and weights of a leaf."""

    def values(ids, L, residual, y, w):
        out = np.zeros(L)
        for leaf in np.unique(ids[w > 0]):
            here = (ids == leaf) & (w > 0)
            out[leaf] = function(residual[here], w[here])
        return out

    return values


def pinball(q):
    return lambda F, y: np.where(y > F[:, 0], q * (y - F[:, 0]), (1 - q) * (F[:, 0] - y))


# ---- HistGradientBoosting ----


def hist_leaves(model, X):
    """Node of each row in each tree, by walking down the trees' own tables."""
    X = model._preprocess_X(X, reset=False)
    known, place = model._bin_mapper.make_known_categories_bitsets()
    return [[walk_down(tree, X, known, place) for tree in step] for step in model._predictors]


def has_bit(bitset, category):
    return (bitset[category // 32] >> np.uint32(category % 32)) & 1 == 1


def walk_down(tree, X, known, place):
    at = np.zeros(len(X), int)
    for number, node in enumerate(tree.nodes):  # children come after their parents
        here = np.flatnonzero(at == number)
        if node["is_leaf"] or not len(here):
            continue
        x = X[here, node["feature_idx"]]
        feature = node["feature_idx"]
        missing = np.isnan(x)
        if node["is_categorical"]:
            category = np.where(missing | (x < 0), 0, x).astype(int)
            missing |= (x < 0) | ~has_bit(known[place[feature]], category)
            left = has_bit(tree.raw_left_cat_bitsets[node["bitset_idx"]], category)
        else:
            left = x <= node["num_threshold"]
        left = np.where(missing, bool(node["missing_go_to_left"]), left)
        at[here] = np.where(left, node["left"], node["right"])
    return at


def hist_structure(case, class_weight=1.0, stratify=True):
    model = case.model
    p = case.model.get_params()
    K = len(model._predictors[0])
    counts = [[len(tree.nodes) for tree in step] for step in model._predictors]

    def steps(X):
        nodes = hist_leaves(model, X)
        return [
            [(ids, L, k) for k, (ids, L) in enumerate(zip(*t, strict=True))]
            for t in zip(nodes, counts, strict=True)
        ]

    used = np.ones(len(case.w))
    if model.do_early_stopping_:
        groups = case.data.codes if stratify else None
        split = {
            "test_size": model.validation_fraction,
            "random_state": model._random_seed,
            "stratify": groups,
        }
        used[train_test_split(np.arange(len(used)), **split)[1]] = 0
    more = {}
    if p["loss"] in ("absolute_error", "quantile"):
        q = p["quantile"] or 0.5
        interpolated = case.weight is None
        fit = (
            (lambda v, w: np.quantile(v, q))
            if interpolated
            else (lambda v, w: lower_quantile(v, w, q))
        )
        more = {
            "leaf": by_leaf(fit),
            "base_value": lambda y, w: np.array([fit(y, w)]),
            "loss_value": pinball(q),
        }
    names = {"squared_error": "squared", "log_loss": "softmax" if K > 1 else "logistic"}
    structure = Structure(
        loss=names.get(p["loss"], p["loss"]),
        steps=steps(case.data.X),
        K=K,
        O=1,
        newton=True,
        l2=p["l2_regularization"] + 1e-15,
        l2_scales=False,
        lr=p["learning_rate"],
        scales=[[1.0]] * len(counts),
        base="mean",
        class_weight=class_weight * used,
        **more,
    )
    return structure, steps(case.data.X_test)


@threadpool_limits.wrap(limits=1, user_api="openmp")
def hist_refit(case, w):
    """scikit-learn's own: each tree grown again on its leaf numbers, one feature, from the scores before it."""
    model = case.model
    kept = w > 0
    y = case.data.y
    F = None
    train = hist_leaves(model, case.data.X)
    test = hist_leaves(model, case.data.X_test)
    for (ids,), (at,) in zip(train, test, strict=True):
        X = ids[:, None].astype(float)
        again = type(model)(
            loss=model.loss,
            max_iter=1,
            warm_start=True,
            early_stopping=False,
            min_samples_leaf=1,
            max_leaf_nodes=None,
        )
        again.fit(X[kept], y[kept], sample_weight=w[kept])
        if F is None:
            F, G = (np.full(len(rows), again._baseline_prediction[0, 0]) for rows in (ids, at))
        # A warm start asks the model for its scores: it is told the ones before this tree.
        again._raw_predict = lambda X, n_threads=None, F=F[kept]: np.asfortranarray(F[:, None])
        again.set_params(max_iter=2).fit(X[kept], y[kept], sample_weight=w[kept])
        tree = again._predictors[1][0]
        bitsets = again._bin_mapper.make_known_categories_bitsets()
        F = F + tree.predict(X, *bitsets, 1)
        G = G + tree.predict(at[:, None].astype(float), *bitsets, 1)
    return G[:, None]


def hist_raw(model, X):
    return model._raw_predict(X)


def hist(name, data, model, stratify=True, class_weight=None, **more):
    def structure(case):
        return hist_structure(case, 1.0 if class_weight is None else class_weight(case), stratify)

    return Case(name, data, trained(model), hist_raw, structure, counts_rows=True, **more)


def trained(make):
    """fit(X, y, sample_weight, baseline) of a new estimator."""

    def fit(X, y, sample_weight, baseline):
        assert baseline is None
        with threadpool_limits(
            1, "openmp"
        ):  # on so few rows threads wait for each other most of the time
            return make().fit(X, y, sample_weight=sample_weight)

    return fit


def balanced(case):
    codes = case.data.codes.astype(int)
    return (len(codes) / (codes.max() + 1) / np.bincount(codes))[codes]


def of_classes(*factors):
    return lambda case: np.array(factors, float)[case.data.codes.astype(int)]


# ---- GradientBoosting ----


def exponential(A, y):
    e = np.where(y[:, None] == 1, np.exp(-A), np.exp(A))
    return np.where(y[:, None] == 1, -e, e), e[..., None]


def half_logit(y, w):
    p = (w * y).sum() / w.sum()
    return np.array([0.5 * np.log(p / (1 - p))])


def huber_leaf(quantile):
    def values(ids, L, residual, y, w):
        delta = lower_quantile(np.abs(residual[w > 0]), w[w > 0], quantile)

        def leaf(r, v):
            m = lower_quantile(r, v, 0.5)
            return m + np.average(np.clip(r - m, -delta, delta), weights=v)

        return by_leaf(leaf)(ids, L, residual, y, w)

    return values


def gradient_structure(case):
    model = case.model
    p = case.model.get_params()
    n = len(case.w)
    T, K = model.estimators_.shape
    counts = [[tree.tree_.node_count for tree in step] for step in model.estimators_]

    def steps(X):
        nodes = model.apply(X).reshape(len(X), T, K).astype(int)
        return [[(nodes[:, t, k], counts[t][k], k) for k in range(K)] for t in range(T)]

    order = np.arange(n)
    if p["n_iter_no_change"]:
        groups = case.data.codes if hasattr(model, "classes_") else None
        order = train_test_split(
            order,
            random_state=p["random_state"],
            test_size=p["validation_fraction"],
            stratify=groups,
        )[0]
    used = np.isin(np.arange(n), order).astype(float)
    more = {}
    if p["subsample"] < 1:
        more["sample"] = [[mask] * K for mask in drawn_rows(p, T, K, order, n)]
    level = p.get("alpha")
    if p["loss"] == "exponential":
        more |= {
            "derivatives": exponential,
            "loss_value": lambda F, y: np.exp(np.where(y == 1, -F[:, 0], F[:, 0])),
            "base_value": half_logit,
        }
    elif p["loss"] in ("absolute_error", "quantile"):
        q = 0.5 if p["loss"] == "absolute_error" else level
        more |= {"leaf": by_leaf(lambda v, w: lower_quantile(v, w, q)), "loss_value": pinball(q)}
        more["base_value"] = lambda y, w: np.array([np.quantile(y, q)])
    elif p["loss"] == "huber":
        delta = model._loss.closs.delta
        more |= {
            "leaf": huber_leaf(level),
            "base_value": lambda y, w: np.array([lower_quantile(y, w, 0.5)]),
        }
        more["loss_value"] = lambda F, y: huber_value(y - F[:, 0], delta)
    structure = Structure(
        loss={"squared_error": "squared", "log_loss": "softmax" if K > 1 else "logistic"}.get(
            p["loss"], p["loss"]
        ),
        steps=steps(case.data.X),
        K=K,
        O=1,
        newton=True,
        l2=0.0,
        l2_scales=False,
        lr=p["learning_rate"] * ((K - 1) / K if K > 1 else 1),
        scales=[[1.0]] * T,
        base="mean" if model.init is None else 0.0,
        class_weight=used,
        **more,
    )
    return structure, steps(case.data.X_test)


def huber_value(r, delta):
    r = np.abs(r)
    return np.where(r <= delta, r**2 / 2, delta * (r - delta / 2))


def drawn_rows(p, T, K, order, n):
    """The rows of each step: scikit-learn's sampling without replacement, and one number for the seed of each tree."""
    rng = np.random.RandomState(p["random_state"])
    size = int(p["subsample"] * len(order))
    masks = []
    for _ in range(T):
        mask = np.zeros(n)
        left = size
        u = rng.uniform(size=len(order))
        for i, row in enumerate(order):
            if u[i] * (len(order) - i) < left:
                mask[row] = 1
                left = left - 1
        masks.append(mask)
        for _ in range(K):
            rng.randint(0, 0x7FFFFFFF)
    return masks


class Before(BaseEstimator):
    """An init estimator that gives the scores F."""

    def __init__(self, F=None):
        self.F = F

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.F

    def predict_proba(self, X):
        p = sigmoid(self.F)
        return np.stack([1 - p, p], axis=1)


def gradient_refit(case, w):
    """scikit-learn's own: each tree grown again on its leaf numbers, one feature, from the scores before it."""
    model = case.model
    kept = w > 0
    y = case.data.codes
    train, test = (model.apply(X).reshape(len(X), -1) for X in (case.data.X, case.data.X_test))
    mean = np.average(y, weights=w)
    start = mean if model.loss == "squared_error" else np.log(mean / (1 - mean))
    F = np.full(len(train), start)
    G = np.full(len(test), start)
    for ids, at in zip(train.T[:, :, None], test.T[:, :, None], strict=True):
        again = type(model)(loss=model.loss, n_estimators=1, max_depth=None, init=Before(F[kept]))
        again.fit(ids[kept], y[kept], sample_weight=w[kept])
        tree = again.estimators_[0, 0]
        F = F + again.learning_rate * tree.predict(ids)
        G = G + again.learning_rate * tree.predict(at)
    return G[:, None]


def gradient_raw(model, X):
    return (
        model.decision_function(X).reshape(len(X), -1)
        if hasattr(model, "classes_")
        else model.predict(X)[:, None]
    )


def gradient(name, data, model, **more):
    return Case(name, data, trained(model), gradient_raw, gradient_structure, **more)


# ---- forests ----


def forest_structure(case, class_weight=1.0):
    model = case.model
    codes = case.data.codes.astype(int)
    trees = getattr(model, "estimators_", [model])
    K = len(getattr(model, "classes_", [0]))
    T = len(trees)
    labels = np.eye(K)[codes] if K > 1 else case.data.codes[:, None]

    def steps(X):
        nodes = model.apply(X).reshape(len(X), T)
        return [[(nodes[:, t], trees[t].tree_.node_count, 0)] for t in range(T)]

    more = {}
    if getattr(model, "bootstrap", False):
        counts = [
            np.bincount(rows, minlength=len(codes)).astype(float)
            for rows in model.estimators_samples_
        ]
        if getattr(model, "class_weight", None) == "balanced_subsample":
            counts = [c * (c.sum() / K / np.bincount(codes, c, K))[codes] for c in counts]
        more["sample"] = [[c] for c in counts]
    if model.criterion == "absolute_error":
        more |= {"leaf": by_leaf(middle), "loss_value": pinball(0.5)}
    structure = Structure(
        loss="brier" if K > 1 else "squared",
        steps=steps(case.data.X),
        K=K,
        O=K,
        newton=True,
        l2=0.0,
        l2_scales=False,
        lr=1.0,
        scales=[[1.0]] * T,
        base=np.average(
            labels, axis=0, weights=case.w * class_weight
        ),  # what an emptied leaf falls back to
        diagonal=True,
        moves=[*([] for _ in range(T)), [(t, 1 / T) for t in range(T)]],
        class_weight=class_weight,
        **more,
    )
    return structure, steps(case.data.X_test)


def forest_raw(model, X):
    return model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)[:, None]


def forest(name, data, model, class_weight=None, **more):
    def structure(case):
        return forest_structure(case, 1.0 if class_weight is None else class_weight(case))

    return Case(name, data, trained(model), forest_raw, structure, **more)


def with_holes(data):
    """The same with a twentieth of the values missing; not before 1.8, where trees trained such rows in other leaves
    than they predict them with."""
    rng = np.random.default_rng(7)
    for X in (data.X, data.X_test) if VERSION >= (1, 8) else ():
        X[rng.random(X.shape) < 0.05] = np.nan
    return data


N_DIABETES = 422
N_CANCER = 549
N_WINE = 158

CASES = {
    "HistGradientBoostingClassifier, missing values and categories": lambda: hist(
        "hist classifier",
        frame(many=True),
        lambda: HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype"),
    ),
    "HistGradientBoostingRegressor, missing values and categories": lambda: hist(
        "hist regressor",
        frame("number", many=True),
        lambda: HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype"),
    ),
    "HistGradientBoostingRegressor, weights": lambda: hist(
        "hist regressor with weights",
        numbers(),
        lambda: HistGradientBoostingRegressor(max_iter=8),
        weight=weights(N_DIABETES),
        own_refit=hist_refit,
    ),
    "HistGradientBoostingClassifier": lambda: hist(
        "hist classifier on numbers",
        binary(),
        lambda: HistGradientBoostingClassifier(max_iter=8),
        own_refit=hist_refit,
    ),
    "HistGradientBoosting, balanced classes, weights and l2": lambda: hist(
        "hist balanced",
        binary(),
        lambda: HistGradientBoostingClassifier(
            max_iter=15, class_weight="balanced", l2_regularization=2.0, max_bins=32
        ),
        class_weight=balanced,
        weight=weights(N_CANCER),
    ),
    "HistGradientBoosting, multiclass, weights, max_features": lambda: hist(
        "hist multiclass",
        three_classes(text=True),
        lambda: HistGradientBoostingClassifier(max_iter=8, max_features=0.5, random_state=1),
        weight=weights(N_WINE),
    ),
    "HistGradientBoosting, Poisson, weights": lambda: hist(
        "hist poisson",
        numbers("counts"),
        lambda: HistGradientBoostingRegressor(loss="poisson", max_iter=15),
        weight=weights(N_DIABETES),
    ),
    "HistGradientBoosting, gamma, l2": lambda: hist(
        "hist gamma",
        numbers("positive"),
        lambda: HistGradientBoostingRegressor(loss="gamma", max_iter=15, l2_regularization=1.0),
    ),
    "HistGradientBoosting, absolute error": lambda: hist(
        "hist absolute error",
        numbers(),
        lambda: HistGradientBoostingRegressor(loss="absolute_error", max_iter=15),
        smooth=False,
    ),
    "HistGradientBoosting, quantile, weights": lambda: hist(
        "hist quantile",
        numbers(),
        lambda: HistGradientBoostingRegressor(loss="quantile", quantile=0.3, max_iter=15),
        weight=weights(N_DIABETES),
        smooth=False,
    ),
    "HistGradientBoosting, early stopping, class weights": lambda: hist(
        "hist early stopping",
        binary(),
        lambda: HistGradientBoostingClassifier(
            max_iter=15, early_stopping=True, class_weight={0: 2.0, 1: 0.5}, max_bins=32
        ),
        class_weight=of_classes(2.0, 0.5),
        ordered=True,
    ),
    "HistGradientBoosting, early stopping, weights": lambda: hist(
        "hist early stopping with weights",
        numbers(),
        lambda: HistGradientBoostingRegressor(
            max_iter=15, early_stopping=True, validation_fraction=0.3
        ),
        stratify=False,
        weight=weights(N_DIABETES),
        ordered=True,
    ),
    "HistGradientBoosting, leaves of single rows, interaction_cst": lambda: hist(
        "hist single rows",
        numbers(),
        lambda: HistGradientBoostingRegressor(
            max_iter=10,
            min_samples_leaf=1,
            max_leaf_nodes=60,
            interaction_cst="pairwise",
            learning_rate=0.5,
        ),
    ),
    "GradientBoostingClassifier": lambda: gradient(
        "gradient classifier",
        binary(),
        lambda: GradientBoostingClassifier(n_estimators=20, min_samples_leaf=5),
        own_refit=gradient_refit,
    ),
    "GradientBoostingRegressor": lambda: gradient(
        "gradient regressor",
        numbers(),
        lambda: GradientBoostingRegressor(n_estimators=20, min_samples_leaf=5),
        own_refit=gradient_refit,
    ),
    "GradientBoosting, multiclass, weights": lambda: gradient(
        "gradient multiclass",
        three_classes(text=True),
        lambda: GradientBoostingClassifier(n_estimators=8),
        weight=weights(N_WINE),
    ),
    "GradientBoosting, exponential, weights": lambda: gradient(
        "gradient exponential",
        binary(),
        lambda: GradientBoostingClassifier(loss="exponential", n_estimators=20),
        weight=weights(N_CANCER),
    ),
    "GradientBoosting, subsample, weights": lambda: gradient(
        "gradient subsample",
        numbers(),
        lambda: GradientBoostingRegressor(
            n_estimators=20, subsample=0.6, max_features=3, random_state=4
        ),
        weight=weights(N_DIABETES),
        ordered=True,
    ),
    "GradientBoosting, multiclass, subsample, n_iter_no_change": lambda: gradient(
        "gradient multiclass subsample",
        three_classes(),
        lambda: GradientBoostingClassifier(
            n_estimators=10, subsample=0.7, n_iter_no_change=4, random_state=5
        ),
        ordered=True,
    ),
    "GradientBoosting, multiclass, init zero, max_leaf_nodes": lambda: gradient(
        "gradient zero",
        three_classes(),
        lambda: GradientBoostingClassifier(
            n_estimators=8, init="zero", max_leaf_nodes=6, learning_rate=0.3
        ),
    ),
    "GradientBoosting, huber, weights": lambda: gradient(
        "gradient huber",
        numbers(),
        lambda: GradientBoostingRegressor(loss="huber", alpha=0.8, n_estimators=12),
        weight=weights(N_DIABETES),
        smooth=False,
    ),
    "GradientBoosting, quantile, subsample": lambda: gradient(
        "gradient quantile",
        numbers(),
        lambda: GradientBoostingRegressor(
            loss="quantile", alpha=0.7, n_estimators=12, subsample=0.5, random_state=2
        ),
        smooth=False,
        ordered=True,
    ),
    # Leaves of one label do not move with the weights of their rows, so these forests stop growing earlier.
    "RandomForestClassifier, max_depth": lambda: forest(
        "forest classifier",
        binary(),
        lambda: RandomForestClassifier(n_estimators=12, max_depth=4),
        ordered=True,
    ),
    "RandomForestRegressor, min_samples_leaf": lambda: forest(
        "forest regressor",
        numbers(),
        lambda: RandomForestRegressor(n_estimators=12, min_samples_leaf=3),
        ordered=True,
    ),
    "ExtraTreesClassifier, multiclass, class weights, weights": lambda: forest(
        "extra trees classifier",
        three_classes(),
        lambda: ExtraTreesClassifier(n_estimators=12, class_weight={0: 2.0, 1: 0.5}, max_depth=5),
        class_weight=of_classes(2.0, 0.5, 1.0),
        weight=weights(N_WINE),
    ),
    "ExtraTreesRegressor, weights": lambda: forest(
        "extra trees regressor",
        numbers(),
        lambda: ExtraTreesRegressor(n_estimators=12, min_samples_leaf=2),
        weight=weights(N_DIABETES),
    ),
    "RandomForest, multiclass, balanced_subsample, max_samples": lambda: forest(
        "forest balanced",
        three_classes(),
        lambda: RandomForestClassifier(
            n_estimators=10, class_weight="balanced_subsample", max_samples=0.6, max_depth=2
        ),
        ordered=True,
    ),
    "RandomForest, absolute error": lambda: forest(
        "forest absolute error",
        numbers(),
        lambda: RandomForestRegressor(n_estimators=5, criterion="absolute_error", max_depth=6),
        smooth=False,
        ordered=True,
    ),
    "RandomForest without bootstrap, missing values, ccp_alpha": lambda: forest(
        "forest without bootstrap",
        with_holes(numbers()),
        lambda: RandomForestRegressor(
            n_estimators=8, bootstrap=False, max_features=0.5, ccp_alpha=0.002
        ),
        weight=weights(N_DIABETES),
    ),
    "DecisionTreeClassifier": lambda: forest(
        "one tree", binary(), lambda: DecisionTreeClassifier(max_depth=5), weight=weights(N_CANCER)
    ),
}
