"""XGBoost's random draws of rows and trees, made again in Python integers."""

from __future__ import annotations

import random

import numpy as np
from xgboost_reading import VERSION


def words(seed):
    """Return a function that gives the 32-bit words of mt19937(seed)."""
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
    """Return which rows (n,) the linear congruential generator draws."""
    x = word()
    drawn = []
    for _ in range(n):
        x = x * 16807 % 2**63
        drawn.append((x - 1) / 2**63 < subsample)
    return np.array(drawn, float)


def factors_by_gradient(g, h, word, subsample):
    """Return how often a tree counts rows (n,) that are drawn by their gradients, with one thread."""
    n = len(g)
    f = np.float32
    size = np.sqrt(g * g + f(0.1) * (h * h))
    rows = int(n * f(subsample))
    ordered = np.sort(size)
    total = f(0)
    for i, x in enumerate(ordered):
        total = total + x
        left = f(rows) - f(n - i - 1)
        following = ordered[i + 1] if i + 1 < n else f(np.inf)
        if left > 0 and x < total / left <= following:
            break
    p = size / (total / left)
    x = word()
    out = []
    for chance in p:
        if chance == 0:  # a row of weight zero takes no number
            out.append(0.0)
            continue
        if chance >= 1:
            out.append(1.0)
            continue
        x = x * 16807 % 2**63
        out.append(float(f(1) / chance) if f(x - 1) / f(2**63 - 1) <= chance else 0.0)
    return np.array(out)


def draws_by_gradient(p, w, trees_before, derivatives):
    """Return how often each tree counts each row, of a model of one tree a round.

    ``trees_before(t)``: scores (n, 1) before tree t; ``derivatives``: scores -> g, h."""
    word = words(int(p["seed"]))
    word()
    out = []
    for t in range(int(p["rounds"])):
        g, h = derivatives(trees_before(t))
        g = np.float32(w * np.float32(g[:, 0]))
        h = np.float32(w * np.float32(h[:, 0, 0]))
        out.append(factors_by_gradient(g, h, word, float(np.float32(p["subsample"]))))
    return out


def draws(n, p, trees, dart=None):
    """Return (rows of each tree, dropped trees of each round).

    ``trees`` has the number of trees of each round."""
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
            drop = [i for i in range(count) if uniform(word) < float(np.float32(dart))]
            if not drop and count and p["one_drop"] == "1":
                drop = [word() * count >> 32]  # rejected only with a chance of count / 2^32
            dropped.append(drop)
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
    """Return what DART adds to the scores before each tree and at the end, for normalize_type "tree"."""
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
