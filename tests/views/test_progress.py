"""Progress: a bar on a terminal, an occasional line elsewhere, nothing for short work."""

import sys
import threading
import time

import numpy as np
import pytest
import xgboost

import leaftrace as lt
from leaftrace._data import progress as module
from leaftrace._data.progress import ProgressLines, TerminalBar, bar, duration, progress


class Clock:
    """A clock that items advance by the seconds they take."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module, "_TICK", 1e6)  # no looks besides those of the test

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


def test_the_first_part_pays_for_what_all_share(monkeypatch, capsys):
    """Two seconds of preparation before 600 quick rows are not 20 minutes of work."""
    clock = Clock(monkeypatch)

    def items():
        clock.now += 2.0
        yield 0
        yield from clock.items(599, 0.01)

    list(progress(items(), 600, "choosing", "row"))
    assert capsys.readouterr().err == "choosing: 1 of 600 rows in 2 s\n"


def test_work_says_that_it_goes_on_before_a_part_is_done(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with bar(4, "controls", "model", seconds=10.0) as shown:
        shown.tick()
        clock.now += 3
        shown.tick()
        clock.now += 1
        shown.tick()  # not again so soon
        clock.now += 16
        shown.update(1)
    with bar(2, "retraining", "model", left="") as shown:
        clock.now += 5
        shown.tick()
        clock.now += 25
        shown.update(1)
    with bar(8, "cleaning", "round", left="at most") as shown:
        clock.now += 4
        shown.update(1)
    assert capsys.readouterr().err.splitlines() == [
        "controls: 0 of 4 models in 3 s, about 37 s left",
        "controls: 1 of 4 models in 20 s, about 60 s left",
        "retraining: 0 of 2 models in 5 s",
        "retraining: 1 of 2 models in 30 s",
        "cleaning: 1 of 8 rounds in 4 s, at most 28 s left",
    ]


def test_a_thread_looks_at_the_outermost_work(monkeypatch, capsys):
    monkeypatch.setattr(module, "_TICK", 0.01)
    monkeypatch.setattr(module, "SECONDS_TO_FIRST_LINE", 0.03)
    before = threading.active_count()
    with bar(2, "outer", "model"), bar(2, "inner", "step"):
        time.sleep(0.2)
    time.sleep(0.05)
    assert capsys.readouterr().err == "outer: 0 of 2 models in 0 s\n"
    assert threading.active_count() <= before


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
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module, "SECONDS_TO_BAR", 0.0)
    with bar(5, "fitting", "step") as shown:
        assert isinstance(shown, TerminalBar)
        shown.tick()
        assert "left" not in str(shown._bar)
        shown.update(1)
        shown.update(1)
        assert "2/5 steps in 00:00, about 0 s left" in str(shown._bar)
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
