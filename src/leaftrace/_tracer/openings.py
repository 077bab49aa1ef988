"""Other ways to open a `Tracer`: rows in files, models of folds, models made of others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._adapters.wrappers.members import is_made_of_members
from .._data.parquet import Paths
from .._engine.free_memory import available_memory
from .training_rows import read_files

if TYPE_CHECKING:
    from .members import MembersTracer


class Openings:
    """Ways to open a tracer, for `Tracer`."""

    def __new__(cls, model: Any = None, *arguments: Any, **settings: Any) -> Any:
        """Make a `MembersTracer` for a model that is made of others."""
        from .tracer import Tracer

        if cls is Tracer and model is not None and is_made_of_members(model):
            from .members import MembersTracer

            return object.__new__(MembersTracer)
        return object.__new__(cls)

    @classmethod
    def of_folds(
        cls,
        models: Any,
        X_train: Any,
        y_train: Any,
        folds: Any = None,
        sample_weight: Any = None,
        **settings: Any,
    ) -> MembersTracer:
        """A tracer of the models of a cross-validation, each with the rows that it was trained on.

        >>> tracer = Tracer.of_folds(models, X, y, list(cv.split(X, y)))      # doctest: +SKIP

        ``models``  a list of fitted models, the CVBooster of `lightgbm.cv(..., return_cvbooster=True)`,
                    the result of `cross_validate(..., return_estimator=True, return_indices=True)`
                    (which has the folds), or a CalibratedClassifierCV whose folds were random
        ``folds``   for each model the pair (training rows, other rows), or its training rows alone,
                    by position or mask; or a splitter that makes the same folds again
        ``**settings``  as those of `Tracer`
        """
        from .members import MembersTracer

        return MembersTracer(models, X_train, y_train, sample_weight, folds=folds, **settings)

    @classmethod
    def from_files(
        cls,
        model: Any,
        files: Paths,
        *,
        target: str,
        weight: str | None = None,
        baseline: str | Sequence[str] | None = None,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        memory_limit: int | None = None,
        **settings: Any,
    ) -> Any:
        """A tracer of a model whose training table is in Parquet files and need not fit in memory.

        >>> tracer = Tracer.from_files(model, "train/*.parquet", target="income", cache="leaves")   # doctest: +SKIP

        The rows are read once, part by part, for their leaves, which stay on disk. All methods then
        give the same results as in memory, to rounding. Some 100 bytes a row are in memory, beside
        what `memory_limit` allows. `X_train` is no table in memory, but reads rows and columns when
        they are needed: `X_train.take(rows)`, `X_train["age"]`.

        ``files``     a pattern, a folder, or a list of files in the order of the rows
        ``target, weight, baseline``  columns with the labels, sample weights and scores given to
                      the rows (several for models of several outputs)
        ``index``     a column with names of the rows, for tables; by default positions
        ``columns``   those that the model was trained on; by default all the others
        ``cache``     a folder that keeps the leaves for the next time, as long as model and files
                      are the same: the model's contents; name, size, time of change and footer of
                      each file. Old ones are not removed. By default a temporary folder, removed
                      with the tracer
        ``memory_limit, **settings``  as those of `Tracer`
        """
        limit = memory_limit or available_memory() // 2
        scores = [baseline] if isinstance(baseline, str) else list(baseline or [])
        rows = read_files(files, target, weight, scores, index, columns, cache, limit // 2)
        tracer: Any = cls(model, **rows.arguments, memory_limit=memory_limit, **settings)
        tracer._set_labels(rows.labels)
        return tracer
