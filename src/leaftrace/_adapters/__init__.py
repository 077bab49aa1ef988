"""Adapters turn a fitted model into a `Source`; each library has a package here.

The library is found by the module of the model's class, so nothing is imported that the user has
not imported. Only a model file makes us import the library that wrote it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from .._data.arrays import F64, Ids
from .._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from .._data.forks import works_in_forks
from .._data.parquet import PartedTable
from .._data.query_ids import QueryRows
from .._model.early_stopping import Rounds
from .._model.ensemble import Ensemble
from .._model.splits import SplitSearch
from .._model.target_unit import TargetUnit
from .._model.training_set import TrainingSet
from .._model.tree_paths import TreePaths
from .base import NO_QUERIES
from .class_names import open_with_names
from .wrappers.one_model import UnwrappedSource, base_names, unwrap


class Retrained(Protocol):
    """A model that was trained again, on another training set."""

    @property
    def structure_changed(self) -> bool:
        """Whether any training row falls into another leaf of any tree; found out when asked for."""
        ...

    @property
    def rounds(self) -> Rounds:
        """Number of its rounds of boosting, and whether early stopping decided it again."""
        ...

    def scores(self, X: Any) -> F64:
        """Return the raw scores (m, K) of these rows, without scores that the user gave them."""
        ...

    def open(self) -> Source:
        """Return the new model as a source, with the rows it was trained on."""
        ...

    def own_model(self) -> Any:
        """Return the new model, of the class of the user's."""
        ...


class Source(Protocol):
    """A model with its training data, as an adapter presents it."""

    @property
    def name(self) -> str: ...
    @property
    def ensemble(self) -> Ensemble: ...
    @property
    def tolerance(self) -> float:
        """Largest relative error of a leaf that rounding in this library explains."""
        ...

    @property
    def classes(self) -> Any | None:
        """Class labels in the order of the outputs; None if the model has no classes."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Remarks for the verdict on the replay: settings recovered, rows drawn again."""
        ...

    @property
    def queries(self) -> QueryRows | None:
        """Queries of the training rows of a ranker; None for other models."""
        ...

    @property
    def target(self) -> TargetUnit | None:
        """The unit of labels and predictions, if training transforms labels; None: that of scores."""
        ...

    def test_queries(self, X: Any, qid: Any, m: int) -> QueryRows | None:
        """Return the queries of m test rows, as given or as X itself carries them, or None."""
        ...

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        """Return the leaves (trees, m) of new rows, and the scores (m, K) the user gave them.

        Leaves are numbered as in the ensemble. The scores are None if there are none."""
        ...

    def split_search(self) -> SplitSearch:
        """Return how training chose its splits; an error for models where that is not known."""
        ...

    def split_columns(self, X: Any) -> F64:
        """Return the columns (m, d) that splits compare, for rows to predict.

        Categories are numbers from 0, missing values are NaN."""
        ...

    def tree_paths(self, X: Any) -> TreePaths:
        """Return the sides that rows to predict take at all splits, with the covers of leaves."""
        ...

    def given_labels(self, y: Any, length: int, name: str) -> NDArray[Any]:
        """Return labels as they were given: (length,), or several columns."""
        ...

    def labels(self, y: Any, length: int, name: str) -> F64:
        """Return labels as the loss takes them: class numbers, or numbers in its range."""
        ...

    def own_labels(self, X: Any) -> Any | None:
        """Return the labels that X itself carries (a Pool), or None."""
        ...

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        """Return labels and weights of training rows as training stored them."""
        ...

    def rebased(self, base: F64) -> Ensemble:
        """Return the ensemble with this starting score, for a source of only some training rows.

        A model that stores its starting score returns its ensemble as it is."""
        ...

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        """Train the model again with its own settings, on another training set.

        With ``rows.eval_set``, its early stopping decides again after how many rounds."""
        ...

    def own_response(self, F: F64) -> F64:
        """Return class probabilities (m, C) as the model's library gives them, or numbers (m,)."""
        ...

    def own_predictions(self, F: F64) -> NDArray[Any]:
        """Return what the model's own `predict` gives for rows with the raw scores F (m, K)."""
        ...

    def refitted_model(self, e: Ensemble) -> Any:
        """Return a copy of the user's model with the leaf values and starting score of ``e``."""
        ...


LIBRARIES = ("catboost", "xgboost", "lightgbm", "sklearn")  # also the names of the packages here
_SUPPORTED = (
    "model of CatBoost, XGBoost, LightGBM or scikit-learn (HistGradientBoosting, GradientBoosting, RandomForest, "
    "ExtraTrees), a Pipeline or a search that ends in one, a model made of such models, or the path of a CatBoost "
    ".cbm or .json, XGBoost .ubj or .json or LightGBM .txt file"
)


@dataclass(frozen=True)
class LoadedModel:
    """A model file that was read already, to be opened in its place.

    ``model``  the result of the library's `load_model`, or what a pickle held
    """

    library: str
    model: Any
    path: str


@works_in_forks
def load_file(path: str) -> LoadedModel:
    """Read a model file, whichever library wrote it."""
    library = library_of_file(path)
    adapter = import_adapter(library)
    with content_errors(path):
        return LoadedModel(library, adapter.load_model(path), path)


def load_pickle(path: str) -> Any:
    """Read a pickle, which runs the code in it. joblib also reads compressed ones."""
    try:
        import joblib
    except ImportError:
        import pickle

        with open(path, "rb") as file:
            return pickle.load(file)
    return joblib.load(path)


def import_adapter(library: str) -> Any:
    """Import the package of a library here, and with it the library."""
    return importlib.import_module(f".{library}", __name__)


@contextmanager
def content_errors(path: str) -> Iterator[None]:
    """Re-raise errors that come from the content of a model file as UnsupportedModel.

    A damaged file can hold anything, so any error can come from it.
    """
    try:
        yield
    except (LeaftraceError, ImportError, OSError, MemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise UnsupportedModel(
            f"the content of '{path}' does not fit together ({type(error).__name__}: {text[:300]}); is the file "
            "whole? Save the model again. If its library itself can use the file, please report this."
        ) from error


@works_in_forks
def open_model(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    baseline: Any,
    params: dict[str, Any],
    class_names: Sequence[Any] | None = None,
    qid: Any = None,
) -> Source:
    """Open a model with its training rows. The arguments are those of `Tracer`."""

    def open_with(labels: Any) -> Source:
        return _open_table(model, X, TrainingColumns(labels, sample_weight, baseline, qid), params)

    if class_names is None:
        return open_with(y)
    return open_with_names(open_with, y, class_names)


class TrainingColumns(NamedTuple):
    """Columns that training had beside the table of its rows, as the user gives them."""

    y: Any
    sample_weight: Any
    baseline: Any
    qid: Any = None


def _open_table(model: Any, X: Any, columns: TrainingColumns, params: dict[str, Any]) -> Source:
    """Open a model whose training table may be in files."""

    def open_rows(table: Any) -> Source:
        return _open(model, table, columns, params)

    if not isinstance(X, PartedTable):
        return open_rows(X)
    from .parquet import PartedSource

    return PartedSource(open_rows(X), X, open_rows)


def _open(model: Any, X: Any, columns: TrainingColumns, params: dict[str, Any]) -> Source:
    if isinstance(model, (str, os.PathLike)):
        model = load_file(os.fspath(model))
    if isinstance(model, LoadedModel):
        with content_errors(model.path):
            return _open_loaded(model.library, model.model, X, columns, params)
    return _open_loaded(None, model, X, columns, params)


def _open_loaded(
    library: str | None, model: Any, X: Any, columns: TrainingColumns, params: dict[str, Any]
) -> Source:
    """Open a model in memory. ``library``: that wrote it, if that is known."""
    wrapped = _open_wrapper(model, X, columns, params)
    if wrapped is not None:
        return wrapped
    library = library or _library_of_model(model)
    if library == "sklearn" and hasattr(model, "named_steps"):
        return _open_pipeline(model, X, columns, params)
    y, sample_weight, baseline, qid = columns
    more = {} if library == "sklearn" else {"qid": qid}
    if library == "sklearn" and qid is not None:
        raise InvalidInput(NO_QUERIES)
    return import_adapter(library).open_model(model, X, y, sample_weight, baseline, params, **more)


def _library_of_model(model: Any) -> str:
    """Name the library of the model's class, or of the first class that it derives from."""
    for parent in type(model).__mro__:
        library = parent.__module__.partition(".")[0]
        if library in LIBRARIES:
            return library
    raise UnsupportedModel(
        f"leaftrace cannot read a {type(model).__module__}.{type(model).__qualname__}; pass a {_SUPPORTED}."
    )


def _open_wrapper(
    model: Any, X: Any, columns: TrainingColumns, params: dict[str, Any]
) -> Source | None:
    """Open the model in a wrapper around one; None if this is no such wrapper."""
    inside = unwrap(model)
    if inside is not None:
        inner, rewrap = inside
        name = type(model).__name__
        return UnwrappedSource(_open(inner, X, columns, params), name, rewrap)
    names = base_names(model)

    def open_inner(inside: Any, rows: Any, y: Any) -> Source:
        return _open(inside, rows, columns._replace(y=y), params)

    if "sklearn.TransformedTargetRegressor" in names:
        from .wrappers.target import TransformedTargetSource

        return TransformedTargetSource(model, open_inner, X, columns.y)
    if "autogluon.AbstractModel" in names:
        from .wrappers.autogluon import AutoGluonModelSource

        source = AutoGluonModelSource(model)
        source.inner = open_inner(model.model, source.transform(X), columns.y)
        return source
    if "flaml.AutoML" in names:
        from .wrappers.tuned import AutoMLSource

        return AutoMLSource(model, open_inner, X, columns.y)
    return None


def _open_pipeline(
    pipeline: Any, X: Any, columns: TrainingColumns, params: dict[str, Any]
) -> Source:
    from .pipeline import PipelineSource

    if not len(pipeline):
        raise UnsupportedModel("this Pipeline is empty; its last step must be a fitted model.")
    source = PipelineSource(pipeline)
    source.inner = _open(pipeline[-1], source.transform(X), columns, params)
    return source


def record_catboost(
    model: Any, X: Any, y: Any = None, sample_weight: Any = None, baseline: Any = None, **fit: Any
) -> Any:
    """Fit a CatBoost model and record the scores that training itself had for each row.

    A `Tracer` of the model then compares its replay of target statistics with them row by row;
    without a recording it compares the weights of leaves. An unfitted model is fitted first, with
    `fit` passed on. Then it is **trained again** with its own parameters while CatBoost shows its
    scores, and must come out the same to the last bit: the cost is that of training. The recording
    is not kept in saved models."""
    return import_adapter("catboost").record_catboost(model, X, y, sample_weight, baseline, **fit)


def library_of_file(path: str) -> str:
    """Name the library that wrote this file, from its content."""
    if not os.path.isfile(path):
        raise UnsupportedModel(f"there is no model file '{path}'.")
    with open(path, "rb") as file:
        head = file.read(4096)
    if head.startswith(b"CBM1"):
        return "catboost"
    if head.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    if head.startswith(b"{L") or (head.lstrip().startswith(b"{") and b'"learner"' in head):
        return "xgboost"
    if head.lstrip().startswith(b"{"):
        return "catboost"
    raise UnsupportedModel(f"'{path}' is not a model file leaftrace knows; pass a {_SUPPORTED}.")
