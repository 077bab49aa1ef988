"""Saving on a full disk or in a folder that cannot be written to: one clear error, no file."""

import errno
import os
import signal
import sys
import tempfile
from contextlib import contextmanager

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import leaftrace as lt
from leaftrace._data.leaf_cache import LeafCache
from leaftrace._views.cli.tables import write_table

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="sets a limit on the size of files")
ROOM = 2048  # bytes that a file may have; what is saved here is larger


@contextmanager
def full_disk():
    """A limit on the size of files, at which writing fails as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def world():
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((400, 3)), columns=list("abc"))
    y = (X.a > 0).astype(int)
    model = lgb.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    table = pa.table({"number": np.random.default_rng(1).standard_normal(5000)})
    leaves = np.zeros((4, 3000), np.uint8)
    impact = lt.removal_impact(tracer, list(range(200)), X[:20], y[:20], retrain=False)
    return {
        "influence.npz": tracer.influence(X[:9], y[:9]).save,
        "report.html": lt.report(tracer, X[:20], y[:20]).save,
        "audit.json": impact.save,
        "table.csv": lambda path: write_table(table, str(path)),
        "table.csv.gz": lambda path: write_table(table, str(path)),
        "table.parquet": lambda path: write_table(table, str(path)),
        "table.arrow": lambda path: write_table(table, str(path)),
        "leaves": lambda path: LeafCache(str(path.parent), path.name).get(
            3000, lambda: iter([(slice(0, 3000), leaves, None)])
        ),
    }


NAMES = [
    "influence.npz", "report.html", "audit.json", "table.csv", "table.csv.gz", "table.parquet", "table.arrow", "leaves",
]  # fmt: skip


@POSIX
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_no_file(name, world, tmp_path):
    with full_disk(), pytest.raises(lt.LeaftraceError, match=r"File too large.*; ") as found:
        world[name](tmp_path / name)
    assert "\n" not in str(found.value)
    assert os.listdir(tmp_path) == []
    world[name](tmp_path / name)  # and with space it is saved
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", NAMES)
def test_a_read_only_folder(name, world, tmp_path, monkeypatch):
    """The system's error is simulated: a superuser may write everywhere."""

    def refused(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(lt.LeaftraceError, match=r"Read-only file system; "):
        world[name](tmp_path / name)
    assert os.listdir(tmp_path) == []
