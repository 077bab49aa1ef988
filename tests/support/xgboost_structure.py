"""The oracle's structure of an XGBoost model, read from XGBoost alone."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import xgboost as xgb
from oracle import Structure
from oracle_nodes import tree_of
from xgboost_draws import dart_moves, draws, draws_by_gradient
from xgboost_formulas import alpha_of, base_value, derivatives, f32, link, loss_value, quantile_leaf
from xgboost_reading import booster_of, config_of, matrix, raw, steps_of

QUANTILES = ("reg:absoluteerror", "reg:quantileerror")


def structure(case, given=None, own=False):
    """Return the structure of a case, and the steps of its test rows.

    ``given`` has training parameters that the model does not store; ``own``: the objective that it stores is not
    the one it was trained with."""
    model = case.model
    data = case.data
    p = config_of(case.model) | (given or {})
    objective = p["objective"]
    booster = booster_of(model)
    details = json.loads(bytes(booster.save_raw("json")))["learner"]
    steps = steps_of(model, data.X)
    n = len(data.y)
    K = max(1, int(p["num_class"]), int(p["num_target"]))
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
    trees_of_steps = [len(step) for step in steps]
    counts = trees_of_steps
    if details["gradient_booster"]["name"] == "dart":
        counts = [npt * K] * (len(steps) // (npt * K))
        rows, dropped = draws(n, p, counts, p["rate_drop"])
        moves = dart_moves(dropped, npt * K, rate)
    else:
        rows, _ = draws(n, p, counts)
    if p.get("sampling_method") == "gradient_based":
        rows = rows_by_gradient(case, p, len(steps))
    if float(p["subsample"]) < 1:
        edges = np.cumsum([0, *[len(step) for step in steps]])
        sample = [rows[a:b] for a, b in pairwise(edges)]
    # Without weights, leaves can be exactly at min_child_weight: by default one row of weight one.
    constant_h = not own and objective in ("reg:squarederror", *QUANTILES)
    slack = 0.01 if constant_h and case.weight is None else 0.0
    leaf = None
    if objective in QUANTILES and p["tree_method"] != "exact":
        alpha = 0.5 if objective == "reg:absoluteerror" else alpha_of(p)
        leaf = quantile_leaf(alpha, case.weight is not None)
    found = Structure(
        loss="own" if own else objective,
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
        min_hessian=f32(p["min_child_weight"]),
        slack=slack,
        derivatives=derivatives(objective, p),
        loss_value=loss_value(objective, p),
        base_value=base_value(objective, p, case.weight is not None, spw) if estimated else None,
        leaf=leaf,
        rounds_residuals=leaf is not None,
        nodes=None if leaf else monotone_nodes(booster, p["monotone_constraints"], trees_of_steps),
        diagonal=True,
        class_weight=np.where(data.codes == 1, spw, 1.0) if "scale_pos_weight" in p else 1.0,
    )
    return found, steps_of(model, data.X_test)


def rows_by_gradient(case, p, rounds):
    """Return how often each tree counts each row."""
    rows = matrix(case.data.X)

    def before(t):
        model = case.model[:t] if t else None
        if model is None:
            details = json.loads(bytes(case.model.save_raw("json")))["learner"]
            start = json.loads(details["learner_model_param"]["base_score"])
            return np.full((len(case.w), 1), link(p["objective"], np.ravel(start)[0]))
        return model.predict(rows, output_margin=True)[:, None].astype(float)

    g_h = derivatives(p["objective"], p)
    settings = {**p, "rounds": rounds}
    return draws_by_gradient(settings, case.w, before, lambda A: g_h(A, case.data.codes))


def monotone_nodes(booster, constraints, counts):
    """Return the roots of all trees by step, if splits are monotone; otherwise None.

    ``counts``: trees of each step."""
    direction = [int(v) for v in re.findall(r"-?\d+", constraints)]
    if not any(direction):
        return None
    gb = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    roots = [read_root(tree, direction) for tree in gb.get("gbtree", gb)["model"]["trees"]]
    edges = np.cumsum([0, *counts])
    return [roots[a:b] for a, b in pairwise(edges)]


def read_root(tree, direction):
    """Return the root of a tree of the model's JSON; splits of categories are free."""
    pairs = zip(tree["left_children"], tree["right_children"], strict=True)
    children = {node: pair for node, pair in enumerate(pairs) if pair[0] >= 0}
    feature = tree["split_indices"]

    def sign(node):
        free = node in tree["categories_nodes"] or feature[node] >= len(direction)
        return 0 if free else direction[feature[node]]

    return tree_of(children, sign)


def refresh(params):
    """Return XGBoost's own refit of all leaves.

    It keeps the base score, so it is for models with a given one."""

    def refit(case, w):
        rounds = case.model.num_boosted_rounds()
        update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
        settings = {**params, **update, "verbosity": 0}
        rows = matrix(case.data.X, label=case.data.y, weight=w, base_margin=case.baseline)
        return raw(xgb.train(settings, rows, rounds, xgb_model=case.model), case.data.X_test)

    return refit
