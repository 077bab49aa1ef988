"""A table that tries to break a page: markup, scripts, quotes and odd characters in every text."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

STRINGS = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    '"><img src=x onerror="window.hacked = 3">',
    "' onmouseover='window.hacked = 4",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "]]>&lt;b&gt;&amp;",
    "line\u2028separator\u2029and \u202eright to left",
    "nul\x00bell\x07\ud800surrogate",
    "<style>body { display: none }</style>",
    "javascript:window.hacked=5",
    "naïve 🌳 żółw",
]
LABELS = ["<b>no</b>", "</script>yes"]
COLUMNS = [
    "a",
    "b",
    "<i>text</i>",
    'on"load=window.hacked=6',
    "</style><script>window.hacked = 7</script>",
]


def first_two(X):
    """Return the columns that the model is trained on; the others are only shown."""
    return X.iloc[:, :2].to_numpy(float)


def hostile(n=90, m=15, seed=0):
    """Return (model, X, y, X_test, y_test)."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n + m, 2))
    X = pd.DataFrame({COLUMNS[0]: a[:, 0], COLUMNS[1]: a[:, 1]})
    for j, name in enumerate(COLUMNS[2:]):
        text = [STRINGS[(i + j) % len(STRINGS)] for i in range(n + m)]
        X[name] = pd.Series(text, dtype=object)  # pandas' own strings refuse lone surrogates
    clean = [s for s in STRINGS if "\ud800" not in s]
    X.index = pd.Index(
        [f"{clean[i % len(clean)]} {i}" for i in range(n + m)], dtype=object, name="<u>passport</u>"
    )
    y = np.array(LABELS, dtype=object)[(a[:, 0] + 0.8 * rng.normal(size=n + m) > 0).astype(int)]
    model = make_pipeline(
        FunctionTransformer(first_two),
        GradientBoostingClassifier(n_estimators=8, min_samples_leaf=5),
    )
    return model.fit(X[:n], y[:n]), X[:n], y[:n], X[n:], y[n:]
