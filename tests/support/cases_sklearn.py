"""scikit-learn models for the contract tests."""

from __future__ import annotations

import numpy as np
import sklearn
from boosters import Case, binary, frame, numbers, three_classes, weights
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier
from sklearn_forest import forest_raw, forest_structure
from sklearn_gradient import gradient_raw, gradient_refit, gradient_structure
from sklearn_hist import hist_raw, hist_refit, hist_structure
from threadpoolctl import threadpool_limits

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


def hist(name, data, model, stratify=True, class_weight=None, **more):
    """Return a case of HistGradientBoosting."""

    def structure(case):
        return hist_structure(case, 1.0 if class_weight is None else class_weight(case), stratify)

    return Case(name, data, trained(model), hist_raw, structure, counts_rows=True, **more)


def trained(make):
    """Return fit(X, y, sample_weight, baseline) of a new estimator."""

    def fit(X, y, sample_weight, baseline):
        assert baseline is None
        model = make()
        if model.random_state is None:
            model.set_params(random_state=0)  # a failure can be seen again
        # With so few rows, threads would mostly wait for each other.
        with threadpool_limits(1, "openmp"):
            return model.fit(X, y, sample_weight=sample_weight)

    return fit


def balanced(case):
    """Return class weights (n,) that balance the classes."""
    codes = case.data.codes.astype(int)
    return (len(codes) / (codes.max() + 1) / np.bincount(codes))[codes]


def of_classes(*factors):
    """Return a function that gives class weights (n,)."""
    return lambda case: np.array(factors, float)[case.data.codes.astype(int)]


def gradient(name, data, model, **more):
    return Case(name, data, trained(model), gradient_raw, gradient_structure, **more)


def forest(name, data, model, class_weight=None, **more):
    def structure(case):
        return forest_structure(case, 1.0 if class_weight is None else class_weight(case))

    return Case(name, data, trained(model), forest_raw, structure, **more)


def with_holes(data):
    """Remove a twentieth of the values, from version 1.8 on.

    Before, trees put rows with missing values in other leaves in training than in prediction."""
    rng = np.random.default_rng(7)
    for X in (data.X, data.X_test) if VERSION >= (1, 8) else ():
        X[rng.random(X.shape) < 0.05] = np.nan
    return data


N_DIABETES = 422
N_CANCER = 549
N_WINE = 158
RISING = [1, 0, -1, 1, 0, 0, -1, 0, 0, 0]
CASES = {
    "HistGradientBoostingClassifier, missing values and categories": lambda: hist(
        "hist classifier",
        frame(many=True),
        lambda: HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype"),
    ),
    "HistGradientBoostingRegressor, missing values and categories": lambda: hist(
        "hist regressor",
        frame("number", many=True),
        lambda: HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype"),
    ),
    "HistGradientBoostingRegressor, weights": lambda: hist(
        "hist regressor with weights",
        numbers(),
        lambda: HistGradientBoostingRegressor(max_iter=8),
        weight=weights(N_DIABETES),
        own_refit=hist_refit,
    ),
    "HistGradientBoostingClassifier": lambda: hist(
        "hist classifier on numbers",
        binary(),
        lambda: HistGradientBoostingClassifier(max_iter=8),
        own_refit=hist_refit,
    ),
    "HistGradientBoosting, balanced classes, weights and l2": lambda: hist(
        "hist balanced",
        binary(),
        lambda: HistGradientBoostingClassifier(
            max_iter=15, class_weight="balanced", l2_regularization=2.0, max_bins=32
        ),
        class_weight=balanced,
        weight=weights(N_CANCER),
    ),
    "HistGradientBoosting, multiclass, weights, max_features": lambda: hist(
        "hist multiclass",
        three_classes(text=True),
        lambda: HistGradientBoostingClassifier(max_iter=8, max_features=0.5, random_state=1),
        weight=weights(N_WINE),
    ),
    "HistGradientBoosting, Poisson, weights": lambda: hist(
        "hist poisson",
        numbers("counts"),
        lambda: HistGradientBoostingRegressor(loss="poisson", max_iter=15),
        weight=weights(N_DIABETES),
    ),
    "HistGradientBoosting, gamma, l2": lambda: hist(
        "hist gamma",
        numbers("positive"),
        lambda: HistGradientBoostingRegressor(loss="gamma", max_iter=15, l2_regularization=1.0),
    ),
    "HistGradientBoosting, absolute error": lambda: hist(
        "hist absolute error",
        numbers(),
        lambda: HistGradientBoostingRegressor(loss="absolute_error", max_iter=15),
        smooth=False,
    ),
    "HistGradientBoosting, quantile, weights": lambda: hist(
        "hist quantile",
        numbers(),
        lambda: HistGradientBoostingRegressor(loss="quantile", quantile=0.3, max_iter=15),
        weight=weights(N_DIABETES),
        smooth=False,
    ),
    "HistGradientBoosting, early stopping, class weights": lambda: hist(
        "hist early stopping",
        binary(),
        lambda: HistGradientBoostingClassifier(
            max_iter=15, early_stopping=True, class_weight={0: 2.0, 1: 0.5}, max_bins=32
        ),
        class_weight=of_classes(2.0, 0.5),
        ordered=True,
    ),
    "HistGradientBoosting, early stopping, weights": lambda: hist(
        "hist early stopping with weights",
        numbers(),
        lambda: HistGradientBoostingRegressor(
            max_iter=15, early_stopping=True, validation_fraction=0.3
        ),
        stratify=False,
        weight=weights(N_DIABETES),
        ordered=True,
    ),
    "HistGradientBoosting, leaves of single rows, interaction_cst": lambda: hist(
        "hist single rows",
        numbers(),
        lambda: HistGradientBoostingRegressor(
            max_iter=10,
            min_samples_leaf=1,
            max_leaf_nodes=60,
            interaction_cst="pairwise",
            learning_rate=0.5,
        ),
    ),
    "HistGradientBoosting, monotone, weights": lambda: hist(
        "hist monotone",
        numbers(),
        lambda: HistGradientBoostingRegressor(max_iter=12, monotonic_cst=RISING),
        weight=weights(N_DIABETES),
    ),
    "HistGradientBoostingClassifier, monotone, l2": lambda: hist(
        "hist monotone classifier",
        binary(),
        lambda: HistGradientBoostingClassifier(
            max_iter=10, l2_regularization=1.0, monotonic_cst=[-1, -1, 1, 0, 1] + [0] * 25
        ),
    ),
    "GradientBoostingClassifier": lambda: gradient(
        "gradient classifier",
        binary(),
        lambda: GradientBoostingClassifier(n_estimators=20, min_samples_leaf=5),
        own_refit=gradient_refit,
    ),
    "GradientBoostingRegressor": lambda: gradient(
        "gradient regressor",
        numbers(),
        lambda: GradientBoostingRegressor(n_estimators=20, min_samples_leaf=5),
        own_refit=gradient_refit,
    ),
    "GradientBoosting, multiclass, weights": lambda: gradient(
        "gradient multiclass",
        three_classes(text=True),
        lambda: GradientBoostingClassifier(n_estimators=8),
        weight=weights(N_WINE),
    ),
    "GradientBoosting, exponential, weights": lambda: gradient(
        "gradient exponential",
        binary(),
        lambda: GradientBoostingClassifier(loss="exponential", n_estimators=20),
        weight=weights(N_CANCER),
    ),
    "GradientBoosting, subsample, weights": lambda: gradient(
        "gradient subsample",
        numbers(),
        lambda: GradientBoostingRegressor(
            n_estimators=20, subsample=0.6, max_features=3, random_state=4
        ),
        weight=weights(N_DIABETES),
        ordered=True,
    ),
    "GradientBoosting, multiclass, subsample, n_iter_no_change": lambda: gradient(
        "gradient multiclass subsample",
        three_classes(),
        lambda: GradientBoostingClassifier(
            n_estimators=10, subsample=0.7, n_iter_no_change=4, random_state=5
        ),
        ordered=True,
    ),
    "GradientBoosting, multiclass, init zero, max_leaf_nodes": lambda: gradient(
        "gradient zero",
        three_classes(),
        lambda: GradientBoostingClassifier(
            n_estimators=8, init="zero", max_leaf_nodes=6, learning_rate=0.3
        ),
    ),
    "GradientBoosting, huber, subsample": lambda: gradient(
        "gradient huber",
        numbers(),
        lambda: GradientBoostingRegressor(
            loss="huber", alpha=0.8, n_estimators=8, subsample=0.6, random_state=4
        ),
        smooth=False,
        ordered=True,
    ),
    "GradientBoosting, huber, weights": lambda: gradient(
        "gradient huber",
        numbers(),
        lambda: GradientBoostingRegressor(loss="huber", alpha=0.8, n_estimators=12),
        weight=weights(N_DIABETES),
        smooth=False,
    ),
    "GradientBoosting, quantile, subsample": lambda: gradient(
        "gradient quantile",
        numbers(),
        lambda: GradientBoostingRegressor(
            loss="quantile", alpha=0.7, n_estimators=12, subsample=0.5, random_state=2
        ),
        smooth=False,
        ordered=True,
    ),
    # Leaves of one label do not depend on the weights of their rows, so these forests stop growing earlier.
    "RandomForestClassifier, max_depth": lambda: forest(
        "forest classifier",
        binary(),
        lambda: RandomForestClassifier(n_estimators=12, max_depth=4),
        ordered=True,
    ),
    "RandomForestRegressor, min_samples_leaf": lambda: forest(
        "forest regressor",
        numbers(),
        lambda: RandomForestRegressor(n_estimators=12, min_samples_leaf=3),
        ordered=True,
    ),
    "ExtraTreesClassifier, multiclass, class weights, weights": lambda: forest(
        "extra trees classifier",
        three_classes(),
        lambda: ExtraTreesClassifier(n_estimators=12, class_weight={0: 2.0, 1: 0.5}, max_depth=5),
        class_weight=of_classes(2.0, 0.5, 1.0),
        weight=weights(N_WINE),
    ),
    "ExtraTreesRegressor, weights": lambda: forest(
        "extra trees regressor",
        numbers(),
        lambda: ExtraTreesRegressor(n_estimators=12, min_samples_leaf=2),
        weight=weights(N_DIABETES),
    ),
    "RandomForest, multiclass, balanced_subsample, max_samples": lambda: forest(
        "forest balanced",
        three_classes(),
        lambda: RandomForestClassifier(
            n_estimators=10, class_weight="balanced_subsample", max_samples=0.6, max_depth=2
        ),
        ordered=True,
    ),
    "RandomForest, absolute error": lambda: forest(
        "forest absolute error",
        numbers(),
        lambda: RandomForestRegressor(n_estimators=5, criterion="absolute_error", max_depth=6),
        smooth=False,
        ordered=True,
    ),
    "RandomForest without bootstrap, missing values, ccp_alpha": lambda: forest(
        "forest without bootstrap",
        with_holes(numbers()),
        lambda: RandomForestRegressor(
            n_estimators=8, bootstrap=False, max_features=0.5, ccp_alpha=0.002
        ),
        weight=weights(N_DIABETES),
    ),
    "RandomForestClassifier, monotone": lambda: forest(
        "forest monotone",
        binary(),
        lambda: RandomForestClassifier(
            n_estimators=8, max_depth=5, monotonic_cst=[-1, -1, 1, 0, 1] + [0] * 25
        ),
        ordered=True,
    ),
    "ExtraTreesRegressor, monotone, weights, best first": lambda: forest(
        "extra trees monotone",
        numbers(),
        lambda: ExtraTreesRegressor(n_estimators=8, max_leaf_nodes=20, monotonic_cst=RISING),
        weight=weights(N_DIABETES),
    ),
    "DecisionTreeClassifier": lambda: forest(
        "one tree", binary(), lambda: DecisionTreeClassifier(max_depth=5), weight=weights(N_CANCER)
    ),
}
