"""MLflow: a report as metrics and artifacts of a run, and the evaluator of `mlflow.models.evaluate`."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import leaftrace as lt


@pytest.fixture(scope="module")
def tracer():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
    y = (X["a"] + rng.normal(size=200) > 0).astype(int).to_numpy()
    return lt.Tracer(LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y), X, y)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield
    mlflow.set_tracking_uri(None)


def logged(run_id):
    """Metrics, and contents of the artifacts by name."""
    client = mlflow.MlflowClient()
    found = [file.path for file in client.list_artifacts(run_id, "leaftrace")]
    paths = {
        path: mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=path)
        for path in found
    }
    return client.get_run(run_id).data.metrics, paths


def test_a_report_is_logged(tracer, store):
    X = tracer.X_train[:40]
    y = tracer.y_train[:40]
    report = lt.report(tracer, X, y, worst=3, top=2)
    with mlflow.start_run() as run:
        assert report.log_mlflow() == run.info.run_id
    metrics, files = logged(run.info.run_id)
    assert metrics["leaftrace.fidelity_exact"] == 1
    assert metrics["leaftrace.fidelity_max_error"] == tracer.fidelity.max_error
    own = tracer.refit().loss(X, y).mean()
    assert metrics["leaftrace.test_mean_loss"] == pytest.approx(own, rel=1e-6)
    assert metrics["leaftrace.surprising_labels"] == lt.label_noise(tracer).is_label_issue.sum()
    with open(files["leaftrace/report.json"], encoding="utf-8") as file:
        assert json.load(file) == json.loads(json.dumps(report.data))
    rows = pd.read_csv(files["leaftrace/influence.csv"])
    worst = tracer.refit().loss(X, y).argsort()[::-1][:3]
    assert list(rows["test_row"].unique()) == list(worst)
    first = rows[rows["test_row"] == worst[0]].set_index("position")["change"]
    exact = tracer.influence(X.iloc[[worst[0]]], y[[worst[0]]]).change[:, 0]
    np.testing.assert_allclose(first, exact[first.index], rtol=1e-5)
    with open(files["leaftrace/report.html"], encoding="utf-8") as file:
        assert file.read() == report.html


def test_runs_by_id_and_new_ones(tracer, store):
    report = lt.report(tracer, tracer.X_train[:5], tracer.y_train[:5], worst=1, noise=False)
    first = report.log_mlflow()
    assert mlflow.active_run() is None
    report.log_mlflow(first)
    assert report.log_mlflow(mlflow.get_run(first)) == first
    with pytest.raises(lt.InvalidInput, match="run is a int"):
        report.log_mlflow(7)


@pytest.mark.filterwarnings("ignore:.*type hint:UserWarning")  # about the function given as a model
def test_the_evaluator(tracer, store):
    """MLflow finds it by its name, and its numbers are those of a report."""
    data = tracer.X_train[:30].assign(label=tracer.y_train[:30])
    model = tracer.engine.as_trained
    with mlflow.start_run() as run:
        result = mlflow.models.evaluate(
            lambda rows: model.predict(rows[list("abc")]),
            data,
            targets="label",
            model_type="classifier",
            evaluators=["leaftrace"],
            evaluator_config={"leaftrace": {"tracer": tracer, "worst": 2}},
        )
    loss = tracer.refit().loss(data[list("abc")], data["label"].to_numpy()).mean()
    assert result.metrics["leaftrace.test_mean_loss"] == pytest.approx(loss, rel=1e-6)
    metrics, files = logged(run.info.run_id)
    assert metrics == result.metrics
    assert len(pd.read_csv(files["leaftrace/influence.csv"])["test_row"].unique()) == 2
