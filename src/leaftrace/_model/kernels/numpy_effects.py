"""Effects of rows of one output, and the backward pass that computes them, in NumPy.

The twins of `row_effects` in ``src/native/trees.hpp`` and of ``src/native/scored.hpp``.
"""

from __future__ import annotations

import numpy as np

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Logistic, Loss, Poisson, SquaredError
from .checks import (
    check_chain,
    check_edges,
    check_ids,
    check_name,
    check_rows,
    check_together,
    checked,
    require,
)
from .numpy_sweeps import sum_by_leaf


def loss_of(kernel: str) -> Loss:
    """The loss that a kernel for one output names."""
    return {"squared": SquaredError(), "logistic": Logistic(), "poisson": Poisson()}[kernel]


@checked(
    newton="bool",
    leaf="ids R n",
    begin="int",
    end="int",
    edges="int64 R+1",
    values="float64 M",
    tables="int64 R+1",
    shift="float64 all",
    s="float64 all",
    N="float64 all",
    A="out float64 rows",
    y="float64 n",
    w="float64 n",
    V="out real R n",
    U="out real R n",
)
def row_effects(
    loss: str,
    newton: bool,
    leaf: Ids,
    begin: int,
    end: int,
    edges: Ints,
    values: F64,
    tables: Ints,
    shift: F64,
    s: F64,
    N: F64,
    A: F64,
    y: F64,
    w: F64,
    V: Real,
    U: Real,
) -> None:
    """V, U (R, n): direct and knock-on effects of rows begin .. end - 1 on their leaves' values.

    Steps are as in `replay_sums`. A (end - begin,) has the scores of these rows; shift, s, N of
    tree r are (Q, M) at tables[r] .. tables[r + 1].
    """
    check_name(loss)
    check_chain(leaf, edges, begin, end, len(values))
    require(len(A) == end - begin, f"A has shape {A.shape}, expected {(end - begin,)}")
    check_edges("tables", tables, len(s), least=0)
    is_multiple = np.diff(tables) % np.diff(edges) == 0
    require(bool(is_multiple.all()), "the tables of a tree are not a multiple of its leaves")
    part = slice(begin, end)
    fn = loss_of(loss)
    y = y[part]
    w = w[part]
    for r, ids in enumerate(leaf[:, part]):
        if r > 0:
            A += values[edges[r - 1] :][leaf[r - 1, part]]
        state = fn.state(A[:, None])
        v = np.zeros(len(y))
        u = np.zeros(len(y))
        here = slice(tables[r], tables[r + 1])
        iterations = (x[here].reshape(-1, edges[r + 1] - edges[r]) for x in (shift, s, N))
        for shift_q, s_q, N_q in zip(*iterations, strict=True):
            at = fn.moved(state, shift_q[ids][:, None])
            step = s_q[ids]
            h = fn.hessian(at, y)[:, 0, 0]
            v += N_q[ids] * (fn.gradient(at, y)[:, 0] + (h if newton else 1.0) * step)
            u += N_q[ids] * (h + newton * fn.third_dot(at, y, step[:, None])[:, 0, 0])
        V[r, part] = v
        U[r, part] = w * u


@checked(
    newton="bool",
    leaf="ids n",
    begin="int",
    end="int",
    block="int",
    values="float64 M",
    shift="float64 Q M",
    s="float64 Q M",
    N="float64 Q M",
    A="out float64 n",
    y="state n",
    w="state n ?",
    fbar="real M",
    abar="out real n",
    next_leaf="ids n ?",
    below="out real C M' ?",
    out="out real n ?",
)
def backward_scored(
    loss: str,
    newton: bool,
    leaf: Ids,
    begin: int,
    end: int,
    block: int,
    values: F64,
    shift: F64,
    s: F64,
    N: F64,
    A: F64,
    y: Real,
    w: Real | None,
    fbar: Real,
    abar: Real,
    next_leaf: Ids | None,
    below: Real | None,
    out: Real | None,
) -> None:
    """Take one column back over a step of one tree and one output, from scores of rows begin .. end - 1.

    Takes the leaf values from A, and with the effects V, U of `row_effects` at these scores:
    abar += U fbar[leaf], below += sums of abar over the leaves of the step below, out += V fbar[leaf].
    The sums of each block of so many rows, from row begin on, have a table of their own in below.
    y and w may be float32 to be read faster; w is one for all rows if it is None.
    """
    check_name(loss)
    check_rows(begin, end, len(leaf))
    require(len(s) > 0, "inner iterations: there must be at least one")
    require(block > 0, "rows of a block: there must be at least one")
    check_together(next_leaf=next_leaf, below=below)
    part = slice(begin, end)
    check_ids(leaf[part], len(values))
    starts = range(begin, end, block)
    if next_leaf is not None and below is not None:
        require(
            len(below) == len(starts), f"below has {len(below)} tables for {len(starts)} blocks"
        )
        check_ids(next_leaf[part], below.shape[1])
    A[part] -= values[leaf[part]]
    V, U = np.zeros((2, 1, len(leaf)), abar.dtype)
    edges = np.array([0, len(values)])
    tables = np.array([0, s.size]), shift.ravel(), s.ravel(), N.ravel()
    rows = (
        A[part].copy(),
        y.astype(np.float64),
        np.ones(len(y)) if w is None else w.astype(np.float64),
    )
    row_effects(loss, newton, leaf[None], begin, end, edges, values, *tables, *rows, V, U)
    felt = fbar[leaf[part]]
    abar[part] += U[0, part] * felt
    if next_leaf is not None and below is not None:
        for start, table in zip(starts, below, strict=True):
            of_block = slice(start, min(start + block, end))
            sum_by_leaf(next_leaf[of_block], abar[of_block], table)
    if out is not None:
        out[part] += V[0, part] * felt
