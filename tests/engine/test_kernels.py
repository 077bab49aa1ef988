"""Native kernels against their NumPy twins, for every type, width and instruction set."""

import numpy as np
import pytest
from kernel_arrays import M, N, agree, arrays, ids, sweep_of

from leaftrace._engine.forward_block import SMALL_CHANGE
from leaftrace._model.kernels import BLOCKS, is_native, kernels
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError

pytestmark = pytest.mark.skipif(not is_native(), reason="native kernels are not in use")

SHAPES = [(1, 1, 1), (1, 3, 3), (3, 1, 3)]  # R trees, O outputs of a leaf, K outputs
LOSSES = {
    "squared": SquaredError(),
    "logistic": Logistic(),
    "poisson": Poisson(),
    "softmax": Softmax(3),
}


@pytest.mark.parametrize("id_type", [np.uint8, np.uint16])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_one_output_sums_and_effects(isa, loss, id_type):
    rng = np.random.default_rng(1)
    C = 2 if loss == "logistic" else 1
    T = 3
    leaf = ids(rng, T, id_type)
    state = rng.random((N, C)) + 0.1
    if loss == "logistic":
        state /= state.sum(axis=1, keepdims=True)
    y = rng.random(N)
    w = rng.random(N)
    shift = rng.random((T, M)) + 0.5
    agree("leaf_sums", (loss, leaf[0], state, shift[0], y, w), [np.zeros((M, 4))], np.float64)
    w[::11] = 0
    A = rng.normal(size=(N, 1)) * np.where(np.arange(N) % 7 == 0, 100, 1)[:, None]
    if loss == "poisson":
        A = A.clip(-30, 30)
    # one leaf stays empty
    edges = np.array([0, M, 2 * M + 1, 3 * M + 1])
    values = rng.normal(size=3 * M + 1)
    for skip in (False, True):
        for rounding in (0, 3, 7):
            outputs = [A, y, w, rounding, 3, N - 5, np.zeros((3 * M + 1, 8))]
            inputs = loss, leaf, skip, edges, values
            agree("replay_sums", inputs, outputs, np.float32 if rounding else np.float64)
    # For squared error both must round every row in the same way, to the last bit.
    for begin in range(40):
        if loss == "squared":
            outputs = [A, y, w, 7, begin, begin + 37, np.zeros((3 * M + 1, 8))]
            agree("replay_sums", (loss, leaf, False, edges, values), outputs, np.float64)
    tables = np.array([0, M, 3 * M + 2, 4 * M + 2])  # one inner iteration, two, one
    shift = rng.random(4 * M + 2) + 0.5
    s = rng.normal(size=4 * M + 2)
    factor = rng.normal(size=4 * M + 2)
    for dtype in (np.float32, np.float64):
        for newton in (True, False):
            for begin, end in ((0, N), (17, 200)):
                inputs = loss, newton, leaf, begin, end, edges, values, tables, shift, s, factor
                outputs = [
                    A[begin:end, 0].copy(),
                    y,
                    w,
                    np.zeros((T, N), dtype),
                    np.zeros((T, N), dtype),
                ]
                agree("row_effects", inputs, outputs, dtype)


@pytest.mark.parametrize("id_type", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_backward_pass_from_scores(isa, loss, dtype, id_type):
    """Inner iterations, a step below, an influence to add to and narrow labels: each with and without."""
    rng = np.random.default_rng(5)
    n = 1300  # more than two tiles
    leaf, below = rng.integers(0, M, (2, n)).astype(id_type)
    block = 700  # so rows 7 .. n - 10 have two, of more than one tile
    A = 3 * rng.normal(size=n)
    y = np.round(rng.random(n), 2)
    w = rng.random(n)
    none = 0.0 if loss == "squared" else 1.0
    for Q in (1, 3):
        shift = rng.random((Q, M)) + 0.5
        if Q == 1:
            shift[:] = none  # the case of a single iteration has a loop of its own
        tables = rng.normal(size=M), shift, *rng.normal(size=(2, Q, M))
        felt = rng.normal(size=M).astype(dtype)
        sums = [rng.normal(size=size).astype(dtype) for size in (n, (2, M), n)]
        for newton in (True, False):
            inputs = loss, newton, leaf, 7, n - 9, block, *tables
            agree("backward_scored", inputs, [A, y, w, felt, sums[0], below, *sums[1:]], dtype)
            halves = (y.astype(np.float32), w.astype(np.float32)), (y.astype(np.float32), None)
            for narrow in halves:
                rows = [A, *narrow, felt, sums[0], None, None, None]
                agree("backward_scored", inputs, rows, dtype)


def test_exponentials_of_float32_passes(isa):
    """Their error is that of float32, for scores of any size, not that of scores in float32."""
    A = np.concatenate([np.linspace(-80, 80, 4001), [-700.0, 700.0, 0.0]])
    n = len(A)
    one = np.ones(1)
    V, U = np.zeros((2, 1, n), np.float32)
    leaf = np.zeros((1, n), np.uint8)
    edges = np.array([0, 1])
    at = "logistic", True, leaf, 0, n, edges, one, edges, one, np.zeros(1), one
    kernels.row_effects(*at, A.copy(), np.zeros(n), np.ones(n), V, U)
    p = 1 / (1 + np.exp(-A))
    # the polynomial and its argument are rounded to float32, and so is the result
    np.testing.assert_allclose(V[0], p, rtol=4e-7, atol=1e-44)
    np.testing.assert_allclose(U[0], p / (1 + np.exp(A)), rtol=4e-7, atol=1e-44)


def test_more_rows_than_a_tile(isa):
    """The kernels process rows in tiles of up to 4096."""
    rng = np.random.default_rng(11)
    T = 3
    n = 9001
    leaf = rng.integers(0, M, (T, n)).astype(np.uint8)
    edges = np.arange(T + 1) * M
    values = rng.normal(size=T * M)
    A = rng.normal(size=(n, 1))
    y = rng.random(n)
    w = rng.random(n)
    outputs = [A, y, w, 0, 1, n - 1, np.zeros((T * M, 8))]
    agree("replay_sums", ("logistic", leaf, False, edges, values), outputs, np.float64)
    tables = *np.ones((2, T * M)), rng.normal(size=T * M)
    inputs = "logistic", True, leaf, 1, n - 1, edges, values, edges, *tables
    agree(
        "row_effects",
        inputs,
        [A[1:-1, 0].copy(), y, w, np.zeros((T, n)), np.zeros((T, n))],
        np.float64,
    )
    first = np.zeros(T, np.int32)
    one = values[:, None].copy()
    agree("tree_scores", (leaf, first, edges[:-1].copy(), one), [A], np.float64)
    agree("tree_sums", (leaf, first, edges[:-1].copy(), A), [one], np.float64)


@pytest.mark.parametrize("id_type", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("shape", [*SHAPES, (11, 1, 1)])
def test_passes_through_all_trees(isa, id_type, shape):
    R, O, K = shape
    rng = np.random.default_rng(8)
    leaf = ids(rng, R, id_type)
    first = (np.arange(R) % (K - O + 1)).astype(np.int32)
    offset = np.arange(R) * (M + 1)
    leaves = R * (M + 1)
    agree(
        "tree_scores",
        (leaf, first, offset, rng.normal(size=(leaves, O))),
        [rng.normal(size=(N, K))],
        np.float64,
    )
    agree(
        "tree_sums",
        (leaf, first, offset, rng.normal(size=(N, K))),
        [rng.normal(size=(leaves, O))],
        np.float64,
    )


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("effects", [2, 3])
def test_several_effects_of_a_row(isa, B, dtype, effects):
    """Rows that move other leaves, too, have more effects than there are outputs."""
    rng = np.random.default_rng(4)
    x = arrays(dtype)
    leaf = ids(rng, 2, np.uint8)
    first = np.zeros(1, np.int32)
    step = leaf[:1].copy(), first, x(1, N, effects, 1), x(M, effects, B)
    agree("backward_step", step, [x(N, 1, B), leaf[1:].copy(), first, x(M, 1, B)], dtype)
    agree("backward_step", step, [x(N, 1, B), None, None, None], dtype)
    both = (leaf, 3, N - 2, np.array([0, M]), x(2, N, effects), x(2 * M, effects, B))
    agree("expand", both, [x(N, B)], dtype)
    place = rng.integers(0, 2 * M, 2 * M).astype(np.int32)
    agree("expand", both, [x(N, B), place], dtype)


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("id_type", [np.uint8, np.uint16, np.uint32])
def test_queries(isa, B, dtype, id_type):
    """Queries of one row, of a few, and of more than a tile."""
    x = arrays(dtype)
    leaf, below = ids(np.random.default_rng(5), 2, id_type)
    sizes = np.array([1, 2, 3, 4, 7, 1])
    sizes = np.append(sizes, N - sizes.sum())
    edges = np.cumsum(np.append(0, sizes))
    counts = np.minimum(sizes, [1, 1, 3, 2, 7, 1, 11])
    columns = np.cumsum(np.append(0, counts))
    products = leaf[: columns[-1]].copy(), columns, x(int((sizes * counts).sum())), edges
    for next_leaf, sums in ((below.copy(), x(M, B)), (None, None)):
        rows = leaf.copy(), edges
        agree("query_products", (*products, x(M, B)), [x(N, B), next_leaf, sums], dtype)
        for R in (0, 1, 3):
            shares = x(N, R), x(N, 2), x(N, 2, R)
            agree("query_shares", (*rows, *shares, x(M, B)), [x(N, 2, B), next_leaf, sums], dtype)


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nodes(isa, B, dtype):
    """A chain of splits, each with a leaf and the next split, and values that lean on other nodes."""
    rng = np.random.default_rng(6)
    x = arrays(dtype)
    S = 9
    splits = np.arange(S, dtype=np.int32)
    above = splits - 1
    leaf = np.arange(S, 2 * S + 1, dtype=np.int32)
    value = np.where(np.arange(S + 1) % 4 == 3, -1, leaf).astype(np.int32)
    nodes = leaf[::-1].copy()  # nodes depend on those before them
    pair = (nodes[:, None] * rng.random((S + 1, 2))).astype(np.int32)
    half = rng.random(S + 1)
    step = value, leaf, np.append(splits, S - 1).astype(np.int32), splits, above
    inputs = 2 * S + 2, *step, nodes, pair, half, rng.normal(size=(2 * S + 1, 2)), x(S + 1, B)
    agree("node_adjoint", inputs, [x(S + 1, 2, B)], dtype)
    few = x(S + 1, B)
    few[[0, 1, 3, 4, 5, 6, 8, 9]] = 0  # leaves that are not asked about share rows
    check_rows_of_nodes(*inputs[:-1], few)


def check_rows_of_nodes(*inputs):
    """Compare rows that leaves share with what `node_adjoint` of NumPy gives."""
    fbar = inputs[-1]
    M, B = fbar.shape
    rows = np.full((2 * M + 2, 2, B), np.nan, fbar.dtype)
    rows[0] = 0
    place = np.empty(M, np.int32)
    used = kernels.node_rows(*inputs, 2, rows, place)
    expected = np.zeros((M, 2, B), fbar.dtype)
    twins.node_adjoint(*inputs, expected)
    rounding = 1e-5 if fbar.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(rows[place], expected, rtol=rounding, atol=rounding)
    assert np.isnan(rows[1]).all()
    assert np.isnan(rows[used:]).all()
    assert len(np.unique(place)) < M


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("id_type", [np.uint8, np.uint16, np.uint32])
def test_block_kernels(isa, B, dtype, shape, id_type):
    R, O, K = shape
    rng = np.random.default_rng(2)
    x = arrays(dtype)
    leaf = ids(rng, R, id_type)
    following = ids(rng, R, id_type)
    first = np.arange(R, dtype=np.int32) * O
    U = x(R, N, O, K)
    V = x(R, N, O)
    D = x(N, K, B)
    agree(
        "backward_step",
        (leaf, first, U, x(M, O, B)),
        [x(N, K, B), following, first, x(M, O, B)],
        dtype,
    )
    agree("backward_step", (leaf, first, U, x(M, O, B)), [x(N, K, B), None, None, None], dtype)
    offset = np.arange(R, dtype=np.int64) * M
    for begin, end in ((0, N), (17, 200), (5, 5)):
        agree(
            "expand",
            (leaf, begin, end, offset, V, x(R * M, O, B)),
            [x(N, B)],
            dtype,
            works=end > begin,
        )
    agree("advance", (leaf, first, x(M, O, B)), [D], dtype)
    for before in ((None, None, None), (following, first, x(M, O, B))):
        for pick, absolute in ((None, None), ((rng.random(N) < 0.5).astype(dtype), x(M * R, B))):
            inputs = *sweep_of(rng, R, O, id_type), *before, pick, U
            agree("tangent_sums", inputs, [D, absolute, x(M * R, O, B)], dtype)


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("K", [1, 3])
def test_sums_of_many_rows_in_float32(isa, K, B):
    """Sums over leaves of the backward pass keep their digits, however many rows there are."""
    n = 300_000
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 2, (1, n)).astype(np.uint8)
    first = np.zeros(1, np.int32)
    abar = rng.random((n, K, B), dtype=np.float32)
    sums = np.zeros((2, K, B), np.float32)
    U = np.zeros((1, n, K, K), np.float32)
    fbar = np.zeros((2, K, B), np.float32)
    kernels.backward_step(leaf, first, U, fbar, abar, leaf, first, sums)
    expected = [abar[leaf[0] == at].sum(axis=0, dtype=np.float64) for at in (0, 1)]
    # Blocks of 4096 rows are added one by one: up to 4096 roundings of 6e-8 that nearly cancel. One by one, all
    # rows of a leaf gave errors of 1e-5 and more.
    np.testing.assert_allclose(sums, expected, rtol=1e-6)


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "softmax"])
@pytest.mark.parametrize("inner", [False, True])
def test_change_sums(isa, B, dtype, loss, inner):
    rng = np.random.default_rng(3)
    x = arrays(dtype)
    for R, O, K in SHAPES:
        if (loss == "softmax") != (K > 1) or (inner and R > 1):
            continue
        C = 2 if loss == "logistic" else K
        state = (rng.random((N, C)) + 0.1).astype(dtype)
        if loss in ("logistic", "softmax"):
            state /= state.sum(axis=1, keepdims=True)
        extra = (None, None, None)
        if inner:
            shift = rng.random((M, O)) + 0.5
            mask = rng.random((M, B)) < 0.5
            extra = shift.astype(dtype), x(M, O, B), mask.astype(dtype)
        w = rng.random(N).astype(dtype)
        before = (ids(rng, 1, np.uint8), np.zeros(1, np.int32), x(M, K, B))
        pick = np.ones(N, dtype)
        ranking = x(M * R, B)
        for form, ranked in (
            (0, (None, None)),
            (0, (pick, ranking)),
            (2, (None, ranking)),
            (1, (None, None)),
        ):
            if (form == 1 and loss == "squared") or (form == 2 and inner):
                continue
            before[2][:] *= 0.001 if form == 2 else 1
            labels = np.zeros(N)  # none of these losses uses them
            inputs = (
                LOSSES[loss],
                *sweep_of(rng, R, O, np.uint8),
                *before,
                ranked[0],
                form,
                state,
                labels,
                w,
                *extra,
            )
            D = x(N, K, B) * dtype(0.001 if form == 2 else 1)
            agree("change_sums", inputs, [D, ranked[1], x(M * R, O, B), x(M * R, O, O, B)], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_removal_step(isa, dtype, loss):
    rng = np.random.default_rng(4)
    x = arrays(dtype)
    B = 32
    state = rng.random((B, 2 if loss == "logistic" else 1)) + 0.1
    state /= state.sum(axis=1, keepdims=True) if loss == "logistic" else 1
    w = rng.random(B)
    rows = rng.integers(0, 3, M).astype(float)
    w[3] = 0.0
    for newton in (True, False):
        row = (
            ids(rng, 1, np.uint8)[:, :B].copy(),
            np.zeros(1, np.int32),
            state,
            rng.normal(size=(1, 1, B)),
            rng.random(B),
            w,
        )
        equations = (
            rng.normal(size=(M, 1)),
            rng.random((M, 1, 1)) * 2,
            rows,
            rng.normal(size=B) * 0.1,
            0.5,
        )
        agree(
            "removal_step",
            (LOSSES[loss], newton, *row, *equations, x(M, 1, B), x(M, 1, 1, B)),
            [np.zeros((M, 1, B))],
            np.float64,
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential_of_a_change(dtype):
    """Check the polynomial for exp(D) - 1, for larger changes than one row causes, by the Poisson loss."""
    D = np.r_[np.logspace(-8, np.log10(4), 200), -np.logspace(-8, np.log10(4), 200)].astype(dtype)
    n = len(D)
    leaf = np.arange(n, dtype=np.uint16)[None]
    dG = np.zeros((n, 1, 1), dtype)
    dH = np.zeros((n, 1, 1, 1), dtype)
    one = np.ones(n, dtype)
    sweep = leaf, np.zeros(1, np.int32), None, None, None, None
    scores = one[:, None], np.zeros(n), one, None, None, None, D[:, None, None].copy()
    kernels.change_sums(Poisson(), *sweep, 0, *scores, None, dG, dH)
    error = np.abs(dG[:, 0, 0] / np.expm1(D.astype(np.float64)) - 1)
    assert error[np.abs(D) <= 1].max() <= (1e-6 if dtype == np.float32 else 1e-14)
    assert error.max() <= (2e-3 if dtype == np.float32 else 1e-10)
    dG[:] = 0
    kernels.change_sums(Poisson(), *sweep, 2, *scores, None, dG, dH)
    error = np.abs(dG[:, 0, 0] / np.expm1(D.astype(np.float64)) - 1)
    assert error[np.abs(D) <= SMALL_CHANGE[np.dtype(dtype).itemsize]].max() <= (
        3e-7 if dtype == np.float32 else 1e-15
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 3, 7, 9])
def test_top_leaves(isa, dtype, k):
    sums = np.random.default_rng(6).integers(0, 5, (M, 32)).astype(dtype)  # with equal ones
    agree("top_leaves", (sums, k), [np.full((M, 32), 0.5, dtype)], dtype)


def test_wrong_shapes_and_ids_are_refused():
    leaf = np.zeros((1, N), np.uint8)
    first = np.zeros(1, np.int32)
    E = np.zeros((N, 1, 8), np.float32)
    with pytest.raises(ValueError, match="d has shape"):
        kernels.advance(leaf, first, np.zeros((M, 1, 1), np.float32), E)
    with pytest.raises(ValueError, match="1, 8 or 32 columns"):
        kernels.advance(
            leaf, first, np.zeros((M, 1, 5), np.float32), np.zeros((N, 1, 5), np.float32)
        )
    with pytest.raises(ValueError, match="an id beyond"):
        kernels.advance(leaf + M, first, np.zeros((M, 1, 8), np.float32), E)
    with pytest.raises(ValueError, match="outputs of a tree beyond K"):
        kernels.advance(leaf, first + 1, np.zeros((M, 1, 8), np.float32), E)
    with pytest.raises(TypeError):  # no silent conversion
        kernels.advance(leaf, first, np.zeros((M, 1, 8)), E)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (3, 3)])  # K, O
def test_pair_sums(isa, dtype, shape):
    K, O = shape
    rng = np.random.default_rng(2)
    by_row = rng.integers(0, M, (N, 5)).astype(np.uint8)
    own = rng.integers(0, 4, N)
    order = np.argsort(own, kind="stable")
    edges = np.searchsorted(own[order], np.arange(5))
    offset = np.arange(3) * M
    first = (np.arange(3) % (K - O + 1)).astype(np.int32)
    U = rng.normal(size=(2, N, O, K)).astype(dtype)
    out = np.zeros((4, 3 * M, O), dtype)
    agree("pair_sums", (by_row, offset, first, order, edges, U, 1, O - 1), [out], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("rows", [0, 3, 14])
def test_lift(isa, dtype, B, rows):
    new = arrays(dtype)
    agree("lift", (new(rows, 7), new(7, B)), [new(rows, B)], dtype, works=rows > 0)
