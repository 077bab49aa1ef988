"""Options of scikit-learn's tree ensembles, one model each, for the table that support.py writes.

A maker returns (model, X, y, further arguments of Tracer)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

HIST = {"max_iter": 10}
GRADIENT = {"n_estimators": 10}
RISING = [1, -1] + [0] * 8
FOREST = {"n_estimators": 10, "max_depth": 5}


def numbers(kind="any"):
    X, y = load_diabetes(return_X_y=True)
    y = y / y.std()
    return X, {"counts": np.round(2 * y), "positive": y}.get(kind, y - y.mean())


def classes(count=2):
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    noisy = rng.random(len(y)) < 0.15
    y[noisy] = rng.integers(0, 3, noisy.sum())
    return X, np.minimum(y, count - 1)


def frame():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"]).mask(
        rng.random((300, 3)) < 0.1
    )
    X["town"] = pd.Categorical([f"town-{c}" for c in rng.integers(0, 20, 300)])
    y = X["a"].fillna(0) + rng.normal(size=20)[X["town"].cat.codes] + 0.3 * rng.normal(size=300)
    return X, y.to_numpy()


def weights(n):
    return np.random.default_rng(2).random(n) + 0.3


def fitted(model, data, weighted=False, **arguments):
    """Return a maker of this model, fitted; ``arguments`` are further ones of Tracer."""

    def make():
        X, y = data()
        w = weights(len(y)) if weighted else None
        more = {} if w is None else {"sample_weight": w}
        return model.fit(X, y, **more), X, y, {**more, **arguments}

    return make


def many_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_100, 3))
    return X, X[:, 0] + rng.normal(size=len(X))


def sparse():
    X, y = numbers()
    return csr_matrix(np.where(np.abs(X) < 0.03, 0.0, X)), y


def with_holes():
    X, y = numbers()
    return np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X), y


def given_validation():
    X, y = numbers()
    model = HistGradientBoostingRegressor(max_iter=50, early_stopping=True)
    return model.fit(X[50:], y[50:], X_val=X[:50], y_val=y[:50]), X[50:], y[50:], {}


def warm(model, more):
    """Return a maker of a model that is fitted twice, the second time with other parameters."""

    def make():
        X, y = numbers()
        return model.fit(X, y).set_params(**more).fit(X, y), X, y, {}

    return make


def recorded_draws():
    X, y = numbers()
    masks = []
    model = GradientBoostingRegressor(n_estimators=10, subsample=0.5)
    model.fit(X, y, monitor=lambda i, model, local: masks.append(local["sample_mask"]))
    return model, X, y, {"params": {"sample_mask": masks}}


def pipeline():
    X, y = frame()
    encode = make_column_transformer((OrdinalEncoder(), ["town"]), remainder="passthrough")
    model = HistGradientBoostingRegressor(**HIST, categorical_features=[0])
    return make_pipeline(encode, model).fit(X, y), X, y, {}


def two_columns():
    X, y = numbers()
    y = np.stack([y, y**2 + X[:, 0]], axis=1)
    return RandomForestRegressor(**FOREST).fit(X, y), X, y, {}


def rows():
    yield from hist()
    yield from gradient()
    yield from forests()
    yield from others()


def hist():
    def regressor(loss="squared_error", **kw):
        return HistGradientBoostingRegressor(loss=loss, **{**HIST, **kw})

    def classifier(**kw):
        return HistGradientBoostingClassifier(**{**HIST, **kw})

    name = "HistGradientBoosting"
    yield f"{name}, loss squared_error", fitted(regressor(), numbers)
    yield f"{name}, loss poisson", fitted(regressor("poisson"), lambda: numbers("counts"))
    yield f"{name}, loss gamma", fitted(regressor("gamma"), lambda: numbers("positive"))
    yield f"{name}, loss absolute_error", fitted(regressor("absolute_error"), numbers)
    yield f"{name}, loss quantile", fitted(regressor("quantile", quantile=0.8), numbers)
    yield f"{name}, log_loss of two classes", fitted(classifier(), classes)
    yield f"{name}, log_loss of three classes", fitted(classifier(), lambda: classes(3))
    yield f"{name}, sample_weight", fitted(regressor(max_bins=32), numbers, weighted=True)
    yield (
        f"{name}, absolute_error with sample_weight",
        fitted(regressor("absolute_error"), numbers, weighted=True),
    )
    yield (
        f"{name}, class_weight as a dictionary",
        fitted(classifier(class_weight={0: 2.0, 1: 0.5}), classes),
    )
    yield (
        f"{name}, class_weight balanced",
        fitted(classifier(class_weight="balanced"), lambda: classes(3)),
    )
    yield f"{name}, l2_regularization", fitted(regressor(l2_regularization=5.0), numbers)
    yield f"{name}, max_features", fitted(regressor(max_features=0.5), numbers)
    yield f"{name}, interaction_cst", fitted(regressor(interaction_cst="no_interactions"), numbers)
    yield f"{name}, missing values", fitted(regressor(), with_holes)
    yield (
        f"{name}, category columns of a DataFrame",
        fitted(regressor(categorical_features="from_dtype"), frame),
    )
    yield f"{name}, more than 10,000 rows (early stopping)", fitted(regressor(), many_rows)
    yield (
        f"{name}, early_stopping of a classifier",
        fitted(classifier(early_stopping=True), lambda: classes(3)),
    )
    yield f"{name}, X_val given", given_validation
    yield f"{name}, warm_start", warm(regressor(warm_start=True), {"max_iter": 20})
    yield f"{name}, monotonic_cst", fitted(regressor(monotonic_cst=RISING), numbers)


def gradient():
    def regressor(loss="squared_error", **kw):
        return GradientBoostingRegressor(loss=loss, **{**GRADIENT, **kw})

    def classifier(**kw):
        return GradientBoostingClassifier(**{**GRADIENT, **kw})

    name = "GradientBoosting"
    yield f"{name}, loss squared_error", fitted(regressor(), numbers)
    yield f"{name}, loss absolute_error", fitted(regressor("absolute_error"), numbers)
    yield f"{name}, loss huber", fitted(regressor("huber"), numbers)
    yield f"{name}, loss quantile", fitted(regressor("quantile", alpha=0.8), numbers)
    yield f"{name}, log_loss of two classes", fitted(classifier(), classes)
    yield f"{name}, log_loss of three classes", fitted(classifier(), lambda: classes(3))
    yield f"{name}, loss exponential", fitted(classifier(loss="exponential"), classes)
    yield f"{name}, sample_weight", fitted(classifier(), classes, weighted=True)
    yield (
        f"{name}, subsample with an integer random_state",
        fitted(regressor(subsample=0.5, random_state=1), numbers),
    )
    yield f"{name}, subsample, draws recorded by a monitor", recorded_draws
    yield f"{name}, subsample with random_state=None", fitted(regressor(subsample=0.5), numbers)
    yield (
        f"{name}, huber with subsample",
        fitted(regressor("huber", subsample=0.5, random_state=1), numbers),
    )
    stops = {"n_iter_no_change": 3, "random_state": 1}
    yield (
        f"{name}, n_iter_no_change with an integer random_state",
        fitted(classifier(**stops), lambda: classes(3)),
    )
    yield (
        f"{name}, n_iter_no_change with random_state=None",
        fitted(regressor(n_iter_no_change=3), numbers),
    )
    yield f"{name}, init='zero'", fitted(classifier(init="zero"), lambda: classes(3))
    yield f"{name}, init is an estimator", fitted(regressor(init=LinearRegression()), numbers)
    yield (
        f"{name}, max_features and max_leaf_nodes",
        fitted(regressor(max_features=3, max_leaf_nodes=9), numbers),
    )
    yield f"{name}, ccp_alpha", fitted(regressor(ccp_alpha=0.01), numbers)
    yield f"{name}, sparse rows", fitted(regressor(), sparse)
    yield (
        f"{name}, warm_start",
        warm(regressor(warm_start=True, subsample=0.5, random_state=1), {"n_estimators": 20}),
    )


def forests():
    def regressor(**kw):
        return RandomForestRegressor(**{**FOREST, **kw})

    def classifier(**kw):
        return RandomForestClassifier(**{**FOREST, **kw})

    yield "RandomForestRegressor", fitted(regressor(), numbers)
    yield "RandomForestClassifier", fitted(classifier(), lambda: classes(3))
    yield "RandomForest, max_samples", fitted(regressor(max_samples=0.4), numbers)
    yield (
        "RandomForest, bootstrap=False",
        fitted(regressor(bootstrap=False, max_features=0.5), numbers),
    )
    yield (
        "RandomForest, criterion absolute_error",
        fitted(regressor(criterion="absolute_error"), numbers),
    )
    yield (
        "RandomForest, criterion poisson",
        fitted(regressor(criterion="poisson"), lambda: numbers("counts")),
    )
    yield "RandomForest, criterion entropy", fitted(classifier(criterion="entropy"), classes)
    yield "RandomForest, sample_weight with bootstrap", fitted(regressor(), numbers, weighted=True)
    yield (
        "RandomForest, sample_weight without bootstrap",
        fitted(regressor(bootstrap=False), numbers, weighted=True),
    )
    for chosen in ("balanced", "balanced_subsample", {0: 3.0, 1: 0.5}):
        yield (
            f"RandomForest, class_weight {chosen}",
            fitted(classifier(class_weight=chosen), classes),
        )
    yield "RandomForest, missing values", fitted(regressor(), with_holes)
    yield "RandomForest, sparse rows", fitted(regressor(), sparse)
    yield "RandomForest, ccp_alpha", fitted(regressor(ccp_alpha=0.005), numbers)
    yield (
        "RandomForest, warm_start",
        warm(regressor(warm_start=True, random_state=1), {"n_estimators": 15}),
    )
    yield "RandomForest, monotonic_cst", fitted(regressor(monotonic_cst=RISING), numbers)
    yield (
        "RandomForestClassifier, monotonic_cst",
        fitted(classifier(monotonic_cst=[*RISING, 1, -1, 0]), classes),
    )
    yield (
        "ExtraTrees, monotonic_cst",
        fitted(ExtraTreesRegressor(**FOREST, monotonic_cst=RISING), numbers),
    )
    yield "RandomForest, two columns of y", two_columns
    yield "ExtraTreesRegressor", fitted(ExtraTreesRegressor(**FOREST), numbers)
    yield "ExtraTreesClassifier", fitted(ExtraTreesClassifier(**FOREST), lambda: classes(3))
    yield (
        "ExtraTrees, class_weight balanced",
        fitted(ExtraTreesClassifier(class_weight="balanced", **FOREST), classes),
    )
    yield (
        "ExtraTrees, bootstrap=True",
        fitted(ExtraTreesRegressor(bootstrap=True, **FOREST), numbers),
    )
    yield "DecisionTreeClassifier", fitted(DecisionTreeClassifier(max_depth=5), classes)
    yield (
        "DecisionTreeRegressor",
        fitted(DecisionTreeRegressor(max_depth=5), numbers, weighted=True),
    )


def others():
    yield "Pipeline that ends in a supported model", pipeline
    yield "AdaBoostClassifier", fitted(AdaBoostClassifier(n_estimators=5), classes)
    yield "BaggingRegressor", fitted(BaggingRegressor(n_estimators=5), numbers)
    yield "IsolationForest", fitted(IsolationForest(n_estimators=5), numbers)
    yield "Ridge", fitted(Ridge(), numbers)
