"""What a model file says of the columns and labels it takes. Its kind is known by its content.

Libraries differ in what they keep: CatBoost the names of category columns and the labels; XGBoost 3.1 and LightGBM the
categories themselves, but labels as the numbers 0 .. classes - 1; scikit-learn's pickles the names of columns.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._adapters import LIBRARIES, library_of_file
from .._data.errors import LeaftraceError, UnsupportedModel

# Of pickle, and of joblib's compressed ones.
_PICKLES = (b"\x80", b"x\x01", b"x^", b"x\x9c", b"x\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")


@dataclass(frozen=True)
class Told:
    """What the model says.

    ``model``       it, as `Tracer` takes it
    ``columns``     names of the columns it was trained on; None: it was trained without names, on ``count`` columns
    ``categories``  its category columns, each with its categories as far as it keeps them; None: it does not say which
    ``classes``     how many classes it has that it knows only by number; 0: none, or it keeps the labels themselves
    """

    model: Any
    library: str
    columns: Sequence[str] | None
    count: int | None
    categories: Mapping[str, Sequence[Any] | None] | None
    classes: int = 0


def read_model(path: str, allow_pickle: bool) -> Told:
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
        library = next(
            (m for c in type(model).__mro__ if (m := c.__module__.partition(".")[0]) in LIBRARIES),
            "",
        )
        if not library:
            raise UnsupportedModel(
                f"the pickle '{path}' holds a {type(model).__qualname__}, which is no tree model."
            )
        return _TOLD[library](model, model)
    library = library_of_file(path)
    loaded = importlib.import_module(f"leaftrace._adapters.{library}").load_model(path)
    return _TOLD[library](path, loaded)


def _unpickle(path: str, allowed: bool) -> Any:
    if not allowed:
        raise UnsupportedModel(
            f"'{path}' is a pickle, and reading a pickle runs whatever code is in it; if you trust who made it, add "
            "--allow-pickle. Better: save the model in its library's own format."
        )
    print(f"leaftrace: warning: reading the pickle '{path}' runs the code in it.", file=sys.stderr)
    try:
        import joblib as reader
    except ImportError:
        import pickle

        with open(path, "rb") as file:
            read: Callable[[], Any] = lambda: pickle.load(file)  # noqa: E731
            return _whole(read, path)
    return _whole(lambda: reader.load(path), path)


def _whole(read: Callable[[], Any], path: str) -> Any:
    try:
        return read()
    except ImportError:
        raise
    except Exception as error:  # code in the file can raise anything
        raise LeaftraceError(
            f"the pickle '{path}' cannot be read; is the file whole? {type(error).__name__}: {error}"
        ) from None


def _names(names: Sequence[str], default: Callable[[int], str]) -> Sequence[str] | None:
    """None for the names that a library makes up for arrays."""
    return None if list(names) == [default(i) for i in range(len(names))] else list(names)


def _of_catboost(model: Any, loaded: Any) -> Told:
    names = list(loaded.feature_names_ or [])
    categories = {names[i]: None for i in loaded.get_cat_feature_indices()}
    return Told(model, "catboost", _names(names, str), len(names), categories)


def _of_xgboost(model: Any, loaded: Any) -> Told:
    booster = (
        loaded.get_booster()
        if hasattr(loaded, "get_booster")
        else getattr(loaded, "booster", loaded)
    )
    from .._adapters.xgboost.model import learner

    objective = learner(booster)["objective"]
    classes = 0
    if objective["name"].startswith("multi:"):
        classes = int(objective["softmax_multiclass_param"]["num_class"])
    elif objective["name"].startswith("binary:"):
        classes = 2
    names = booster.feature_names
    count = int(booster.num_features())
    kinds = booster.feature_types or []
    categories: dict[str, Any] = {
        name: None for name, kind in zip(names or [], kinds, strict=False) if kind == "c"
    }
    if categories and hasattr(booster, "get_categories"):  # since 3.1
        kept = booster.get_categories(export_to_arrow=True)
        for name, values in [] if kept is None else kept.to_arrow():
            if values is not None:
                categories[name] = values.to_pylist()
    return Told(model, "xgboost", names, count, categories, classes)


def _of_lightgbm(model: Any, loaded: Any) -> Told:
    from .._adapters.lightgbm.model import read

    booster = getattr(loaded, "booster_", loaded)
    told = read(booster.model_to_string())
    classes = 0
    if not hasattr(loaded, "classes_"):
        classes = (
            2
            if told.objective[0] == "binary"
            else told.outputs
            if told.objective[0].startswith("multi")
            else 0
        )
    names = booster.feature_name()
    kept = booster.pandas_categorical or []
    where = [
        int(i)
        for i in str(told.params.get("categorical_feature", "")).split(",")
        if i.strip().isdigit()
    ]
    # Numbers that stand for categories keep none; where both kinds are mixed, the file does not say which is which.
    categories = (
        dict(zip((names[i] for i in where), kept, strict=True)) if len(where) == len(kept) else None
    )
    categories = categories if kept else {}
    return Told(
        model, "lightgbm", _names(names, "Column_{}".format), len(names), categories, classes
    )


def _of_sklearn(model: Any, loaded: Any) -> Told:
    names = getattr(loaded, "feature_names_in_", None)
    count = getattr(loaded, "n_features_in_", None)
    return Told(model, "sklearn", None if names is None else [str(n) for n in names], count, None)


_TOLD = {
    "catboost": _of_catboost,
    "xgboost": _of_xgboost,
    "lightgbm": _of_lightgbm,
    "sklearn": _of_sklearn,
}
