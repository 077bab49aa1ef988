"""Parts that all adapters share: numbering leaves, reading labels, defaults of a `Source`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data import frames, inputs
from .._data.arrays import F64, Ids
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.parquet import PartedTable
from .._data.progress import progress
from .._data.query_ids import QueryRows, read_queries
from .._model.coupled.loss import CoupledLoss, Places
from .._model.ensemble import Ensemble
from .._model.losses import Loss
from .._model.reading import Reading
from .._model.separate_losses import OneVsAll
from .._model.splits import SplitSearch
from .._model.target_unit import TargetUnit
from .._model.training_set import TrainingSet
from .._model.tree_paths import TreePaths

if TYPE_CHECKING:
    from . import Retrained, Source


def f32(x: Any) -> F64:
    """Round x to float32 and return it as float64; x itself if rounding changes nothing."""
    rounded = np.asarray(x, np.float32).astype(np.float64)
    is_plain = isinstance(x, np.ndarray) and x.dtype == np.float64 and x.flags.c_contiguous
    return x if is_plain and np.array_equal(x, rounded) else rounded  # not kept twice


def cumulative(counts: Any) -> NDArray[np.int64]:
    """Return 0 and the running totals: (k,) counts -> (k + 1,) edges."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))])


def pack_leaves(
    ids: Iterable[Any], tree_leaves: NDArray[np.int64], step_trees: NDArray[np.int64], n: int
) -> Ids:
    """Number leaves (trees, n) over all leaves of a step, in the smallest type that holds them.

    ``ids`` gives, tree by tree, the leaf (n,) of each row, counted within the tree from 0."""
    starts = tree_leaves[step_trees]
    offset = tree_leaves[:-1] - np.repeat(starts[:-1], np.diff(step_trees))
    largest = int(np.diff(starts).max(initial=1))
    out = np.empty((len(offset), n), smallest_type(largest))
    for r, tree in enumerate(ids):
        numbers = np.asarray(tree)
        refuse_other_leaves(numbers[None], tree_leaves[r : r + 2], r)
        out[r] = numbers + offset[r]
    return out


def refuse_other_leaves(ids: Ids, tree_leaves: NDArray[np.int64], first: int = 0) -> None:
    """Raise if a row is in a leaf that its tree does not have, as in a model that was damaged.

    ``ids``          (trees, rows) leaves, counted within each tree from 0
    ``tree_leaves``  (trees + 1,) of these trees, as in `Ensemble`
    ``first``        the number of the first of these trees"""
    if not ids.size:
        return
    counts = np.diff(tree_leaves)
    low, high = ids.min(axis=1), ids.max(axis=1)
    wrong = np.flatnonzero((low < 0) | (high >= counts))
    if len(wrong):
        r = wrong[0]
        leaf = low[r] if low[r] < 0 else high[r]
        raise UnsupportedModel(
            f"tree {first + r + 1} of the model puts a row into leaf {leaf}, but its leaves are 0 to {counts[r] - 1}: "
            "the trees do not fit together. Likely the file of the model is damaged; save the model again."
        )


def are_elsewhere(leaves: Ids) -> bool:
    """Return whether the leaves of the rows stay on a cluster, and these are a shape without numbers.

    Nothing can be compared with them here; the replay on the cluster does that."""
    return leaves.size > 0 and not any(leaves.strides)


def refuse_elsewhere(leaves: Ids, what: str) -> None:
    """Raise if the leaves of the rows stay on a cluster. ``what`` needs them."""
    if are_elsewhere(leaves):
        raise UnsupportedModel(
            f"{what} need all training rows at once, so this model cannot be traced on a cluster; trace it in memory."
        )


def smallest_type(count: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type that holds ``count`` different numbers from 0."""
    if count <= 1 << 8:
        return np.uint8
    return np.uint16 if count <= 1 << 16 else np.uint32


def native_values(before: Ensemble, after: Ensemble, native: F64, scale: F64 | float = 1.0) -> F64:
    """Return the leaf values (leaves, O) of a model with those of another ensemble.

    ``native``  (leaves, O) leaf values of the model, in the order of the ensembles' leaves
    ``scale``   of a change of ``native`` for a change of the scores by one

    The change of the starting score goes into the first tree of each output.
    """
    change = after.finished_values - before.finished_values
    start = after.finished_base - before.finished_base  # (K,)
    outputs, trees = np.unique(before.first_output, return_index=True)
    for output, tree in zip(outputs, trees, strict=True):
        leaves = slice(*before.tree_leaves[tree : tree + 2])
        change[leaves] += start[output : output + before.leaf_outputs]
    return native + scale * change


def given_scores(values: Any, name: str, m: int, K: int) -> F64 | None:
    """Check the scores (m, K) that the user gave to rows (baseline, base_margin, init_score)."""
    if values is None:
        return None
    offset = inputs.array_of_numbers(values, name)
    if offset.ndim == 1 and offset.size == m * K:
        offset = offset.reshape(m, K)
    if offset.shape != (m, K) or not np.isfinite(offset).all():
        raise InvalidInput(
            f"{name} has shape {offset.shape} for {m} rows; expected finite numbers, shape ({m}, {K})."
        )
    return offset


def _has_value_for_each_row(baseline: Any, n: int) -> bool:
    """Return whether a baseline can be cut into the same parts as the rows."""
    return baseline is None or len(baseline) == n


# Why weights cannot change where leaves, or the starting score, are quantiles.
UNWEIGHTED = "it was trained without, and quantiles of rows with weights have another form"


NO_QUERIES = (
    "qid is for rankers, whose loss is about whole queries; this model is none, so leave qid out."
)


def training_queries(qid: Any, n: int, ranks: bool) -> QueryRows | None:
    """Return the queries of n training rows; an error if they are missing, or not for this model.

    ``ranks``: whether the loss of the model is about whole queries."""
    if not ranks:
        if qid is not None:
            raise InvalidInput(NO_QUERIES)
        return None
    if qid is None:
        raise InvalidInput(
            "this model is a ranker; pass qid= with the query of each training row, or the sizes of the queries in "
            "their order, as in training."
        )
    return read_queries(qid, n)


def coupled_places(loss: Loss, queries: QueryRows | None, n: int) -> Places | None:
    """Return queries of n training rows, for a loss that couples them; without queries all are one."""
    if not isinstance(loss, CoupledLoss):
        return None
    return Places.of_training(np.zeros(n, np.intp) if queries is None else queries.number)


class BaseSource:
    """Labels and defaults of a `Source`.

    Adapters set ``classes`` for classifiers and ``label_range`` for other models; ``targets`` is the
    number of labels that a row has, if there are several."""

    name: str
    ensemble: Ensemble
    notes: Sequence[str] = ()
    classes: NDArray[Any] | None = None
    label_range: tuple[float, float] = (-np.inf, np.inf)
    queries: QueryRows | None = None
    targets: int | None = None
    target: TargetUnit | None = None

    def given_labels(self, y: Any, length: int, name: str) -> NDArray[Any]:
        """Return labels as they were given: (length,), or (length, targets)."""
        if self.targets is None:
            return inputs.vector(y, name, length)
        return inputs.targets(y, name, length, self.targets)

    def labels(self, y: Any, length: int, name: str) -> F64:
        if self.classes is not None:
            return inputs.class_codes(inputs.vector(y, name, length), self.classes, name)
        if self.targets is None:
            numbers = inputs.numbers(y, name, length)
        else:
            numbers = inputs.targets(y, name, length, self.targets)
        low, high = self.label_range
        if length and (numbers.min() < low or numbers.max() > high):
            raise InvalidInput(
                f"{name} goes from {numbers.min():g} to {numbers.max():g}; the labels of this {self.name} "
                f"are numbers from {low:g} to {high:g}."
            )
        return numbers

    def own_labels(self, X: Any) -> Any | None:
        return None

    def own_queries(self, X: Any) -> Any | None:
        """Return ids or sizes of queries that X itself carries (a Pool), or None."""
        return None

    def test_queries(self, X: Any, qid: Any, m: int) -> QueryRows | None:
        qid = self.own_queries(X) if qid is None else qid
        return None if qid is None else read_queries(qid, m)

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        raise NotImplementedError

    def split_search(self) -> SplitSearch:
        raise NotImplementedError

    def split_columns(self, X: Any) -> F64:
        raise NotImplementedError

    def tree_paths(self, X: Any) -> TreePaths:
        raise NotImplementedError

    def training_rows(self, X: Any, baseline: Any) -> tuple[Ids, F64 | None]:
        """Return `rows` of the training set, computed part by part.

        Libraries copy the table that they predict, so that all rows at once would take the memory
        of the table again, or more."""
        if isinstance(X, PartedTable):
            return X.leaves(self.rows, self.structure(), baseline)
        parts = [] if self.reads_in_place(X) else inputs.row_parts(X)
        if len(parts) <= 1 or not _has_value_for_each_row(baseline, parts[-1].stop):
            return self.rows(X, baseline)
        given = None if baseline is None else frames.to_numpy(baseline)
        return self._rows_of_parts(X, given, parts)

    def reads_in_place(self, X: Any) -> bool:
        """Return whether `rows` needs no copy of the table."""
        return False

    def _rows_of_parts(
        self, X: Any, baseline: F64 | None, parts: Sequence[slice]
    ) -> tuple[Ids, F64 | None]:
        """Return `rows` of a table that is cut into these parts."""
        X = X.tocsr() if hasattr(X, "tocsr") else X
        n = parts[-1].stop
        leaves: Ids | None = None
        offsets: list[F64] = []
        for part in progress(parts, n, "leaves", "row", parts[0].stop):
            given = None if baseline is None else baseline[part]
            found, offset = self.rows(inputs.slice_rows(X, part), given)
            if leaves is None:
                leaves = np.empty((len(found), n), found.dtype)
            leaves[:, part] = found
            if offset is not None:
                offsets.append(offset)
        assert leaves is not None
        return leaves, np.concatenate(offsets) if offsets else None

    def rebased(self, base: F64) -> Ensemble:
        """Return the ensemble as it is: the model stores its starting score."""
        return self.ensemble

    def structure(self) -> bytes:
        """Return everything that decides in which leaf a row falls.

        It is the same for the same model, however it was loaded: caches of leaves go by it."""
        raise NotImplementedError

    def own_response(self, F: F64) -> F64:
        loss = self.ensemble.loss
        if isinstance(loss, OneVsAll):
            return loss.own_probabilities(F)
        return Reading(loss, None).response(F)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        """Return the labels of the predicted classes, or numbers on the scale of the labels."""
        return Reading(self.ensemble.loss, self.classes).predicted(F)

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        """Return labels and weights of training rows as training stored them.

        ``factor`` and ``base_factor`` are ``w_factor`` and ``base_factor`` of the `Ensemble`."""
        return codes, weight * factor


class Wrapped:
    """A `Source` that passes everything on to ``inner``, except what a subclass overrides."""

    inner: Source

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def ensemble(self) -> Ensemble:
        return self.inner.ensemble

    @property
    def tolerance(self) -> float:
        return self.inner.tolerance

    @property
    def classes(self) -> Any | None:
        return self.inner.classes

    @property
    def notes(self) -> Sequence[str]:
        return self.inner.notes

    @property
    def queries(self) -> QueryRows | None:
        return self.inner.queries

    @property
    def target(self) -> TargetUnit | None:
        return self.inner.target

    def test_queries(self, X: Any, qid: Any, m: int) -> QueryRows | None:
        return self.inner.test_queries(X, qid, m)

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        return self.inner.rows(X, baseline)

    def split_search(self) -> SplitSearch:
        return self.inner.split_search()

    def split_columns(self, X: Any) -> F64:
        return self.inner.split_columns(X)

    def tree_paths(self, X: Any) -> TreePaths:
        return self.inner.tree_paths(X)

    def given_labels(self, y: Any, length: int, name: str) -> NDArray[Any]:
        return self.inner.given_labels(y, length, name)

    def labels(self, y: Any, length: int, name: str) -> F64:
        return self.inner.labels(y, length, name)

    def own_labels(self, X: Any) -> Any | None:
        return self.inner.own_labels(X)

    def rebased(self, base: F64) -> Ensemble:
        return self.inner.rebased(base)

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        return self.inner.as_trained(codes, weight, factor, base_factor)

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        return self.inner.retrain(rows, threads)

    def own_response(self, F: F64) -> F64:
        return self.inner.own_response(F)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        return self.inner.own_predictions(F)

    def refitted_model(self, e: Ensemble) -> Any:
        return self.inner.refitted_model(e)


def test_codes(source: Source, y: Any, length: int, name: str) -> F64:
    """Return labels as the loss of test rows takes them. ``name``: of y, for messages."""
    if source.target is None:
        return source.labels(y, length, name)
    return inputs.numbers(y, name, length)


def for_sklearn(X: Any) -> Any:
    """Return a table that scikit-learn can read.

    Versions before 1.9 cannot read the columns of polars' newest tables."""
    if not frames.kind(X):
        return X
    import sklearn

    reads_polars = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 9)
    return X if frames.kind(X) == "polars" and reads_polars else frames.to_pandas(X)
