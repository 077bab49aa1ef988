"""A table with columns of every kind, for tests of the search for splits."""

import numpy as np
import pandas as pd

import leaftrace as lt

N = 300


def mixed_table():
    """A table of 2 N rows and their labels.

    It has numbers with and without missing values, few categories and many, and zeros."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=2 * N),
            "gaps": rng.normal(size=2 * N),
            "few": pd.Categorical(rng.choice(["x", "y", "z"], 2 * N)),
            "many": pd.Categorical(rng.choice(list("abcdefghijkl"), 2 * N)),
            "zeros": rng.integers(-1, 3, 2 * N) * rng.normal(2, 0.1, 2 * N),
        }
    )
    X.loc[rng.random(2 * N) < 0.2, "gaps"] = np.nan
    X.loc[rng.random(2 * N) < 0.1, "many"] = None
    y = (
        X.a
        + np.where(X.gaps.isna(), 0.7, X.gaps.fillna(0))
        + 1.5 * (X.few.cat.codes == 1)
        + 1.5 * np.sin(5 * X.many.cat.codes)
        + np.where(X.zeros.abs() < 1, 2.0, X.zeros)
    )
    return X, (y + 0.3 * rng.normal(size=2 * N)).to_numpy()


def labels(y, classes):
    """Labels of as many classes, or counts (1), or the numbers themselves (0)."""
    if classes == 1:
        return np.floor(np.exp(y / 2))
    return y if not classes else np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)


def opened(model, X, y, **more):
    return lt.Tracer(model, X, y, **more).engine.source


def weights(n):
    return np.random.default_rng(3).uniform(0.5, 2, n).round(2)


def as_numbers(X, gaps):
    """The table as float32 numbers, with or without missing values."""
    codes = X.assign(few=X.few.cat.codes, many=X.many.cat.codes)
    return (codes if gaps else codes.fillna({"gaps": 0.0})).to_numpy(np.float32)


def for_catboost(X, categories):
    """The table with texts for categories, or with numbers for them."""
    codes = X.assign(few=X.few.cat.codes, many=X.many.cat.codes)
    if not categories:
        return codes
    return codes.assign(
        few=X.few.astype(str), many=X.many.astype(object).fillna("none").astype(str)
    )
