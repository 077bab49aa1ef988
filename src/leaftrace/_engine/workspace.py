"""Workspace: the arrays and threads that passes over a trace share.

Row effects and states are kept if they fit in the memory limit, and otherwise computed again in
each pass, step by step. Blocks of columns, or chunks of rows, are spread over threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .._data.arrays import F64, Real
from .._data.progress import progress
from .._data.stopping import result_of, stoppable_threads
from .._model.kernels import BLOCKS
from .placed_rows import PlacedRows, forward_scores, scores_backwards, training_rows
from .replay import Trace
from .row_effects import direct_effects, empty_effects, fill_effects, step_effects
from .step_derivatives import StepDerivatives, joined

if TYPE_CHECKING:
    from concurrent.futures import Future

ROW_CHUNK = 1 << 16
T = TypeVar("T")
S = TypeVar("S")


def chunks_of(n: int) -> list[slice]:
    """Rows 0 .. n - 1 in chunks of `ROW_CHUNK`."""
    return [slice(start, min(start + ROW_CHUNK, n)) for start in range(0, n, ROW_CHUNK)]


class Workspace:
    """A trace with what its passes need.

    ``dtype``         of the passes; the replay itself is in float64
    ``n_jobs``        number of threads
    ``memory_limit``  bytes to use beyond the inputs
    ``rows``          all training rows
    ``passes_by_scores``  passes so far that did without effects which could have been kept
    ``soft_shares``   for each temperature and tree what soft splits have measured: see soft_splits.py
    ``soft_choices``  for one temperature and each tree what they keep for the next pass: see kept_choices.py
    """

    def __init__(self, trace: Trace, dtype: np.dtype, n_jobs: int, memory_limit: int) -> None:
        self.trace = trace
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.rows = training_rows(trace)
        self._derivatives: list[StepDerivatives] = []
        self.passes_by_scores = 0
        self.soft_shares: dict[float, dict[int, F64]] = {}
        self.soft_choices: dict[float, dict[int, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickling and copying, without what kernels keep, which is made anew."""
        return self.__dict__ | {"soft_choices": {}}

    def use_less_memory(self, limit: int) -> None:
        """Forget what is kept beyond shares, and go on with this limit, on one thread."""
        self.__dict__.pop("effects", None)
        self.__dict__.pop("_states", None)
        self._derivatives = []
        self.soft_choices = {}
        self.memory_limit = limit
        self.n_jobs = 1

    # ---- row effects ----

    def effect_bytes(self) -> int:
        """Bytes of V and U for all steps."""
        e = self.trace.ensemble
        effects = self.trace.effect_outputs
        return e.leaves.size * effects * (1 + e.n_outputs) * self.dtype.itemsize

    @property
    def keeps_effects(self) -> bool:
        """Whether V and U of all steps fit in memory."""
        return self.effect_bytes() <= self.memory_limit // 2

    @property
    def has_effects(self) -> bool:
        """Whether V and U of all steps have been computed."""
        return "effects" in self.__dict__

    @cached_property
    def effects(self) -> tuple[Real, Real]:
        """V (trees, n, O) and U (trees, n, O, K) of all steps, to be kept."""
        n = len(self.rows)
        V, U = empty_effects(self.trace, n, self.dtype)
        chunk = max(1, min(ROW_CHUNK, -(-n // self.n_jobs)))

        def fill(start: int) -> None:
            part = slice(start, min(start + chunk, n))
            fill_effects(self.trace, self.rows, part, V, U)

        done = self.map(fill, range(0, n, chunk))
        for _ in progress(done, n, "row effects", "row", chunk):
            pass
        return V, U

    def prepare_effects(self) -> None:
        """Compute row effects, if they are kept, before several threads need them."""
        if self.keeps_effects:
            _ = self.effects

    def effects_forwards(self) -> Iterator[tuple[int, Real, Real]]:
        """(t, V (R, n, O), U (R, n, O, K)) from the first step to the last."""
        e = self.trace.ensemble
        if self.keeps_effects:
            V, U = self.effects
            yield from ((t, V[e.trees(t)], U[e.trees(t)]) for t in range(e.n_steps))
            return
        for t, A in forward_scores(self.trace, self.rows):
            yield (t, *self.step_effects(self.rows, t, A))

    def knock_on_backwards(self) -> Iterator[tuple[int, Real]]:
        """(t, U (R, n, O, K)) from the last step to the first, for effects that are kept."""
        e = self.trace.ensemble
        U = self.effects[1]
        return ((t, U[e.trees(t)]) for t in reversed(range(e.n_steps)))

    def step_effects(self, rows: PlacedRows, t: int, A: F64) -> tuple[Real, Real]:
        """V (R, n, O) and U (R, n, O, K) of these rows in step t, at scores A (n, K) before it."""
        e = self.trace.ensemble
        trees = e.trees(t)
        V = np.empty((trees.stop - trees.start, len(rows), self.trace.effect_outputs), self.dtype)
        U = np.empty((*V.shape, e.n_outputs), self.dtype)
        step_effects(self.trace, rows, t, A, V, U)
        return V, U

    def direct_effects(self, index: np.ndarray | None) -> Iterator[tuple[PlacedRows, Real]]:
        """(rows, V (trees, rows, O)) for all training rows, or those in `index`, in chunks."""
        if self.keeps_effects:
            V = self.effects[0]
            if index is None:
                yield self.rows, V
            else:
                yield self.rows.take(index), np.ascontiguousarray(V[:, index])
            return
        for chunk in self.row_chunks(np.arange(len(self.rows)) if index is None else index):
            rows = self.rows.take(chunk)
            yield rows, direct_effects(self.trace, rows, self.dtype)

    # ---- scores and states ----

    def scores_backwards(self) -> Iterator[tuple[int, F64]]:
        """(t, A^{t-1}) from the last step to the first; the array is reused."""
        return scores_backwards(self.trace, self.rows)

    @cached_property
    def finished_scores(self) -> F64:
        """(n, K) scores of the training rows after the last step."""
        e = self.trace.ensemble
        return e.scores(self.rows.leaves, self.rows.start - e.base)

    @property
    def state_dtype(self) -> np.dtype:
        """The type of states that passes read.

        It is float64 for losses without kernels of their own: their state is the scores, from which
        labels are subtracted.
        """
        return self.dtype if self.trace.ensemble.loss.kernel else np.dtype(np.float64)

    def state_bytes(self) -> int:
        """Bytes of the states of all steps."""
        e = self.trace.ensemble
        width = e.loss.state(self.rows.start[:1]).shape[1]
        return e.n_steps * e.n_rows * width * self.state_dtype.itemsize

    @property
    def keeps_states(self) -> bool:
        """Whether the states of all steps fit in memory."""
        return self.state_bytes() <= self.memory_limit // 4

    @cached_property
    def _states(self) -> list[Real]:
        """(n, C) states before each step, to be kept."""
        e = self.trace.ensemble
        scores = forward_scores(self.trace, self.rows)
        shown = progress(scores, e.n_steps, "scores", "step")
        return [self._state(A) for _, A in shown]

    def prepare_states(self) -> None:
        """Compute states, if they are kept, before several threads need them."""
        if self.keeps_states:
            _ = self._states

    def states_forwards(self) -> Iterator[tuple[int, Real]]:
        """(t, state (n, C) at A^{t-1}) from the first step to the last."""
        if self.keeps_states:
            yield from enumerate(self._states)
            return
        for t, A in forward_scores(self.trace, self.rows):
            yield t, self._state(A)

    def _state(self, A: F64) -> Real:
        """(n, C) state of the loss at scores A (n, K), as it is kept."""
        with np.errstate(over="ignore"):
            return self.trace.ensemble.loss.state(A).astype(self.state_dtype)

    def derivative_bytes(self) -> int:
        """Bytes of the derivatives of the loss in the scores before all steps."""
        e = self.trace.ensemble
        return e.n_steps * e.n_rows * 2 * e.n_outputs * (1 + e.n_outputs) * 8

    @property
    def keeps_derivatives(self) -> bool:
        """Whether these derivatives fit in memory beside the effects."""
        both = self.effect_bytes() + self.derivative_bytes()
        return both <= self.memory_limit // 2

    def derivatives_backwards(self, new: PlacedRows | None = None) -> Iterator[StepDerivatives]:
        """Derivatives of the loss before each step, from the last to the first, of the training rows and of new ones.

        The first pass over the training rows alone keeps them for the next, if they fit in memory.
        """
        if new is None and self._derivatives:
            yield from self._derivatives
            return
        parts = [self.rows] if new is None else [self.rows, new]
        keeps = new is None and self.keeps_derivatives
        y = joined(rows.y for rows in parts)
        e = self.trace.ensemble
        found: list[StepDerivatives] = []
        for scores in zip(*(scores_backwards(self.trace, rows) for rows in parts), strict=True):
            step = StepDerivatives(e, joined(A for _, A in scores), y)
            if keeps:
                found.append(step)
            if len(found) == e.n_steps:
                self._derivatives = found
            yield step

    # ---- weights ----

    @cached_property
    def narrow_labels(self) -> tuple[Real, Real | None]:
        """(n,) labels and weights in as few bytes as hold them exactly: a pass reads them in every step.

        Weights are None if all are one.
        """
        y = self.rows.y
        w = None if np.all(self.rows.w == 1) else self.rows.w
        with np.errstate(over="ignore"):
            y32 = y.astype(np.float32)
            w32 = None if w is None else w.astype(np.float32)
        exact_weights = w is None or w32 is None or np.array_equal(w, w32)
        return (y32, w32) if exact_weights and np.array_equal(y, y32) else (y, w)

    @cached_property
    def w(self) -> Real:
        """(n,) weights of the training rows."""
        return self.trace.ensemble.w.astype(self.dtype)

    def step_weights(self, t: int) -> Real:
        """Weights in step t: (n,), or (R, n) if its trees drew rows differently."""
        e = self.trace.ensemble
        if e.sample is None:
            return self.w
        sample = e.sample[e.trees(t)]
        if all(draws is sample[0] for draws in sample):
            return self.w * sample[0].astype(self.dtype)
        return np.stack([self.w * draws.astype(self.dtype) for draws in sample])

    # ---- pieces of the work ----

    def row_chunks(self, index: np.ndarray) -> list[np.ndarray]:
        """`index` in pieces whose effects fit in the memory limit on every thread."""
        e = self.trace.ensemble
        row_bytes = self.effect_bytes() // len(self.rows) + 64 * e.n_outputs**2
        chunk = max(1, min(ROW_CHUNK, self.memory_limit // (4 * row_bytes * self.n_jobs)))
        return [index[start : start + chunk] for start in range(0, len(index), chunk)]

    def row_slices(self) -> list[slice]:
        """All rows in such pieces."""
        n = len(self.rows)
        chunk = len(self.row_chunks(np.arange(min(ROW_CHUNK, n)))[0])
        return [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)]

    @property
    def block(self) -> int:
        """Number of columns in a block.

        It is such that a thread's numbers for each row and column fit in the memory limit.
        """
        e = self.trace.ensemble
        column = len(self.rows) * (e.n_outputs + 2) * self.dtype.itemsize
        return max([b for b in BLOCKS if 2 * b * column <= self.memory_limit], default=BLOCKS[0])

    @property
    def blocks_ahead(self) -> int:
        """Number of blocks to compute at the same time.

        It is one if effects are not kept: then the rows of a block are spread over the threads.
        """
        return self.n_jobs if self.keeps_effects else 1

    @contextmanager
    def threads(self) -> Iterator[Callable[[Callable[[T], None], Sequence[T]], None]]:
        """Give a function that calls fn with each of a few items at the same time, the first on this thread.

        Its threads serve many such calls, which `map` would start anew for each.
        """
        if self.n_jobs == 1:
            yield _one_by_one
            return
        with stoppable_threads(self.n_jobs - 1) as submit:

            def call_all(fn: Callable[[T], None], items: Sequence[T]) -> None:
                others = [submit(fn, item) for item in items[1:]]
                _one_by_one(fn, items[:1])
                for other in others:
                    result_of(other)

            yield call_all

    def map(
        self, fn: Callable[[T], S], items: Iterable[T], n_jobs: int | None = None
    ) -> Iterator[S]:
        """fn of every item, in order, on the threads; no more than one item a thread is ahead."""
        items = iter(items)
        n_jobs = n_jobs or self.n_jobs
        first = list(islice(items, 2))
        if n_jobs == 1 or len(first) <= 1:
            yield from map(fn, chain(first, items))
            return
        with stoppable_threads(n_jobs) as submit:
            ahead: deque[Future[S]] = deque()
            for item in chain(first, items):
                if len(ahead) == n_jobs:
                    yield result_of(ahead.popleft())
                ahead.append(submit(fn, item))
            for future in ahead:
                yield result_of(future)


def _one_by_one(fn: Callable[[T], None], items: Sequence[T]) -> None:
    for item in items:
        fn(item)
