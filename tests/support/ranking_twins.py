"""Ranking losses as their libraries define them, query by query, and refits of fixed trees.

Nothing here is shared with leaftrace. ``order`` are scores that ranks are taken from, where finite
differences must hold them; ``pi`` are presences of rows.
"""

from itertools import pairwise

import numpy as np


def queries_of(sizes):
    """Return slices of the rows of each query."""
    edges = np.r_[0, np.cumsum(sizes)]
    return [slice(a, b) for a, b in pairwise(edges)]


def lambdas(
    A, y, order, pi, k, gain, sigma=1.0, m=1.0, phi=True, c="log2", ideal_over=None, weight="ndcg"
):
    """Return g and h of one query."""
    n = len(y)
    place = np.empty(n, int)
    place[np.argsort(-order, kind="stable")] = np.arange(n)
    best = np.sort(gain(y))[::-1]
    top = n if ideal_over is None else int(min(n, ideal_over))
    ideal = sum(best[r] / np.log2(r + 2) for r in range(top))
    phi = phi and order.max() > order.min()
    d = A[:, None] - A  # (n, n): a down, b across
    counts = (y[:, None] > y) & (np.minimum(place[:, None], place) < k)
    D = np.ones((n, n))
    if weight == "ndcg":
        discount = 1 / np.log2(place + 2)
        D = (gain(y)[:, None] - gain(y)) * np.abs(discount[:, None] - discount) / (ideal or 1.0)
    elif weight == "map":
        D = np.array([[gap_of_map(y, place, a, b) for b in range(n)] for a in range(n)])
    D = np.where(counts, D, 0.0) * pi[:, None] * pi / ((0.01 + np.abs(d)) if phi else 1.0)
    rho = 1 / (1 + np.exp(sigma * d))
    lam = -sigma * D * rho
    eta = m * sigma**2 * D * rho * (1 - rho)
    g = lam.sum(axis=1) - lam.sum(axis=0)
    h = eta.sum(axis=1) + eta.sum(axis=0)
    S = -2 * lam.sum()
    factor = np.log2(1 + S) / S if c == "log2" and S > 0 else 1.0
    return g * factor, h * factor


def gap_of_map(y, place, a, b):
    """Return the change of average precision by exchanging rows a and b, by computing it twice."""

    def precision(labels):
        hits = 0
        total = 0.0
        for r, label in enumerate(labels):
            hits += label
            total += label * hits / (r + 1)
        return total / max(labels.sum(), 1)

    ranked = np.empty(len(y))
    ranked[place] = y
    exchanged = ranked.copy()
    exchanged[[place[a], place[b]]] = ranked[[place[b], place[a]]]
    return abs(precision(ranked) - precision(exchanged))


def refit(
    query_terms,
    leaves,
    y,
    sizes,
    w,
    rate,
    l2,
    lam=0.0,
    centred=False,
    pi=None,
    orders=None,
    prior=None,
    bags=None,
    times=None,
):
    """Return leaf values (steps of (M,)) and the scores before each step, of trees with these leaves.

    ``query_terms``  (A, y, order, pi, t, rows, w) -> w g, w h of a query
    ``lam``          l2 that is multiplied by the mean weight
    ``centred``      whether the mean of the leaves, by the weight of their rows, is subtracted
    ``leaves``       (trees, n)
    ``prior``        of leaves that are solved together, or None
    ``bags``         (trees, n) whether a row was drawn; None: all
    ``times``        (trees, n) how often a tree is added to the score of a row; None: once
    ``orders``       (trees, n) scores that ranks are taken from; None: the scores themselves
    """
    n = len(y)
    pi = np.ones(n) if pi is None else pi
    A = np.zeros(n)
    values = []
    scores = []
    for t, ids in enumerate(leaves):
        scores.append(A.copy())
        order = A if orders is None else orders[t]
        g = np.zeros(n)
        h = np.zeros(n)
        for rows in queries_of(sizes):
            g[rows], h[rows] = query_terms(
                A[rows], y[rows], order[rows], pi[rows], t, rows, w[rows]
            )
        if bags is not None:
            g = g * bags[t]
            h = h * bags[t]
        M = int(ids.max()) + 1
        D = np.bincount(ids, h, M) + l2 + lam * w.mean()
        s = -np.bincount(ids, g, M) / np.where(D != 0, D, 1.0)
        if prior is not None:
            s = solved_together(g, ids, y, sizes, w, pi, prior, l2)
        if centred:
            W = np.bincount(ids, w, M)
            s = np.where(W > 0, s - W @ s / W.sum(), 0.0)
        values.append(rate * s)
        A = A + (1 if times is None else times[t]) * values[-1][ids]
    return values, np.array(scores)


def solved_together(g, ids, y, sizes, w, pi, prior, l2):
    """Return the steps of leaves that one system of equations gives, from a row for each pair."""
    M = int(ids.max()) + 1
    K = (prior + l2) * np.eye(M) - prior / M
    for rows in queries_of(sizes):
        for a in range(rows.start, rows.stop):
            for b in range(rows.start, rows.stop):
                if y[a] > y[b]:
                    side = np.eye(M)[ids[a]] - np.eye(M)[ids[b]]
                    K += pi[a] * pi[b] * (w[a] + w[b]) / 2 * np.outer(side, side)
    s = np.zeros(M)
    s[:-1] = np.linalg.solve(K[:-1, :-1], -np.bincount(ids, g, M)[:-1])
    return s - s.mean()
