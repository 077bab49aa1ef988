"""The oracle's structure of a CatBoost model, read from CatBoost alone.

If a model splits on target statistics of categories, its training rows were in other leaves than the
finished model puts them in. CatBoost itself shows which: it is trained again with a metric that keeps
the scores of all rows after each tree, and the score that a tree adds to a row is the value of the
row's leaf.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from catboost import CatBoost, Pool
from catboost_formulas import LOG_COSH, LOSSES, SETTINGS, log_cosh_leaf
from oracle import Structure, tree_value

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 2}


def paths(left):
    """Yield all factors of the inner iterations that backtracking allows.

    A rejected step is halved, and costs an iteration."""
    if left == 0:
        yield []
        return
    for rejected in range(left):
        for rest in paths(left - rejected - 1):
            yield [0.5**rejected, *rest]
    yield []


def found_path(structure, t, A, y, w, target, count):
    """Return the factors of the inner iterations that give the model's own leaf values."""
    ids, L, o = structure.steps[t][0]
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
    """A metric that measures nothing and keeps the scores and labels it is called with."""

    seen: list = []  # noqa: RUF012  CatBoost copies the metric, but not its class

    def is_max_optimal(self):
        return False

    def get_final_error(self, error, weight):
        return 0.0

    def evaluate(self, approxes, target, weight):
        self.seen.append((np.array(approxes).T.copy(), np.array(target)))
        return 0.0, 1.0


def train_recording(params, pool):
    """Return the model trained with these parameters, and what `Scores` recorded."""
    Scores.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CatBoost recommends numba for the metric
        model = CatBoost({**params, "eval_metric": Scores()}).fit(pool)
    return model, list(Scores.seen)


def kinds_of(X):
    """Return the columns of each kind as arguments of Pool, by types and names of columns."""
    if not hasattr(X, "dtypes"):
        return {}
    categories = [i for i, t in enumerate(X.dtypes) if str(t) == "category"]
    named = {"text_features": "words", "embedding_features": "vector"}
    others = {kind: [name] for kind, name in named.items() if name in X.columns}
    return {"cat_features": categories, **others}


def recorded_leaves(model, X, y, w, **kinds):
    """Return the leaves (trees, n) of the rows during training, from CatBoost's own scores.

    ``kinds``: columns of each kind, as Pool takes them."""
    params = {**model.get_params(), "loss_function": model.get_all_params()["loss_function"]}
    again, seen = train_recording(params, Pool(X, y, weight=w, **kinds))
    np.testing.assert_array_equal(again.get_leaf_values(), model.get_leaf_values())
    # CatBoost calls the metric with rows in its own order, which does not depend on the labels. A
    # training with row numbers as labels shows that order.
    other = {k: v for k, v in params.items() if k not in ("class_weights", "auto_class_weights")}
    other |= {"loss_function": "RMSE", "iterations": 1, "boost_from_average": False}
    numbered = Pool(X, np.arange(len(y), dtype=float), **kinds)
    _, recorded = train_recording(other, numbered)
    rows = recorded[0][1].astype(int)
    bias = np.asarray(model.get_scale_and_bias()[1], float)
    before = np.tile(bias, (len(y), 1)).reshape(len(y), -1)
    leaves = np.empty((len(seen), len(y)), int)
    for t, ((scores, _), values) in enumerate(zip(seen, leaf_table(model)[1], strict=True)):
        distance = np.abs((scores - before)[:, None] - values).max(axis=2)  # (n, L)
        distance[:, np.all(values == 0, axis=1)] = np.inf  # leaves without rows
        assert np.all((distance < 1e-9).sum(axis=1) == 1), (
            "two leaves have the same value, so the scores do not show which is meant"
        )
        leaves[t, rows] = distance.argmin(axis=1)
        before = scores
    return leaves


def structure(case):
    """Return the structure of any of these cases, and the steps of its test rows."""
    model = case.model
    d = case.data
    p = model.get_all_params()
    counts, values = leaf_table(model)
    kinds = kinds_of(d.X)
    offset = 0.0
    if case.baseline is not None:
        offset = np.float32(case.baseline).astype(float).reshape(len(d.y), -1)
    ids = final_leaves(model, Pool(d.X, **kinds))
    if getattr(case, "on_targets", False):
        ids = recorded_leaves(model, d.X, d.y, case.weight, **kinds)
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
    if p.get("monotone_constraints"):
        trees = model_json(model)["oblivious_trees"]
        signs = {int(k): v for k, v in p["monotone_constraints"].items()}
        out = replace(out, chains=[chains_of(tree["splits"], signs) for tree in trees])
    if p.get("model_shrink_rate"):
        out = shrinking(out, p, values)
    if count > 1 and p["leaf_estimation_backtracking"] != "No":
        out = backtracked(out, case, values, count)
    if p.get("langevin"):
        out = noisy(out, case, values)
    tests = final_leaves(model, Pool(d.X_test, **kinds))
    return out, [[(leaves, L, 0)] for leaves, L in zip(tests, counts, strict=True)]


def model_json(model):
    """Return the model as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return json.loads(path.read_text())


def chains_of(splits, signs):
    """Return the leaves of a symmetric tree in lists along which values must not fall.

    A list has the leaves that agree on all free splits, sorted by their sides of the others."""
    columns = [split.get("float_feature_index", -1) for split in splits]
    bound = [d for d, column in enumerate(columns) if signs.get(column)]
    chains = {}
    for leaf in range(1 << len(columns)):
        side = [leaf >> d & 1 for d in range(len(columns))]
        free = tuple(s for d, s in enumerate(side) if d not in bound)
        chains.setdefault(free, []).append(([side[d] * signs[columns[d]] for d in bound], leaf))
    return [[leaf for _, leaf in sorted(chain)] for chain in chains.values()]


def shrinking(out, p, values):
    """Return the structure of a model whose scores shrink before each step.

    All scores, also the starting score, are multiplied by 1 - rate * learning rate, or by 1 - rate / t
    before step t."""
    T = len(values)
    rate = float(np.float32(p["model_shrink_rate"]))
    constant = p["model_shrink_mode"] == "Constant"
    by = [1.0, *(1 - rate * out.lr if constant else 1 - rate / t for t in range(1, T))]
    moves = [[]]
    for t in range(1, T):
        # Weights of the steps before t - 1, before they shrink again.
        weight = [np.prod(by[r + 1 : t]) for r in range(t - 1)]
        moves.append([(-1, np.prod(by[:t]) * (by[t] - 1)), (t - 1, by[t])])
        moves[-1] += [(r, c * (by[t] - 1)) for r, c in enumerate(weight)]
    return replace(out, moves=[*moves, [(T - 1, 1.0)]], base=out.base)


def backtracked(out, case, values, count):
    """Return the structure with the factors that backtracking chose in each step."""
    y = case.data.codes
    w = case.w * out.class_weight
    bias = np.reshape(case.model.get_scale_and_bias()[1], (-1,)).astype(float)
    A = np.tile(bias, (len(y), 1)) + out.offset
    scales = []
    for t, target in enumerate(values):
        scales.append(found_path(out, t, A, y, w, target, count))
        A = A + target[out.steps[t][0][0]]
    return replace(out, scales=scales)


def noisy(out, case, values):
    """Return the structure with the noise that the leaf values of a model of gradient steps have."""
    y = case.data.codes
    lam = out.l2 * case.w.sum() / len(y)
    A = np.full((len(y), 1), float(case.model.get_scale_and_bias()[1]))
    noise = []
    for [(ids, L, _)], value in zip(out.steps, values, strict=True):
        G = np.bincount(ids, case.w * out.derivatives_of(A, y)[0][:, 0], L)
        noise.append(-value[:, 0] / out.lr * (np.bincount(ids, case.w, L) + lam) - G)
        A = A + value[ids]
    return replace(out, more_gradient=noise)


def own_refit(case, w):
    """Refit with CatBoost itself: one tree at a time, trained on the bits of the leaf ids."""
    keep = w > 0
    model = case.model
    p = model.get_all_params()
    counts, _ = leaf_table(model)
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
    """Return predictions of a tree that separates all these leaves.

    The greedy search may need some noise to find such a tree."""
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
    raise AssertionError("no tree separates all leaves")


def raw(model, X):
    return np.asarray(model.predict(X, prediction_type="RawFormulaVal")).reshape(len(X), -1)
