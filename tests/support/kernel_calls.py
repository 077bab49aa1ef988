"""Calls that every kernel accepts, small enough to be repeated with each argument spoiled in turn."""

import inspect

import numpy as np

from leaftrace._adapters.catboost.losses import LogCosh, Lq
from leaftrace._model.general_losses import (
    Fair,
    Huber,
    PseudoHuber,
    ScaledLogistic,
    SquaredLog,
    Tweedie,
)
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError
from leaftrace._model.separate_losses import OneVsAll

N = 11  # rows
M = 5  # leaves of a tree
B = 8
ONE_OUTPUT = {"squared": 1, "logistic": 2, "poisson": 1}  # numbers of state
LOSSES = [
    SquaredError(), Logistic(), Poisson(), Softmax(3), Huber(0.6), Lq(2.7), Fair(1.2), PseudoHuber(0.8),
    SquaredLog(), Tweedie(1.3), ScaledLogistic(0.7), LogCosh(), OneVsAll(3, 0.7),
]  # fmt: skip
rng = np.random.default_rng(0)


def real(*shape):
    return rng.random(shape) + 0.1


def small(*shape):
    """Return changes of scores that every form of a change is made for."""
    return 1e-3 * real(*shape)


def leaves(*shape):
    return rng.integers(0, M, shape).astype(np.uint8)


def first(R):
    return np.zeros(R, np.int32)


def call(kernel, *args):
    """Return the kernel's name and its arguments by name."""
    given = inspect.signature(getattr(twins, kernel)).bind(*args)
    given.apply_defaults()
    return kernel, dict(given.arguments)


def calls():
    """Return calls by the name of the kernel and, where it has one, of the loss."""
    found = {}
    for loss, C in ONE_OUTPUT.items():
        edges = np.array([0, M, 2 * M])
        rows = leaves(2, N), edges, real(2 * M)
        found[f"leaf_sums, {loss}"] = call(
            "leaf_sums", loss, leaves(N), real(N, C), real(M), real(N), real(N), np.zeros((M, 4))
        )
        found[f"replay_sums, {loss}"] = call(
            "replay_sums", loss, rows[0], False, *rows[1:], real(N, 1), real(N), real(N), 7, 1, N - 1,
            np.zeros((2 * M, 8)),
        )  # fmt: skip
        tables = np.array([0, 2 * M, 3 * M]), *real(3, 3 * M)
        found[f"row_effects, {loss}"] = call(
            "row_effects", loss, True, rows[0], 1, N - 1, *rows[1:], *tables, real(N - 2), real(N), real(N),
            *np.zeros((2, 2, N)),
        )  # fmt: skip
        found[f"backward_scored, {loss}"] = call(
            "backward_scored", loss, True, leaves(N), 1, N - 1, 5, real(M), *real(3, 2, M), real(N), real(N), real(N),
            real(M), real(N), leaves(N), real(2, M), real(N),
        )  # fmt: skip
    for K in (1, 3):
        offset = np.array([0, M])
        trees = leaves(2, N), first(2), offset
        found[f"tree_scores, {K}"] = call("tree_scores", *trees, real(2 * M, K), real(N, K))
        found[f"tree_sums, {K}"] = call("tree_sums", *trees, real(N, K), real(2 * M, K))
        step = leaves(1, N), first(1)
        ranked = np.ones(N), real(1, N, K, K), real(N, K, B), np.zeros((M, B))
        found[f"backward_step, {K}"] = call(
            "backward_step", *step, real(1, N, K, K), real(M, K, B), real(N, K, B), *step, real(M, K, B)
        )  # fmt: skip
        found[f"expand, {K}"] = call(
            "expand", leaves(2, N), 1, N - 1, offset, real(2, N, K), real(2 * M, K, B), real(N, B)
        )
        place = rng.integers(0, 3, 2 * M).astype(np.int32)
        found[f"expand, {K}, shared rows"] = call(
            "expand", leaves(2, N), 1, N - 1, offset, real(2, N, K), real(3, K, B), real(N, B), place
        )  # fmt: skip
        found[f"advance, {K}"] = call("advance", *step, real(M, K, B), real(N, K, B))
        found[f"tangent_sums, {K}"] = call(
            "tangent_sums", *step, *step, real(M, K, B), *ranked, real(M, K, B)
        )
        edges = np.array([0, 4, N])
        found[f"pair_sums, {K}"] = call(
            "pair_sums", leaves(N, 3), offset, first(2), np.arange(N)[::-1].copy(), edges, real(2, N, K, K), 1, K - 1,
            np.zeros((2, 2 * M, K)),
        )  # fmt: skip
    found["top_leaves"] = call("top_leaves", real(M, B), 2, np.zeros((M, B)))
    found |= {
        f"choice_terms, {O} of {K}": call_of_choices(O, K) for O, K in ((1, 1), (1, 3), (3, 3))
    }
    found["lift"] = call("lift", real(6, 4), real(4, B), real(6, B))
    edges = np.array([0, 4, 5, N])
    rows = leaves(N), edges
    found["query_products"] = call(
        "query_products", leaves(6), np.array([0, 2, 3, 6]), real(2 * 4 + 1 + 3 * (N - 5)), edges, real(M, B),
        real(N, B), leaves(N), real(M, B)
    )  # fmt: skip
    found["query_shares"] = call(
        "query_shares", *rows, real(N, 2), real(N, 3), real(N, 3, 2), real(M, B), real(N, 3, B), leaves(N), real(M, B)
    )  # fmt: skip
    found["node_adjoint"] = call("node_adjoint", *step_of_nodes(), real(4, 2, B))
    place = np.zeros(4, np.int32)
    found["node_rows"] = call("node_rows", *step_of_nodes(), 2, np.zeros((8, 2, B)), place)
    found["node_steps"] = call_of_node_steps()
    found |= {f"node_outputs, {columns}": call_of_node_outputs(columns) for columns in (1, 3)}
    found |= {f"node_values, {columns}": call_of_node_values(columns) for columns in (1, 3)}
    found |= {f"node_values, own, {n}": call_of_own_node_values(n) for n in (1, 3)}
    chains = np.array([[0, 2, 1], [4, 3, 5]])
    found["pool_chains"] = call("pool_chains", chains, 1e-9, real(7, 3), real(7, 3), real(7, 3))
    found["find_leaves"] = call_of_routes()
    found["level_leaves"] = call(
        "level_leaves", real(N, 3), np.array([0, 2, 3]), np.array([2, 0, 2], np.int32), real(3),
        np.array([0, 1, 1], np.uint8), 1, N - 1, np.zeros((2, N), np.uint8),
    )  # fmt: skip
    x = np.round(real(N), 1)  # some are equal
    found["rank_pairs"] = call("rank_pairs", leaves(N), x, np.zeros(M, np.int64), real(M, 2))
    found |= {f"softmax_effects, {O} of 3": call_of_classes(O) for O in (1, 3)}
    found |= {f"output_sums, {O} of 3": call_of_output_sums(O) for O in (1, 3)}
    found["weight_sums"] = call("weight_sums", leaves(3, N), real(N), real(3, N), real(M, 2))
    found |= {f"separate_effects, {O} of 3": call_of_separate_outputs(O) for O in (1, 3)}
    for loss in LOSSES:
        found |= calls_of_refits(loss)
    return found


def call_of_choices(O, K):
    """Return a call about a tree with three nodes, two of which share a choice, and columns of every kind."""
    sizes = np.array([4, 3, 3, 5], np.int32)
    codes = [rng.integers(0, sizes, (rows, len(sizes))).astype(np.uint8) for rows in (N, 4)]
    ids = [rng.integers(0, 4, rows).astype(np.int32) for rows in (N, 4)]
    rows = real(N), real(N), real(N, O), real(N, O), real(N, O, K), real(N, O, K)
    nodes = (
        np.array(numbers, np.int32) for numbers in ([1, 3, 5], [2, 4, 6], [0, 1, 1], [0, 1, 1])
    )
    return call(
        "choice_terms", codes[0], ids[0], *rows, codes[1], ids[1], real(4, O, B), sizes,
        np.arange(4, dtype=np.uint8), *nodes, np.array([0.3, 0.1, 0.2, 0.5, 0.1, 1.0, 0.7, 0.1, 2.0, 0.05]),
        False, True, True, True, False, np.zeros(4), 0, 2, real(N, K, B), real(N, K, B), real(N, B),
    )  # fmt: skip


def step_of_nodes():
    """Return arguments about two trees, of three leaves and of one, and a node without rows for a leaf's value."""
    numbers = (
        [5, -1, 3, 6],
        [2, 3, 4, 5],
        [0, 1, 1, -1],
        [0, 1],
        [-1, 0],
        [6, 4, 3],
        [[4, 3], [1, 1], [0, 2]],
    )
    nodes = (np.array(x, np.int32) for x in numbers)
    return 7, *nodes, real(3), real(6, 2), real(4, B)


def int32(*rows):
    return (np.array(numbers, np.int32) for numbers in rows)


def sums_of_nodes(columns):
    """Return arguments about the nodes of two trees, of three leaves and of one."""
    leaf, splits, children = int32([2, 3, 4, 5], [1, 0], [[3, 4], [1, 2]])
    limits = np.array([0.2, 1.5, 0.3])
    sums = real(4, columns) - 0.5, real(4, columns)
    depths = np.array([0, 1, 2])
    return leaf, depths, splits, children, real(6), limits, real(columns), *sums


def order_of_nodes():
    """Return arguments about five nodes with rows and two without, in two rounds, some of them without bounds."""
    nodes, lower, upper = int32([1, 2, 5, 6], [[0, 3], [3, 4], [0, 1]], [[0, 4], [3, 0], [1, 2]])
    source, own, value = int32([0, 0, 0, 1, 1, 3, 4], [0, 1, 2, 3, 4, 3, 4], [2, 5, 6])
    edges = np.array([0, 2, 2, 3, 3]), np.array([0, 1, 1, 2, 3])
    share = np.array([1, 0.6, 0.7, 1, 1, 0, 0])
    rounds = np.array([0, 2, 4])
    return rounds, nodes, edges[0], lower, edges[1], upper, source, own, share, value


def call_of_node_steps():
    return call("node_steps", *sums_of_nodes(3), np.zeros((6, 3)), np.zeros((6, 3)))


def call_of_node_outputs(columns):
    bound = np.zeros(4, np.int32) if columns == 1 else None
    return call("node_outputs", *order_of_nodes(), real(5, columns), np.zeros((3, columns)), bound)


def call_of_node_values(columns):
    """Return a call in which some leaves and lam have the same numbers in all columns."""
    leaf, depths, splits, children, l2, limits, lam, G, H = sums_of_nodes(columns)
    G[1:] = G[1:, :1]
    H[1:] = H[1:, :1]
    lam[:] = lam[0]
    sums = leaf, depths, splits, children, l2, limits, lam, G, H
    return call("node_values", *sums, *order_of_nodes(), np.zeros((3, columns)), real(3))


def call_of_own_node_values(columns):
    """Return a call in which all columns have the same sums, but for two leaves of each."""
    *sums, G, H = sums_of_nodes(columns)
    sums[-1][:] = 0.5  # lam
    ids = np.array([[0, 2, 2], [1, 3, 1]], np.int32)[:, :columns]
    own = ids, real(2, columns) - 0.5, real(2, columns)
    every = np.ascontiguousarray(G[:, 0]), np.ascontiguousarray(H[:, 0])
    return call("node_values", *sums, *every, *order_of_nodes(), np.zeros((3, columns)), None, *own)


def call_of_routes():
    """Return a call about two trees, of four leaves and of one, with all kinds of comparisons."""
    values = rng.integers(-2, 40, (N, 3)).astype(float)
    children = np.array([[1, 2], [3, 4], [5, 6]], np.int32)
    nodes = (
        np.array([1, 2, 0], np.int32),
        np.array([3.0, 0, 12]),
        children,
        np.array([1, 5, 2], np.uint8),
    )
    sets = np.array([0, 0, 2, 2]), np.array([0x0F0F0F0F, 7], np.uint32)
    return call(
        "find_leaves", values, np.array([0, 3, 3]), *nodes, *sets, np.array([0, 4]), 1, N - 1,
        np.zeros((2, N), np.uint8),
    )  # fmt: skip


def call_of_classes(O):
    """Return a call about two steps of three classes: of three trees each, or of one with two iterations."""
    R = 3 // O
    Q = 1 if O == 1 else 2
    trees = (
        leaves(2 * R, N),
        np.tile(np.arange(R, dtype=np.int32), 2),
        np.array([0, R, 2 * R]),
        np.array([0, M, 2 * M]),
    )
    tables = (
        np.array([0, Q * M, 2 * Q * M]),
        real(2 * Q * M, O),
        real(2 * Q * M, O),
        real(2 * Q * M, O, O),
    )
    y = rng.integers(0, 3, N).astype(float)
    return call(
        "softmax_effects", True, *trees, real(2 * M, O), *tables, 1, N - 1, real(N - 2, 3), y, real(N),
        np.zeros((2 * R, N, O)), np.zeros((2 * R, N, O, 3)),
    )  # fmt: skip


def call_of_separate_outputs(O):
    """Return a call about a tree that writes to one of three outputs, or to all of them."""
    terms = (real(N, 3) for _ in range(4))
    return call(
        "separate_effects", True, leaves(N), 0 if O == 3 else 1, *terms, real(M, O), real(M, O, O),
        real(N), real(N, O), real(N, O, 3),
    )  # fmt: skip


def call_of_output_sums(O):
    """Return a call about three trees of one output each, or one tree of three."""
    R = 3 // O
    return call(
        "output_sums", 3, leaves(R, N), np.arange(R, dtype=np.int32), real(N, 3), real(N, 3), real(N),
        real(R, N), real(M, O), real(M, O),
    )  # fmt: skip


def calls_of_refits(loss):
    """Return calls of the kernels that take a loss."""
    K = loss.n_outputs
    name = f"{type(loss).__name__} {loss.changes[0]}"
    step = leaves(1, N), first(1)
    state = loss.state(real(N, K))
    sums = real(M, K, B), real(M, K, K, B)
    terms = 0, state, labels(loss, N), real(1, N)
    inner = loss.shift(real(M, K)), real(M, K, B), real(M, B)
    removed = leaves(1, B), first(1), state[:B].copy(), real(1, K, B), labels(loss, B), real(B)
    equations = real(M, K), real(M, K, K), real(M), real(B), 0.5
    limits = np.array([0.2, 0.6, 1.0]), real(M, K), real(M), np.zeros(M, bool), True
    return {
        f"change_sums, {name}": call(
            "change_sums", loss, *step, *step, small(M, K, B), np.ones(N), *terms, None, None, None, small(N, K, B),
            real(M, B), *sums,
        ),
        f"change_sums, {name}, inner iteration": call(
            "change_sums", loss, *step, None, None, None, None, *terms, *inner, real(N, K, B), None, *sums
        ),
        f"removal_step, {name}": call(
            "removal_step", loss, True, *removed, *equations, *sums, np.zeros((M, K, B)), *limits
        ),
    }  # fmt: skip


def labels(loss, n):
    return rng.integers(0, max(2, loss.n_outputs), n).astype(float)
