"""The cost of an answer in seconds and bytes before the work, and the form to compute it in.

The passes are loops over rows, trees and columns with a price each, in nanoseconds on the machine
that `benchmarks/calibrate.py` ran on (it prints this table). A probe of a few milliseconds measures
how much faster or slower this machine is. The choice between the row form and the leaf form needs
only the ratios.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from .._model.ensemble import Ensemble
from .._model.kernels import BLOCKS, block_width, kernels
from .._model.kernels.arguments import StepLeaves
from .free_memory import size_in_words
from .leaf_space import has_leaf_form, space_bytes
from .methods import LeafInfluence, LeafRefit, SinglePoint, TopKLeaves
from .soft_splits import SoftSplits, block_of
from .workspace import Workspace

# Nanoseconds for one row in one tree. Prices by width are also for one column of a block of that
# width.
PRICES = {
    "effects": 9.5,
    "states": 18.0,
    "backward": {1: 1.2, 8: 0.34, 32: 0.31},
    "expand": {1: 1.0, 8: 0.2, 32: 0.13},
    "tangent": {1: 1.3, 8: 0.25, 32: 0.46},
    "refit": {1: 3.6, 8: 0.6, 32: 0.58},
    "pairs": 4.0,  # for one row in one pair of trees
    "solve": 0.026,  # for one pair of leaves and one column
    "choices": {1: 4.8, 8: 0.61, 32: 0.33},  # also for one column that splits compare
    "candidates": {1: 98.0, 8: 30.0, 32: 11.0},  # for one bin at an inner node, not for rows
}
PROBE = 0.16  # nanoseconds that the probe in `machine` takes for a row and column on that machine

Form = Literal["row form", "leaf form", "direct effects only", "forwards", "soft splits"]


@dataclass(frozen=True)
class Estimate:
    """The cost of an answer.

    ``seconds``  time
    ``bytes``    memory, result included; of training, only what is ours
    ``form``     how it is computed
    ``most``     time if it takes the longest course; None: there is but one

    The number of models that an action trains may depend on what they say: `seconds` is then the time of the
    shortest course that trains any.
    """

    seconds: float
    bytes: int
    form: str
    most: float | None = None

    def __repr__(self) -> str:
        time = f"about {_duration(self.seconds)}"
        if self.most is not None:
            time = f"{_duration(self.seconds)} to {_duration(self.most)}"
        return f"Estimate({time}, {size_in_words(self.bytes)}; {self.form})"


def _duration(total: float) -> str:
    """A number of seconds in words."""
    minutes, seconds = divmod(total, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    if minutes >= 10:
        return f"{minutes} min"
    return f"{minutes} min {seconds:.0f} s" if minutes else f"{total:.2g} s"


@dataclass(frozen=True)
class Plan:
    """How an answer will be computed, and the work and memory that takes."""

    form: Form
    nanoseconds: float  # of one core of the machine that PRICES were measured on
    bytes: int  # result included
    n_jobs: int

    @property
    def seconds(self) -> float:
        """Time on this machine, with all threads."""
        return 1e-9 * self.nanoseconds * machine() / self.n_jobs

    @property
    def estimate(self) -> Estimate:
        """The costs as users see them."""
        return Estimate(self.seconds, self.bytes, self.form)


def plan_influence(
    work: Workspace, built: bool, method: LeafInfluence | LeafRefit, columns: int, rows: int
) -> Plan:
    """Plan `Tracer.influence` for this many queries and training rows.

    ``built``: whether the leaf form exists already.
    """
    if isinstance(method, LeafRefit) or isinstance(method.update_set, TopKLeaves):
        return _forward_plan(work, method, columns, rows)
    e = work.trace.ensemble
    nanoseconds = expand_cost(e, columns, rows)
    nanoseconds += 0.0 if work.has_effects else effects_cost(e)
    stored = work.effect_bytes() if work.keeps_effects else 0
    stored += rows * columns * work.dtype.itemsize
    if isinstance(method.update_set, SinglePoint) or e.independent:
        return Plan("direct effects only", nanoseconds, stored, work.n_jobs)
    if leaf_form_pays(work, built, columns):
        nanoseconds += solve_cost(e, columns) + (0.0 if built else build_cost(e))
        stored += space_bytes(e, work.dtype.itemsize)
        return Plan("leaf form", nanoseconds, stored, work.n_jobs)
    nanoseconds += backward_cost(e, columns)
    width = columns
    if not work.keeps_effects:  # effects are computed anew for every block
        nanoseconds += effects_cost(e) * (-(-columns // work.block) - 1)
        width = min(columns, work.block)
    return Plan("row form", nanoseconds, stored + _block_bytes(work, width), work.n_jobs)


def plan_structure(work: Workspace, splits: SoftSplits, columns: int, rows: int) -> Plan:
    """Plan StructureInfluence for this many queries and training rows.

    The estimate is rough: how many candidates are likely enough to count is known only afterwards.
    """
    e = work.trace.ensemble
    width = block_of(work, splits)
    blocks = -(-columns // width)
    nanoseconds = choice_cost(e, splits, columns, width)
    nanoseconds += backward_cost(e, columns) + expand_cost(e, columns, rows)
    if not work.has_effects:
        nanoseconds += effects_cost(e) * (1 if work.keeps_effects else blocks)
    stored = work.effect_bytes() if work.keeps_effects else 0
    stored += work.derivative_bytes() if work.keeps_derivatives else 0
    stored += splits.codes.nbytes + rows * columns * work.dtype.itemsize
    block = block_width(min(columns, width))
    stored += splits.table_bytes(e, block, work.dtype.itemsize)
    stored += _block_bytes(work, min(columns, width))
    return Plan("soft splits", nanoseconds, stored, work.n_jobs)


def choice_cost(e: Ensemble, splits: SoftSplits, queries: int, width: int) -> float:
    """Nanoseconds of one core for the soft choices of all trees, in blocks of this width."""
    trees = splits.search.trees
    outputs = e.leaf_outputs
    if splits.search.joint:
        trees = [trees[e.trees(t).start] for t in range(e.n_steps)]
        outputs = e.n_outputs
    nodes = sum(len(tree.left) for tree in trees)
    sizes = splits.bins.sizes
    by_row = _column_price("choices", queries, width) * e.n_rows * len(trees) * len(sizes)
    by_bin = _column_price("candidates", queries, width) * nodes * int(sizes.sum())
    return (by_row + by_bin) * queries * outputs


def _forward_plan(
    work: Workspace, method: LeafInfluence | LeafRefit, columns: int, rows: int
) -> Plan:
    """Plan a forward pass for this many training rows."""
    e = work.trace.ensemble
    if isinstance(method, LeafRefit):
        kept = work.keeps_states
        size = work.state_bytes()
        preparation = states_cost(e)
        nanoseconds = forward_cost(e, "refit", rows)
    else:
        kept = work.keeps_effects
        size = work.effect_bytes()
        preparation = effects_cost(e)
        nanoseconds = forward_cost(e, "tangent", rows)
    blocks = -(-rows // BLOCKS[-1])
    nanoseconds += preparation * (1 if kept else blocks)
    stored = (size if kept else 0) + rows * columns * work.dtype.itemsize
    return Plan("forwards", nanoseconds, stored + _block_bytes(work, rows), work.n_jobs)


def _block_bytes(work: Workspace, columns: int) -> int:
    """Bytes of the blocks of columns that are computed at the same time."""
    if not columns:
        return 0
    e = work.trace.ensemble
    block = e.n_rows * e.n_outputs * block_width(columns) * work.dtype.itemsize
    return block * work.blocks_ahead


def leaf_form_pays(work: Workspace, built: bool, queries: int) -> bool:
    """Whether the leaf form answers this many queries faster than the row form."""
    e = work.trace.ensemble
    if not has_leaf_form(e) or space_bytes(e, work.dtype.itemsize) > work.memory_limit // 4:
        return False
    row = backward_cost(e, queries)
    leaf = solve_cost(e, queries)
    return leaf + (0.0 if built else build_cost(e)) < row


def backward_cost(e: Ensemble, queries: int) -> float:
    """Nanoseconds of one core for the row form of the backward pass."""
    price = _column_price("backward", queries)
    return price * queries * e.leaves.size * e.effect_outputs * e.n_outputs


def build_cost(e: Ensemble) -> float:
    """Nanoseconds of one core to build the leaf form."""
    pairs = len(e.first_output) ** 2 / 2
    return PRICES["pairs"] * e.n_rows * pairs * e.leaf_outputs**2


def solve_cost(e: Ensemble, queries: int) -> float:
    """Nanoseconds of one core to solve the leaf form for all queries."""
    return PRICES["solve"] * queries * (len(e.values) * e.leaf_outputs) ** 2 / 2


def expand_cost(e: Ensemble, queries: int, rows: int) -> float:
    """Nanoseconds of one core to go from leaves to this many training rows."""
    price = _column_price("expand", queries)
    return price * queries * rows * len(e.first_output) * e.effect_outputs


def forward_cost(e: Ensemble, what: str, rows: int) -> float:
    """Nanoseconds of one core for the tangent or refit of this many training rows."""
    iterations = e.rule.iterations if what == "refit" else 1
    price = _column_price(what, rows)
    return price * rows * e.leaves.size * e.leaf_outputs * e.n_outputs * iterations


def effects_cost(e: Ensemble) -> float:
    """Nanoseconds of one core to compute the row effects of all steps."""
    return PRICES["effects"] * e.leaves.size * e.leaf_outputs * e.n_outputs * e.rule.iterations


def states_cost(e: Ensemble) -> float:
    """Nanoseconds of one core to compute the states of all steps."""
    return PRICES["states"] * e.n_steps * e.n_rows * e.n_outputs


def _column_price(what: str, columns: int, most: int = BLOCKS[-1]) -> float:
    """The price of one of this many columns. A block costs as much as its width, full or not.

    ``most``: columns that a block can have.
    """
    width = block_width(min(columns, most))
    blocks = -(-columns // width)
    return PRICES[what][width] * blocks * width / max(columns, 1)


@cache
def machine() -> float:
    """How much slower this machine is than the one that PRICES were measured on."""
    n = 4096
    B = BLOCKS[-1]
    rng = np.random.default_rng(0)
    step = StepLeaves(rng.integers(0, 64, (1, n)).astype(np.uint8), np.zeros(1, np.int32))
    U = np.full((1, n, 1, 1), 1e-3, np.float32)
    fbar = np.ones((64, 1, B), np.float32)
    abar = np.zeros((n, 1, B), np.float32)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        kernels.backward_step(*step, U, fbar, abar, *step, fbar.copy())
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / (n * B) / PROBE
