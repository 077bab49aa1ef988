"""Rows and trees that LightGBM draws at random, drawn again in plain Python."""

from __future__ import annotations

import numpy as np


class Random:
    """LightGBM's generator of random numbers."""

    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (214013 * self.x + 2531011) % 2**32
        return (self.x // 2**16 % 2**15) / 2**15


def bags(p, y, T):
    """Return for each iteration (n,) 1 for rows in the bag, or None if there are no bags."""
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
    """Return for each iteration (n,) 1 for rows of large gradients, and a factor for some others.

    In a forest, all trees of which have the gradients of the starting score, factors stay with the gradients.
    It is for at most 1024 rows."""
    X = case.data.X
    y = np.float32(case.data.codes).astype(float)
    n = len(y)
    random = Random(p["bagging_seed"])
    out = []
    is_forest = p["boosting"] == "rf"
    factor = np.ones((n, 1))
    top = int(n * p["top_rate"])
    other = int(n * p["other_rate"])
    for t in range(booster.num_trees() // p["num_class"]):
        drawn = np.ones(n)
        if t >= int(1 / p["learning_rate"]):
            A = booster.predict(X, raw_score=True, num_iteration=t).reshape(n, -1)
            A = np.broadcast_to(start_score(y, case.w), A.shape) if is_forest else A
            g, h = derivatives(A, y)
            w = case.w[:, None] * factor
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
        out.append(drawn * factor[:, 0])
        if is_forest:
            factor[drawn > 0, 0] *= drawn[drawn > 0]
    return out


def dart(p, T):
    """Return learning rates, and (step, factor) added to the scores before each iteration.

    Step -1 is the starting score."""
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
            limit = 1.0
            if t:
                limit = p["max_drop"] / (t if p["uniform_drop"] else total * mean)
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
        own = lr if p["xgboost_dart_mode"] else 1
        rate = lr / (own + k)
        if p["xgboost_dart_mode"] and not k:
            rate = lr
        rates.append(rate)
        for i in dropped:
            others = k + own
            size[i] *= k / others
            total -= weight[i] / others  # LightGBM subtracts this, not what the weight loses
            weight[i] *= k / others
        back = [(i, size[i]) for i in dropped]
        size.append(1.0)
        weight.append(rates[-1])
        total += rates[-1]
    return rates, [*moves, [(T - 1, 1.0), *with_base(back)]]


def with_base(moves):
    """Return moves in which the starting score goes with the first tree."""
    return [*moves, *[(-1, factor) for i, factor in moves if i == 0]]


def quantised(booster, case, derivatives):
    """Return what rounding adds to the sums of g and of h in the leaves of each tree: (T, L) each.

    It is for one thread, 4 bins, seed 0 and one output."""
    X = case.data.X
    y = np.float32(case.data.codes).astype(float)
    n = len(y)
    numbers = [np.random.RandomState(seed).bytes(8 * n) for seed in (0, 1)]
    u, v = (np.frombuffer(x, "<u8") / 2**64 for x in numbers)  # two words of 32 bits each
    start = np.random.RandomState(0)
    ids = booster.predict(X, pred_leaf=True).reshape(n, -1).astype(int)
    out = []
    for t in range(booster.num_trees()):
        A = booster.predict(X, raw_score=True, num_iteration=t) if t else np.zeros(n)
        g, h = derivatives(A[:, None], y)
        g = np.float32(np.float32(case.w) * np.float32(g[:, 0])).astype(float)
        h = np.float32(np.float32(case.w) * np.float32(h[:, 0, 0])).astype(float)
        first = int.from_bytes(start.bytes(4), "little") * (n + 1) >> 32
        place = (first + np.arange(n)) % n
        unit = np.abs(g).max() / 2
        rounded = np.sign(g) * np.floor(np.abs(g) / unit + u[place]) * unit
        tall = h.max() / 4
        raised = np.floor(h / tall + v[place]) * tall
        L = ids[:, t].max() + 1
        changes = (rounded - g, raised - h)
        out.append([np.bincount(ids[:, t], x, L) for x in changes])
    return [g for g, _ in out], [h for _, h in out]
