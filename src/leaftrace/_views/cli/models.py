"""Read a model file and find out which columns and labels the model takes.

The library is recognised by the content of the file. Libraries differ in what a file holds.
CatBoost stores the names of category columns and the labels. XGBoost 3.1 and LightGBM store the
categories themselves, but labels as the numbers 0 .. classes - 1. Pickles of scikit-learn store the
names of columns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._adapters import (
    LIBRARIES,
    LoadedModel,
    content_errors,
    library_of_file,
    load_file,
    load_pickle,
)
from ..._adapters.wrappers.one_model import innermost
from ..._data.errors import LeaftraceError, UnsupportedModel
from .trial import check_survival

# First bytes of pickles, and of the compressed ones of joblib.
_PICKLES = (b"\x80", b"x\x01", b"x^", b"x\x9c", b"x\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")


@dataclass(frozen=True)
class ModelDescription:
    """A model, and the columns and labels it takes.

    ``model``       the model as `Tracer` takes it
    ``columns``     names of the columns it was trained on; None: trained without names, on
                    ``count`` columns
    ``categories``  its category columns, each with its categories as far as they are stored; None:
                    the model does not store which columns are categories
    ``classes``     number of classes that the model has only numbers for; 0: it has no classes, or
                    it stores their labels
    """

    model: LoadedModel
    library: str
    columns: Sequence[str] | None
    count: int | None
    categories: Mapping[str, Sequence[Any] | None] | None
    classes: int = 0

    @property
    def is_pipeline(self) -> bool:
        """Whether the model is a scikit-learn Pipeline, which may prepare columns itself."""
        return hasattr(self.model.model, "named_steps")


def read_model(path: str, allow_pickle: bool) -> ModelDescription:
    """Read a model file, once, and describe the model."""
    if not os.path.exists(path):
        raise UnsupportedModel(f"there is no model file '{path}'.")
    if os.path.isdir(path):
        raise UnsupportedModel(f"'{path}' is a folder; give the model file in it.")
    if os.path.getsize(path) == 0:
        raise UnsupportedModel(f"the model file '{path}' is empty; save the model again.")
    with open(path, "rb") as file:
        is_pickle = file.read(8).startswith(_PICKLES)
    if is_pickle:
        model = _unpickle(path, allow_pickle)
        loaded = LoadedModel(_library_of(model, path), model, path)
    else:
        check_survival(path, library_of_file(path))
        loaded = load_file(path)
    with content_errors(path):
        return _DESCRIBE[loaded.library](loaded, loaded.model)


def _library_of(model: Any, path: str) -> str:
    """The library whose class an unpickled model is, or derives from."""
    if library := _library_in(model):
        return library
    raise UnsupportedModel(
        f"the pickle '{path}' holds a {type(model).__qualname__}, which is no tree model."
    )


def _library_in(model: Any) -> str | None:
    """The same, or None for a class that derives from none."""
    parents = (parent.__module__.partition(".")[0] for parent in type(model).__mro__)
    return next((library for library in parents if library in LIBRARIES), None)


def _unpickle(path: str, allowed: bool) -> Any:
    """Load a pickle, if the user allowed it."""
    if not allowed:
        raise UnsupportedModel(
            f"'{path}' is a pickle, and reading a pickle runs whatever code is in it; if you trust "
            "who made it, add --allow-pickle. Better: save the model in its library's own format."
        )
    print(f"leaftrace: warning: reading the pickle '{path}' runs the code in it.", file=sys.stderr)
    check_survival(path, None)
    try:
        return load_pickle(path)
    except ImportError:
        raise
    except Exception as error:  # code in the file can raise anything
        raise LeaftraceError(
            f"the pickle '{path}' cannot be read; is the file whole? "
            f"{type(error).__name__}: {error}"
        ) from None


def _own_names(names: Sequence[str], default: Callable[[int], str]) -> Sequence[str] | None:
    """Names of the columns; None for those that a library makes up for arrays."""
    made_up = [default(i) for i in range(len(names))]
    return None if list(names) == made_up else list(names)


# Functions that describe a model. ``model``: as `Tracer` takes it; ``loaded``: as it was read.


def _describe_catboost(model: LoadedModel, loaded: Any) -> ModelDescription:
    names = list(loaded.feature_names_ or [])
    categories = {names[i]: None for i in loaded.get_cat_feature_indices()}
    return ModelDescription(model, "catboost", _own_names(names, str), len(names), categories)


def _describe_xgboost(model: LoadedModel, loaded: Any) -> ModelDescription:
    if hasattr(loaded, "get_booster"):
        booster = loaded.get_booster()
    else:
        booster = getattr(loaded, "booster", loaded)
    return ModelDescription(
        model,
        "xgboost",
        booster.feature_names,
        int(booster.num_features()),
        _xgboost_categories(booster),
        _xgboost_classes(booster),
    )


def _xgboost_classes(booster: Any) -> int:
    """Number of classes of a classifier; 0 for other models."""
    from ..._adapters.xgboost.model import learner

    objective = learner(booster)["objective"]
    if objective["name"].startswith("multi:"):
        return int(objective["softmax_multiclass_param"]["num_class"])
    return 2 if objective["name"].startswith("binary:") else 0


def _xgboost_categories(booster: Any) -> dict[str, Any]:
    """Category columns, with their categories where they are stored."""
    names = booster.feature_names or []
    kinds = booster.feature_types or []
    categories: dict[str, Any] = {
        name: None for name, kind in zip(names, kinds, strict=False) if kind == "c"
    }
    if categories and hasattr(booster, "get_categories"):  # since 3.1
        stored = booster.get_categories(export_to_arrow=True)
        for name, values in [] if stored is None else stored.to_arrow():
            if values is not None:
                categories[name] = values.to_pylist()
    return categories


def _describe_lightgbm(model: LoadedModel, loaded: Any) -> ModelDescription:
    from ..._adapters.lightgbm.model import read

    booster = getattr(loaded, "booster_", loaded)
    parsed = read(booster.model_to_string())
    objective = parsed.objective[0]
    classes = 0
    if not hasattr(loaded, "classes_"):
        if objective == "binary":
            classes = 2
        elif objective.startswith("multi"):
            classes = parsed.outputs
    names = booster.feature_name()
    return ModelDescription(
        model,
        "lightgbm",
        _own_names(names, "Column_{}".format),
        len(names),
        _lightgbm_categories(booster, str(parsed.params.get("categorical_feature", ""))),
        classes,
    )


def _lightgbm_categories(booster: Any, columns: str) -> dict[str, Any] | None:
    """Category columns with their categories. ``columns``: their positions, with commas.

    Columns of numbers that stand for categories store none. If a model has both kinds, its file
    does not say which is which: None."""
    stored = booster.pandas_categorical or []
    if not stored:
        return {}
    positions = [int(i) for i in columns.split(",") if i.strip().isdigit()]
    if len(positions) != len(stored):
        return None
    names = booster.feature_name()
    return dict(zip((names[i] for i in positions), stored, strict=True))


def _describe_sklearn(model: LoadedModel, loaded: Any) -> ModelDescription:
    inside = innermost(loaded)
    if inside is not loaded and (library := _library_in(inside)) not in (None, "sklearn"):
        return _DESCRIBE[library](model, inside)
    names = getattr(loaded, "feature_names_in_", None)
    columns = None if names is None else [str(name) for name in names]
    count = getattr(loaded, "n_features_in_", None)
    return ModelDescription(model, "sklearn", columns, count, None)


_DESCRIBE = {
    "catboost": _describe_catboost,
    "xgboost": _describe_xgboost,
    "lightgbm": _describe_lightgbm,
    "sklearn": _describe_sklearn,
}
