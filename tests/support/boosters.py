"""Data for real models of every library, and the `Case` that a setting of the contract is.

`cases_<library>.py` have the settings. A case can train its model and read, from the library alone,
the structure that the oracle refits. Nothing here uses leaftrace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine


@dataclass(frozen=True)
class Data:
    """Training and test rows. ``codes`` are labels as the loss uses them: numbers, 0/1 or class numbers."""

    X: Any
    y: np.ndarray
    codes: np.ndarray
    X_test: Any
    y_test: np.ndarray
    test_codes: np.ndarray


def split(X, y, codes, held=20):
    """Use the last rows as test rows."""
    return Data(X[:-held], y[:-held], codes[:-held], X[-held:], y[-held:], codes[-held:])


def binary(text=False):
    """Return breast cancer, with 15 % of the labels flipped so that a few trees do not fit everything."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X = X[order]
    y = y[order].astype(float)
    flip = np.random.default_rng(1).random(len(y)) < 0.15
    y[flip] = 1 - y[flip]
    return split(X, np.where(y > 0, "healthy", "cancer") if text else y.astype(int), y)


def three_classes(text=False):
    """Return wine, with 15 % of the labels replaced."""
    X, codes = load_wine(return_X_y=True)
    rng = np.random.default_rng(5)
    order = rng.permutation(len(codes))
    X = X[order]
    codes = codes[order]
    noisy = rng.random(len(codes)) < 0.15
    codes[noisy] = rng.integers(0, 3, noisy.sum())
    names = np.array(["barbera", "barolo", "grignolino"])
    return split(X, names[codes] if text else codes, codes.astype(float))


def numbers(kind="any"):
    """Return diabetes, with labels of a kind: "any", "positive", "counts", "fractions" from 0 to 1."""
    X, y = load_diabetes(return_X_y=True)
    y = y / y.std()
    if kind == "counts":
        y = np.round(2 * y)
    elif kind == "fractions":
        y = y / y.max()
    elif kind == "any":
        y = y - y.mean()
    y = np.float32(y).astype(float)
    return split(X, y, y)


def frame(target="class", n=420, many=False, seed=3):
    """Return a DataFrame with missing values and a category column.

    ``many`` adds a column of 30 categories. The target is a "class" or a "number"."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["a", "b", "c", "d"])
    X["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], n))
    effect = np.zeros(n)
    if many:
        code = rng.integers(0, 30, n)
        X["town"] = pd.Categorical([f"town-{c:02d}" for c in code])
        effect = rng.normal(size=30)[code]
    score = (X["a"] - X["b"] * (X["kind"] == "red") + effect + 0.5 * rng.normal(size=n)).to_numpy()
    holes = rng.random((n, 4)) < 0.1
    X[["a", "b", "c", "d"]] = X[["a", "b", "c", "d"]].mask(holes)
    X.index = [f"row-{i}" for i in range(n)]
    if target == "number":
        score = np.float32(score).astype(float)
        return split(X, score, score)
    return split(X, np.where(score > 0, "yes", "no"), (score > 0).astype(float))


def weights(n, seed=2):
    return np.float32(np.random.default_rng(seed).random(n) + 0.3).astype(float)


@dataclass
class Case:
    """A model of one setting, and what is needed to check leaftrace on it.

    ``fit(X, y, sample_weight, baseline)``  trains the model
    ``raw(model, X)``     raw predictions (m, K) without baseline
    ``structure(case)``   (oracle.Structure of the training rows, steps of the test rows), read from
                          the library
    ``tracer``            further arguments of Tracer
    ``tolerance``         of the fidelity
    ``smooth``            False if leaves are quantiles, so that there is no LeafInfluence
    ``sides_only``        a label counts only by the side of the prediction that it is on
    ``ordered``           rows were drawn by their position, so they cannot be permuted or left out
    ``counts_rows``       a row of weight zero, or a row twice, is not the same as its weight
    ``own_refit(case, w)``  the library's own fixed-structure refit with these weights, as raw test
                          predictions (m, K)
    """

    name: str
    data: Data
    fit: Callable[..., Any]
    raw: Callable[..., np.ndarray]
    structure: Callable[[Case], tuple[Any, Any]]
    weight: np.ndarray | None = None
    baseline: np.ndarray | None = None
    tracer: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-9
    smooth: bool = True
    sides_only: bool = False
    ordered: bool = False
    counts_rows: bool = False
    own_refit: Callable[[Case, np.ndarray], np.ndarray] | None = None

    @cached_property
    def model(self):
        return self.fit(self.data.X, self.data.y, self.weight, self.baseline)

    @property
    def w(self):
        """Sample weights (n,)."""
        return np.ones(len(self.data.y)) if self.weight is None else self.weight
