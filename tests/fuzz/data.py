"""Training and test rows of a configuration: tiny, imbalanced, with duplicates, holes and categories."""

from __future__ import annotations

import numpy as np
import pandas as pd
from boosters import Data

RATES = [0.03, 0.1, 0.3, 1.0]  # learning rates
ROWS = [8, 12, 20, 30, 60, 120, 250]
TEST_ROWS = 8
# What a target of the name needs: classes, or numbers of a range.
CLASSES = {"two classes": 2, "three classes": 3, "five classes": 5}


def draw_data(draw, target, categories=True, missing=True):
    """Draw a description of data: plain values, so that it can be printed and simplified."""
    data = {"target": target, "rows": draw.pick(ROWS), "columns": draw.pick([2, 4, 7])}
    data["seed"] = draw.whole(1000)
    if missing and draw.chance(0.25):
        data["missing"] = True
    if categories and draw.chance(0.25):
        data["categories"] = draw.pick([3, 12])
    for trait in ("duplicates", "constant column", "few values"):
        if draw.chance(0.15):
            data[trait] = True
    if target == "two classes" and draw.chance(0.3):
        data["positives"] = draw.pick([1, 2, 3])
    if target == "any" and draw.chance(0.3):
        data["scale"] = draw.pick([1e-3, 30.0, 1e4])
        data["shift"] = draw.pick([0.0, 1.0, -100.0])
    if target in ("any", "counts", "positive") and draw.chance(0.03):
        data["constant label"] = True
    return data


def draw_directions(draw, data):
    """Draw 1, 0 or -1 for each column of numbers, not all zero; or None, for most models."""
    if not draw.chance(0.25):
        return None
    found = [draw.pick([-1, 0, 1]) for _ in range(data["columns"])]
    return found if any(found) else None


def make_data(data):
    """Return the rows of a description, as arrays, or as a table if it has categories."""
    rng = np.random.default_rng(data["seed"])
    n = data["rows"] + TEST_ROWS
    X = rng.normal(size=(n, data["columns"]))
    if data.get("few values"):
        X = X.round(0)
    if data.get("duplicates"):
        X[n // 3 : 2 * (n // 3)] = X[: n // 3]
    if data.get("constant column"):
        X[:, 1] = 2.5
    X = np.float32(X).astype(float)
    score = X[:, 0] - X[:, 1] * (X[:, -1] > 0) + rng.normal(size=n)
    if data.get("missing"):
        X[rng.random(X.shape) < 0.15] = np.nan
    table = X
    if data.get("categories"):
        code = rng.integers(0, data["categories"], n)
        score = score + rng.normal(size=data["categories"])[code]
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        table["kind"] = pd.Categorical([f"k{c:02d}" for c in code])
    codes = labels(data, score, rng)
    y = codes.astype(int) if data["target"] in CLASSES else codes
    k = data["rows"]
    if isinstance(table, pd.DataFrame):
        return Data(table.iloc[:k], y[:k], codes[:k], table.iloc[k:], y[k:], codes[k:])
    return Data(table[:k], y[:k], codes[:k], table[k:], y[k:], codes[k:])


def labels(data, score, rng):
    """Return labels (n,) of the target that follow a score, representable in float32."""
    target = data["target"]
    rank = np.argsort(np.argsort(score)) / len(score)
    if target in CLASSES:
        return classes(data, rank, rng)
    if data.get("constant label"):
        return np.ones(len(score))
    if target == "any":
        score = score * data.get("scale", 1.0) + data.get("shift", 0.0)
    elif target == "positive":
        score = np.exp(0.7 * score)
    elif target == "counts":
        score = rng.poisson(np.exp(0.5 * score)).astype(float)
        score[: data["rows"]][:2] += 1  # not all zero
    else:
        score = rank
    return np.float32(score).astype(float)


def classes(data, rank, rng):
    """Return class numbers, all of which occur in the training rows; some labels are noise."""
    K = CLASSES[data["target"]]
    k = data["rows"]
    codes = np.minimum((rank * K).astype(int), K - 1)
    noisy = rng.random(len(codes)) < 0.1
    codes[noisy] = rng.integers(0, K, noisy.sum())
    if "positives" in data:
        codes[:k] = 0
        codes[np.argsort(rank[:k])[-data["positives"] :]] = 1
    codes[:K] = np.arange(K)
    if "positives" in data:
        codes[np.flatnonzero(codes[:k])[data["positives"] :]] = 0
    return codes.astype(float)


WEIGHTS = ["none", "none", "random", "decades", "zeros", "counts"]


def make_weights(kind, n, seed):
    """Return sample weights (n,) that float32 can hold, or None."""
    rng = np.random.default_rng(seed)
    if kind == "none":
        return None
    w = {
        "random": rng.random(n) + 0.3,
        "decades": 10.0 ** rng.uniform(-2, 2, n),
        "zeros": (rng.random(n) + 0.3) * (rng.random(n) > 0.3),
        "counts": rng.integers(1, 5, n),
    }[kind]
    w[:2] = np.maximum(w[:2], 0.5)  # both classes keep a row
    return np.float32(w).astype(float)


def common(configuration):
    """Return data, and the arguments that cases of all libraries share."""
    data = make_data(configuration["data"])
    n = len(data.codes)
    seed = configuration["data"]["seed"] + 1
    more = {"weight": make_weights(configuration["weights"], n, seed)}
    if configuration.get("baseline"):
        K = CLASSES.get(configuration["data"]["target"], 1)
        scores = 0.3 * np.random.default_rng(seed + 1).normal(size=(n, K if K > 2 else 1))
        more["baseline"] = np.float32(scores).astype(float).squeeze()
    return data, more
