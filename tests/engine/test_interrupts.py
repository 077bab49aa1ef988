"""Ctrl-C: the command while it starts, trainings on other threads than the main one, passes over the steps."""

import signal
import subprocess
import sys
import threading
from contextvars import copy_context

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import leaftrace as lt
from leaftrace._data import stopping
from leaftrace._data.stopping import Stopped, is_wanted, stop_if_unwanted, stoppable_threads
from leaftrace._engine.workspace import Workspace

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to another process")
SECONDS_TO_WAIT = 30  # for a process that would run for hours

# Retrainings that never end by themselves, on so many threads; by influence or by noise_floor.
ENDLESS = """
import os, sys
import lightgbm as lgb
import numpy as np
import leaftrace as lt

X = np.random.default_rng(0).standard_normal((300, 3))
y = X[:, 0]
tracer = lt.Tracer(lgb.LGBMRegressor(n_estimators=3, verbose=-1).fit(X, y), X, y, n_jobs=int(sys.argv[1]))
train = lgb.train

def train_for_ever(params, data, num_boost_round, callbacks):
    os.write(1, b"training\\n")  # at once, as two threads write
    return train(params, data, 10**9, callbacks=callbacks)

lgb.train = train_for_ever
try:
    if sys.argv[2] == "influence":
        tracer.influence(X[:2], y[:2], method=lt.Retrain(), rows=[0, 1, 2, 3])
    else:
        tracer.noise_floor(X[:2], y[:2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@POSIX
@pytest.mark.parametrize("module", ["numpy", "pandas._libs", "leaftrace._tracer.influence"])
def test_interrupt_while_the_command_starts(module):
    """The interrupt comes when this module has just been loaded."""
    command = [sys.executable, "-X", "importtime", "-m", "leaftrace", "--help"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.rstrip().endswith(f" {module}"):
                break
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=SECONDS_TO_WAIT)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert said == ["leaftrace: Interrupted before there was an answer; no file was written."]
    assert run.returncode == 130
    assert out == ""


@POSIX
@pytest.mark.parametrize(
    ("n_jobs", "question"), [(1, "influence"), (2, "influence"), (2, "noise_floor")]
)
def test_interrupt_while_training_again(n_jobs, question):
    command = [sys.executable, "-c", ENDLESS, str(n_jobs), question]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            for _ in range(n_jobs):
                assert run.stdout.readline() == "training\n"
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=SECONDS_TO_WAIT)
        finally:
            run.kill()
    assert out == "interrupted\n"
    assert run.returncode == 0  # no thread keeps the process alive


MODELS = {
    "catboost": lambda: catboost.CatBoostRegressor(
        iterations=3, verbose=0, thread_count=1, allow_writing_files=False
    ),
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=3, n_jobs=1),
}


@pytest.mark.parametrize("library", MODELS)
def test_trainings_look_whether_they_are_wanted(library):
    X = np.random.default_rng(0).standard_normal((80, 3))
    y = X[:, 0]
    tracer = lt.Tracer(MODELS[library]().fit(X, y), X, y, n_jobs=1)
    wanted = tracer.retrain(without=[0])
    assert np.isfinite(wanted.scores(X)).all()
    unwanted = threading.Event()
    unwanted.set()
    context = copy_context()
    context.run(stopping._unwanted.set, unwanted)
    with pytest.raises(Stopped):
        context.run(tracer.retrain, [0])


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("method", "steps"),
    [(lt.LeafInfluence(), "knock_on_backwards"), (lt.LeafRefit(), "states_forwards")],
    ids=["influence", "LeafRefit"],
)
def test_interrupt_between_the_steps_of_a_pass(monkeypatch, method, steps, n_jobs):
    """The call ends at once, and the tracer answers as if it had not been asked."""
    X = np.random.default_rng(0).standard_normal((80, 3))
    y = X[:, 0]
    model = lgb.LGBMRegressor(n_estimators=9, n_jobs=1, verbose=-1).fit(X, y)
    expected = lt.Tracer(model, X, y, n_jobs=1).influence(X[:5], y[:5], method=method).values
    tracer = lt.Tracer(model, X, y, n_jobs=n_jobs)
    all_steps = getattr(Workspace, steps)
    passed = []

    def interrupted(work):
        for item in all_steps(work):
            passed.append(item)
            if len(passed) == 3:
                signal.raise_signal(signal.SIGINT)
            yield item

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, steps, interrupted)
        with pytest.raises(KeyboardInterrupt):
            tracer.influence(X[:5], y[:5], method=method)
    assert len(passed) >= 3
    found = tracer.influence(X[:5], y[:5], method=method).values
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_work_is_told_when_the_caller_is_interrupted():
    started = threading.Event()

    def work():
        started.set()
        while True:
            stop_if_unwanted()

    def not_started():
        raise AssertionError("there was a thread for one only")

    with pytest.raises(KeyboardInterrupt), stoppable_threads(1) as submit:  # noqa: PT012
        running = submit(work)
        waiting = submit(not_started)
        assert started.wait(SECONDS_TO_WAIT)
        raise KeyboardInterrupt
    assert isinstance(running.exception(SECONDS_TO_WAIT), Stopped)
    assert waiting.cancelled()
    assert is_wanted()  # outside


def test_work_that_does_not_look_is_left_alone(monkeypatch):
    monkeypatch.setattr(stopping, "SECONDS_TO_STOP", 0.01)
    end = threading.Event()
    with pytest.raises(KeyboardInterrupt), stoppable_threads(1) as submit:  # noqa: PT012
        running = submit(end.wait)
        raise KeyboardInterrupt
    assert not running.done()
    end.set()
    assert running.result(SECONDS_TO_WAIT)
