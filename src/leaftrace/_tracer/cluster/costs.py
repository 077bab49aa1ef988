"""Expected seconds of the two forms of the backward pass on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..._engine.costs import backward_cost, build_cost, machine, solve_cost
from ..._engine.leaf_space import space_bytes
from ..._model.ensemble import Ensemble
from ..._model.kernels import BLOCKS
from .protocol import Cluster


@dataclass(frozen=True)
class Prices:
    """Prices of a kind of cluster (benchmarks/scale.py, two processes).

    ``round``  seconds of a reduction beside the work of its partitions
    ``wire``   bytes a second that a machine sends, with packing and unpacking
    ``read``   seconds for each byte of the state of a partition, which every reduction reads
    ``redo``   share of partitions that a step finds without the steps before it, and does these again
    """

    round: float
    wire: float
    read: float = 0.0
    redo: float = 0.0


def whole_ensemble(e: Ensemble, n: int) -> Ensemble:
    """The ensemble with the number of all rows, for estimates of costs."""
    leaves = np.broadcast_to(np.uint8(0), (len(e.leaves), n))
    return replace(e, leaves=leaves, y=np.broadcast_to(0.0, (n,)))


def row_form_seconds(cluster: Cluster, prices: Prices, e: Ensemble, n: int, queries: int) -> float:
    """Expected time of the row form."""
    rounds = -(-queries // BLOCKS[-1]) * e.n_steps
    whole = whole_ensemble(e, n)
    work = 1e-9 * machine() * backward_cost(whole, queries)
    work *= 1 + prices.redo * e.n_steps / 2
    reading = prices.read * whole.leaves.size * e.leaves.itemsize
    return (work + rounds * reading) / cluster.threads + rounds * prices.round


def leaf_form_seconds(
    cluster: Cluster,
    prices: Prices,
    e: Ensemble,
    n: int,
    queries: int,
    itemsize: int,
    built: bool,
) -> float:
    """Expected time of the leaf form; every thread sends its W, unless that is done."""
    solve = 1e-9 * machine() * solve_cost(e, queries)
    if built:
        return solve
    build = 1e-9 * machine() * build_cost(whole_ensemble(e, n)) / cluster.threads
    return build + prices.round + space_bytes(e, itemsize) / prices.wire + solve
