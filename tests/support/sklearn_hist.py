"""The oracle's structure of HistGradientBoosting models, read from scikit-learn alone."""

from __future__ import annotations

import numpy as np
from oracle import Structure
from oracle_nodes import tree_of
from sklearn.model_selection import train_test_split
from sklearn_quantiles import by_leaf, lower_quantile, pinball
from threadpoolctl import threadpool_limits


def hist_leaves(model, X):
    """Return the node of each row in each tree, from the trees' own tables."""
    X = model._preprocess_X(X, reset=False)
    known, place = model._bin_mapper.make_known_categories_bitsets()
    return [[walk_down(tree, X, known, place) for tree in step] for step in model._predictors]


def has_bit(bitset, category):
    return (bitset[category // 32] >> np.uint32(category % 32)) & 1 == 1


def walk_down(tree, X, known, place):
    """Return the leaf of each row."""
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
    """Return the structure of a HistGradientBoosting model, and the steps of its test rows."""
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
        weighted = case.weight is not None

        def fit(v, w):
            return lower_quantile(v, w, q) if weighted else np.quantile(v, q)

        more = {
            "leaf": by_leaf(fit),
            "base_value": lambda y, w: np.array([fit(y, w)]),
            "loss_value": pinball(q),
        }
    elif p["monotonic_cst"] is not None:
        more = {"nodes": [[hist_root(t, p["monotonic_cst"]) for t in s] for s in model._predictors]}
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


def hist_root(tree, direction):
    """Return the root of a tree of numbers whose splits are monotone."""
    nodes = tree.nodes
    splits = np.flatnonzero(nodes["is_leaf"] == 0).tolist()
    children = {k: (int(nodes["left"][k]), int(nodes["right"][k])) for k in splits}
    return tree_of(children, lambda k: direction[nodes["feature_idx"][k]])


@threadpool_limits.wrap(limits=1, user_api="openmp")
def hist_refit(case, w):
    """Refit with scikit-learn itself.

    Each tree is grown again on one feature, its leaf numbers, from the scores before it."""
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
        # A warm start calls _raw_predict for its scores; we return the ones before this tree.
        again._raw_predict = lambda X, n_threads=None, F=F[kept]: np.asfortranarray(F[:, None])
        again.set_params(max_iter=2).fit(X[kept], y[kept], sample_weight=w[kept])
        tree = again._predictors[1][0]
        bitsets = again._bin_mapper.make_known_categories_bitsets()
        F = F + tree.predict(X, *bitsets, 1)
        G = G + tree.predict(at[:, None].astype(float), *bitsets, 1)
    return G[:, None]


def hist_raw(model, X):
    return model._raw_predict(X)
