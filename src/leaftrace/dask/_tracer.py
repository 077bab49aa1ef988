"""`Tracer` over a Dask DataFrame or Array. Partitions keep their rows; what travels are sums over leaves.

The model's own leaf values give every row's score before each step, so one map-reduce gives the sums of all steps, and
the replay compares them with the model. Then there are two ways backwards (see _engine/backward.py and leaf_space.py):

    row form    a reduction a step: partitions send what the leaves of the step before feel
    leaf form   one reduction that builds W, once; the client solves for any number of queries

and one pass that expands to rows, of which each partition keeps its own or its most important ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, Literal

import dask.array as da
import numpy as np
from distributed import Client, Future

from .._adapters import Source, open_model
from .._data import inputs
from .._data.errors import FidelityError, FidelityWarning, InvalidInput, UnsupportedModel
from .._engine.backward import LeafAdjoint, felt_by_rows, finished
from .._engine.costs import backward_cost, build_cost, machine, solve_cost
from .._engine.engine import queries_for, settings_of
from .._engine.fidelity import Fidelity
from .._engine.leaf_space import LeafSpace, has_leaf_form, space_bytes
from .._engine.methods import LeafInfluence
from .._engine.queries import Of, Queries, Reduce
from .._engine.replay import Trace, replay_apart
from .._engine.steps import Ask
from .._engine.workspace import Workspace, available_memory
from .._kernels import BLOCKS, block_width, blocks_of
from .._model.ensemble import Ensemble
from .._model.start import condense_labels
from .._tracer.influence import top_table
from . import _part
from ._cluster import Cluster, as_array, partitions, told
from ._stand_in import stand_in_rows

ROUND = 0.09  # seconds of a reduction beyond its work: the scheduler's (benchmarks/scale.py, two processes)
WIRE = 2e8  # bytes a second that a worker sends, taken down and put together


class Tracer:
    """A model and its training rows on a cluster.

    >>> tracer = leaftrace.dask.Tracer(model, frame, frame["income"])       # doctest: +SKIP
    >>> tracer.top(X_test, y_test, 10)                                       # doctest: +SKIP

    ``model``          as `leaftrace.Tracer` takes it, or what `xgboost.dask.train` returns
    ``X, y, sample_weight``  Dask DataFrame and Series, or Arrays: the rows of training, in the same partitions
    ``client``         a `distributed.Client`; by default the one in use
    ``plan``           "rows" or "leaves": how to go backwards; by default what is expected to take less time
    ``fidelity, dtype, memory_limit, params``  as those of `leaftrace.Tracer`; the memory is that of the client

    Models that draw rows anew for each tree, hold some out, weigh classes by their share or split on target statistics
    of categories need all rows at once: they are refused, or the replay finds that they differ.
    """

    fidelity: Fidelity

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        client: Client | None = None,
        plan: Literal["rows", "leaves"] | None = None,
        fidelity: Literal["raise", "warn", "ignore"] = "raise",
        dtype: str = "float32",
        memory_limit: int | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        settings = settings_of(fidelity, dtype, 1, memory_limit)
        if plan not in (None, "rows", "leaves"):
            raise InvalidInput(
                f"plan is {plan!r}; it can be 'rows', 'leaves' or None for the faster one."
            )
        self._on = Cluster(client)
        self._plan = plan
        self._dtype = settings.dtype
        self._limit = memory_limit or available_memory() // 2
        model = model["booster"] if isinstance(model, dict) and "booster" in model else model
        model = model.to_local() if hasattr(model, "to_local") else model
        columns = partitions(X, y, sample_weight)
        with told():
            opened = self._opened(model, self._on.futures(columns), params or {})
            self._source, self._parts, self._starts = opened
            self._trace = self._replayed()
        self.fidelity = self._trace.fidelity
        if not self.fidelity.exact and fidelity != "ignore":
            text = (
                f"{self.fidelity.verdict}. On a cluster also: rows drawn for each tree or held out, and class weights "
                "by the share of each class; leaftrace.Tracer knows them."
            )
            if fidelity == "raise":
                raise FidelityError(
                    f"{text} Pass exactly the rows, labels and weights of training."
                )
            warnings.warn(text, FidelityWarning, stacklevel=2)
        self._sent_trace = self._on.send(self._trace)
        self._work = Workspace(self._trace, self._dtype, 1, self._limit)
        self._space: LeafSpace | None = None

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier in the order of its outputs, or None."""
        return self._source.classes

    def __repr__(self) -> str:
        e = self._trace.ensemble
        return (
            f"Tracer({self._source.name}, {e.loss.name} loss, {e.n_steps} steps, {len(e.values)} leaves, "
            f"{self.n_rows:,} training rows in {len(self._parts)} partitions; {self._dtype.name})\n"
            f"  fidelity: {self.fidelity.verdict}"
        )

    # ---- opening ----

    def _opened(
        self, model: Any, parts: list[tuple[Future | None, ...]], params: dict[str, Any]
    ) -> tuple[Source, list[Future], np.ndarray]:
        """The model with stand-ins for its rows; the partitions' rows, and how many are before each partition."""
        labels: _part.Labels = self._on.total(
            _part.labels_of, *zip(*(p[1:] for p in parts), strict=True)
        )
        if not labels.n or not labels.weight:
            raise InvalidInput("the partitions have no training rows of non-zero weight.")
        empty = [part[0] for part, n in zip(parts, labels.index, strict=True) if not n]
        if any(self._on.client.gather(self._on.client.map(len, empty))):
            raise InvalidInput(
                "a partition of y is empty, that of X is not; pass the same rows in both."
            )
        parts = [part for part, n in zip(parts, labels.index, strict=True) if n]
        y, w = stand_in_rows(labels)
        few = self._on.client.submit(_first_rows, parts[0][0], len(y), pure=False).result()
        try:
            source = open_model(model, few, y, w, None, params)
        except InvalidInput as error:
            raise InvalidInput(
                f"{error} (On a cluster a model is opened with a few stand-in rows; one that needs all rows at once is "
                "for leaftrace.Tracer.)"
            ) from None
        _refuse(source.ensemble)
        starts = np.cumsum([0, *filter(None, labels.index)])
        sent = self._on.send(source)
        self._on.place([part[0] for part in parts])
        given = [[sent] * len(parts), *zip(*parts, strict=True), starts[:-1].tolist()]
        return source, self._on.map(_part.part_of, *given), starts

    def _replayed(self) -> Trace:
        e = _without_rows(self._source.ensemble)
        totals: _part.Totals = self._on.total(_part.totals_of, self._parts, e=self._on.send(e))
        labels = totals.labels
        if e.base_rule is not None:
            labels = condense_labels(e.base_rule, e.loss, *labels)
            e = _without_rows(self._source.rebased(e.base_rule.fit(e.loss, *labels)))
        e = replace(e, whole=(totals.n, totals.weight))
        sent = self._on.send(e)

        def answers(asks: dict[int, Ask]) -> _part.Answers:
            return self._on.total(_part.answers, self._parts, e=sent, asks=self._on.send(asks))

        first = answers({t: Ask() for t in range(e.n_steps)})  # which all steps ask first
        waiting = [first]

        def found(asks: dict[int, Ask]) -> dict[int, Any]:
            return (waiting.pop() if waiting else answers(asks)).of_step

        return replay_apart(
            e, found, first.gradient, labels, self._source.tolerance, self._source.notes
        )

    # ---- questions ----

    def influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> da.Array:
        """(rows, queries) exact LeafInfluence of all training rows, as a Dask array whose chunks stay with the
        partitions: values as in `leaftrace.Influence`, dQ/dw, positive where a row raises Q.

        ``of, reduce, output``  as those of `leaftrace.Tracer.influence`
        """
        queries, _ = queries_for(self._source, X_test, y_test, of, reduce, output, None)
        with told():
            blocks = [self._on.send(adjoint) for _, adjoint in self._backwards(queries)]
            values = self._on.map(
                _part.values_of, self._parts, trace=self._sent_trace, blocks=blocks
            )
        return as_array(values, np.diff(self._starts).tolist(), len(queries), self._dtype)

    def top(
        self,
        X_test: Any,
        y_test: Any = None,
        k: int = 10,
        *,
        effect: str | None = None,
        of: Of = "loss",
        output: int | None = None,
    ) -> Any:
        """The k training rows that matter most to each test row, as `leaftrace.Tracer.top`: every partition sends its
        k. Rows have the names of the frame's index; those of an array, positions over all partitions."""
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
        queries, test_index = queries_for(self._source, X_test, y_test, of, None, output, None)
        question = _part.Question(queries.of, repr(LeafInfluence()), queries.lower_is_better)
        lines: list[Any] = []
        with told():
            for _, adjoint in self._backwards(queries):
                common = {
                    "trace": self._sent_trace,
                    "block": self._on.send(adjoint),
                    "k": k,
                    "effect": effect,
                }
                starts = self._starts[:-1].tolist()
                lines += self._on.total(
                    _part.top_of, self._parts, starts, **common, question=question
                ).queries
        names = np.concatenate([name for _, name, _, _ in lines])
        edges = np.cumsum([0, *(len(name) for _, name, _, _ in lines)])
        tops = [
            (np.arange(*e), effects.tolist(), c)
            for e, (_, _, effects, c) in zip(_pairs(edges), lines, strict=True)
        ]
        return top_table(tops, names, test_index, f"{queries.of}_change_if_removed", "")

    # ---- backwards ----

    def _backwards(self, queries: Queries) -> Iterator[tuple[slice, LeafAdjoint]]:
        for columns in blocks_of(len(queries)):
            if self._uses_leaves(len(queries)):
                yield columns, self._leaf_space().adjoint(self._work, queries, columns)
            else:
                yield columns, self._row_form(queries, columns)

    def _leaf_space(self) -> LeafSpace:
        if self._space is None:
            self._space = self._on.total(
                _part.pairs, self._parts, trace=self._sent_trace, dtype=self._dtype
            )
        assert self._space is not None
        return self._space

    def _row_form(self, queries: Queries, columns: slice) -> LeafAdjoint:
        """What `leaf_adjoint` gives."""
        e = self._trace.ensemble
        count = len(range(len(queries))[columns])
        width = block_width(count)
        fbar, base = queries.seeds(columns, width, self._dtype)
        if not e.independent:
            sent = self._sent_trace
            carries = self._on.map(
                _part.begin_backwards, self._parts, trace=sent, width=width, dtype=self._dtype
            )
            for t in reversed(range(e.n_steps)):
                felt = felt_by_rows(self._trace, t, fbar[e.leaf_range(t)])
                steps = self._on.map(
                    _part.step_backwards, self._parts, carries, trace=sent, t=t, felt=felt
                )
                carries = self._on.map(itemgetter(0), steps)
                sums = self._on.added(self._on.map(itemgetter(slice(1, 2)), steps))
                if t:
                    fbar[e.leaf_range(t - 1)] += sums
                else:
                    base += sums
        return finished(self._trace, fbar, base, count)

    def _uses_leaves(self, queries: int) -> bool:
        """Whether the leaf form takes less time."""
        e = self._trace.ensemble
        n = self.n_rows
        if not has_leaf_form(e):
            return False
        if self._plan is not None:
            return self._plan == "leaves"
        size = space_bytes(e, self._dtype.itemsize)  # of W, which every partition sends
        if 3 * size > self._limit:
            return False
        whole = replace(
            e, leaves=np.broadcast_to(np.uint8(0), (len(e.leaves), n)), y=np.broadcast_to(0.0, (n,))
        )
        workers = self._on.threads
        rounds = -(-queries // BLOCKS[-1])
        row = (
            1e-9 * machine() * backward_cost(whole, queries) / workers + rounds * e.n_steps * ROUND
        )
        build = (
            0.0
            if self._space is not None
            else 1e-9 * machine() * build_cost(whole) / workers
            + len(self._parts) / workers * size / WIRE
        )
        return build + 1e-9 * machine() * solve_cost(e, queries) < row


def _pairs(edges: np.ndarray) -> Iterator[tuple[int, int]]:
    return zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _first_rows(X: Any, count: int) -> Any:
    """So many rows, which may repeat."""
    return inputs.take_rows(X, np.arange(count) % len(X))


def _refuse(e: Ensemble) -> None:
    why = e.not_smooth
    if e.sample is not None:
        why = "this model drew or weighed rows anew for each tree, which needs all of them in one place"
    elif (e.w_factor == 0).any():
        why = "this model held rows out, chosen among all of them"
    elif e.smoothing is not None:
        why = "leaves of this model lean on the nodes above them by their numbers of rows (path_smooth)"
    elif e.moves is not None and not e.independent:
        why = "this model is not plain boosting (DART, or a model that shrinks)"
    if why:
        raise UnsupportedModel(
            f"{why}; use leaftrace.Tracer, or Tracer.from_files for a table that does not fit."
        )


def _without_rows(e: Ensemble) -> Ensemble:
    none = np.zeros(0)
    base = None if e.base_factor is None else none
    return replace(
        e,
        leaves=e.leaves[:, :0].copy(),
        y=none,
        w=none,
        w_factor=none,
        base_factor=base,
        offset=None,
    )
