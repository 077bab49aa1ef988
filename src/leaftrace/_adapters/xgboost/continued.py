"""Training in several runs (xgb_model=): the round from which on a further run drew its rows.

A run takes a further word for the sampler of columns when it begins. In the same process it then goes
on with the random numbers of the run before; in another process they begin anew. The model does not
say where a run began, but the covers of its leaves do: they are sums over the rows that were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._model.ensemble import Ensemble
from .recover import leaf_sums, step_sums

MOST_RUNS = 20
TOLERANCE = 1e-3  # of covers, relative; a wrong draw changes them by more in most leaves
Begins = Mapping[
    int, bool
]  # rounds in which further runs begin, and whether draws begin anew there
Sample = list[NDArray[np.bool_]]


def continued_runs(
    e: Ensemble, rounds: Ints, draw: Callable[[Begins], Sample]
) -> tuple[Ensemble, Begins]:
    """The ensemble with the draws of all its runs, and the rounds in which further runs began.

    ``rounds``: (rounds + 1,) trees of each round; ``draw`` draws the rows of all trees. Where no
    draws give the recorded covers, the ensemble is as it was.
    """
    if e.sample is None or e.recorded is None or e.recorded.kind != "hessian" or e.leaf_outputs > 1:
        return e, {}
    found = e
    begins: dict[int, bool] = {}
    wrong = _first_wrong(found, rounds) if _ends_wrong(found) else None
    while wrong and len(begins) < MOST_RUNS:
        for anew in (False, True):
            trial = replace(found, sample=draw({**begins, wrong: anew}))
            later = _first_wrong(trial, rounds)
            if later is None or later > wrong:
                break
        else:
            return e, {}
        begins[wrong] = anew
        found, wrong = trial, later
    return (found, begins) if wrong is None else (e, {})


def _differ(sums: F64, cover: F64) -> NDArray[np.bool_]:
    """(leaves,) whether sums of h are others than the recorded covers."""
    return np.abs(sums - cover) > TOLERANCE * np.maximum(cover, np.abs(sums))


def _ends_wrong(e: Ensemble) -> bool:
    """Whether the last step has other covers: draws that went wrong once do not come right again."""
    assert e.recorded is not None
    A = e.start()
    last = e.n_steps - 1
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
    sums = step_sums(e, last, A)[1][:, 0]
    return bool(_differ(sums, e.recorded.values[e.leaf_range(last)]).any())


def _first_wrong(e: Ensemble, rounds: Ints) -> int | None:
    """The first round with a leaf of another cover than the recorded one."""
    assert e.recorded is not None
    sums = leaf_sums(e, e.n_steps).H
    is_wrong = _differ(sums, e.recorded.values[: len(sums)])
    if not is_wrong.any():
        return None
    tree = int(np.searchsorted(e.tree_leaves, np.argmax(is_wrong), side="right")) - 1
    return int(np.searchsorted(rounds, tree, side="right")) - 1
