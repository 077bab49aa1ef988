"""Model files that end the process that reads them: the command line says so in one line."""

import itertools
import json
import os
import pickle
import subprocess
import sys
import time

import pytest
from cli_world import DATA

from leaftrace._views.cli import main, trial


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function, *arguments):
        self.called = function, arguments

    def __reduce__(self):
        return self.called


def write_pickle(path, function, *arguments):
    with open(path, "wb") as file:
        pickle.dump(Calls(function, *arguments), file)


@pytest.fixture
def starts(monkeypatch):
    """Count the processes that are started."""
    started = []
    start = subprocess.Popen

    def counted(*args, **kwargs):
        started.append(1)
        return start(*args, **kwargs)

    monkeypatch.setattr(trial.subprocess, "Popen", counted)
    trial._reason_of_death.cache_clear()
    return started


def test_a_file_that_aborts_the_process(here, capsys):
    write_pickle("abort.pkl", os.abort)
    assert main(["check", "abort.pkl", *DATA, "--allow-pickle"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1
    assert "'abort.pkl' cannot be read: a process that tried died of SIGABRT" in lines[0]


def test_a_file_that_never_ends(here, capsys, monkeypatch):
    """One sleeps, one computes; the machine may be busy, so that only the time of computing is short."""
    monkeypatch.setattr(trial, "_WALL_SECONDS", 1)
    write_pickle("sleep.pkl", time.sleep, 600)
    assert main(["check", "sleep.pkl", *DATA, "--allow-pickle"]) == 2
    assert "was not done after 1 seconds." in capsys.readouterr().err
    if sys.platform != "win32":
        monkeypatch.setattr(trial, "_WALL_SECONDS", 600)
        monkeypatch.setattr(trial, "_CPU_SECONDS", 1)
        write_pickle("spin.pkl", sum, itertools.count())
        assert main(["check", "spin.pkl", *DATA, "--allow-pickle"]) == 2
        assert "was not done after 1 seconds of computing" in capsys.readouterr().err


def test_a_pickle_is_not_tried_unless_allowed(here, capsys, starts):
    write_pickle("abort.pkl", os.abort)
    assert main(["check", "abort.pkl", *DATA]) == 2
    assert "--allow-pickle" in capsys.readouterr().err
    assert not starts


@pytest.mark.parametrize(
    "damage",
    [
        {"parents": (5, -(2**30)), "left_children": (0, 2**30)},
        {"split_indices": (0, 2**26)},
    ],
    ids=["parents", "columns"],
)
def test_xgboost_crashes_elsewhere(here, damage):
    """XGBoost does not look whether the parents of a tree's nodes and the columns it reads exist."""
    import xgboost

    booster = xgboost.Booster(model_file="xgb.ubj")
    content = json.loads(bytes(booster.save_raw("json")))
    tree = content["learner"]["gradient_booster"]["model"]["trees"][0]
    for name, (node, value) in damage.items():
        tree[name][node] = value
    with open("damaged.json", "w") as file:
        json.dump(content, file)
    call = [sys.executable, "-m", "leaftrace", "check", "damaged.json", *DATA]
    run = subprocess.run(call, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1


def test_catboost_crashes_elsewhere(here):
    """CatBoost reads statistics of categories that are not there once a row has categories."""
    import catboost

    catboost.CatBoost().load_model("cat.cbm").save_model("cat.json", format="json")
    with open("cat.json") as file:
        content = json.load(file)
    del content["ctr_data"]
    with open("damaged.json", "w") as file:
        json.dump(content, file)
    call = [sys.executable, "-m", "leaftrace", "check", "damaged.json", *DATA, "--missing", "none"]
    run = subprocess.run(call, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1


def test_catboost_models_are_written_elsewhere_first(here, monkeypatch):
    """Damaged trees can crash CatBoost while it writes them as JSON, which leaftrace asks for."""
    from leaftrace._adapters import catboost

    written = []
    monkeypatch.setattr(catboost, "model_to_json", written.append)
    trial._try_model("cat.cbm", "catboost")
    assert len(written) == 1


def test_a_whole_file_is_tried_once(here, capsys, starts):
    for _ in range(2):
        assert main(["check", "lgb.txt", *DATA]) == 0
    assert len(starts) == 1
