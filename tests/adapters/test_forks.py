"""Tracers in a forked process: boosters whose OpenMP threads stayed behind must not wait for them."""

import os
import subprocess
import sys

import pytest

# Trains with two OpenMP threads and traces, then forks; the child traces and asks again. An alarm
# ends a child that hangs, long after a child that works is done.
SCRIPT = """
import os, signal, sys
import numpy as np
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier
import leaftrace as lt

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 4))
y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
models = [
    LGBMClassifier(n_estimators=4, num_leaves=6, verbose=-1, n_jobs=2),
    XGBClassifier(n_estimators=4, max_depth=3, n_jobs=2),
    HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=6),
]

def answers(model, tracer):
    again = lt.Tracer(model, X, y, n_jobs=1)
    retrained = tracer.retrain(without=[3])
    return np.concatenate([
        tracer.influence(X[:5], y[:5]).values.ravel(),
        again.influence(X[:5], y[:5]).values.ravel(),
        tracer.refit(without=[3]).loss(X[:5], y[:5]),
        retrained.loss(X[:5], y[:5]),
        tracer.follow(retrained).influence(X[:5], y[:5]).values.ravel(),
    ])

for model in models:
    tracer = lt.Tracer(model.fit(X, y), X, y, n_jobs=1)
    expected = answers(model, tracer)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if np.array_equal(answers(model, tracer), expected) else 5)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(type(model).__name__, code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP is Linux's")
def test_answers_in_a_forked_process_are_those_of_its_parent():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    assert run.stdout.splitlines() == [
        "LGBMClassifier 0",
        "XGBClassifier 0",
        "HistGradientBoostingClassifier 0",
    ]
