"""`ClusterTracer`: what the tracers of all kinds of clusters share."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ..._data.errors import FidelityError, FidelityWarning, InvalidInput
from ..._data.row_labels import aligned, labels_of, row_index
from ..._engine.engine import Engine
from ..._engine.fidelity import Fidelity
from ..._engine.jumps import refuse_jumping_candidates
from ..._engine.methods import LeafInfluence, Method
from ..._engine.queries import Of, Queries, Reduce
from ..._engine.refit import RefittedModel
from ..._engine.settings import settings_of
from ..answers import finite_values
from ..candidate_answers import values_of_new_rows
from ..influence import FIRST_ORDER, Influence, Unit, top_table
from ..tracer import Tracer
from .answers import QueryWords, TopOfQuery, TopRows, part_top
from .costs import Prices
from .engine import ClusterEngine
from .opening import OpenedModel, Opening
from .protocol import Rows
from .refitting import Removal

Plan = Literal["rows", "leaves"] | None


class ClusterTracer:
    """A model and its training rows on a cluster.

    ``engine``  the model replayed with partitions of rows; None if that was not possible
    ``local``   then a tracer at the client, which has the leaves of all rows on its disk
    """

    engine: ClusterEngine | None
    local: Tracer | None

    def _open(
        self,
        rows: Rows,
        model: Any,
        plan: Plan,
        fidelity: str,
        dtype: str,
        memory_limit: int | None,
        params: dict[str, Any] | None,
        prices: Prices,
    ) -> None:
        """Open the model with these rows."""
        settings = settings_of(fidelity, dtype, 1, memory_limit)
        check_plan(plan)
        opened = Opening(rows, model, params or {}, settings).run()
        self.engine = None
        self.local = None
        if isinstance(opened, OpenedModel):
            self.engine = ClusterEngine(opened, settings, plan, prices)
            self._report_fidelity(fidelity)
        else:
            self.local = opened

    @property
    def _any_engine(self) -> Engine:
        if self.engine is not None:
            return self.engine
        assert self.local is not None
        return self.local.engine

    @property
    def fidelity(self) -> Fidelity:
        """How exactly the replay gives the model's own leaf values."""
        return self._any_engine.fidelity

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self._any_engine.n_rows

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier in the order of its outputs, or None."""
        return self._any_engine.source.classes

    def __repr__(self) -> str:
        engine = self._any_engine
        e = engine.ensemble
        where = "at the client, from leaves that the cluster found"
        if self.engine is not None:
            where = f"in {self.engine.cluster.n_parts} partitions"
        return (
            f"Tracer({engine.source.name}, {e.loss.name} loss, {e.n_steps} steps, {len(e.values)} leaves, "
            f"{self.n_rows:,} training rows {where}; {engine.work.dtype.name})\n"
            f"  fidelity: {self.fidelity.verdict}"
        )

    def _report_fidelity(self, setting: str) -> None:
        """Raise an error or a warning about an inexact replay, as the setting has it."""
        if self.fidelity.exact or setting == "ignore":
            return
        if setting == "raise":
            raise FidelityError(
                f"{self.fidelity.verdict}. Pass exactly the rows, labels and weights of training."
            )
        warnings.warn(self.fidelity.verdict, FidelityWarning, stacklevel=5)

    # ---- results that are small ----

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

        Every partition sends its k.
        """
        if self.local is not None:
            how = {"effect": effect, "method": method, "of": of, "output": output}
            return self.local.top(X_test, y_test, k, **how)
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
        queries, test_index = self._queries(X_test, y_test, of, None, output, method)
        assert self.engine is not None
        words = query_words(queries)
        found: list[TopOfQuery] = []
        with self._errors():
            for adjoint in self.engine.adjoints(queries):
                sent = self.engine.cluster.send(adjoint)
                block: TopRows = self.engine.total(
                    part_top, block=sent, k=k, effect=effect, words=words
                )
                found += block.queries
        return self._top_table(found, test_index, queries.of)

    def _top_table(
        self,
        found: list[TopOfQuery],
        test_index: np.ndarray,
        of: str,
        action: str = "removed",
    ) -> Any:
        """The table of the most important rows of each query."""
        # the names of all rows found, and for each query the positions of its rows among them
        names = np.concatenate([name for _, name, _, _ in found])
        edges = np.cumsum([0, *(len(name) for _, name, _, _ in found)])
        tops = [
            (np.arange(begin, end), effects.tolist(), change)
            for (begin, end), (_, _, effects, change) in zip(pairwise(edges), found, strict=True)
        ]
        positions = np.concatenate([position for position, _, _, _ in found])
        rows = self._row_columns(names, positions)
        return top_table(tops, rows, test_index, f"{of}_change_if_{action}", "", Unit(FIRST_ORDER))

    def _row_columns(self, names: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of a table that name training rows."""
        return {"train_row": names, "position": positions}

    def score_candidates(
        self,
        X_new: Any,
        X_test: Any,
        y_test: Any = None,
        y_new: Any = None,
        *,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> Influence:
        """dQ/dw of rows that are not in the training set, as `leaftrace.Tracer.score_candidates`."""
        if self.local is not None:
            how = {"of": of, "reduce": reduce, "output": output}
            return self.local.score_candidates(X_new, X_test, y_test, y_new, **how)
        queries, test_index = self._queries(X_test, y_test, of, reduce, output, None)
        engine = self.engine
        assert engine is not None
        y_new = aligned(y_new, labels_of(X_new), "y_new", "X_new")
        leaves, offset = engine.source.rows(X_new)
        refuse_jumping_candidates(engine.work.trace, leaves)
        m = leaves.shape[1]
        start = np.tile(engine.ensemble.base, (m, 1)) + (0.0 if offset is None else offset)
        scores = engine.ensemble.scores(leaves, offset)
        with self._errors():
            values, per_label = values_of_new_rows(
                engine,
                lambda labels: engine.candidate_values(queries, leaves, start, labels),
                scores,
                y_new,
            )
        return Influence(
            finite_values(values),
            row_index(X_new, m),
            test_index,
            queries.of,
            "candidates at weight zero",
            "added",
            np.ones(m),
            per_label=per_label,
            lower_is_better=queries.lower_is_better,
        )

    def _refit(self, removal: Removal) -> RefittedModel:
        assert self.engine is not None
        with self._errors():
            return self.engine.refits([removal])[0]

    # ---- queries ----

    def _queries(
        self,
        X_test: Any,
        y_test: Any,
        of: Of,
        reduce: Reduce,
        output: int | None,
        method: Method | None,
    ) -> tuple[Queries, np.ndarray]:
        """The queries about these test rows, and the names of their columns."""
        if method is not None and method != LeafInfluence():
            raise InvalidInput(
                f"method is {method!r}; on a cluster there is LeafInfluence() alone. Other methods need all rows in "
                "one place: use leaftrace.Tracer.from_files(model, paths, target=), which keeps leaves on disk, or "
                "leaftrace.Tracer on a sample of rows and a model trained on it."
            )
        assert self.engine is not None
        return self.engine.queries(X_test, y_test, of, reduce, output, None)

    def _sent_blocks(self, queries: Queries) -> list[Any]:
        """Derivatives of the queries in all leaf values, sent to the cluster block by block."""
        assert self.engine is not None
        return [self.engine.cluster.send(adjoint) for adjoint in self.engine.adjoints(queries)]

    def _errors(self) -> Any:
        """A context that words errors of the cluster."""
        raise NotImplementedError


def query_words(queries: Queries) -> QueryWords:
    """Facts about the queries that decide the words of tables."""
    return QueryWords(queries.of, repr(LeafInfluence()), queries.lower_is_better)


def check_plan(plan: Any) -> None:
    """Raise an error for a plan that does not exist."""
    if plan not in (None, "rows", "leaves"):
        raise InvalidInput(
            f"plan is {plan!r}; it can be 'rows', 'leaves' or None for the faster one."
        )
