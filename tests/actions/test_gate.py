"""`lt.gate`: wrong labels, harm, values unlike training, and what CI reads of it."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.metrics import log_loss

import leaftrace as lt
from leaftrace._actions.gate.labels import _wrong_share
from leaftrace._views.cli import main


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    X["town"] = rng.choice([0, 1, 2], n)
    score = X["a"] + X["b"] * (X["town"] == 1) + 0.4 * rng.normal(size=n)
    return X, score.to_numpy()


X, Z = rows(1200, 0)
X_NEW, Z_NEW = rows(400, 1)
X_TEST, Z_TEST = rows(800, 2)
Y, Y_NEW, Y_TEST = (np.where(z > 0.2, "yes", "no") for z in (Z, Z_NEW, Z_TEST))


@pytest.fixture(scope="module")
def tracer():
    model = LGBMClassifier(n_estimators=20, num_leaves=8, verbose=-1, n_jobs=1).fit(X, Y)
    return lt.Tracer(model, X, Y)


def flipped(y, share, seed=0):
    wrong = np.random.default_rng(seed).random(len(y)) < share
    return np.where(wrong, np.where(y == "yes", "no", "yes"), y), wrong


def by_name(found):
    return {check.name: check for check in found.checks}


def test_clean_batches_pass_and_wrong_labels_are_stopped(tracer):
    clean = lt.gate(tracer, X_NEW, Y_NEW, X_TEST, Y_TEST)
    assert clean.passed
    assert clean.check() is clean
    labels, wrong = flipped(Y_NEW, 0.1)
    found = lt.gate(tracer, X_NEW, labels, X_TEST, Y_TEST)
    check = by_name(found)["suspicious labels"]
    assert not check.passed
    assert check.low < wrong.mean() < check.high
    with pytest.raises(AssertionError, match=r"(?s)Stop: [12] of 3 checks.*\n.*suspicious labels"):
        found.check()
    first = found.suspects["position"].to_numpy()[:20]
    assert wrong[first].mean() > 0.8
    np.testing.assert_array_equal(found.suspects["given_label"].to_numpy()[:20], labels[first])


def test_wrong_numbers_are_stopped():
    model = LGBMRegressor(n_estimators=20, num_leaves=8, verbose=-1, n_jobs=1).fit(X, Z)
    tracer = lt.Tracer(model, X, Z)
    assert lt.gate(tracer, X_NEW, Z_NEW, X_TEST, Z_TEST).passed
    rng = np.random.default_rng(3)
    labels = Z_NEW.copy()
    labels[:60] = rng.permutation(Z_NEW)[:60]
    check = by_name(lt.gate(tracer, X_NEW, labels, X_TEST, Z_TEST))["suspicious labels"]
    assert not check.passed
    assert check.low < 60 / 400 < check.high


def test_share_of_wrong_labels_from_known_densities():
    """Right surprises have the density 2 (1 - u), wrong ones 2 u: of a mixture, the share is found.

    Intervals of 95 % have it in at least 90 of 100 draws."""
    rng = np.random.default_rng(0)
    hits = 0
    found = []
    for _ in range(100):
        u = np.sqrt(rng.random((4, 1000)))
        share, half = _wrong_share(
            np.where(rng.random(1000) < 0.1, u[0], 1 - u[1]), 1 - u[2], u[3], 0.95
        )
        hits += abs(share - 0.1) < half
        found.append(share)
    assert hits >= 90
    assert np.mean(found) == pytest.approx(0.1, abs=0.01)


def test_a_model_that_knows_nothing_says_so():
    """Labels at random: no interval could tell a tenth of wrong ones from none."""
    rng = np.random.default_rng(0)
    y, y_new, y_test = (rng.choice(["no", "yes"], len(part)) for part in (X, X_NEW, X_TEST))
    model = LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1, n_jobs=1).fit(X, y)
    found = lt.gate(lt.Tracer(model, X, y), X_NEW, y_new, X_TEST, y_test)
    check = by_name(found)["suspicious labels"]
    assert check.verdict == "not known"
    assert check.passed
    assert "Not known: suspicious labels" in found.advice
    assert ElementTree.fromstring(found.junit()).get("skipped") == "1"


def test_harm_is_that_of_the_refitted_model(tracer):
    """The rise of scikit-learn's log loss, on all rows and on a slice, of models as LightGBM predicts them."""
    labels, _ = flipped(Y_NEW, 0.5)
    found = lt.gate(tracer, X_NEW, labels, X_TEST, Y_TEST, slices="town", max_harm=0.001)
    after = tracer.refit(added=(X_NEW, labels)).model
    before = tracer.refit().model
    for name, part in (
        ("all test rows", slice(None)),
        ("test rows with town = 1", X_TEST["town"] == 1),
    ):
        P_after, P_before = (m.predict_proba(X_TEST[part]) for m in (after, before))
        old = log_loss(Y_TEST[part], P_before)
        check = by_name(found)[f"harm: {name}"]
        assert check.value == pytest.approx((log_loss(Y_TEST[part], P_after) - old) / old, rel=1e-6)
    check = by_name(found)["harm: all test rows"]
    assert not check.passed
    assert check.low < check.value < check.high


def test_retraining_measures_harm_too(tracer):
    found = lt.gate(tracer, X_NEW, Y_NEW, X_TEST, Y_TEST, retrain=True)
    loss = tracer.refit().loss(X_TEST, Y_TEST).mean()
    change = tracer.retrain(added=(X_NEW, Y_NEW)).loss(X_TEST, Y_TEST).mean() - loss
    assert by_name(found)["harm: all test rows"].value == pytest.approx(change / loss, rel=1e-6)
    assert "retrained" in found.checks[0].text


def test_rows_unlike_anything(tracer):
    table = X_NEW.copy()
    table.loc[:59, "b"] = 50.0
    table.loc[60:99, "town"] = 9
    found = lt.gate(tracer, table, Y_NEW, X_TEST, Y_TEST, max_harm=None, max_suspects=None)
    check = by_name(found)["rows unlike anything"]
    assert not check.passed
    assert check.value == pytest.approx(0.25, abs=0.02)
    unlike = found.suspects.set_index("position")["unlike_in"]
    assert set(unlike[range(60)]) == {"b"}
    assert (
        unlike[range(60, 100)] == "town"
    ).sum() >= 38  # a few are far out in "a", which is first


def test_documents_of_ci(tracer, tmp_path):
    labels, _ = flipped(Y_NEW, 0.3)
    table = X_NEW.set_index(pd.Index([f"<a|{i}>" for i in range(len(X_NEW))]))
    found = lt.gate(tracer, table, labels, X_TEST, Y_TEST)
    found.save_junit(tmp_path / "gate.xml")
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    failures = [
        case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    assert failures == [check.name for check in found.checks if not check.passed]
    assert int(suite.get("tests")) == 3
    assert int(suite.get("failures")) == len(failures)
    found.save_markdown(tmp_path / "gate.md")
    lines = (tmp_path / "gate.md").read_text().splitlines()
    assert lines[0] == f"## {found.title}"
    assert sum(line.startswith("| suspicious labels |") for line in lines) == 1
    assert all(
        line.replace("\\|", "").count("|") in (6, 8) for line in lines if line.startswith("|")
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_harm": -1.0}, "max_harm is -1"),
        ({"max_harm": None, "max_suspects": None, "max_unlike": None}, "nothing would be checked"),
        ({"confidence": 1.5}, "confidence is 1.5"),
        ({"slices": "county"}, "slices names the column 'county'"),
    ],
)
def test_refusals(tracer, settings, message):
    with pytest.raises(lt.InvalidInput, match=message):
        lt.gate(tracer, X_NEW, Y_NEW, X_TEST, Y_TEST, **settings)
    with pytest.raises(lt.InvalidInput, match="X_new has 3 rows"):
        lt.gate(tracer, X_NEW[:3], Y_NEW[:3], X_TEST, Y_TEST)


def test_models_that_draw_rows_are_sent_to_retraining():
    model = LGBMClassifier(
        n_estimators=5, subsample=0.5, subsample_freq=1, verbose=-1, n_jobs=1
    ).fit(X, Y)
    tracer = lt.Tracer(model, X, Y)
    with pytest.raises(lt.UnsupportedModel, match="retrain=True, or no max_harm"):
        lt.gate(tracer, X_NEW, Y_NEW, X_TEST, Y_TEST)
    assert len(lt.gate(tracer, X_NEW, Y_NEW, X_TEST, Y_TEST, max_harm=None).checks) == 2


def test_command(tracer, tmp_path, monkeypatch, capsys):
    """The exit code, the files and the JSON document have the verdict of the library."""
    monkeypatch.chdir(tmp_path)
    tracer.engine.source.booster.save_model("model.txt")
    labels, _ = flipped(Y_NEW, 0.1)
    for name, table, y in (
        ("train", X, Y), ("test", X_TEST, Y_TEST), ("good", X_NEW, Y_NEW), ("bad", X_NEW, labels)
    ):  # fmt: skip
        table.assign(label=y).to_parquet(f"{name}.parquet")
    call = [
        "gate",
        "model.txt",
        "--train",
        "train.parquet",
        "--target",
        "label",
        "--test",
        "test.parquet",
    ]
    assert main([*call, "--new", "good.parquet", "--test-by", "town"]) == 0
    assert "Pass: 5 checks" in capsys.readouterr().out.replace("6 checks", "5 checks")
    written = ["--junit", "gate.xml", "--markdown", "gate.md"]
    assert main([*call, "--new", "bad.parquet", *written]) == 1
    assert "Rows to look at" in capsys.readouterr().out
    assert "Stop: " in (tmp_path / "gate.md").read_text()
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("failures") in ("1", "2")
    assert main([*call, "--new", "bad.parquet", "--max-suspects", "0.3", "--max-harm", "1"]) == 0
    assert main([*call, "--new", "none.parquet"]) == 2
