"""Generated rows for scale.py, in Parquet files and in memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

FEATURES = 20
NAMES = [f"x{i}" for i in range(FEATURES)]
FILE_ROWS = 250_000
TEST_ROWS = 1000
TEST_BLOCK = 10**6  # a number that no file has


def block(number: int, rows: int = FILE_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Generate rows (rows, FEATURES) and labels, always the same for the same number."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    score = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + 0.5 * (X[:, 4] > 0.3) * X[:, 5]
    return X, (score + rng.logistic(size=rows) > 0).astype(np.int8)


def test_rows() -> tuple[np.ndarray, np.ndarray]:
    return block(TEST_BLOCK, TEST_ROWS)


def files_of(folder: Path, n: int) -> list[str]:
    """Return Parquet files with n rows, and write those that do not exist."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "rows").mkdir(parents=True, exist_ok=True)
    paths = []
    size = min(FILE_ROWS, n // 4)
    for number in range(-(-n // size)):
        path = folder / "rows" / f"{number:04d}-{size}.parquet"
        if not path.exists():
            X, y = block(number, size)
            columns = dict(zip(NAMES, X.T, strict=True)) | {"y": y}
            pq.write_table(pa.table(columns), path.with_suffix(".part"), row_group_size=1 << 16)
            os.replace(path.with_suffix(".part"), path)
        paths.append(str(path))
    return paths


def in_memory(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the n rows and labels of the files."""
    import pyarrow.parquet as pq

    X = np.empty((n, FEATURES), np.float32)
    y = np.empty(n, np.int8)
    start = 0
    for path in files_of(folder, n):
        table = pq.read_table(path)
        part = slice(start, start + len(table))
        for i in range(FEATURES):
            X[part, i] = table.column(i).to_numpy()
        y[part] = table.column("y").to_numpy()
        start = part.stop
    return X, y
