"""Progress: a bar on a terminal, an occasional line elsewhere, nothing for short work."""

import sys

import numpy as np
import pytest
import xgboost

import leaftrace as lt
from leaftrace._data import progress as module
from leaftrace._data.progress import ProgressLines, bar, duration, progress


class Clock:
    """A clock that items advance by the seconds they take."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def items(self, count, seconds):
        for i in range(count):
            self.now += seconds
            yield i


def test_lines_say_how_long_it_takes(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    assert list(progress(clock.items(40, 1.0), 40, "refitting", "model")) == list(range(40))
    assert capsys.readouterr().err.splitlines() == [
        "refitting: 2 of 40 models in 2 s, about 38 s left",
        "refitting: 17 of 40 models in 17 s, about 23 s left",
        "refitting: 32 of 40 models in 32 s, about 8 s left",
    ]


def test_items_that_stand_for_several(monkeypatch, capsys):
    list(progress(Clock(monkeypatch).items(3, 400.0), 50_000, "influence", "query", 20_000))
    assert capsys.readouterr().err.splitlines() == [
        "influence: 20,000 of 50,000 queries in 6.7 min, about 10 min left",
        "influence: 40,000 of 50,000 queries in 13 min, about 3.3 min left",
    ]


def test_an_unknown_total_is_counted(monkeypatch, capsys):
    list(progress(Clock(monkeypatch).items(3, 2.0), None, "fixing", "model"))
    assert capsys.readouterr().err == "fixing: 1 models in 2 s\n"


def test_bytes(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with bar(90_000_000, "reading t.csv", "B") as shown:
        clock.now += 6
        shown.update(30_000_000)
    assert capsys.readouterr().err == "reading t.csv: 30 of 90 MB in 6 s, about 12 s left\n"


def test_short_work_says_nothing(monkeypatch, capsys):
    list(progress(Clock(monkeypatch).items(10, 0.19), 10, "x", "step"))
    list(
        progress(Clock(monkeypatch).items(1, 9.0), 1, "x", "step")
    )  # finished before the first message
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (90, "1.5 min"), (1200, "20 min"), (9000, "2.5 h")],
)
def test_spans(seconds, words):
    assert duration(seconds) == words


def test_a_bar_on_a_terminal(monkeypatch):
    from tqdm.auto import tqdm

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(bar(5, "x", "step"), tqdm)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert isinstance(bar(5, "x", "step"), ProgressLines)
    monkeypatch.setattr(sys, "stderr", None)  # as in a program without a console
    assert list(progress(range(3), 3, "x", "step")) == [0, 1, 2]


def test_building_and_querying_report_progress(monkeypatch, capsys):
    """Every long part of the library reports its progress."""
    monkeypatch.setattr(module, "SECONDS_TO_FIRST_LINE", -1.0)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(module, "SECONDS_AFTER_LAST_LINE", 0.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = rng.integers(0, 3, 300)
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(X, y)
    monkeypatch.setattr("leaftrace._adapters.xgboost.prediction.LEAF_BYTES", 1)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    said = capsys.readouterr().err
    assert "leaves: 1 of 5 rounds" in said
    assert "replaying: 4 of 5 steps" in said
    lt.label_noise(tracer)
    assert "label noise: 1 of 5 steps" in capsys.readouterr().err
