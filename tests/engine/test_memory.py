"""Memory: building takes little beyond its inputs, and answers fit in what a process may use."""

import os
import subprocess
import sys
import tracemalloc

import catboost
import lightgbm as lgb
import numpy as np
import pytest

import leaftrace as lt
from leaftrace._data import inputs
from leaftrace._engine.less_memory import empty_answer, in_smaller_pieces, memory_errors

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, sets RLIMIT_AS")
# Arrays of a megabyte and more go back to the system when they are freed.
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "1"}
MODELS = """
import gc, resource, sys
import numpy as np
import catboost, lightgbm, xgboost
from sklearn.ensemble import HistGradientBoostingClassifier
import leaftrace as lt

def models(X, y, trees):
    yield catboost.CatBoostClassifier(iterations=trees, verbose=0, thread_count=1).fit(X, y)
    yield lightgbm.LGBMClassifier(n_estimators=trees, verbose=-1, n_jobs=1).fit(X, y)
    yield xgboost.XGBClassifier(n_estimators=trees, n_jobs=1).fit(X, y)
    yield HistGradientBoostingClassifier(max_iter=trees).fit(X, y)

def status(name):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
"""
BUILD = """
X = np.random.default_rng(0).standard_normal((150_000, 100))  # 120 MB
y = (X[:, 0] > 0).astype(int)
for model in models(X[:2000], y[:2000], 5):
    lt.Tracer(model, X[:1000], y[:1000], fidelity="ignore", n_jobs=1)  # loads what has to be loaded
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = status("VmRSS")
    tracer = lt.Tracer(model, X, y, fidelity="ignore", n_jobs=1, memory_limit=20_000_000)
    print(type(model).__name__, status("VmHWM") - before, tracer.engine.ensemble.leaves.nbytes)
"""
ANSWERS = """
X = np.random.default_rng(0).standard_normal((20_000, 5))
y = (X[:, 0] > 0).astype(int)
unlimited = resource.getrlimit(resource.RLIMIT_AS)

def answers(tracer):
    yield tracer.influence(X[:3], y[:3]).values
    yield tracer.influence(X[:3], y[:3], method=lt.LeafRefit(), rows=[1, 2, 3]).values
    yield tracer.label_influence(X[:3], y[:3]).values
    yield tracer.top(X[:3], y[:3], 4)["loss_change_if_removed"].to_numpy()
    yield tracer.neighbours(X[:3], 4)["weight"].to_numpy()
    yield tracer.score_candidates(X[:3], X[:3], y[:3]).values

for model in models(X[:2000], y[:2000], 100):
    tracer = lt.Tracer(model, X, y, fidelity="ignore", dtype="float64", n_jobs=2, memory_limit=1 << 40)
    expected = list(answers(tracer))
    tracer.engine.work.use_less_memory(1 << 40)  # forgets what it keeps
    tracer.engine.work.n_jobs = 2
    gc.collect()
    limit = status("VmSize") + 12_000_000  # row effects of all steps take 32 MB
    resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
    for value, right in zip(answers(tracer), expected, strict=True):
        error = abs(value - right).max() / abs(right).max()
        assert error < 1e-9, (type(model), right.shape, error)  # sums in another order
    try:
        tracer.influence(X[:5000], y[:5000])
    except lt.LeaftraceError as error:
        assert "800 MB" in str(error) and "use top()" in str(error), error
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    print(type(model).__name__, tracer.engine.work.memory_limit)
"""

FEW_ROWS = """
from leaftrace._adapters.catboost.pools import leaf_numbers

model = catboost.CatBoost().load_model(sys.argv[1] + "/model.cbm")
pool = catboost.Pool(np.load(sys.argv[1] + "/X.npy"))
resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + (1 << 22), -1))  # a stack takes 8 MB
print(leaf_numbers(model, pool).sum(dtype=int))
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", MODELS + code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ALLOCATION,
        timeout=300,  # it takes ten seconds
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 4
    return lines


@LINUX
def test_building_stays_within_the_memory_limit():
    """The libraries copy the rows that they predict; all at once would take 60 MB and more."""
    for library, peak, leaves in run(BUILD):
        assert int(peak) < 20_000_000 + int(leaves) + 100 * 150_000, library


def test_building_keeps_few_numbers_of_each_row():
    """The peak of NumPy's and Python's memory: numbers and weights of rows are not kept twice."""
    n = 50_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.float32(X[:, 0] + rng.normal(size=n))
    settings = {"num_leaves": 4, "verbosity": -1, "num_threads": 1}
    model = lgb.train(settings, lgb.Dataset(X, y), 2)
    lt.Tracer(model, X, y)  # imports
    tracemalloc.start()
    lt.Tracer(model, X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * n  # a dozen numbers; it was 160 with labels of rows as Python objects


@LINUX
def test_answers_come_in_smaller_pieces_where_memory_runs_out():
    """The tracer believes it has a terabyte, and the process may use 12 MB more."""
    for library, limit in run(ANSWERS):
        assert int(limit) < 1 << 40, library


@LINUX
def test_leaves_of_few_rows_need_no_thread(tmp_path):
    """CatBoost waits for ever for a thread that cannot start; here there is no room for a stack."""
    X = np.random.default_rng(0).standard_normal((200, 3))
    model = catboost.CatBoostRegressor(iterations=5, verbose=0).fit(X, X[:, 0])
    model.save_model(tmp_path / "model.cbm")
    np.save(tmp_path / "X.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", MODELS + FEW_ROWS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    expected = model.calc_leaf_indexes(catboost.Pool(X)).sum()
    assert done.stdout.split() == [str(expected)], done.stderr


def test_leaves_are_the_same_in_parts(monkeypatch):
    """A table in parts of 256 rows, of each kind, with and without scores given to the rows."""
    import lightgbm as lgb
    import pandas as pd
    import scipy.sparse

    rng = np.random.default_rng(1)
    X = rng.standard_normal((700, 4))
    y = X[:, 0] + rng.standard_normal(700)
    given = rng.standard_normal(700)
    options = {"verbose": -1, "n_jobs": 1, "n_estimators": 5}
    model = lgb.LGBMRegressor(**options).fit(X, y)
    with_given = lgb.LGBMRegressor(**options).fit(X, y, init_score=given)
    whole = lt.Tracer(model, X, y).engine.ensemble
    whole_given = lt.Tracer(with_given, X, y, baseline=given).engine.ensemble
    monkeypatch.setattr(inputs, "PART_BYTES", 1)
    assert len(inputs.row_parts(X)) == 3
    kinds = [X, np.asfortranarray(X), pd.DataFrame(X), scipy.sparse.csc_matrix(X)]
    for table in kinds:
        assert np.array_equal(lt.Tracer(model, table, y).engine.ensemble.leaves, whole.leaves)
    parted = lt.Tracer(with_given, X, y, baseline=given).engine.ensemble
    assert np.array_equal(parted.leaves, whole_given.leaves)
    assert np.array_equal(parted.offset, whole_given.offset)


class LittleMemory:
    """A workspace that runs out of memory above some limit."""

    def __init__(self, enough, error):
        self.memory_limit = 1 << 30
        self.enough = enough
        self.error = error

    def use_less_memory(self, limit):
        self.memory_limit = limit

    def compute(self):
        if self.memory_limit > self.enough:
            raise self.error
        return "answer"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_smaller_pieces_until_they_fit(error):
    work = LittleMemory(1 << 25, error)
    assert in_smaller_pieces(work, work.compute) == "answer"
    nothing = LittleMemory(-1, error)
    with pytest.raises(lt.LeaftraceError, match=r"not enough memory for this answer.*fewer rows"):
        in_smaller_pieces(nothing, nothing.compute)


def test_other_errors_stay_what_they_are():
    work = LittleMemory(-1, RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        in_smaller_pieces(work, work.compute)
    with pytest.raises(KeyError), memory_errors("a test"):
        raise KeyError("key")


def test_an_answer_larger_than_memory_is_refused_at_once():
    with pytest.raises(lt.LeaftraceError, match=r"1,000,000 x 1,000,000,000 values.*use top\(\)"):
        empty_answer(10**6, 10**9, np.dtype("float32"))
