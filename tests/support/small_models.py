"""Small models of every library that tests of actions train often: (maker, data)."""

import boosters
import numpy as np
from catboost import CatBoostClassifier
from catboost_models import QUIET
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from training_sets import take
from xgboost import XGBClassifier

PLAIN = {
    **QUIET, "iterations": 30, "depth": 4, "learning_rate": 0.2, "bootstrap_type": "No", "random_strength": 0,
    "leaf_estimation_method": "Newton", "leaf_estimation_iterations": 1, "boost_from_average": False,
}  # fmt: skip
SMALL = {"n_estimators": 25, "learning_rate": 0.2, "n_jobs": 1}

CATBOOST = (lambda: CatBoostClassifier(**PLAIN), lambda: boosters.binary(text=True))
CATBOOST_THREE = (
    lambda: CatBoostClassifier(**{**PLAIN, "loss_function": "MultiClass"}),
    lambda: boosters.three_classes(text=True),
)
LIGHTGBM_NUMBERS = (lambda: LGBMRegressor(**SMALL, num_leaves=8, verbose=-1), boosters.numbers)
XGBOOST_THREE = (lambda: XGBClassifier(**SMALL, max_depth=3), boosters.three_classes)
HIST_CATEGORIES = (
    lambda: HistGradientBoostingClassifier(
        max_iter=8, categorical_features="from_dtype", random_state=0
    ),
    boosters.frame,
)


def trained_without(make, X, y, w, gone):
    """Train a model without some rows, by the library itself."""
    keep = np.setdiff1d(np.arange(len(y)), gone)
    return make().fit(take(X, keep), y[keep], sample_weight=None if w is None else w[keep])
