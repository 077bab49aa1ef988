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
