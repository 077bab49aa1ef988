"""`Tracer` over a Dask DataFrame or Array.

Partitions keep their rows, and only sums over leaves are sent.

The model's own leaf values give every row's score before each step. So one map-reduce gives the
sums of all steps, and the replay compares them with the model. The backward pass has two forms (see
_engine/backward.py and leaf_space.py):

    row form    a reduction a step: partitions send derivatives in the leaf values of the step before
    leaf form   one reduction that builds W, once; the client solves for any number of queries

One pass then goes from leaves to rows. Each partition keeps the values of its rows, or sends the
most important ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal

import dask.array as da
import numpy as np
from distributed import Client, Future

from .._data.errors import FidelityError, FidelityWarning, InvalidInput
from .._engine.backward import LeafAdjoint, effect_adjoint, finish_pass
from .._engine.costs import backward_cost, build_cost, machine, solve_cost
from .._engine.fidelity import Fidelity
from .._engine.free_memory import available_memory
from .._engine.leaf_equations import SumsRequest
from .._engine.leaf_space import LeafSpace, has_leaf_form, space_bytes
from .._engine.methods import LeafInfluence, Method
from .._engine.queries import Of, Queries, Reduce, queries_for
from .._engine.replay import Trace, replay_from_sums
from .._engine.settings import settings_of
from .._engine.workspace import Workspace
from .._kernels import BLOCKS, block_width, blocks_of
from .._model.ensemble import Ensemble
from .._model.start import condense_labels
from .._tracer.influence import FIRST_ORDER, Unit, top_table
from . import _part
from ._cluster import Cluster, as_array, cluster_errors, partitions
from ._opening import local_model, open_with_stand_ins, refuse_unsupported, without_rows

# Seconds that the scheduler needs for a reduction (benchmarks/scale.py, two processes).
ROUND = 0.09
# Bytes a second that a worker sends, with packing and unpacking.
WIRE = 2e8


class Tracer:
    """A model and its training rows on a cluster.

    >>> tracer = leaftrace.dask.Tracer(model, frame, frame["income"])       # doctest: +SKIP
    >>> tracer.top(X_test, y_test, 10)                                       # doctest: +SKIP

    ``model``          as `leaftrace.Tracer` takes it, or what `xgboost.dask.train` returns
    ``X, y, sample_weight``  Dask DataFrame and Series, or Arrays: the rows of training, in the same
                       partitions
    ``client``         a `distributed.Client`; by default the one in use
    ``plan``           "rows" or "leaves": the form of the backward pass; by default the one that is
                       expected to take less time
    ``fidelity, dtype, memory_limit, params``  as those of `leaftrace.Tracer`; the memory is that of
                       the client

    Models that draw rows anew for each tree, hold some out, weigh classes by their share or split
    on target statistics of categories need all rows at once: they are refused, or the replay finds
    that they differ.
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
        self._cluster = Cluster(client)
        self._plan = plan
        self._dtype = settings.dtype
        self._limit = memory_limit or available_memory() // 2
        model = local_model(model)
        columns = partitions(X, y, sample_weight)
        with cluster_errors():
            self._open(model, self._cluster.compute(columns), params or {})
            self._trace = self._replay()
        self.fidelity = self._trace.fidelity
        if not self.fidelity.exact:
            self._report_fidelity(settings.fidelity)
        self._sent_trace = self._cluster.send(self._trace)
        self._work = Workspace(self._trace, self._dtype, 1, self._limit)
        self._space: LeafSpace | None = None

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
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

    def _open(
        self, model: Any, parts: list[tuple[Future | None, ...]], params: dict[str, Any]
    ) -> None:
        """Open the model with stand-ins for its rows, and find the leaves of all rows."""
        labels: _part.LabelSummary = self._cluster.total(
            _part.summarise_labels, *zip(*(part[1:] for part in parts), strict=True)
        )
        if not labels.n or not labels.weight:
            raise InvalidInput("the partitions have no training rows of non-zero weight.")
        parts = self._without_empty(parts, labels.sizes)
        source = open_with_stand_ins(self._cluster, model, parts[0][0], labels, params)
        refuse_unsupported(source.ensemble)
        self._source = source
        # number of rows before each partition, and of all
        self._starts = np.cumsum([0, *filter(None, labels.sizes)])
        sent = self._cluster.send(source)
        self._cluster.place([part[0] for part in parts])
        columns = zip(*parts, strict=True)
        self._parts = self._cluster.map(
            _part.open_part, [sent] * len(parts), *columns, self._starts[:-1].tolist()
        )

    def _without_empty(
        self, parts: list[tuple[Future | None, ...]], sizes: tuple[int, ...]
    ) -> list[tuple[Future | None, ...]]:
        """The partitions that have rows; an error if X has rows for which y has none."""
        client = self._cluster.client
        empty = [part[0] for part, n in zip(parts, sizes, strict=True) if not n]
        if any(client.gather(client.map(len, empty))):
            raise InvalidInput(
                "a partition of y is empty, that of X is not; pass the same rows in both."
            )
        return [part for part, n in zip(parts, sizes, strict=True) if n]

    def _replay(self) -> Trace:
        """Replay the model from sums over the partitions."""
        cluster = self._cluster
        e = without_rows(self._source.ensemble)
        totals: _part.Totals = cluster.total(_part.take_totals, self._parts, e=cluster.send(e))
        labels = totals.labels
        if e.base_rule is not None:
            labels = condense_labels(e.base_rule, e.loss, *labels)
            e = without_rows(self._source.rebased(e.base_rule.fit(e.loss, *labels)))
        e = replace(e, whole=(totals.n, totals.weight))
        sent = cluster.send(e)

        def take_sums(requests: dict[int, SumsRequest]) -> _part.StepSums:
            requested = cluster.send(requests)
            return cluster.total(_part.take_sums, self._parts, e=sent, requests=requested)

        # All steps begin with the same request; its sums also give the largest gradient.
        first = take_sums({t: SumsRequest() for t in range(e.n_steps)})
        taken = [first]

        def sums_by_step(requests: dict[int, SumsRequest]) -> dict[int, Any]:
            sums = taken.pop() if taken else take_sums(requests)
            return sums.by_step

        source = self._source
        return replay_from_sums(
            e, sums_by_step, first.gradient, labels, source.tolerance, source.notes
        )

    def _report_fidelity(self, setting: str) -> None:
        """Raise an error or a warning about an inexact replay, as the setting has it."""
        text = (
            f"{self.fidelity.verdict}. On a cluster also: rows drawn for each tree or held out, and class weights "
            "by the share of each class; leaftrace.Tracer knows them."
        )
        if setting == "raise":
            raise FidelityError(f"{text} Pass exactly the rows, labels and weights of training.")
        if setting == "warn":
            warnings.warn(text, FidelityWarning, stacklevel=3)

    # ---- results ----

    def influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        method: Method | None = None,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> da.Array:
        """(rows, queries) exact LeafInfluence of all training rows, as a Dask array.

        Its chunks stay with the partitions. Values are as in `leaftrace.Influence`: dQ/dw, positive
        if a row raises Q.

        ``of, reduce, output``  as those of `leaftrace.Tracer.influence`
        ``method``              LeafInfluence(), and no other
        """
        _check_method(method)
        queries, _ = queries_for(self._source, X_test, y_test, of, reduce, output, None)
        with cluster_errors():
            blocks = [self._cluster.send(adjoint) for adjoint in self._adjoints(queries)]
            values = self._cluster.map(
                _part.part_influence, self._parts, trace=self._sent_trace, blocks=blocks
            )
        return as_array(values, np.diff(self._starts).tolist(), len(queries), self._dtype)

    def top(
        self,
        X_test: Any,
        y_test: Any = None,
        k: int = 10,
        *,
        effect: str | None = None,
        method: Method | None = None,
        of: Of = "loss",
        output: int | None = None,
    ) -> Any:
        """The k training rows that matter most to each test row, as `leaftrace.Tracer.top`.

        Every partition sends its k. Rows have the names of the frame's index; those of an array
        have positions over all partitions.
        """
        _check_method(method)
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
        queries, test_index = queries_for(self._source, X_test, y_test, of, None, output, None)
        words = _part.QueryWords(queries.of, repr(LeafInfluence()), queries.lower_is_better)
        found: list[_part.TopOfQuery] = []
        with cluster_errors():
            for adjoint in self._adjoints(queries):
                block: _part.TopRows = self._cluster.total(
                    _part.part_top,
                    self._parts,
                    self._starts[:-1].tolist(),
                    trace=self._sent_trace,
                    block=self._cluster.send(adjoint),
                    k=k,
                    effect=effect,
                    words=words,
                )
                found += block.queries
        # the names of all rows found, and for each query the positions of its rows among them
        names = np.concatenate([name for _, name, _, _ in found])
        edges = np.cumsum([0, *(len(name) for _, name, _, _ in found)])
        tops = [
            (np.arange(begin, end), effects.tolist(), change)
            for (begin, end), (_, _, effects, change) in zip(pairwise(edges), found, strict=True)
        ]
        positions = np.concatenate([position for position, _, _, _ in found])
        rows = {"train_row": names, "position": positions}
        change_name = f"{queries.of}_change_if_removed"
        return top_table(tops, rows, test_index, change_name, "", Unit(FIRST_ORDER))

    # ---- backward pass ----

    def _adjoints(self, queries: Queries) -> Iterator[LeafAdjoint]:
        """Derivatives of the queries in all leaf values, block by block."""
        for columns in blocks_of(len(queries)):
            if self._uses_leaf_form(len(queries)):
                yield self._leaf_space().adjoint(self._work, queries, columns)
            else:
                yield self._row_form(queries, columns)

    def _leaf_space(self) -> LeafSpace:
        """W of all rows, computed once."""
        if self._space is None:
            self._space = self._cluster.total(
                _part.part_leaf_space, self._parts, trace=self._sent_trace, dtype=self._dtype
            )
        assert self._space is not None
        return self._space

    def _row_form(self, queries: Queries, columns: slice) -> LeafAdjoint:
        """Run the backward pass for some of the queries; the same as `leaf_adjoint`."""
        e = self._trace.ensemble
        count = len(range(len(queries))[columns])
        width = block_width(count)
        fbar, base = queries.seeds(columns, width, self._dtype)
        if not e.independent:
            cluster = self._cluster
            common = {"trace": self._sent_trace}
            carries = cluster.map(
                _part.begin_backwards, self._parts, **common, width=width, dtype=self._dtype
            )
            for t in reversed(range(e.n_steps)):
                fbar_t = effect_adjoint(self._trace, t, fbar[e.leaf_range(t)])
                steps = cluster.map(
                    _part.step_backwards, self._parts, carries, **common, t=t, fbar=fbar_t
                )
                carries = cluster.map(itemgetter(0), steps)
                sums = cluster.add_up(cluster.map(itemgetter(slice(1, 2)), steps))
                if t:
                    fbar[e.leaf_range(t - 1)] += sums
                else:
                    base += sums
        return finish_pass(self._trace, fbar, base, count)

    def _uses_leaf_form(self, queries: int) -> bool:
        """Whether the leaf form was chosen by the user, or takes less time."""
        e = self._trace.ensemble
        if not has_leaf_form(e):
            return False
        if self._plan is not None:
            return self._plan == "leaves"
        if 3 * space_bytes(e, self._dtype.itemsize) > self._limit:
            return False
        return self._leaf_form_seconds(queries) < self._row_form_seconds(queries)

    def _row_form_seconds(self, queries: int) -> float:
        """Expected time of the row form."""
        rounds = -(-queries // BLOCKS[-1])
        work = 1e-9 * machine() * backward_cost(self._whole_ensemble(), queries)
        return work / self._cluster.threads + rounds * self._trace.ensemble.n_steps * ROUND

    def _leaf_form_seconds(self, queries: int) -> float:
        """Expected time of the leaf form; every partition sends its W, unless that is done."""
        e = self._trace.ensemble
        solve = 1e-9 * machine() * solve_cost(e, queries)
        if self._space is not None:
            return solve
        workers = self._cluster.threads
        size = space_bytes(e, self._dtype.itemsize)
        build = 1e-9 * machine() * build_cost(self._whole_ensemble()) / workers
        return build + len(self._parts) / workers * size / WIRE + solve

    def _whole_ensemble(self) -> Ensemble:
        """The ensemble with the number of all rows, for estimates of costs."""
        e = self._trace.ensemble
        n = self.n_rows
        leaves = np.broadcast_to(np.uint8(0), (len(e.leaves), n))
        return replace(e, leaves=leaves, y=np.broadcast_to(0.0, (n,)))


def _check_method(method: Method | None) -> None:
    """Raise an error for all methods but exact LeafInfluence."""
    if method is not None and method != LeafInfluence():
        raise InvalidInput(
            f"method is {method!r}; on a cluster there is LeafInfluence() alone. For other methods, use "
            "leaftrace.Tracer on rows that fit on one machine."
        )
