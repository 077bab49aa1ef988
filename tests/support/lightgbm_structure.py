"""The oracle's structure of a LightGBM model, read from LightGBM alone."""

from __future__ import annotations

import numpy as np
from lightgbm_advanced import AdvancedTree
from lightgbm_draws import bags, dart, goss, quantised
from lightgbm_formulas import formulas, quantile_leaves, start
from lightgbm_growth import GrownTree
from oracle import Structure
from oracle_nodes import Node

DEFAULTS = {
    "objective": "regression", "boosting": "gbdt", "data_sample_strategy": "bagging", "learning_rate": 0.1,
    "lambda_l1": 0.0, "lambda_l2": 0.0, "max_delta_step": 0.0, "cat_l2": 10.0, "path_smooth": 0.0, "bagging_freq": 0,
    "bagging_fraction": 1.0, "pos_bagging_fraction": 1.0, "neg_bagging_fraction": 1.0, "bagging_seed": 3,
    "top_rate": 0.2, "other_rate": 0.1, "drop_rate": 0.1, "skip_drop": 0.5, "max_drop": 50, "drop_seed": 4,
    "uniform_drop": False, "xgboost_dart_mode": False, "boost_from_average": True, "num_class": 1, "sigmoid": 1.0,
    "is_unbalance": False, "scale_pos_weight": 1.0, "alpha": 0.9, "fair_c": 1.0, "poisson_max_delta_step": 0.7,
    "tweedie_variance_power": 1.5, "use_quantized_grad": False, "quant_train_renew_leaf": False,
    "monotone_constraints": (), "monotone_constraints_method": "basic", "feature_fraction_bynode": 1.0,
}  # fmt: skip


def nodes(tree):
    """Return (node, leaves below it) of every node of a dumped tree."""
    if "left_child" not in tree:
        return [(tree, [tree.get("leaf_index", 0)])]  # a tree without splits has no numbers
    left = nodes(tree["left_child"])
    right = nodes(tree["right_child"])
    return [(tree, left[0][1] + right[0][1]), *left, *right]


def leaf_values(tree):
    """Return the leaf values (L,) of a tree of `dump_model`."""
    leaves = [node for node, _ in nodes(tree["tree_structure"]) if "leaf_value" in node]
    values = np.empty(len(leaves))
    values[[leaf["leaf_index"] for leaf in leaves]] = [leaf["leaf_value"] for leaf in leaves]
    return values


def many_categories(split, kinds):
    return split["decision_type"] == "==" and kinds[split["split_feature"]] > 4


def more_l2(tree, L, kinds, cat_l2):
    """Return cat_l2 (L,) for leaves below a split of many categories against many, else zero."""
    out = np.zeros(L)
    for node, _ in nodes(tree):
        for child in (node.get("left_child"), node.get("right_child")):
            if child and "leaf_index" in child and many_categories(node, kinds):
                out[child["leaf_index"]] = cat_l2
    return out


def root_of(tree, smooth, directions, kinds, cat_l2, top=True, l2=0.0):
    """Return the root of a dumped tree, with the shares of path_smooth and the signs of its splits."""
    n = tree.get("leaf_count", tree.get("internal_count", 0))
    share = 1.0 if top or not smooth else n / (n + smooth)
    if "left_child" not in tree:
        return Node(leaf=tree.get("leaf_index", 0), share=share, l2=l2)
    categorical = tree["decision_type"] == "=="
    below = cat_l2 if kinds is not None and many_categories(tree, kinds) else 0.0
    pair = tuple(
        root_of(tree[side], smooth, directions, kinds, cat_l2, False, below)
        for side in ("left_child", "right_child")
    )
    feature = tree["split_feature"]
    sign = 0 if categorical or feature >= len(directions) else directions[feature]
    return Node(pair=pair, sign=sign, share=share, l2=l2)


def tree_of(tree, p, kinds):
    """Return a dumped tree whose leaves depend on other nodes."""
    grown = {"intermediate": GrownTree, "advanced": AdvancedTree}
    method = p["monotone_constraints_method"]
    if method not in grown or p["feature_fraction_bynode"] != 1:  # LightGBM takes "basic" then
        return root_of(tree, p["path_smooth"], p["monotone_constraints"], kinds, p["cat_l2"])

    def more(split):
        return p["cat_l2"] if kinds is not None and many_categories(split, kinds) else 0.0

    return grown[method](tree, p["monotone_constraints"], p["path_smooth"], more)


def label_weights(p, y):
    """Return the factors (n, K) of is_unbalance or scale_pos_weight."""
    K = p["num_class"]
    out = np.ones((len(y), K))
    if not p["is_unbalance"] and p["scale_pos_weight"] == 1:
        return out
    for k in range(K):
        positive = (y == k) if K > 1 else (y > 0)
        ratio = p["scale_pos_weight"]
        others = 1
        if p["is_unbalance"]:
            ratio = (~positive).sum() / positive.sum()
            others = max(1 / ratio, 1)
        out[:, k] = np.where(positive, max(ratio, 1), others)
    return out


def structure(case, kinds=None, class_weight=None, rates=None, **settings):
    """Return the oracle's structure of a model trained with these settings, and steps of test rows.

    ``kinds`` is the number of bins of each category column."""
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
        leaf, value, base = quantile_leaves(p, weighted)
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
        # Trees without splits do not hold the starting score.
        alone = np.reshape(counts, (T, K)).max(axis=1) == 1
        moves = [*[[]] * T, [(-1, -alone.mean()), *((t, 1 / T) for t in range(T))]]
    drawn = bags(p, y, T)
    for t, bag in enumerate(drawn or ()):
        root = trees[t * K]["tree_structure"]
        if root.get("internal_count", bag.sum()) != bag.sum():
            raise ValueError(f"tree {t} of the model drew other rows than these {bag.sum():.0f}")
    if p["data_sample_strategy"] == "goss":
        drawn = goss(p, booster, case, derivatives, base)
    label_weight = label_weights(p, y)
    if K == 1:
        row_weight = row_weight * label_weight[:, 0]
    elif drawn is None and np.any(label_weight != 1):
        drawn = [np.ones(len(y))] * T
    if drawn is not None:
        more["sample"] = [
            [d * (label_weight[:, k] if K > 1 else 1.0) for k in range(K)] for d in drawn
        ]
    if min(counts) == 1:
        # A tree without splits stays zero, as no row moves it; later ones of a forest are moved.
        drawn = more.get("sample", [[np.ones(len(y))] * K] * T)
        later = p["boosting"] == "rf"
        more["sample"] = [
            [d * (counts[t * K + k] > 1 or (later and t > 0)) for k, d in enumerate(step)]
            for t, step in enumerate(drawn)
        ]
    if p["use_quantized_grad"] and not p["quant_train_renew_leaf"]:
        assert not p["boost_from_average"]
        more["more_gradient"], in_h = quantised(booster, case, derivatives)
        more["more_l2"] = [[h] for h in in_h]
    dumped = [tree["tree_structure"] for tree in trees]
    if kinds is not None:
        l2 = [more_l2(tree, L, kinds, p["cat_l2"]) for tree, L in zip(dumped, counts, strict=True)]
        more["more_l2"] = [l2[t * K : (t + 1) * K] for t in range(T)]
    if p["path_smooth"] or p["monotone_constraints"]:
        roots = [tree_of(tree, p, kinds) for tree in dumped]
        more["nodes"] = [roots[t * K : (t + 1) * K] for t in range(T)]
        more.pop("more_l2", None)
    made = Structure(
        loss=p["objective"],
        steps=steps(case.data.X),
        K=K,
        O=1,
        newton=True,
        # LightGBM's own 1e-15 is all there is where the rows of a leaf are certain.
        l2=p["lambda_l2"] + 1e-15,
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
