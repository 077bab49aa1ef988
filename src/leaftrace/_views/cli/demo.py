"""`leaftrace demo`: two small tables with some wrong labels, a model file, and some commands."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ..._data.errors import LeaftraceError
from . import OK

_ROWS = 600  # of each table
_FLIPPED = 0.08  # share of the training labels that are wrong
_TOWNS = ("Bern", "Oslo", "Rome")

SaveModel = Callable[[pd.DataFrame, str], None]  # trains on a table and writes to a path


def run(folder: str) -> int:
    """Make tables and a model, run some commands on them, and return the exit code."""
    from . import main

    save_model, model_name = _first_library()
    os.makedirs(folder, exist_ok=True)
    train, test, model, report = (
        os.path.join(folder, name) for name in ("train.csv", "test.csv", model_name, "report.html")
    )
    wrong = _write_tables(train, test)
    save_model(pd.read_csv(train), model)
    print(f"{_ROWS} loans, {wrong} of them with a wrong label, and a model of them: {folder}\n")
    data = [model, "--train", train, "--target", "repaid"]
    if model_name == "model.ubj":  # such a file does not keep them, and refits need them
        data += ["--param", "min_child_weight=1", "--param", "max_delta_step=0"]
    tested = ["--test", test, "--worst", "2", "--top", "5", "--html", report]
    for call in (["check", *data], ["noise", *data, "--top", "5"], ["explain", *data, *tested]):
        print(f"$ leaftrace {' '.join(call)}")
        code = main(call)
        if code != OK:
            return code
        print()
    return OK


def _write_tables(train: str, test: str) -> int:
    """Write both tables, and return how many training labels are wrong."""
    X, y = _loans(2 * _ROWS, np.random.default_rng(0))
    is_wrong = np.random.default_rng(1).random(_ROWS) < _FLIPPED
    truth = y[:_ROWS]
    labels = np.where(is_wrong, np.where(truth == "yes", "no", "yes"), truth)
    X[:_ROWS].assign(repaid=labels).to_csv(train, index=False)
    X[_ROWS:].assign(repaid=y[_ROWS:]).to_csv(test, index=False)
    return int(is_wrong.sum())


def _loans(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Loans, and whether they were repaid."""
    income = rng.lognormal(10.5, 0.4, n).round()
    age = rng.integers(20, 70, n)
    debt = rng.lognormal(9, 0.8, n).round()
    town = rng.choice(_TOWNS, n)
    score = (
        2 * np.log(income / 36_000) - np.log(debt / 8_000) + (town == "Oslo") + 0.02 * (age - 45)
    )
    y = np.where(score + rng.normal(0, 0.3, n) > 0, "yes", "no")
    return pd.DataFrame({"income": income, "age": age, "debt": debt, "town": town}), y


def _first_library() -> tuple[SaveModel, str]:
    """The first library that is installed: a function that saves a model, and a file name."""
    libraries: dict[str, tuple[SaveModel, str]] = {
        "catboost": (_catboost, "model.cbm"),
        "lightgbm": (_lightgbm, "model.txt"),
        "xgboost": (_xgboost, "model.ubj"),
    }
    for name, library in libraries.items():
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return library
    raise LeaftraceError(
        "the demo trains a model; do: pip install catboost (or lightgbm, or xgboost)"
    )


def _catboost(train: pd.DataFrame, path: str) -> None:
    import catboost

    y = train.pop("repaid")
    model = catboost.CatBoostClassifier(
        200, cat_features=["town"], verbose=False, allow_writing_files=False
    )
    model.fit(train, y).save_model(path)


def _lightgbm(train: pd.DataFrame, path: str) -> None:
    import lightgbm

    y: Any = train.pop("repaid")
    model = lightgbm.LGBMClassifier(verbose=-1)
    model.fit(train.astype({"town": "category"}), y).booster_.save_model(path)


def _xgboost(train: pd.DataFrame, path: str) -> None:
    import xgboost

    y = train.pop("repaid") == "yes"
    model = xgboost.XGBClassifier(enable_categorical=True)
    model.fit(train.astype({"town": "category"}), y).save_model(path)
