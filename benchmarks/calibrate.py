"""Measure what the passes cost and print the table of prices in _engine/costs.py.

    python benchmarks/calibrate.py

It uses one thread, whose time on the processor is measured, and a generated ensemble whose rows do not
fit in the caches, because only tasks of that size are worth estimating.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from leaftrace._engine import costs, leaf_space
from leaftrace._engine.backward import expand_training, leaf_adjoint
from leaftrace._engine.forward import refit, tangent
from leaftrace._engine.methods import AllPoints
from leaftrace._engine.queries import make_queries
from leaftrace._engine.replay import replay
from leaftrace._engine.soft_splits import SoftPass, SoftQueries, SoftSplits, structure_influence
from leaftrace._engine.split_bins import MAX_BINS, make_bins
from leaftrace._engine.workspace import Workspace
from leaftrace._model.ensemble import Ensemble, LeafRule
from leaftrace._model.kernels import BLOCKS
from leaftrace._model.losses import Logistic
from leaftrace._model.splits import ColumnKind, SplitSearch, TreeNodes

N = 200_000  # rows
T = 40  # trees
L = 64  # leaves of a tree
CELLS = N * T
COLUMNS = 10  # that splits compare
SOFT_ROWS = 50_000
SOFT_TREES = 4


def best(fn, repeats=5) -> float:
    """Return nanoseconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        fn()
        times.append(time.process_time() - start)
    return 1e9 * min(times)


def ensemble(N=N, T=T, L=L) -> Ensemble:
    """Return a random ensemble with one output."""
    rng = np.random.default_rng(0)
    return Ensemble(
        loss=Logistic(),
        rule=LeafRule(l2=1.0),
        learning_rate=0.1,
        leaves=rng.integers(0, L, (T, N)).astype(np.uint8),
        first_output=np.zeros(T, np.int32),
        step_trees=np.arange(T + 1),
        tree_leaves=np.arange(T + 1) * L,
        values=rng.normal(size=(T * L, 1)) * 0.05,
        y=rng.integers(0, 2, N).astype(float),
        w=np.ones(N),
        w_factor=np.ones(N),
        base=np.zeros(1),
    )


def workspace(trace) -> Workspace:
    return Workspace(trace, np.dtype("float32"), 1, 1 << 34)


def main() -> None:
    e = ensemble()
    trace = replay(e, 1.0)
    work = workspace(trace)
    prices: dict[str, object] = {
        "effects": best(lambda: workspace(trace).prepare_effects()) / CELLS,
        "states": best(lambda: workspace(trace).prepare_states()) / CELLS,
    }
    work.prepare_effects()
    work.prepare_states()
    queries = make_queries(e, e.leaves[:, : BLOCKS[-1]], None, None, "prediction", None, None)
    prices |= pass_prices(work, queries)
    prices |= leaf_space_prices(work, queries)
    prices |= choice_prices()
    costs.machine.cache_clear()
    for name, price in prices.items():
        print(f'    "{name}": {rounded(price)},')
    print(f"PROBE = {costs.PROBE * costs.machine():.2f}")


def pass_prices(work: Workspace, queries) -> dict[str, dict[int, float]]:
    """Return prices of the passes over rows by width of a block, for a row, tree and column."""
    prices = {name: {} for name in ("backward", "expand", "tangent", "refit")}
    for B in BLOCKS:
        columns = slice(0, B)
        rows = np.arange(B)
        adjoint = leaf_adjoint(work, queries, columns)
        passes = {
            "backward": lambda c=columns: leaf_adjoint(work, queries, c),
            "expand": lambda a=adjoint: expand_training(work, a, None),
            "tangent": lambda r=rows: tangent(work, r, AllPoints()),
            "refit": lambda r=rows: refit(work, r, AllPoints()),
        }
        for name, fn in passes.items():
            prices[name][B] = best(fn) / (CELLS * B)
    return prices


def leaf_space_prices(work: Workspace, queries) -> dict[str, float]:
    """Return prices of building W, for a row and pair of trees, and of a solve, for an entry of W."""
    pairs = best(lambda: leaf_space.build_leaf_space(work), 3) / (N * T * T / 2)
    space = leaf_space.build_leaf_space(work)
    B = BLOCKS[-1]
    solve = best(lambda: space.adjoint(work, queries, slice(0, B)))
    return {"pairs": pairs, "solve": solve / (B * (T * L) ** 2 / 2)}


def choice_prices() -> dict[str, dict[int, float]]:
    """Return prices of soft splits by width of a block, for a column of the block.

    "choices" is for a row, tree and column that splits compare, "candidates" for a bin of an inner node.
    Trees of two leaves have next to no candidates, so that the two can be told apart.
    """
    prices = {name: {} for name in ("choices", "candidates")}
    small = soft_pass(2)
    large = soft_pass(L)
    for B in BLOCKS:
        rows, bins = small(B), large(B)
        prices["choices"][B] = rows / (SOFT_ROWS * SOFT_TREES * COLUMNS * B)
        prices["candidates"][B] = (bins - rows) / (SOFT_TREES * (L - 2) * COLUMNS * MAX_BINS * B)
    return prices


def soft_pass(leaves: int) -> Callable[[int], float]:
    """Return a function of a block's width that gives the nanoseconds of soft splits alone."""
    rng = np.random.default_rng(0)
    e = ensemble(SOFT_ROWS, SOFT_TREES, leaves)
    work = workspace(replay(e, 1.0))
    work.prepare_effects()
    values = rng.normal(size=(SOFT_ROWS, COLUMNS))
    kinds: list[ColumnKind] = ["ordered"] * COLUMNS
    search = SplitSearch([balanced_tree(leaves)] * SOFT_TREES, kinds, values)
    bins = make_bins(values, kinds)
    codes = bins.codes(values)
    splits = SoftSplits(search, bins, codes)
    m = BLOCKS[-1]
    asked = SoftQueries(
        make_queries(e, e.leaves[:, :m], None, None, "prediction", None, None), codes[:m]
    )

    def nanoseconds(B: int) -> float:
        columns = slice(0, B)

        def soft_influence() -> object:
            return structure_influence(SoftPass(work, splits, asked, columns, 1.0), None)

        soft = best(soft_influence, 3)
        fixed = best(
            lambda: expand_training(work, leaf_adjoint(work, asked.queries, columns), None), 3
        )
        return soft - fixed

    return nanoseconds


def balanced_tree(leaves: int) -> TreeNodes:
    """Return the inner nodes of a balanced tree, numbered level by level."""
    inner = np.arange(leaves - 1, dtype=np.int32)
    return TreeNodes(2 * inner + 1, 2 * inner + 2, inner % COLUMNS, inner)


def rounded(price: float | dict[int, float]) -> float | dict[int, float]:
    if isinstance(price, dict):
        return {B: round(p, 2) for B, p in price.items()}
    return round(price, 3)


if __name__ == "__main__":
    main()
