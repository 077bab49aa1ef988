"""`Engine`: a replayed model and the passes over it, chosen and cut into blocks. `Tracer` asks, this answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._adapters import Alteration, Source
from .._data import inputs
from .._data.arrays import F64, Ints, Real
from .._data.errors import FidelityError, FidelityWarning, InvalidInput, UnsupportedModel
from .._data.progress import progress
from .._kernels import BLOCKS
from . import forward
from .backward import LeafAdjoint, expand_candidates, expand_training, leaf_adjoint, one_pass
from .costs import leaf_form_pays
from .fidelity import Fidelity
from .leaf_space import LeafSpace, build
from .methods import AllPoints, LeafInfluence, LeafRefit, SinglePoint
from .queries import Of, Queries, Reduce, make_queries
from .refit import RefittedModel, alter, class_factors, refit_on
from .removals import has_block_removal, refit_without
from .replay import replay
from .row_effects import candidate_rows
from .workspace import Workspace, available_cores, available_memory


@dataclass(frozen=True)
class Settings:
    fidelity: str
    dtype: np.dtype
    n_jobs: int
    memory_limit: int | None


def settings_of(
    fidelity: str, dtype: str, n_jobs: int | None, memory_limit: int | None
) -> Settings:
    if fidelity not in ("raise", "warn", "ignore"):
        raise InvalidInput(f"fidelity is {fidelity!r}; it can be 'raise', 'warn' or 'ignore'.")
    if str(dtype) not in ("float32", "float64"):
        raise InvalidInput(f"dtype is {dtype!r}; it can be 'float32' or 'float64'.")
    if n_jobs is not None and n_jobs < 1:
        raise InvalidInput(
            f"n_jobs is {n_jobs}; it is a number of threads, 1 or more, or None for all cores."
        )
    if memory_limit is not None and memory_limit <= 0:
        raise InvalidInput(f"memory_limit is {memory_limit}; it is a number of bytes, or None.")
    return Settings(fidelity, np.dtype(dtype), n_jobs or available_cores(), memory_limit)


class Engine:
    """A model with its training rows, replayed; what the questions of a `Tracer` are answered with."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        with ThreadPoolExecutor(settings.n_jobs) as threads:
            trace = replay(source.ensemble, source.tolerance, source.notes, threads)
        self.fidelity: Fidelity = trace.fidelity
        if not self.fidelity.exact and settings.fidelity != "ignore":
            if settings.fidelity == "raise":
                raise FidelityError(
                    f"{self.fidelity.verdict}. Pass exactly the rows, labels and weights of training; "
                    'fidelity="warn" goes on regardless.'
                )
            warnings.warn(self.fidelity.verdict, FidelityWarning, stacklevel=3)
        self._work = Workspace(
            trace, settings.dtype, settings.n_jobs, settings.memory_limit or available_memory() // 2
        )
        self._space: LeafSpace | None = None

    @property
    def n_rows(self) -> int:
        return self._source.ensemble.n_rows

    def _queries(
        self, X: Any, y: Any, of: Of, reduce: Reduce, output: int | None, baseline: Any
    ) -> tuple[Queries, np.ndarray]:
        leaves, offset = self._source.rows(X, baseline)
        m = leaves.shape[1]
        if m == 0:
            raise InvalidInput("X_test has no rows; pass at least one test row.")
        y = self._source.own_labels(X) if y is None else y
        codes = None if y is None else self._source.labels(y, m, "y_test")
        queries = make_queries(
            self._source.ensemble, leaves, offset, codes, of, reduce, output, self._source.classes
        )
        if queries.goal is not None:
            return queries, np.array([queries.of])
        return queries, np.array([reduce]) if reduce else inputs.row_index(X, m)

    def _backwards(
        self, queries: Queries, method: LeafInfluence, index: Ints | None
    ) -> Iterator[tuple[slice, Real]]:
        """(columns, values (rows, columns)) of LeafInfluence by the adjoint, block by block."""
        work = self._work
        knock_on = not isinstance(method.update_set, SinglePoint)
        leaf_form = knock_on and leaf_form_pays(work, self._space is not None, len(queries))
        passing = knock_on and not (
            leaf_form or work.keeps_effects or work.trace.ensemble.independent
        )
        adjoint = self._adjoint(queries, knock_on)

        def block(columns: slice) -> tuple[slice, Real]:
            if passing and index is None:
                return columns, one_pass(work, queries, columns)
            return columns, expand_training(work, adjoint(columns), index)

        done = work.map(block, blocks_of(len(queries), work.block), work.blocks_ahead)
        yield from progress(done, len(queries), "influence", "query", work.block)

    def _adjoint(self, queries: Queries, knock_on: bool = True) -> Callable[[slice], LeafAdjoint]:
        """The backward pass for some columns of the queries, in the form that is faster for all of them."""
        self._work.prepare_effects()
        if knock_on and leaf_form_pays(self._work, self._space is not None, len(queries)):
            space = self._space = build(self._work) if self._space is None else self._space
            return lambda columns: space.adjoint(self._work, queries, columns)
        return lambda columns: leaf_adjoint(self._work, queries, columns, knock_on=knock_on)

    def _forwards(self, queries: Queries, method: LeafInfluence | LeafRefit, index: Ints) -> Real:
        """Values of the methods that depend on the training row and so run forwards, in blocks of training rows."""
        e = self._source.ensemble
        if isinstance(method, LeafInfluence):
            self._work.prepare_effects()
        elif np.count_nonzero(e.w) < 2:
            raise InvalidInput(
                "LeafRefit removes a row, so it needs at least two training rows of non-zero weight."
            )
        else:
            self._work.prepare_states()

        def block(part: slice) -> Real:
            if isinstance(method, LeafRefit):
                changes = forward.refit(self._work, index[part], method.update_set)
                return -queries.change(changes.score_changes(e, queries.leaves)).T
            changes = forward.tangent(self._work, index[part], method.update_set)
            return queries.slope(changes.score_changes(e, queries.leaves)).T

        done = progress(
            self._work.map(block, blocks_of(len(index))),
            len(index),
            "training rows",
            "row",
            BLOCKS[-1],
        )
        return np.concatenate([np.zeros((0, len(queries))), *done]).astype(self._work.dtype)

    def _by_refitting(self, queries: Queries, method: LeafRefit, index: Ints) -> Real:
        """LeafRefit where changes have no difference form: one replay a row."""
        if not isinstance(method.update_set, AllPoints):
            raise InvalidInput(
                f"{type(method.update_set).__name__} is not for this model, whose leaves are refitted as a whole "
                "(quantiles, or smoothed along their paths); use LeafRefit() without an update set."
            )

        def one(row: int) -> F64:
            altered = refit_on(
                self._work.trace, self._source.ensemble.keep(self._rest(np.array([row])))
            )
            change = altered.scores(queries.leaves) - self._source.ensemble.scores(queries.leaves)
            return -queries.change(change[:, :, None])[:, 0]

        done = progress(self._work.map(one, index.tolist()), len(index), "training rows", "row")
        return np.array(list(done)).reshape(len(index), len(queries)).astype(self._work.dtype)

    def _scores_without(self, sets: Sequence[Ints], X: Any, what: str) -> Iterator[F64]:
        """(K,) scores of one row of X after the other: of row j by the model refitted without the rows sets[j]."""
        e = self._source.ensemble
        (leaves, offset) = self._source.rows(X)
        scores = e.scores(leaves, offset)  # (m, K)

        def together(part: slice) -> F64:
            changes = refit_without(self._work, sets[part])
            moved = changes.score_changes(
                e, np.ascontiguousarray(leaves[:, part])
            )  # (part, K, part)
            return scores[part] + np.einsum("mkm->mk", moved)

        def one(j: int) -> F64:
            altered = refit_on(self._work.trace, e.keep(self._rest(sets[j])), threads)
            at = np.ascontiguousarray(leaves[:, [j]])
            return scores[[j]] + altered.scores(at) - e.scores(at)

        with ThreadPoolExecutor(self._settings.n_jobs) as threads:
            done = map(one, range(len(sets)))
            each = 1
            if has_block_removal(e):
                self._work.prepare_states()
                done = self._work.map(together, blocks_of(len(sets)))
                each = BLOCKS[-1]
            for block in progress(done, len(sets), what, "test row", each):
                yield from block

    def _along(self, X: Any, direction: F64) -> F64:
        """(m, K) changes of the scores of X along a direction (n,) of sample weights, to first order."""
        self._needs_derivatives()
        changes = forward.along(self._work, direction)
        return changes.score_changes(self._source.ensemble, self._source.rows(X)[0])[..., 0]

    def _needs_derivatives(self) -> None:
        if why := self._source.ensemble.not_smooth:
            raise UnsupportedModel(
                f"{why}, which jumps as weights move instead of having a derivative; "
                "use method=LeafRefit(), refit(without=...) or Retrain(), which need none."
            )

    def _by_retraining(
        self, X: Any, baseline: Any, queries: Queries, index: Ints
    ) -> tuple[Real, np.ndarray]:
        offset = self._source.rows(X, baseline)[1]

        def one(row: int) -> tuple[F64, bool]:
            model = self._source.retrain(Alteration(self._rest(np.array([row]))), 1)
            scores = model.scores(X) + (0.0 if offset is None else offset)
            return -queries.change((scores - queries.scores)[:, :, None])[
                :, 0
            ], model.structure_changed

        done = list(
            progress(self._work.map(one, index.tolist()), len(index), "retraining", "model")
        )
        values = np.array([v for v, _ in done]).reshape(len(index), len(queries))
        return values, np.array([changed for _, changed in done], dtype=bool)

    def _slopes_at(self, model: RefittedModel, X: Any, y: Any) -> F64:
        """(n,) d(mean loss of X, y)/d(sample weight) at the weights and leaf values of a refitted model that has all
        training rows."""
        self._needs_derivatives()
        source = self._source
        values = {"base": model.ensemble.base, "values": model.ensemble.values}
        e = replace(alter(source, model.rows), **values)
        with ThreadPoolExecutor(self._settings.n_jobs) as threads:
            trace = replay(e, source.tolerance, (), threads)
        work = Workspace(trace, self._work.dtype, self._work.n_jobs, self._work.memory_limit)
        leaves, offset = source.rows(X)
        codes = source.labels(y, leaves.shape[1], "y_test")
        queries = make_queries(e, leaves, offset, codes, "loss", "mean", None)
        work.prepare_effects()
        return expand_training(work, leaf_adjoint(work, queries, slice(0, 1)), None)[:, 0].astype(
            np.float64
        )

    def _candidates(
        self, queries: Queries, leaves: np.ndarray, start: F64, labels: list[F64]
    ) -> Real:
        """(labelings, rows, columns): the same new rows under each of these labels."""
        adjoint_of = self._adjoint(queries)
        e = self._source.ensemble
        chunks = self._work.row_chunks(np.arange(len(start)))
        own = [e.w_factor, e.w_factor if e.base_factor is None else e.base_factor]

        def factors(y: F64) -> list[F64]:
            return class_factors(self._source, y, own)

        def block(columns: slice) -> Real:
            adjoint = adjoint_of(columns)
            candidates = [
                candidate_rows(self._work.trace, leaves, start, y, *factors(y)) for y in labels
            ]
            parts = [
                [expand_candidates(self._work, adjoint, c.take(part)) for part in chunks]
                for c in candidates
            ]
            return np.stack([np.concatenate(p) for p in parts])

        return np.concatenate(list(self._work.map(block, blocks_of(len(queries)))), axis=2)

    def _rest(self, without: Ints) -> Ints:
        keep = np.delete(np.arange(self.n_rows), without)
        if not self._source.ensemble.w[keep].any():
            raise InvalidInput(
                "without= leaves no training row of non-zero weight; keep at least one."
            )
        return keep


def blocks_of(count: int, width: int = BLOCKS[-1]) -> list[slice]:
    """Columns 0 .. count in blocks of a width that the kernels have."""
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]
