"""The Adult data, which are not part of this repository."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

DATA = Path(os.environ.get("LEAFTRACE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def is_here() -> bool:
    return (DATA / "adult" / "train.parquet").exists()


def load():
    """Return X_train, y_train, X_test, y_test, with categories as numbers."""
    train, test = (
        pd.read_parquet(DATA / "adult" / f"{part}.parquet") for part in ("train", "test")
    )
    table = pd.concat([train, test], ignore_index=True)
    y = (table.pop("income") == ">50K").to_numpy(float)
    for name in table.columns[[not pd.api.types.is_numeric_dtype(d) for d in table.dtypes]]:
        table[name] = pd.factorize(table[name], sort=True)[0]
    X = table.to_numpy(np.float32)
    n = len(train)
    return X[:n], y[:n], X[n:], y[n:]
