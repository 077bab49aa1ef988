"""Nodes of trees whose leaves depend on other nodes: the engine's program against plain recursions."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.isotonic import isotonic_regression

from leaftrace._engine import pooled_leaves
from leaftrace._engine.node_slopes import NodeSlopes
from leaftrace._engine.pooled_leaves import pool
from leaftrace._model import node_trees
from leaftrace._model.kernels import is_native, kernels, numpy_node_values
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.leaf_rule import LeafRule
from leaftrace._model.node_trees import ActiveBounds, NodeTree, StepNodes, midpoint_bounds


def random_tree(rng, L):
    """Return a monotone and smoothed tree of L leaves, grown by splitting leaves at random."""
    children = np.full((L - 1, 2), -1)
    open_slots = [None]
    for split in range(L - 1):
        slot = open_slots.pop(rng.integers(len(open_slots)))
        if slot is not None:
            children[slot] = split
        open_slots += [(split, 0), (split, 1)]
    for leaf, slot in enumerate(open_slots):
        if slot is not None:
            children[slot] = L - 1 + leaf
    sign = rng.integers(-1, 2, L - 1)
    share = rng.uniform(0.5, 1.0, 2 * L - 1)
    share[0] = 1.0
    bounds = midpoint_bounds(NodeTree(children), sign)
    return NodeTree(children, rng.random(2 * L - 1), share, sign, *bounds)


@pytest.fixture
def trees():
    rng = np.random.default_rng(0)
    return [random_tree(rng, L) for L in (1, 2, 9, 20)]


def slopes_of(nodes, G, H):
    steps = nodes.steps(LeafRule(), G, H, 0.3, slopes=True)
    active = ActiveBounds(nodes)
    values = nodes.outputs(steps.s, active)
    return values, NodeSlopes(nodes, active, steps, 0.7, np.ones(len(G), bool))


def test_sums_by_matrix_and_split_by_split(trees, monkeypatch):
    few = StepNodes(trees)
    assert few._below is not None
    monkeypatch.setattr(node_trees, "FEW_LEAVES", 0)
    many = StepNodes(trees)
    x = np.random.default_rng(1).normal(size=(32, 2, 3))
    by_node = few.node_sums(x)
    np.testing.assert_allclose(by_node, many.node_sums(x), atol=1e-12)
    assert many._below is None


def test_tangent_is_the_slope_and_the_adjoint_its_transpose(trees):
    """The finite difference, and the dot-product identity of tangent and adjoint."""
    rng = np.random.default_rng(2)
    nodes = StepNodes(trees)
    M = len(nodes.leaf)
    G = rng.normal(size=(M, 1))
    H = rng.uniform(0.5, 2.0, (M, 1))
    _, slopes = slopes_of(nodes, G, H)
    assert np.any(slopes.active.own[: nodes.with_rows] == 0)  # some nodes are at a bound
    sums = rng.normal(size=(M, 2, 4))
    fbar = rng.normal(size=(M, 4))
    forward = slopes.tangent(sums)
    np.testing.assert_allclose((forward * fbar).sum(), (sums * slopes.adjoint(fbar)).sum())
    h = 1e-6
    dG, dH = sums[:, :1, 0], sums[:, 1:, 0]
    ahead = slopes_of(nodes, G + h * dG, H + h * dH)[0]
    back = slopes_of(nodes, G - h * dG, H - h * dH)[0]
    np.testing.assert_allclose(0.7 * (ahead - back)[:, 0] / (2 * h), forward[:, 0], atol=1e-7)
    own = slopes.adjoint(np.eye(M))[np.arange(M), :, np.arange(M)]
    np.testing.assert_allclose(slopes.own_slopes(), own)


def test_no_value_falls_beside_a_monotone_split(trees):
    """Also with steps that training would not have taken, where sides swap."""
    nodes = StepNodes(trees)
    s = np.random.default_rng(3).normal(size=(nodes.with_rows, 50))
    values = nodes.outputs(s)
    first = 0
    for tree in trees:
        for (left, right), sign in zip(tree.children - len(tree.children), tree.sign, strict=True):
            if min(left, right) >= 0:  # two leaves
                assert np.all(sign * (values[first + right] - values[first + left]) >= -1e-12)
        first += len(tree.children) + 1


def clipped(tree, s):
    """Return the outputs of all nodes of a tree from their steps (N, B), node by node from the root."""
    out = s.copy()
    share = tree.share[:, None]
    for split, children in enumerate(tree.children):
        for node in children:
            x = share[node] * s[node] + (1 - share[node]) * out[split]
            bounds = [
                [0.5 * (out[a] + out[b]) for n, a, b in pairs if n == node]
                for pairs in (tree.lower, tree.upper)
            ]
            low = np.max([np.full(x.shape, -np.inf), *bounds[0]], axis=0)
            high = np.min([np.full(x.shape, np.inf), *bounds[1]], axis=0)
            out[node] = np.where(x < low, low, np.minimum(x, high))
    return out


def in_growth_order(tree):
    """Return whether the bounds of each node are known when its split is made."""
    above = tree.parent
    pairs = np.concatenate([tree.lower, tree.upper])
    return np.all(above[pairs[:, 1:]] < above[pairs[:, :1]])


@pytest.mark.parametrize("module", [twins, kernels] if is_native() else [twins])
def test_steps_and_outputs(trees, module, monkeypatch):
    """Steps from sums over the rows below each node, outputs node by node; l1 and limits decide some steps."""
    monkeypatch.setattr(node_trees, "kernels", module)
    rng = np.random.default_rng(5)
    nodes = StepNodes(trees)
    M = len(nodes.leaf)
    rule = LeafRule(l1=0.4, max_step=1.5, min_hessian=0.6)
    G = rng.normal(size=(M, 3))
    H = rng.uniform(0.4, 2.0, (M, 3))
    lam = np.array([0.1, 0.2, 0.9])
    found = nodes.steps(rule, G, H, lam, slopes=True)
    np.testing.assert_array_equal(nodes.steps(rule, G, H, lam).s, found.s)
    below = nodes.node_sums(np.stack([G, H], axis=1))
    D = below[:, 1] + lam + nodes.l2[:, None]
    s = -np.sign(below[:, 0]) * np.maximum(np.abs(below[:, 0]) - 0.4, 0) / D
    s = np.where(below[:, 1] < 0.6, 0, s)
    moves = (s != 0) & (np.abs(s) < 1.5)
    np.testing.assert_allclose(found.s, np.clip(s, -1.5, 1.5), atol=1e-15)
    np.testing.assert_allclose(found.slope, np.where(moves, -1 / D, 0), atol=1e-15)
    assert {False, True} == set(moves.ravel().tolist())

    values = nodes.outputs(found.s)
    node = leaf = 0
    for tree in trees:
        assert in_growth_order(tree)
        S = len(tree.children)
        expected = clipped(tree, found.s[node : node + 2 * S + 1])[S:]
        for split, (left, right) in enumerate(tree.children - S):  # sides that have swapped
            both = [x for x in (left, right) if x >= 0]
            sides = clipped(tree, found.s[node : node + 2 * S + 1])[tree.children[split]]
            swapped = tree.sign[split] * (sides[1] - sides[0]) < 0
            expected[both] = np.where(swapped, sides.mean(axis=0), expected[both])
        np.testing.assert_allclose(values[leaf : leaf + S + 1], expected, atol=1e-14)
        node += 2 * S + 1
        leaf += S + 1
    for column in range(3):  # the bound that decides is the same whichever way it is asked
        active = ActiveBounds(nodes)
        alone = nodes.outputs(np.ascontiguousarray(found.s[:, [column]]), active)
        np.testing.assert_array_equal(alone[:, 0], values[:, column])


@pytest.mark.parametrize("module", [twins, kernels] if is_native() else [twins])
def test_values_of_columns_that_differ_in_few_leaves(trees, module, monkeypatch):
    """What is computed once for all columns is the same as column by column."""
    monkeypatch.setattr(node_trees, "kernels", module)
    rng = np.random.default_rng(6)
    shares = [np.ones(tree.n_nodes) for tree in trees]
    plain = [replace(tree, share=share) for tree, share in zip(trees, shares, strict=True)]
    for nodes in (StepNodes(trees), StepNodes(plain)):
        M = len(nodes.leaf)
        G = np.repeat(rng.normal(size=(M, 1)), 5, axis=1)
        H = np.repeat(rng.uniform(0.4, 2.0, (M, 1)), 5, axis=1)
        for column in range(1, 5):
            G[rng.integers(M), column] += 0.5
            H[rng.integers(M), column] += 0.5
        for lam in (np.full(5, 0.3), np.linspace(0.1, 0.5, 5)):
            found = nodes.values(LeafRule(), G, H, lam)
            for column in range(5):
                steps = nodes.steps(LeafRule(), G[:, [column]], H[:, [column]], lam[column])
                alone = nodes.outputs(steps.s)[:, 0]
                np.testing.assert_array_equal(found[:, column], alone)


@pytest.mark.parametrize("module", [twins, kernels] if is_native() else [twins])
def test_pooling_is_isotonic_regression(module, monkeypatch):
    monkeypatch.setattr(pooled_leaves, "kernels", module)
    monkeypatch.setattr(numpy_node_values, "AT_ONCE", 1)
    rng = np.random.default_rng(4)
    u = rng.normal(size=(28, 5))
    D = rng.random((28, 5))
    D[[3, 11]] = 0  # a leaf without rows and without l2
    chains = rng.permutation(28).reshape(4, 7)
    found = pool(u, D, chains)
    for chain in chains:
        for b in range(5):
            expected = isotonic_regression(
                u[chain, b], sample_weight=np.maximum(D[chain, b], 1e-12)
            )
            # a leaf without weight follows its neighbours either way, so only the others are compared
            has_rows = D[chain, b] > 0
            np.testing.assert_allclose(found[chain, b][has_rows], expected[has_rows], atol=1e-10)
    assert np.all(np.diff(found[chains], axis=1) >= 0)
