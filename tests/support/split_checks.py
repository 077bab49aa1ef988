"""Checks of a description of splits against the leaves that the library itself puts rows in.

Nothing here reads thresholds or sets of categories: rows below the left side of a node must be told
from those below its right side by the node's column alone."""

import numpy as np


def leaf_numbers(e, leaves):
    """Leaves (trees, rows), counted within each tree."""
    first = e.tree_leaves[e.step_trees]
    in_step = e.tree_leaves[:-1] - np.repeat(first[:-1], np.diff(e.step_trees))
    return leaves.astype(np.int64) - in_step[:, None]


def slots_below(tree):
    """For each slot the leaf numbers below it, as a boolean array (2 N + 1, N + 1)."""
    N = len(tree.left)
    below = np.zeros((2 * N + 1, N + 1), bool)
    below[N:] = np.eye(N + 1, dtype=bool)
    for node in range(N - 1, -1, -1):
        assert node < tree.left[node] < 2 * N + 1
        assert node < tree.right[node] < 2 * N + 1
        below[node] = below[tree.left[node]] | below[tree.right[node]]
    return below


def sides(tree, ids):
    """For each inner node (left rows, right rows) as masks; ``ids`` (rows,) are leaf numbers."""
    below = slots_below(tree)
    for node in range(len(tree.left)):
        yield below[tree.left[node]][ids], below[tree.right[node]][ids]


def check_tree(tree, leaves):
    """Each leaf and each node but the root is the child of one node."""
    N = len(tree.left)
    assert leaves - 1 == N
    children = np.sort(np.concatenate([tree.left, tree.right]))
    assert np.array_equal(children, np.arange(1, 2 * N + 1))
    assert (np.diff(tree.choice) >= 0).all()
    assert set(tree.choice.tolist()) == set(range(len(set(tree.choice.tolist()))))


def check_separated(kind, left, right, where=""):
    """The values of a column on the left side and on the right side of a split."""
    assert not (np.isnan(left).any() and np.isnan(right).any()), f"missing on both sides {where}"
    left = left[~np.isnan(left)]
    right = right[~np.isnan(right)]
    if kind in ("ordered", "missing"):
        if len(left) and len(right):
            assert left.max() < right.min(), where
        return
    categories = set(left.tolist()), set(right.tolist())
    assert not categories[0] & categories[1], where
    assert all(c == int(c) >= 0 for c in categories[0] | categories[1])
    if kind == "one-hot":
        assert min(map(len, categories)) <= 1, where


def check_search(source, X_other=None):
    """The nodes of all trees fit the leaves of the training rows, and of others."""
    search = source.split_search()
    e = source.ensemble
    assert len(search.trees) == len(e.tree_leaves) - 1
    assert search.values.shape == (e.n_rows, len(search.columns))
    for kind, column in zip(search.columns, search.values.T, strict=True):
        assert kind != "ordered" or not np.isnan(column).any()
    sets = [(search.values, e.leaves)]
    if X_other is not None:
        sets.append((source.split_columns(X_other), source.rows(X_other)[0]))
    for values, leaves in sets:
        for r, (tree, ids) in enumerate(zip(search.trees, leaf_numbers(e, leaves), strict=True)):
            check_tree(tree, e.tree_leaves[r + 1] - e.tree_leaves[r])
            for node, (left, right) in enumerate(sides(tree, ids)):
                column = tree.column[node]
                x = values[:, column]
                where = f"tree {r}, node {node}, column {column}"
                check_separated(search.columns[column], x[left], x[right], where)
    return search


def gains(source, search, parent_of_root=True):
    """For each tree the gains (N,) of its splits, from the scores before its step.

    ``parent_of_root``: whether the gain of a root is more than that of no split, as elsewhere"""
    e = source.ensemble
    A = e.start()
    numbers = leaf_numbers(e, e.leaves)
    O = e.leaf_outputs
    out = []
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        state = e.loss.state(A)
        g = e.loss.gradient(state, e.y)  # (n, K)
        h = np.ones_like(A) if search.by_weight else e.second_derivatives(A)
        for r in range(e.step_trees[t], e.step_trees[t + 1]):
            tree = search.trees[r]
            w = e.tree_weight(r)[:, None]
            outputs = slice(e.first_output[r], e.first_output[r] + O)
            terms = w * g[:, outputs], w * h[:, outputs]
            found = []
            for node, (left, right) in enumerate(sides(tree, numbers[r])):
                many = search.columns[tree.column[node]] == "sorted"
                lam = e.lam + (search.category_l2 if many else 0.0)
                counts = node > 0 or parent_of_root
                limits = e.rule.l1, e.rule.max_step, search.output_hessian
                parent = part_gain(terms, left | right, e.lam, *limits) if counts else 0.0
                sides_gain = [part_gain(terms, side, lam, *limits) for side in (left, right)]
                found.append(sum(sides_gain) - parent)
            out.append(np.array(found))
    return out


def part_gain(terms, rows, lam, l1=0.0, max_step=np.inf, least=0.0):
    """The gain of some rows as a leaf; outputs with less than ``least`` of H have none."""
    G = terms[0][rows].sum(axis=0)
    H = terms[1][rows].sum(axis=0)
    G = np.sign(G) * np.maximum(np.abs(G) - l1, 0)
    s = np.where(least > H, 0, np.clip(-G / (H + lam), -max_step, max_step))
    return float(-(2 * s * G + s**2 * (H + lam)).sum())


def smallest_sides(source, search):
    """Fewest drawn rows and least sum of w h on a side of any split.

    Then the fewest rows, if those of a side are its part of the node's w h."""
    e = source.ensemble
    A = e.start()
    numbers = leaf_numbers(e, e.leaves)
    rows = []
    hessians = []
    estimates = []
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        h = e.second_derivatives(A)
        for r in range(e.step_trees[t], e.step_trees[t + 1]):
            drawn = e.drawn_rows(r) & (e.w_factor > 0)
            wh = e.tree_weight(r) * h[:, e.first_output[r]]
            for pair in sides(search.trees[r], numbers[r]):
                of_pair = [wh[side].sum() for side in pair]
                rows += [np.count_nonzero(side & drawn) for side in pair]
                hessians += of_pair
                row = max(sum(of_pair), 1e-300) / sum(rows[-2:])
                estimates += [hessian / row for hessian in of_pair]
    return min(rows), min(hessians), min(estimates)


def taken_and_best(source, search):
    """For each choice the gain of the split taken, and the best of all thresholds of all columns."""
    e = source.ensemble
    A = e.start()
    numbers = leaf_numbers(e, e.leaves)
    pairs = []
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        w = e.w[:, None]
        h = np.ones_like(A) if search.by_weight else e.second_derivatives(A)
        terms = w * e.loss.gradient(e.loss.state(A), e.y), w * h
        tree = search.trees[t]
        of_nodes = list(sides(tree, numbers[t]))
        for choice in range(tree.choice.max(initial=-1) + 1):
            nodes = [of_nodes[node] for node in np.flatnonzero(tree.choice == choice)]
            taken = sum(part_gain(terms, side, e.lam) for pair in nodes for side in pair)
            candidates = [x <= v for x in search.values.T for v in np.unique(x)[:-1]]
            gains = [
                sum(
                    part_gain(terms, (left | right) & low, e.lam)
                    + part_gain(terms, (left | right) & ~low, e.lam)
                    for left, right in nodes
                )
                for low in candidates
            ]
            pairs.append((taken, max(gains)))
    return np.array(pairs).T
