"""A Hypothesis strategy for tiny ensembles of every shape that the engine supports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
from hypothesis import strategies as st
from oracle_nodes import Node

from leaftrace._engine.replay import replay
from leaftrace._engine.workspace import Workspace
from leaftrace._model.ensemble import Ensemble, LeafRule
from leaftrace._model.general_losses import (
    Fair,
    Gamma,
    Huber,
    PseudoHuber,
    ScaledLogistic,
    Tweedie,
)
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError
from leaftrace._model.node_trees import NodeTree, midpoint_bounds, nodes_by_step
from leaftrace._model.separate_losses import Brier, OneVsAll
from leaftrace._model.start import Mean

LINKS = {"squared": "identity", "logistic": "logit", "poisson": "log", "softmax": "centred log"}
LOSSES = {
    "squared": SquaredError(),
    "logistic": Logistic(),
    "poisson": Poisson(),
    "gamma": Gamma(),
    "tweedie": Tweedie(1.3),
    "huber": Huber(0.6),
    "pseudo-huber": PseudoHuber(0.8),
    "fair": Fair(1.2),
    "scaled logistic": ScaledLogistic(0.7),
}
CLASSES = {"softmax": Softmax, "brier": Brier, "one-vs-all": lambda K: OneVsAll(K, 0.7)}


@st.composite
def tiny(draw):
    """Draw (structure of the oracle, y, w, test steps, test labels)."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(3, 9))
    m = draw(st.integers(1, 3))
    T = draw(st.integers(1, 4))
    loss = draw(st.sampled_from([*LOSSES, *CLASSES, "squared", "logistic", "poisson", "softmax"]))
    K = draw(st.integers(2, 3)) if loss in CLASSES else 1
    separate = K > 1 and draw(st.booleans())  # a tree for each output, or vector leaves
    # Two trees that start from the same scores.
    parallel = K == 1 and draw(st.booleans()) and draw(st.booleans())
    limited = draw(st.booleans()) and (K == 1 or separate)
    Q = 1 if separate or parallel or limited else draw(st.integers(1, 3))
    outputs = [0, 0] if parallel else [0]
    if separate:
        outputs = range(K)
    trees = [[(draw(st.integers(1, 4)), o) for o in outputs] for _ in range(T)]
    steps = [[(rng.integers(0, L, n), L, o) for L, o in step] for step in trees]
    test_steps = [[(rng.integers(0, L, m), L, o) for L, o in step] for step in trees]
    labels = {
        "logistic": lambda k: rng.random(k),
        "scaled logistic": lambda k: rng.random(k),
        "poisson": lambda k: rng.poisson(2.0, k) + 0.5,
        "gamma": lambda k: rng.random(k) + 0.5,
        "tweedie": lambda k: rng.random(k) + 0.5,
        **dict.fromkeys(CLASSES, lambda k: rng.permutation(np.arange(k) % K).astype(float)),
    }.get(loss, lambda k: rng.normal(size=k))
    w = rng.random(n) + 0.2
    dependent = (
        Q == 1 and not (K > 1 and not separate) and draw(st.booleans()) and draw(st.booleans())
    )
    offset = rng.normal(size=(n, K)) * 0.3 if draw(st.booleans()) else 0.0
    mean = draw(st.booleans()) and not np.ndim(offset) and loss in LINKS
    # With a softmax start, a row of weight zero might leave a class without weight.
    if draw(st.booleans()) and not (mean and loss == "softmax"):
        w[rng.integers(0, n)] = 0.0
    sample = (
        [[rng.choice([0.0, 1.0, 2.0], n) for _ in step] for step in trees]
        if draw(st.booleans())
        else None
    )
    structure = oracle.Structure(
        loss=loss,
        steps=steps,
        K=K,
        O=1 if separate else K,
        newton=draw(st.booleans()) or dependent,
        l2=draw(st.sampled_from([0.5, 2.0])),
        lr=draw(st.sampled_from([0.3, 1.0])),
        scales=[
            [draw(st.sampled_from([1.0, 1.0, 0.5])) if Q > 1 else 1.0 for _ in range(Q)]
            for _ in range(T)
        ],
        base="mean" if mean else rng.normal(size=K) * 0.1,
        l2_scales=draw(st.booleans()) and not limited and not dependent,
        offset=offset,
        sample=sample,
        moves=draw(st.sampled_from([None, None, _forest(T), _dart(rng, T)])),
        l1=draw(st.sampled_from([0.0, 0.3])) if limited else 0.0,
        max_step=draw(st.sampled_from([np.inf, 0.4])) if limited else np.inf,
        min_hessian=draw(st.sampled_from([0.0, 0.5])) if limited else 0.0,
        more_l2=[[rng.random(L) for L, _ in step] for step in trees]
        if draw(st.booleans()) and Q == 1 and not dependent
        else None,
        nodes=[[_root(rng, L) for L, _ in step] for step in trees] if dependent else None,
    )
    if K == 1 and not (parallel or limited or dependent or structure.more_l2):
        structure = replace(structure, chains=_chains(np.random.default_rng([seed, 1]), trees))
    return structure, labels(n), w, test_steps, labels(m)


def _chains(rng, trees):
    """Return chains of the leaves of every tree, or None."""
    if rng.random() < 0.5:
        return None
    found = []
    for ((L, _),) in trees:
        lengths = [k for k in range(1, L + 1) if L % k == 0]
        found.append(rng.permutation(L).reshape(-1, rng.choice(lengths)).tolist())
    return found


def _root(rng, L):
    """Return the root of a random tree: smoothed, monotone, or both."""
    smoothed, monotone = rng.permutation([True, rng.random() < 0.5])
    return _nodes(rng, list(range(L)), smoothed, monotone)


def _nodes(rng, leaves, smoothed, monotone):
    """Return the root of a random tree with these leaves."""
    share = rng.random() if smoothed else 1.0
    l2 = rng.random()
    if len(leaves) == 1:
        return Node(leaf=leaves[0], share=share, l2=l2)
    at = rng.integers(1, len(leaves))
    pair = tuple(_nodes(rng, part, smoothed, monotone) for part in (leaves[:at], leaves[at:]))
    return Node(pair=pair, sign=int(rng.integers(-1, 2)) * monotone, share=share, l2=l2)


def _node_tree(root):
    """Return the engine's description of a tree."""
    splits = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.leaf is None:
            splits.append(node)
            waiting += node.pair
    leaves = sorted(_leaf_nodes(root), key=lambda node: node.leaf)
    nodes = [*splits, *leaves]
    number = {id(node): k for k, node in enumerate(nodes)}
    children = np.array([[number[id(c)] for c in x.pair] for x in splits], int).reshape(-1, 2)
    sign = np.array([node.sign for node in splits], int)
    bounds = midpoint_bounds(NodeTree(children), sign)
    share = np.array([node.share for node in nodes])
    share[0] = 1.0  # there is nothing above the root
    return NodeTree(children, np.array([node.l2 for node in nodes]), share, sign, *bounds)


def _leaf_nodes(node):
    return [node] if node.leaf is not None else [x for c in node.pair for x in _leaf_nodes(c)]


def _forest(T):
    return [[] for _ in range(T)] + [[(t, 1 / T) for t in range(T)]]


def _dart(rng, T):
    """Return moves that add each step and then add multiples of earlier ones or of the starting score."""
    return [[]] + [
        [
            (t, rng.choice([1.0, 0.5])),
            *((int(rng.integers(-1, t + 1)), rng.normal() * 0.5) for _ in range(2)),
        ]
        for t in range(T)
    ]


def ensemble_of(structure, y, w):
    """Return the engine's Ensemble of an oracle's Structure."""
    base, values = oracle.refit(structure, y, w)
    counts = []
    offset = 0
    leaves = []
    first = []
    for step in structure.steps:
        offset = 0
        for ids, L, o in step:
            leaves.append(ids + offset)
            first.append(o)
            counts.append(L)
            offset += L
    step_trees = np.cumsum([0] + [len(s) for s in structure.steps])
    return Ensemble(
        loss=CLASSES[structure.loss](structure.K)
        if structure.loss in CLASSES
        else LOSSES[structure.loss],
        rule=LeafRule(
            structure.newton,
            structure.l2,
            structure.l2_scales,
            # Each halving of a step costs an iteration.
            iterations=max(int(sum(1 + np.log2(1 / c) for c in step)) for step in structure.scales),
            backtracking=any(c != 1 for s in structure.scales for c in s),
            l1=structure.l1,
            max_step=structure.max_step,
            min_hessian=structure.min_hessian,
        ),
        learning_rate=structure.lr,
        leaves=np.array(leaves, dtype=np.uint8),
        first_output=np.array(first, np.int32),
        step_trees=step_trees,
        tree_leaves=np.cumsum([0, *counts]),
        values=np.concatenate([v for step in values for v in step]),
        y=y,
        w=w,
        w_factor=np.ones(len(y)),
        base=np.array(base),
        base_rule=Mean(LINKS[structure.loss]) if isinstance(structure.base, str) else None,
        offset=np.array(structure.offset) if np.ndim(structure.offset) else None,
        sample=None
        if structure.sample is None
        else [drawn for step in structure.sample for drawn in step],
        moves=structure.moves,
        step_nodes=None
        if structure.nodes is None
        else nodes_by_step([_node_tree(x) for s in structure.nodes for x in s], step_trees),
        chains=None if structure.chains is None else [np.array(x) for x in structure.chains],
        leaf_l2=None
        if structure.more_l2 is None
        else np.concatenate([x for step in structure.more_l2 for x in step]),
    )


def leaves_of(steps):
    """Return leaves (trees, rows) of other rows, numbered over the leaves of each step."""
    out = []
    for step in steps:
        offset = 0
        for ids, L, _ in step:
            out.append(ids + offset)
            offset += L
    return np.array(out, dtype=np.uint8)


def workspace_of(ensemble, dtype="float64", n_jobs=1, memory_limit=1 << 30):
    return Workspace(replay(ensemble, 1e-9), np.dtype(dtype), n_jobs, memory_limit)
