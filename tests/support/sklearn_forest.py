"""The oracle's structure of forests, read from scikit-learn alone."""

from __future__ import annotations

import numpy as np
from oracle import Structure
from oracle_nodes import tree_of
from sklearn_quantiles import by_leaf, median, pinball


def forest_structure(case, class_weight=1.0):
    """Return the structure of a forest or a tree, and the steps of its test rows."""
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
            counts = [c * balance(codes, c)[codes] for c in counts]
        more["sample"] = [[c] for c in counts]
    if model.criterion == "absolute_error":
        more |= {"leaf": by_leaf(median), "loss_value": pinball(0.5)}
    if model.monotonic_cst is not None:
        # the share of the first class falls where that of the second one rises
        direction = np.array(model.monotonic_cst) * (-1 if K > 1 else 1)
        more["nodes"] = [[forest_root(tree.tree_, direction)] for tree in trees]
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
        base=np.average(labels, axis=0, weights=case.w * class_weight),  # value of an empty leaf
        diagonal=True,
        moves=[*([] for _ in range(T)), [(t, 1 / T) for t in range(T)]],
        class_weight=class_weight,
        **more,
    )
    return structure, steps(case.data.X_test)


def forest_root(tree, direction):
    """Return the root of a tree whose splits are monotone."""
    pairs = zip(tree.children_left.tolist(), tree.children_right.tolist(), strict=True)
    children = {node: pair for node, pair in enumerate(pairs) if pair[0] >= 0}
    return tree_of(children, lambda node: int(direction[tree.feature[node]]))


def balance(codes, w):
    """Return weights of the classes that give each class that occurs the same total weight."""
    total = np.bincount(codes, w)
    occurs = total > 0
    return np.where(occurs, w.sum() / occurs.sum() / np.where(occurs, total, 1), 0.0)


def forest_raw(model, X):
    return model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)[:, None]
