"""`Engine`: a replayed model, and the passes over it that answer the questions of a `Tracer`.

Each answer is planned once (`costs.Plan`), then computed in that form, in blocks of columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from .._adapters import Source
from .._adapters.base import test_codes
from .._data import inputs
from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import FidelityError, FidelityWarning, InvalidInput, UnsupportedModel
from .._data.progress import progress
from .._data.row_labels import aligned, labels_of, row_numbers
from .._data.wording import words
from .._model.ensemble import Ensemble
from .._model.kernels import BLOCKS, blocks_of
from .._model.linear_leaves import in_one_piece, refuse_linear
from .._model.losses import Criterion
from .._model.reading import Reading
from .._model.training_set import TrainingSet
from . import forward
from .backward import LeafAdjoint, expand_training, leaf_adjoint, single_pass_influence
from .costs import Plan, plan_influence, plan_structure
from .coupled_passes import CoupledPasses, refuse_coupled
from .fidelity import Fidelity
from .free_memory import available_memory
from .leaf_queries import queries_about
from .leaf_space import LeafSpace, build_leaf_space
from .linear_passes import LinearPasses
from .linear_replay import replayed
from .methods import LeafInfluence, LeafRefit, StructureInfluence
from .queries import Of, Queries, Reduce
from .refit import RefittedModel, RetrainedModel, alter, refit_on
from .refit_point import RefitPoint
from .removals import has_block_removal, refit_without
from .retrainings import Retrainings
from .scored_pass import defers_effects
from .settings import Settings, thread_pool
from .soft_splits import SoftQueries, SoftSplits, soft_splits, structure_blocks
from .workspace import Workspace


class Engine:
    """A model with its training rows, replayed and checked.

    ``source``    the model as its adapter presents it
    ``work``      the replay, with the arrays and threads that passes use
    ``fidelity``  how exactly the replay gives the model's leaf values
    ``space``     the leaf form of the backward pass, once it has been built
    """

    def __init__(self, source: Source, settings: Settings) -> None:
        self.source = source
        self.settings = settings
        with thread_pool(settings.n_jobs) as threads:
            trace = replayed(source.ensemble, source.tolerance, source.notes, threads)
        self.fidelity: Fidelity = trace.fidelity
        if not self.fidelity.exact:
            self._report_fidelity()
        memory_limit = settings.memory_limit or available_memory() // 2
        self.work = Workspace(trace, settings.dtype, settings.n_jobs, memory_limit)
        self.space: LeafSpace | None = None
        self.retrainings = Retrainings(source, settings)

    def _report_fidelity(self) -> None:
        """Raise an error or a warning about an inexact replay, as the settings have it."""
        verdict = self.fidelity.verdict
        if self.settings.fidelity == "raise":
            remedy = "Pass exactly the rows, labels and weights of training; "
            if self.ensemble.missing:  # the verdict begins with what to do
                remedy = ""
            raise FidelityError(f"{verdict}. {remedy}{words().accept_inexact} goes on regardless.")
        if self.settings.fidelity == "warn":
            warnings.warn(verdict, FidelityWarning, stacklevel=4)

    def with_source(self, source: Source) -> Engine:
        """The same replay, for another view of the model such as one with names for its classes."""
        engine = copy(self)
        engine.source = source
        engine.retrainings = Retrainings(source, self.settings)
        # which hold the former source
        for cached in ("reading", "as_trained", "unchanged", "coupled"):
            engine.__dict__.pop(cached, None)
        return engine

    @property
    def ensemble(self) -> Ensemble:
        """The neutral description of the model and its training rows."""
        return self.source.ensemble

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.ensemble.n_rows

    @cached_property
    def reading(self) -> Reading:
        """How the model's scores are read, in the unit of the target."""
        return self.as_trained.reading

    @property
    def criterion(self) -> Criterion:
        """The loss of test rows: that of training, or one in the unit of the target."""
        return self.reading.loss

    @property
    def own_codes(self) -> F64:
        """(n,) labels of the training rows, as `criterion` takes them."""
        target = self.source.target
        return self.ensemble.y if target is None else target.labels

    # ---- the model, and models of other training sets ----

    @cached_property
    def as_trained(self) -> RefittedModel:
        """The model itself in the form of a refitted one: nothing is refitted."""
        return RefittedModel(self.source, TrainingSet.unchanged(self.n_rows), self.ensemble)

    @cached_property
    def unchanged(self) -> RefittedModel:
        """The model refitted on its own training set: changes are measured from it."""
        return self.refit(TrainingSet.unchanged(self.n_rows))

    def labels(self, y: Any, length: int, name: str) -> F64:
        """Labels as the loss of training takes them. ``name``: of the argument, for messages."""
        return self.source.labels(y, length, name)

    def test_codes(self, y: Any, length: int, name: str) -> F64:
        """Labels as `criterion` takes them."""
        return test_codes(self.source, y, length, name)

    def test_labels(self, X: Any, y: Any, name: str = "y_test", table: str = "X_test") -> Any:
        """The labels y, in the order of X, or those that X itself has (a Pool), or None."""
        return self.source.own_labels(X) if y is None else aligned(y, labels_of(X), name, table)

    def training_set(
        self,
        without: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
    ) -> TrainingSet:
        """Check the arguments of `Tracer.refit` and put them together."""
        if without is None:
            removed = np.zeros(0, np.intp)
        else:
            removed = row_numbers(without, self.n_rows, "without")
        keep = self.rest(removed)
        labels = None if y is None else inputs.labels_like(y, "y", self.ensemble.y)
        weights = None if sample_weight is None else inputs.weights(sample_weight, self.n_rows)
        if weights is not None and not weights[keep].any():
            raise InvalidInput(
                "these weights leave no training row of non-zero weight; keep at least one."
            )
        new = None
        if added is not None:
            X_new, y_new = added
            m = inputs.row_count(X_new)
            new = X_new, self.source.given_labels(y_new, m, "the labels of added rows"), np.ones(m)
        return TrainingSet(self.n_rows, keep, labels, weights, new if new and len(new[1]) else None)

    def refit(self, training: TrainingSet) -> RefittedModel:
        """The model with its trees fixed and all leaf values refitted on this training set."""
        with thread_pool(self.work.n_jobs) as threads:
            refitted = refit_on(self.work.trace, alter(self.source, training), threads)
        return RefittedModel(self.source, training, refitted)

    def retrain(self, training: TrainingSet) -> RetrainedModel:
        """The model trained again on this training set."""
        retrained = self.retrainings.train(training, self.work.n_jobs)
        return RetrainedModel(self.source, training, retrained)

    def rest(self, without: Ints) -> Ints:
        """Positions of all training rows but these; an error if none of them has a weight."""
        keep = np.delete(np.arange(self.n_rows), without)
        if not self.ensemble.w[keep].any():
            raise InvalidInput(
                "without= leaves no training row of non-zero weight; keep at least one."
            )
        return keep

    # ---- queries and plans ----

    def needs_derivatives(self) -> None:
        """Raise an error if the leaf values of this model have no derivatives."""
        if why := self.ensemble.not_smooth:
            raise UnsupportedModel(
                f"{why}, which jumps as weights move instead of having a derivative; "
                "use method=LeafRefit(), refit(without=...) or Retrain(), which need none."
            )

    def needs_separate_rows(self, what: str) -> None:
        """Raise an error for a loss that couples rows. ``what``: is not for such losses."""
        refuse_coupled(self.ensemble, what)

    def needs_constant_leaves(self, what: str) -> None:
        """Raise an error for leaves that are linear functions. ``what``: is not for them."""
        if self.ensemble.linear is not None:
            refuse_linear(what)

    def queries(
        self,
        X: Any,
        y: Any,
        of: Of,
        reduce: Reduce,
        output: int | None,
        baseline: Any,
        qid: Any = None,
    ) -> tuple[Queries, np.ndarray]:
        """The queries about these test rows, and the names of their columns."""
        return queries_about(self.source, X, y, of, reduce, output, baseline, qid)

    def plan(
        self, method: LeafInfluence | StructureInfluence | LeafRefit, columns: int, rows: int
    ) -> Plan:
        """Plan how to compute this many columns of `influence` for this many training rows."""
        if isinstance(method, StructureInfluence):
            return plan_structure(self.work, self.soft_splits, columns, rows)
        return plan_influence(self.work, self.space is not None, method, columns, rows)

    # ---- passes ----

    def backward_blocks(
        self, queries: Queries, method: LeafInfluence, index: Ints | None
    ) -> Iterator[tuple[slice, Real]]:
        """LeafInfluence by the backward pass, block by block: (columns, values (rows, columns))."""
        work = self.work
        if self.ensemble.coupled:
            yield from self.coupled.blocks(queries, method, index)
            return
        if self.ensemble.linear is not None:
            yield from LinearPasses(work).blocks(queries, method, index)
            return
        plan = self.plan(method, len(queries), self.n_rows if index is None else len(index))
        all_rows = plan.form == "row form" and index is None
        deferred = all_rows and defers_effects(work, len(queries))
        work.passes_by_scores += deferred
        if deferred or (all_rows and not work.keeps_effects):

            def influence_on(columns: slice) -> tuple[slice, Real]:
                return columns, single_pass_influence(work, queries, columns)
        else:
            adjoint_of = self.adjoint(queries, plan)

            def influence_on(columns: slice) -> tuple[slice, Real]:
                return columns, expand_training(work, adjoint_of(columns), index)

        done = work.map(influence_on, blocks_of(len(queries), work.block), work.blocks_ahead)
        yield from progress(done, len(queries), "influence", "query", work.block)

    @cached_property
    def coupled(self) -> CoupledPasses:
        """The passes over a model whose loss couples rows."""
        return CoupledPasses(self.work)

    @cached_property
    def soft_splits(self) -> SoftSplits:
        """The splits of the model as choices among candidates."""
        self.needs_separate_rows("StructureInfluence()")
        self.needs_constant_leaves("StructureInfluence()")
        return soft_splits(self.source)

    def soft_queries(self, queries: Queries, X: Any) -> SoftQueries:
        """Queries about the test rows X, with the bins of these."""
        return SoftQueries(queries, self.soft_splits.bins.codes(self.source.split_columns(X)))

    def structure_blocks(
        self, queries: Queries, X: Any, method: StructureInfluence, index: Ints | None
    ) -> Iterator[tuple[slice, Real]]:
        """The same by StructureInfluence; ``X``: the test rows of the queries."""
        asked = self.soft_queries(queries, X)
        return structure_blocks(self.work, self.soft_splits, asked, method.temperature, index)

    def adjoint(self, queries: Queries, plan: Plan) -> Callable[[slice], LeafAdjoint]:
        """A function that runs the backward pass for some columns, in the planned form."""
        work = self.work
        work.prepare_effects()
        if plan.form == "leaf form":
            space = build_leaf_space(work) if self.space is None else self.space
            self.space = space
            return lambda columns: space.adjoint(work, queries, columns)
        knock_on = plan.form == "row form"
        return lambda columns: leaf_adjoint(work, queries, columns, knock_on=knock_on)

    @np.errstate(over="ignore")  # values that are too large are refused later
    def forward_values(
        self, queries: Queries, method: LeafInfluence | LeafRefit, index: Ints
    ) -> Real:
        """(rows, queries) by forward passes, in blocks of training rows.

        This is for methods whose work depends on the training row.
        """
        e = self.ensemble
        work = self.work
        self.needs_separate_rows("the update set TopKLeaves")
        self.needs_constant_leaves("the update set TopKLeaves")
        if isinstance(method, LeafInfluence):
            work.prepare_effects()
        elif np.count_nonzero(e.w) < 2:
            raise InvalidInput(
                "LeafRefit removes a row, so it needs at least two training rows of non-zero weight."
            )
        else:
            work.prepare_states()

        def values_of_block(part: slice) -> Real:
            if isinstance(method, LeafRefit):
                changes = forward.refit(work, index[part], method.update_set)
                return -queries.change(changes.score_changes(e, queries.leaves)).T
            changes = forward.tangent(work, index[part], method.update_set)
            return queries.slope(changes.score_changes(e, queries.leaves)).T

        blocks = work.map(values_of_block, blocks_of(len(index)))
        done = progress(blocks, len(index), "training rows", "row", BLOCKS[-1])
        return np.concatenate([np.zeros((0, len(queries))), *done]).astype(work.dtype)

    # ---- passes for actions and views ----

    def scores_without(self, sets: Sequence[Ints], X: Any, what: str) -> Iterator[F64]:
        """(K,) scores of the rows of X in turn: row j by the model refitted without rows sets[j].

        ``what``: shown with the progress.
        """
        e = self.ensemble
        work = self.work
        leaves, offset = self.source.rows(X)
        scores = e.scores(leaves, offset)  # (m, K)

        def scores_of_block(part: slice) -> F64:
            changes = refit_without(work, sets[part])
            # (rows of the block, K, sets of the block), of which the diagonal is needed
            moved = changes.score_changes(e, np.ascontiguousarray(leaves[:, part]))
            return scores[part] + np.einsum("mkm->mk", moved)

        def scores_of_row(j: int) -> F64:
            refitted = refit_on(work.trace, e.keep(self.rest(sets[j])), threads)
            at = in_one_piece(leaves[:, [j]])
            return scores[[j]] + refitted.scores(at) - e.scores(at)

        with thread_pool(self.settings.n_jobs) as threads:
            if has_block_removal(e):
                work.prepare_states()
                blocks = work.map(scores_of_block, blocks_of(len(sets)))
                width = BLOCKS[-1]
            else:
                blocks = map(scores_of_row, range(len(sets)))
                width = 1
            for block in progress(blocks, len(sets), what, "test row", width):
                yield from block

    def score_changes_without(self, sets: Sequence[Ints], leaves: Ids) -> Iterator[F64]:
        """Blocks (m, K, sets) of changes of scores without sets of rows, by exact refits.

        ``leaves``: (trees, m) of the test rows.
        """
        e = self.ensemble
        work = self.work
        if not has_block_removal(e):
            before = e.scores(leaves)
            for rows in sets:
                refitted = refit_on(work.trace, e.keep(self.rest(rows)))
                yield (refitted.scores(leaves) - before)[:, :, None]
            return
        work.prepare_states()
        for part in blocks_of(len(sets)):
            yield refit_without(work, sets[part]).score_changes(e, leaves)

    def score_changes_along(self, X: Any, direction: F64) -> F64:
        """(m, K) first-order changes of the scores of X along a direction (n,) of weights."""
        self.needs_derivatives()
        self.needs_separate_rows("a path along weights")
        if self.ensemble.linear is not None:
            return LinearPasses(self.work).score_changes(direction, self.source.rows(X)[0])
        changes = forward.along(self.work, direction)
        return changes.score_changes(self.ensemble, self.source.rows(X)[0])[..., 0]

    def slopes_at(self, model: RefittedModel, X: Any, y: Any) -> F64:
        """(n,) d(mean loss of X, y)/d(sample weight) at a refitted model with all training rows.

        Weights, leaf values and starting score are those of the refitted model.
        """
        queries = self.queries(X, y, "loss", "mean", None, None)[0]
        return self.refit_point(model).slopes(queries)[:, 0]

    def refit_point(self, model: RefittedModel) -> RefitPoint:
        """A refitted model, replayed, so that derivatives can be taken there."""
        self.needs_derivatives()
        self.needs_separate_rows("a path along weights")
        with thread_pool(self.settings.n_jobs) as threads:
            return RefitPoint(self.source, model, self.work, threads)
