"""What an answer costs: seconds and bytes, before the work is done.

The passes are loops over rows, trees and columns with a price each, in nanoseconds on the machine that
`benchmarks/calibrate.py` ran on (it prints this table); a probe of a few milliseconds says how much faster or slower
this machine is. The choice between the row form and the leaf form needs the ratios only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from .._kernels import BLOCKS, block_width, kernels
from .._model.ensemble import Ensemble
from .leaf_space import fits, space_bytes
from .methods import LeafInfluence, LeafRefit, SinglePoint, TopKLeaves
from .workspace import Workspace

# Nanoseconds for one row in one tree and, but for effects, states and pairs, one column of a block of that width.
PRICES = {
    "effects": 9.5,
    "states": 18.0,
    "backward": {1: 1.2, 8: 0.34, 32: 0.31},
    "expand": {1: 1.0, 8: 0.2, 32: 0.13},
    "tangent": {1: 1.3, 8: 0.25, 32: 0.46},
    "refit": {1: 3.6, 8: 0.6, 32: 0.58},
    "pairs": 4.0,  # for one row in one pair of trees
    "solve": 0.026,  # for one pair of leaves and one column
}
PROBE = 0.16  # nanoseconds the probe below takes on that machine


@dataclass(frozen=True)
class Estimate:
    """``seconds`` and ``bytes`` an answer will take, result included; ``form`` the way it will be computed."""

    seconds: float
    bytes: int
    form: str

    def __repr__(self) -> str:
        minutes, seconds = divmod(self.seconds, 60)
        hours, minutes = divmod(int(minutes), 60)
        clock = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes >= 10 else ""
        clock = clock or (f"{minutes} min {seconds:.0f} s" if minutes else f"{self.seconds:.2g} s")
        size = f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:.0f} MB"
        return f"Estimate(about {clock}, {size}; {self.form})"


def estimate(
    work: Workspace, built: bool, method: LeafInfluence | LeafRefit, columns: int, rows: int
) -> Estimate:
    """Of `Tracer.influence`, for this many queries and training rows; ``built``: the leaf form is there already."""
    e = work.trace.ensemble
    result = rows * columns * work.dtype.itemsize
    if isinstance(method, LeafInfluence) and not isinstance(method.update_set, TopKLeaves):
        ns = expand_cost(e, columns, rows)
        kept = work.effect_bytes() if work.keeps_effects else 0
        width = columns
        ns += 0.0 if work.has_effects else effects_cost(e)
        form = "row form"
        if isinstance(method.update_set, SinglePoint) or e.independent:
            form = "direct effects only"
            width = 0
        elif leaf_form_pays(work, built, columns):
            ns += solve_cost(e, columns) + (0.0 if built else build_cost(e))
            kept = kept + space_bytes(e, work.dtype.itemsize)
            form = "leaf form"
            width = 0
        else:
            ns += backward_cost(e, columns)
            if not work.keeps_effects:  # computed anew for every block
                ns = ns + effects_cost(e) * (-(-columns // work.block) - 1)
                width = min(columns, work.block)
    else:
        what = "refit" if isinstance(method, LeafRefit) else "tangent"
        form = "forwards"
        width = rows
        keeps, size = (
            (work.keeps_states, work.state_bytes())
            if what == "refit"
            else (work.keeps_effects, work.effect_bytes())
        )
        once = states_cost(e) if what == "refit" else effects_cost(e)
        ns = forward_cost(e, what, rows) + once * (1 if keeps else _blocks(rows))
        kept = size if keeps else 0
    block = e.n_rows * e.n_outputs * block_width(width) * work.dtype.itemsize if width else 0
    return Estimate(
        1e-9 * ns * machine() / work.n_jobs, kept + block * work.blocks_ahead + result, form
    )


def _blocks(columns: int) -> int:
    return -(-columns // BLOCKS[-1])


def leaf_form_pays(work: Workspace, built: bool, queries: int) -> bool:
    """Whether the leaf form answers this many queries faster than the row form."""
    e = work.trace.ensemble
    if not fits(e) or space_bytes(e, work.dtype.itemsize) > work.memory_limit // 4:
        return False
    row = backward_cost(e, queries)
    leaf = solve_cost(e, queries)
    return leaf + (0.0 if built else build_cost(e)) < row


def backward_cost(e: Ensemble, queries: int) -> float:
    """Row form, nanoseconds of one core."""
    return (
        _width_price("backward", queries) * queries * e.leaves.size * e.effect_outputs * e.n_outputs
    )


def build_cost(e: Ensemble) -> float:
    """Leaf form, once."""
    pairs = len(e.first_output) ** 2 / 2
    return PRICES["pairs"] * e.n_rows * pairs * e.leaf_outputs**2


def solve_cost(e: Ensemble, queries: int) -> float:
    """Leaf form, all queries."""
    return PRICES["solve"] * queries * (len(e.values) * e.leaf_outputs) ** 2 / 2


def expand_cost(e: Ensemble, queries: int, rows: int) -> float:
    return _width_price("expand", queries) * queries * rows * len(e.first_output) * e.effect_outputs


def forward_cost(e: Ensemble, what: str, rows: int) -> float:
    """Tangent or refit of this many training rows."""
    inner = e.rule.iterations if what == "refit" else 1
    return _width_price(what, rows) * rows * e.leaves.size * e.leaf_outputs * e.n_outputs * inner


def effects_cost(e: Ensemble) -> float:
    return PRICES["effects"] * e.leaves.size * e.leaf_outputs * e.n_outputs * e.rule.iterations


def states_cost(e: Ensemble) -> float:
    return PRICES["states"] * e.n_steps * e.n_rows * e.n_outputs


def _width_price(what: str, columns: int) -> float:
    """Of one column; a block is as dear as its width even where it is not full."""
    width = block_width(min(columns, BLOCKS[-1]))
    blocks = -(-columns // width)
    return PRICES[what][width] * blocks * width / max(columns, 1)


@cache
def machine() -> float:
    """How much slower this machine is than the one of PRICES."""
    n = 4096
    B = BLOCKS[-1]
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 64, (1, n)).astype(np.uint8)
    first = np.zeros(1, np.int32)
    U = np.full((1, n, 1, 1), 1e-3, np.float32)
    fbar = np.ones((64, 1, B), np.float32)
    abar = np.zeros((n, 1, B), np.float32)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        kernels.backward_step(leaf, first, U, fbar, abar, leaf, first, fbar.copy())
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / (n * B) / PROBE
