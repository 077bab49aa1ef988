"""`leaftrace demo`: two small tables with some wrong labels, a model file, and the commands a user would type."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from .._data.errors import LeaftraceError
from . import OK

_ROWS = 600
_FLIPPED = 0.08
_TOWNS = ("Bern", "Oslo", "Rome")


def run(folder: str) -> int:
    from . import main

    save, name = _first_library()
    os.makedirs(folder, exist_ok=True)
    paths = {
        what: os.path.join(folder, what) for what in ("train.csv", "test.csv", name, "report.html")
    }
    X, y = _loans(2 * _ROWS, np.random.default_rng(0))
    flipped = np.random.default_rng(1).random(_ROWS) < _FLIPPED
    train = X[:_ROWS]
    test = X[_ROWS:]
    labels = np.where(flipped, np.where(y[:_ROWS] == "yes", "no", "yes"), y[:_ROWS])
    train.assign(repaid=labels).to_csv(paths["train.csv"], index=False)
    test.assign(repaid=y[_ROWS:]).to_csv(paths["test.csv"], index=False)
    save(pd.read_csv(paths["train.csv"]), paths[name])
    print(
        f"{_ROWS} loans, {flipped.sum()} of them with a wrong label, and a model of them: {folder}\n"
    )
    data = [paths[name], "--train", paths["train.csv"], "--target", "repaid"]
    tested = [
        "--test",
        paths["test.csv"],
        "--worst",
        "2",
        "--top",
        "5",
        "--html",
        paths["report.html"],
    ]
    for call in (["check", *data], ["noise", *data, "--top", "5"], ["explain", *data, *tested]):
        print(f"$ leaftrace {' '.join(call)}")
        if code := main(call):
            return code
        print()
    return OK


def _loans(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    income = rng.lognormal(10.5, 0.4, n).round()
    age = rng.integers(20, 70, n)
    debt = rng.lognormal(9, 0.8, n).round()
    town = rng.choice(_TOWNS, n)
    score = (
        2 * np.log(income / 36_000) - np.log(debt / 8_000) + (town == "Oslo") + 0.02 * (age - 45)
    )
    y = np.where(score + rng.normal(0, 0.3, n) > 0, "yes", "no")
    return pd.DataFrame({"income": income, "age": age, "debt": debt, "town": town}), y


def _first_library() -> tuple[Callable[[pd.DataFrame, str], None], str]:
    for library, save, name in (
        ("catboost", _catboost, "model.cbm"), ("lightgbm", _lightgbm, "model.txt"), ("xgboost", _xgboost, "model.ubj"),
    ):  # fmt: skip
        try:
            importlib.import_module(library)
        except ImportError:
            continue
        return save, name
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
    lightgbm.LGBMClassifier(verbose=-1).fit(
        train.astype({"town": "category"}), y
    ).booster_.save_model(path)


def _xgboost(train: pd.DataFrame, path: str) -> None:
    import xgboost

    y = train.pop("repaid") == "yes"
    xgboost.XGBClassifier(enable_categorical=True).fit(
        train.astype({"town": "category"}), y
    ).save_model(path)
