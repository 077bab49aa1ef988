"""One model of each library for each kind of label, as similar as possible.

Each has 100 trees and draws half of the columns for a split, with a seed. Nothing else is random."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

KINDS = {
    "adult": "classes",
    "amazon": "classes",
    "hospital": "classes",
    "wine": "classes",
    "houses": "numbers",
}


def catboost(kind: str, seed: int) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    make = CatBoostClassifier if kind == "classes" else CatBoostRegressor
    return make(
        iterations=100,
        depth=6,
        learning_rate=0.1,
        rsm=0.5,
        bootstrap_type="No",
        leaf_estimation_method="Newton",
        leaf_estimation_iterations=1,
        random_seed=seed,
        thread_count=1,
        verbose=0,
        allow_writing_files=False,
    )


def xgboost(kind: str, seed: int) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    make = XGBClassifier if kind == "classes" else XGBRegressor
    return make(
        n_estimators=100,
        max_depth=5,
        learning_rate=0.1,
        colsample_bynode=0.5,
        random_state=seed,
        n_jobs=1,
    )


def lightgbm(kind: str, seed: int, l2: float = 0.0) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    make = LGBMClassifier if kind == "classes" else LGBMRegressor
    return make(
        n_estimators=100,
        colsample_bynode=0.5,
        reg_lambda=l2,
        random_state=seed,
        n_jobs=1,
        verbosity=-1,
    )


def histgradientboosting(kind: str, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make = HistGradientBoostingClassifier if kind == "classes" else HistGradientBoostingRegressor
    return make(max_iter=100, max_features=0.5, early_stopping=False, random_state=seed)


LIBRARIES = {
    "CatBoost": catboost,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
    "LightGBM, l2 = 10": partial(lightgbm, l2=10.0),  # its default is no l2
    "HistGradientBoosting": histgradientboosting,
}


def losses(model: Any, kind: str, X: Any, y: np.ndarray) -> np.ndarray:
    """Return (rows,) log losses, or halves of squared errors."""
    if kind == "numbers":
        return (np.ravel(model.predict(X)) - y) ** 2 / 2
    p = model.predict_proba(X)[np.arange(len(y)), y]
    return -np.log(np.maximum(p, 1e-15))


def other_labels(y: np.ndarray, kind: str) -> np.ndarray:
    """Return wrong labels for all rows.

    They are the next class, or the far end of the range of the labels (5 to 95 %)."""
    if kind == "classes":
        return (y + 1) % (y.max() + 1)
    low, high = np.quantile(y, (0.05, 0.95))
    return np.where(y < np.median(y), high, low)
