"""Models that number their classes: output has the class names of the target column."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from cli_world import DATA, REFIT_PARAMETERS, TEST, answer
from lightgbm import LGBMClassifier, LGBMRegressor

import leaftrace as lt
from leaftrace._views.cli import main

CALL = [*DATA, "--jobs", "1"]
NAMES = {"no", "yes"}


def labels_of(data):
    """Return every class in the data of a report, by its place."""
    for case in data["cases"]:
        yield from (case["label"], case["predicted"], *(p["label"] for p in case["probabilities"]))
        yield from (line["label"] for line in case["training_rows"])
        yield from (
            case["removal"][k]["predicted"]
            for k in ("before", "refitted", "retrained")
            if case["removal"][k]
        )
    yield from (line["label"] for line in data["overall"]["training_rows"])
    yield from (
        line[k]
        for line in data["noise"]["training_rows"]
        for k in ("given_label", "predicted_label")
    )


@pytest.mark.parametrize("file", ["lgb.txt", "xgb.ubj", "cat.cbm"])
def test_a_report_has_names(world, here, capsys, monkeypatch, file):
    _, train, test, models = world
    kept = []
    save = lt.Report.save
    monkeypatch.setattr(
        lt.Report, "save", lambda self, path: (kept.append(self.data), save(self, path))
    )
    answer(
        capsys,
        "explain",
        file,
        *CALL,
        *TEST,
        *models[file][2],
        *(REFIT_PARAMETERS if file == "xgb.ubj" else []),
        "--worst",
        "3",
        "--html",
        "named.html",
    )
    [data] = kept
    assert data["model"]["classes"] == ["no", "yes"]
    assert set(labels_of(data)) == NAMES
    for case in data["cases"]:
        assert case["label"] == test.repaid[case["position"]]
        assert all(
            line["label"] == train.repaid[line["position"]] for line in case["training_rows"]
        )
    assert all(
        r["given_label"] == train.repaid[r["position"]] for r in data["noise"]["training_rows"]
    )


def test_an_audit_says_what_the_numbers_are(here, capsys):
    call = [
        "impact",
        "lgb.txt",
        *CALL,
        *TEST,
        "--rows",
        "0-3",
        "--no-retrain",
        "--audit",
        "audit.json",
    ]
    said = answer(capsys, *call)
    assert json.loads(Path("audit.json").read_text())["classes_by_number"] == ["no", "yes"]
    assert {
        line[k] for line in said["table"] for k in ("label", "decision", "new_decision")
    } == NAMES
    answer(capsys, *["cat.cbm" if c == "lgb.txt" else c for c in call], "--missing", "none")
    assert "classes_by_number" not in json.loads(Path("audit.json").read_text())


def test_words_of_a_fix_have_names(world, here, capsys):
    _, _, test, models = world
    model, prepare, _ = models["lgb.txt"]
    row = int(np.flatnonzero(model.predict(prepare(test)) == test.repaid)[0])
    said = answer(capsys, "fix", "lgb.txt", *CALL, *TEST, "--row", str(row))
    [line] = [line for line in said["effects"] if line["of"].startswith("probability")]
    assert line["of"] == f"probability of {test.repaid[row]} for x"
    assert line["before"] == pytest.approx(model.predict_proba(prepare(test))[row].max())


def test_in_python(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    codes = rng.integers(0, 3, 200)
    LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1).fit(X, codes).booster_.save_model(
        tmp_path / "m.txt"
    )
    tracer = lt.Tracer(tmp_path / "m.txt", X, codes)
    plain = lt.report(tracer, X, codes, worst=2, retrain=True)
    found = lt.report(tracer, X, codes, worst=2, retrain=True, classes=["<b>red", "green", "blue"])
    assert [["<b>red", "green", "blue"][n] for n in labels_of(plain.data)] == list(
        labels_of(found.data)
    )
    assert "<b>red" not in found.html
    assert "&lt;b&gt;red" in found.html
    with pytest.raises(lt.InvalidInput, match="2 names, but the model has 3"):
        lt.report(tracer, X, codes, worst=2, classes=["a", "b"])
    numbers = lt.Tracer(LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(X, X.a), X, X.a)
    with pytest.raises(lt.InvalidInput, match="predicts numbers"):
        lt.report(numbers, X, X.a, classes=["a"])
    own = CatBoostClassifier(2, verbose=False, allow_writing_files=False).fit(
        X, np.array(["x", "y", "z"])[codes]
    )
    with pytest.raises(lt.InvalidInput, match="this one has their names"):
        lt.report(lt.Tracer(own, X, np.array(["x", "y", "z"])[codes]), X, classes=["a", "b", "c"])


def test_parts_that_are_missing_stay_missing(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
    codes = rng.integers(0, 2, 100)
    model = LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X, codes)
    model.booster_.save_model(tmp_path / "m.txt")
    tracer = lt.Tracer(tmp_path / "m.txt", X, codes)
    data = lt.report(tracer, X, worst=1, noise=False, classes=["no", "yes"]).data
    assert data["overall"] is None
    assert data["noise"] is None
    assert data["cases"][0]["label"] is None
    assert data["model"]["classes"] == ["no", "yes"]


def test_the_terminal_says_so(here, capsys):
    assert main(["check", "lgb.txt", *CALL]) == 0
    assert "the model knows its classes by number: no is 0, yes is 1" in capsys.readouterr().err
