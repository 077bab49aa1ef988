"""Nodes of trees whose leaves depend on other nodes: the engine's program against plain recursions."""

import numpy as np
import pytest

from leaftrace._engine.node_slopes import NodeSlopes
from leaftrace._engine.pooled_leaves import pool
from leaftrace._model import node_trees
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
    steps = nodes.steps(LeafRule(), G, H, 0.3)
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


def test_pooling_in_pieces(monkeypatch):
    rng = np.random.default_rng(4)
    u = rng.normal(size=(12, 5))
    D = rng.random((12, 5))
    chains = rng.permutation(12).reshape(3, 4)
    whole = pool(u, D, chains)
    monkeypatch.setattr("leaftrace._engine.pooled_leaves.AT_ONCE", 1)
    np.testing.assert_array_equal(pool(u, D, chains), whole)
    assert np.all(np.diff(whole[chains], axis=1) >= 0)
    np.testing.assert_allclose((D * whole).sum(axis=0), (D * u).sum(axis=0))
