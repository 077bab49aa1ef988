"""Other training sets: some of the rows, other labels, other weights."""

import numpy as np


def other_labels(data, seed=0):
    """Return (labels, codes) with a tenth of them exchanged for others that occur."""
    rng = np.random.default_rng(seed)
    codes = data.codes.copy()
    rows = rng.choice(len(codes), len(codes) // 10, replace=False)
    if codes.ndim > 1:  # several labels a row
        codes[rows] = codes[np.roll(rows, 1)]
        y = data.y.copy()
        y[rows] = y[np.roll(rows, 1)]
        return y, codes
    kinds = np.unique(codes)
    codes[rows] = (codes[rows] + 1) % len(kinds) if len(kinds) <= 3 else codes[np.roll(rows, 1)]
    label = dict(zip(data.codes, data.y, strict=True))
    return np.array([label[c] for c in codes], dtype=data.y.dtype), codes


def other_weights(w, seed=1):
    """Return weights that all differ from ``w``, one of them zero."""
    new = np.float32(w * (0.5 + np.random.default_rng(seed).random(len(w)))).astype(float)
    new[3] = 0.0
    return new


def random_rows(n, count=9, seed=2):
    """Return ``count`` of ``n`` positions, sorted."""
    return np.sort(np.random.default_rng(seed).choice(n, count, replace=False))


def take(X, rows):
    """Return the rows of a table, an array or a sparse matrix at these positions."""
    rows = np.asarray(rows)
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
