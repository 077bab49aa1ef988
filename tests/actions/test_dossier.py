"""The membership test of `removal_impact` by plain definitions, and its signed page."""

import hashlib
import hmac
import json

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scipy.stats import wasserstein_distance
from sklearn.metrics import roc_auc_score

import leaftrace as lt
from leaftrace._actions.impact.membership import auc
from leaftrace._views.cli import main

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = (X[:, 0] + RNG.normal(size=300) > 0).astype(int)
X_TEST = RNG.normal(size=(200, 4))
Y_TEST = (X_TEST[:, 0] + RNG.normal(size=200) > 0).astype(int)
GONE = np.arange(0, 300, 6)
KEY = b"a secret of many bytes"


def make():
    return LGBMClassifier(n_estimators=20, num_leaves=15, min_child_samples=3, verbose=-1, n_jobs=1)


@pytest.fixture(scope="module")
def tracer():
    return lt.Tracer(make().fit(X, Y), X, Y, dtype="float64")


@pytest.fixture(scope="module")
def impact(tracer):
    return lt.removal_impact(tracer, GONE, X_TEST, Y_TEST, controls=2, seed=3)


def losses(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y])


def attacked(tracer, gone):
    """The values of the table, by the models themselves and other libraries' definitions."""
    refitted = tracer.refit(without=gone).model
    retrained = make().fit(np.delete(X, gone, axis=0), np.delete(Y, gone))
    models = [tracer.refit().model, refitted, retrained]
    out = []
    for model in models:
        seen = losses(model, X[gone], Y[gone])
        unseen = losses(model, X_TEST, Y_TEST)
        member = np.repeat([1, 0], [len(seen), len(unseen)])
        out.append(roc_auc_score(member, -np.concatenate([seen, unseen])))
    two = [losses(model, X[gone], Y[gone]) for model in (refitted, retrained)]
    out.append(roc_auc_score(np.repeat([1, 0], len(gone)), -np.concatenate(two)))
    P = [model.predict_proba(X_TEST)[:, 1] for model in (refitted, retrained)]
    return [*out, wasserstein_distance(*P)]


def test_values_are_those_of_the_models_themselves(tracer, impact):
    table = impact.membership
    np.testing.assert_allclose(table["value"], attacked(tracer, GONE), atol=1e-6)
    rng = np.random.default_rng(3)
    controls = [attacked(tracer, rng.choice(300, len(GONE), replace=False)) for _ in range(2)]
    np.testing.assert_allclose(table["controls_low"], np.min(controls, axis=0), atol=1e-6)
    np.testing.assert_allclose(table["controls_high"], np.max(controls, axis=0), atol=1e-6)
    with_rows, refitted, retrained = table["value"][:3]
    assert with_rows > refitted > retrained  # it forgets step by step
    assert with_rows > 0.5 + 2 * table["standard_error"][0]


def test_standard_errors_are_those_of_repeated_draws():
    """Spread of the AUC over draws of samples, unpaired and paired, to a fifth."""
    rng = np.random.default_rng(1)
    for paired in (False, True):
        drawn = []
        for _ in range(300):
            a = rng.normal(size=80)
            b = 0.9 * a + 0.3 * rng.normal(size=80) + 0.2 if paired else rng.normal(size=60) + 0.4
            drawn.append(auc(a, b, paired))
        values, errors = np.array(drawn).T
        assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)
    assert auc(np.array([1.0, 2.0]), np.array([1.0, 2.0]))[0] == 0.5
    value, error = auc(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert value == 1.0
    assert np.isnan(error)  # four rows that are told apart say nothing of the next ones


def test_without_labels_or_retraining_less_is_compared(tracer):
    found = lt.removal_impact(tracer, GONE, X_TEST).membership
    assert len(found) == 2
    found = lt.removal_impact(tracer, GONE, X_TEST, Y_TEST, retrain=False).membership
    assert list(found["comparison"].str.contains("refitted|trained with")) == [True, True]


def test_a_signed_page(impact, tmp_path):
    path = tmp_path / "request.html"
    impact.save_dossier(path, KEY)
    content = path.read_bytes()
    page, last = content[: content.rindex(b"<!--")], content[content.rindex(b"<!--") :].decode()
    assert hashlib.sha256(page).hexdigest() in last
    assert hmac.new(KEY, page, "sha256").hexdigest() in last
    assert lt.RemovalImpact.read_dossier(path, KEY) == impact.audit()
    assert lt.RemovalImpact.read_dossier(path) == impact.audit()
    assert impact.audit()["model"]["sha256"] in page.decode()
    assert "default-src 'none'" in page.decode()
    assert json.dumps(impact.audit())  # values that JSON can hold
    for changed, message in (
        (content.replace(b"never saw", b"never ever saw", 1), "SHA-256 does not fit"),
        (content[:-5], "does not end with the signature"),
        (page + last.replace(last[-20:-5], "0" * 15).encode(), "HMAC does not fit"),
    ):
        path.write_bytes(changed)
        with pytest.raises(lt.InvalidInput, match=message):
            lt.RemovalImpact.read_dossier(path, KEY)
    impact.save_dossier(path)
    with pytest.raises(lt.InvalidInput, match="signed without a key"):
        lt.RemovalImpact.read_dossier(path, KEY)
    with pytest.raises(lt.InvalidInput, match="16 bytes or more"):
        impact.save_dossier(path, b"short")


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = list("abcd")
    model = make().fit(pd.DataFrame(X, columns=names), Y)
    model.booster_.save_model("model.txt")
    pd.DataFrame(X, columns=names).assign(y=Y).to_parquet("train.parquet")
    pd.DataFrame(X_TEST, columns=names).assign(y=Y_TEST).to_parquet("test.parquet")
    (tmp_path / "key").write_bytes(KEY + b"\n")
    call = [
        "impact",
        "model.txt",
        "--train",
        "train.parquet",
        "--target",
        "y",
        "--test",
        "test.parquet",
    ]
    call += ["--rows", "0-20"]
    assert main([*call, "--dossier", "page.html", "--key-file", "key"]) == 0
    assert "never saw them" in capsys.readouterr().out
    record = lt.RemovalImpact.read_dossier(tmp_path / "page.html", KEY)
    assert record["removed"]["count"] == 21
    assert main([*call, "--key-file", "key"]) == 2
    (tmp_path / "key").write_bytes(b"short")
    assert main([*call, "--dossier", "page.html", "--key-file", "key"]) == 2
