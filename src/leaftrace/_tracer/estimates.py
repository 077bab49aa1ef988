"""Seconds and bytes of `Tracer.influence` before the work.

Bytes, and seconds of the leaf form, whose work does not grow with the rows alone, come from the prices in
_engine/costs.py. Other seconds come from trials: the same passes over a few rows, in the
loss, the number of outputs and on the machine that the answer will have. With n training rows, m test
rows and b blocks of columns (or, for LeafRefit, of removed rows), an answer takes

    preparation(n) + b pass(n, m) + test_rows(m) + new memory

where each of the first three is a straight line through two trials. Soft splits take besides, for each
block, as long as all steps do by a straight line through one and through several of them. Trials are
small enough to use the same memory again; the system hands out the memory of large arrays page by page,
which takes longer than filling it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data import inputs
from .._data.arrays import Ints
from .._data.errors import InvalidInput
from .._data.row_labels import row_numbers
from .._engine.costs import Estimate, backward_cost, expand_cost, forward_cost, machine
from .._engine.engine import Engine
from .._engine.methods import LeafInfluence, LeafRefit, Method, Retrain, StructureInfluence
from .._engine.queries import Queries, Reduce, make_queries
from .._engine.replay import Trace
from .._engine.scored_pass import defers_effects
from .._engine.soft_splits import block_of, run_last_steps
from .._engine.workspace import Workspace
from .._model.kernels import BLOCKS, block_width
from .._model.training_set import TrainingSet
from .answers import runs_backward

if TYPE_CHECKING:
    from .tracer import Tracer

FEW_ROWS, MANY_ROWS = 512, 2048  # training rows of a trial
FEW_TESTS, MANY_TESTS = 64, 4096  # test rows of a trial
FEW_STEPS = 4  # steps of a trial of soft splits
MOST_CELLS = (
    4_000_000  # rows x trees x outputs of a trial, where more than a few rows would be slow
)
CONSTANT = 1.2e-3  # seconds of every answer, for checks and its tables
LARGE = 4 << 20  # bytes from which an array is in memory of its own
CACHED = 1 << 20  # bytes of a block up to which a pass is as fast as in trials, whose rows are few
TRIED_FORMS = ("row form", "direct effects only", "forwards")


def influence_estimate(
    tracer: Tracer, queries: Any, method: Method | None, reduce: Reduce, rows: Any
) -> Estimate:
    """The expected cost of `Tracer.influence`. ``queries``: test rows, or their number."""
    method = LeafInfluence() if method is None else method
    engine = tracer.engine
    index = row_numbers(rows, tracer.n_rows, labels=tracer.row_labels)
    if not inputs.is_name(reduce, (None, "mean", "sum")):
        raise InvalidInput(f"reduce is {reduce!r}; it can be None, 'mean' or 'sum'.")
    queries = inputs.as_table(queries, tracer.X_train)
    is_number = isinstance(queries, (int, np.integer))
    m = int(queries) if is_number else inputs.row_count(queries)
    columns = 1 if reduce else m
    if isinstance(method, Retrain):
        seconds = engine.retrainings.seconds_of_one() * len(index) / engine.work.n_jobs
        return Estimate(seconds, len(index) * columns * engine.work.dtype.itemsize, "retraining")
    if not isinstance(method, (LeafInfluence, StructureInfluence, LeafRefit)):
        raise InvalidInput(
            "estimate() knows LeafInfluence, StructureInfluence, LeafRefit and Retrain."
        )
    engine.needs_separate_rows("estimate()")
    engine.needs_constant_leaves("estimate()")
    plan = engine.plan(method, columns, len(index))
    if not (m and len(index)):
        return plan.estimate
    X = tracer.X_train if is_number else queries
    seconds = CONSTANT + _test_row_seconds(engine, X, m)
    if isinstance(method, StructureInfluence):
        seconds += _soft_seconds(engine, X, reduce, columns, method)
        method = LeafInfluence()
    elif plan.form not in TRIED_FORMS:
        return replace(plan.estimate, seconds=seconds + plan.seconds)
    if isinstance(method, LeafRefit) and engine.ensemble.not_smooth:
        start = time.perf_counter()
        engine.refit(TrainingSet(engine.n_rows, engine.rest(index[:1])))
        refits = (time.perf_counter() - start) * len(index)
        return replace(plan.estimate, seconds=seconds + refits)
    trial = _Trial(engine, method, X, reduce, columns, m, index)
    return replace(plan.estimate, seconds=seconds + trial.seconds())


def _test_row_seconds(engine: Engine, X: Any, m: int) -> float:
    """Seconds to find the leaves and scores of m test rows like those of X."""
    given = inputs.row_count(X)

    def ask(count: int) -> None:
        _some_queries(engine, X, count, None)

    few = min(FEW_TESTS, given)
    return _line(ask, few, min(MANY_TESTS, given, max(m, few)), m)


def _soft_seconds(
    engine: Engine, X: Any, reduce: Reduce, columns: int, method: StructureInfluence
) -> float:
    """Seconds of soft splits for this many columns, without the pass through the leaves."""
    splits = engine.soft_splits
    block = min(block_of(engine.work, splits), columns)
    tests = min(FEW_TESTS if reduce else block, inputs.row_count(X))
    rows = inputs.take_rows(X, np.arange(tests))
    queries = _some_queries(engine, X, tests, reduce)
    asked = engine.soft_queries(queries, rows)

    def run(count: int) -> None:
        run_last_steps(engine.work, splits, asked, method.temperature, count)

    steps = engine.ensemble.n_steps
    return -(-columns // block) * _line(run, 1, min(FEW_STEPS, steps), steps)


def _some_queries(engine: Engine, X: Any, count: int, reduce: Reduce) -> Queries:
    """Queries about the predictions of the first rows of X."""
    leaves, offset = engine.source.rows(inputs.take_rows(X, np.arange(count)))
    output = 0 if engine.ensemble.n_outputs > 1 else None
    return make_queries(engine.ensemble, leaves, offset, None, "prediction", reduce, output)


class _SampleOfRows(Workspace):
    """A workspace over some rows of another, which keeps in memory what that one does.

    ``defers``: whether that one does without effects that could be kept.
    """

    def __init__(self, whole: Workspace, trace: Trace, defers: bool) -> None:
        super().__init__(trace, whole.dtype, 1, whole.memory_limit)
        self.whole = whole
        self.defers = defers

    @property
    def keeps_effects(self) -> bool:
        return self.whole.keeps_effects and not self.defers

    @property
    def keeps_states(self) -> bool:
        return self.whole.keeps_states

    @property
    def block(self) -> int:
        return self.whole.block


@dataclass(frozen=True)
class _Trial:
    """Trials of the passes of an answer, for `columns` columns of `m` test rows and rows `index`."""

    engine: Engine
    method: LeafInfluence | LeafRefit
    X: Any
    reduce: Reduce
    columns: int
    m: int
    index: Ints

    def seconds(self) -> float:
        """Seconds of the answer without finding the leaves of the test rows."""
        n = self.engine.n_rows
        e = self.engine.ensemble
        allowed = MOST_CELLS // (len(e.first_output) * e.n_outputs)
        many = min(n, max(FEW_TESTS, min(MANY_ROWS, allowed)))
        few = max(1, min(n, many // 4))
        repeated = _line(self._repeat, few, many, n, self.engine.work.n_jobs)
        blocks = self._blocks()
        if not self._backward and self.m > FEW_TESTS:
            repeated += self._more_tests(few)
        preparation = 0.0
        if not self._is_prepared():
            preparation = _line(self._prepare, few, many, n, self.engine.work.n_jobs)
        passes = max(blocks * repeated, self._streaming())
        return preparation + passes + self._new_bytes() * _seconds_of_new_byte()

    def _streaming(self) -> float:
        """Seconds of all passes by the prices of rows that are not in the caches, as those of trials are."""
        e = self.engine.ensemble
        if self._block_bytes() <= CACHED or e.n_outputs > 1:
            return 0.0
        if isinstance(self.method, LeafRefit):
            cost = forward_cost(e, "refit", len(self.index))
        elif self._backward:
            cost = backward_cost(e, self.columns) + expand_cost(e, self.columns, len(self.index))
        else:
            cost = forward_cost(e, "tangent", len(self.index))
        return 1e-9 * cost * machine() / self.engine.work.n_jobs

    def _block_bytes(self) -> int:
        """Bytes of the numbers that a pass has for the rows and columns of a block."""
        work = self.engine.work
        e = self.engine.ensemble
        count = self.columns if self._backward else len(self.index)
        width = block_width(min(count, work.block))
        return e.n_rows * (e.n_outputs + 1) * width * work.dtype.itemsize

    def _new_bytes(self) -> int:
        """Bytes of the large arrays that the answer fills."""
        work = self.engine.work
        kept = 0
        if not self._is_prepared():
            kept = work.state_bytes() if isinstance(self.method, LeafRefit) else work.effect_bytes()
        result = len(self.index) * self.columns * work.dtype.itemsize
        block = self._block_bytes()
        return kept + result + (self._blocks() * block if block > LARGE else 0)

    @property
    def _backward(self) -> bool:
        return not isinstance(self.method, LeafRefit) and runs_backward(self.method)

    def _is_prepared(self) -> bool:
        """Whether what passes share has been computed, or is computed anew in each."""
        work = self.engine.work
        if isinstance(self.method, LeafRefit):
            return not work.keeps_states or "_states" in work.__dict__
        return not work.keeps_effects or work.has_effects or self._defers

    @property
    def _defers(self) -> bool:
        """Whether the answer does without effects that could be kept."""
        every_row = len(self.index) == self.engine.n_rows
        return self._backward and every_row and defers_effects(self.engine.work, self.columns)

    def _blocks(self) -> int:
        """Number of passes."""
        if self._backward:
            return -(-self.columns // self.engine.work.block)
        return -(-len(self.index) // BLOCKS[-1])

    def _small(self, count: int) -> Engine:
        """The engine over so many of its rows."""
        work = self.engine.work
        e = self.engine.ensemble
        rows = np.linspace(0, e.n_rows - 1, count).astype(np.intp)
        trace = replace(work.trace, ensemble=e.take(rows))
        small = copy(self.engine)
        small.work = _SampleOfRows(work, trace, self._defers)
        return small

    def _prepare(self, count: int) -> Callable[[], None]:
        small = self._small(count)

        def prepare() -> None:
            work = small.work
            work.use_less_memory(work.memory_limit)  # forgets what is kept
            if isinstance(self.method, LeafRefit):
                work.prepare_states()
            else:
                work.prepare_effects()

        return prepare

    def _repeat(self, count: int, tests: int = FEW_TESTS) -> Callable[[], None]:
        """One pass over so many training rows, for one block."""
        small = self._small(count)
        width = self.engine.work.block
        tests = min(tests, self.m, inputs.row_count(self.X))
        if self._backward and self.reduce is None:
            tests = min(tests, width)
        queries = _some_queries(self.engine, self.X, tests, self.reduce)
        index = None
        if not self._backward:
            index = np.arange(count)[: min(BLOCKS[-1], len(self.index))]
        elif len(self.index) < self.engine.n_rows:
            share = len(self.index) / self.engine.n_rows
            index = np.arange(max(1, round(share * count)))

        def run() -> None:
            if index is None or self._backward:
                assert isinstance(self.method, LeafInfluence)
                deque(small.backward_blocks(queries, self.method, index), maxlen=0)
            else:
                small.forward_values(queries, self.method, index)

        run()  # which also prepares
        return run

    def _more_tests(self, count: int) -> float:
        """Seconds of a pass for the test rows beyond a few."""
        many = min(MANY_TESTS, inputs.row_count(self.X), self.m)
        if many <= FEW_TESTS:
            return 0.0
        few_seconds = _time(self._repeat(count))
        more = _time(self._repeat(count, many)) - few_seconds
        return max(more, 0.0) * (self.m - FEW_TESTS) / (many - FEW_TESTS)


@cache
def _seconds_of_new_byte() -> float:
    """Seconds that the system takes for a byte of memory that was not used before."""
    size = 48 << 20  # more than allocators keep

    def fill() -> None:
        np.empty(size, np.uint8).fill(1)

    return _time(fill) / size


def _line(work: Callable[[int], Any], few: int, many: int, n: int, n_jobs: int = 1) -> float:
    """Seconds of work on n rows, by a straight line through its times on few and on many rows.

    ``work``    does it on so many rows, or gives a function that does
    ``n_jobs``  threads that share what grows with the rows
    """
    slow = _time_of(work, many)
    if many <= few:
        return slow * n / many
    fast = min(_time_of(work, few), slow)
    slope = (slow - fast) / (many - few)
    return max(slow - slope * many, 0.0) + slope * n / n_jobs


def _time_of(work: Callable[[int], Any], count: int) -> float:
    """Seconds of the work on so many rows."""
    return _time(lambda: work(count)) if (ready := work(count)) is None else _time(ready)


def _time(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of three runs.

    Other processes make a clock run ahead of the work, and threads of a library the processor's
    time: the smaller of the two is taken.
    """
    times = []
    for _ in range(3):
        start = time.perf_counter(), time.process_time()
        work()
        times += [time.perf_counter() - start[0], time.process_time() - start[1]]
    return min(times)
