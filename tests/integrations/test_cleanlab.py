"""cleanlab: issue managers for Datalab, with the scores and flags of leaftrace."""

import numpy as np
import pandas as pd
import pytest
from cleanlab import Datalab
from lightgbm import LGBMClassifier

import leaftrace as lt
import leaftrace.integrations.cleanlab  # registers the issue managers


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(500, 3)), columns=list("abc"))
    right = (X["a"] + X["b"] > 0).astype(int).to_numpy()
    wrong = rng.random(500) < 0.08
    y = np.where(wrong, 1 - right, right)
    model = LGBMClassifier(n_estimators=20, num_leaves=8, verbose=-1).fit(X[:400], y[:400])
    tracer = lt.Tracer(model, X[:400], y[:400])
    return tracer, wrong[:400], (X[400:], right[400:])


def test_labels(world):
    tracer, wrong, _ = world
    lab = Datalab({"y": tracer.y_train}, label_name="y", verbosity=0)
    lab.find_issues(issue_types={"leaftrace_label": {"tracer": tracer}})
    found = lab.get_issues("leaftrace_label")
    own = lt.label_noise(tracer)
    np.testing.assert_array_equal(found["is_leaftrace_label_issue"], own.is_label_issue)
    np.testing.assert_allclose(found["leaftrace_label_score"], own.label_score)
    assert found["leaftrace_label_score"].between(0, 1).all()
    first = found["leaftrace_label_score"].argsort()[: wrong.sum()]
    assert wrong[first].mean() > 0.7
    summary = lab.get_issue_summary("leaftrace_label")
    assert summary["num_issues"].item() == own.is_label_issue.sum()
    np.testing.assert_array_equal(
        lab.get_info("leaftrace_label")["predicted_label"], own.predicted_label
    )
    lab.report(verbosity=0)


def test_harmful_rows(world):
    """A score of 0.5 means no effect; harm and only harm is flagged."""
    tracer, wrong, (X_val, y_val) = world
    lab = Datalab({"y": tracer.y_train}, label_name="y", verbosity=0)
    lab.find_issues(issue_types={"harmful_row": {"tracer": tracer, "X_val": X_val, "y_val": y_val}})
    found = lab.get_issues("harmful_row")
    values = -tracer.influence(X_val, y_val, reduce="mean").values[:, 0]
    np.testing.assert_allclose(
        found["harmful_row_score"], 0.5 + 0.5 * values / np.abs(values).max(), rtol=1e-5
    )
    flagged = found["is_harmful_row_issue"]
    assert flagged.any()
    assert (found["harmful_row_score"][flagged] < 0.5).all()
    assert wrong[flagged].mean() > 3 * wrong.mean()


def test_its_own_checks_read_our_columns(world):
    """Columns of `label_noise` have the names and meanings of cleanlab's label issues."""
    tracer, _, _ = world
    lab = Datalab({"y": tracer.y_train}, label_name="y", verbosity=0)
    probabilities = tracer.engine.as_trained.predict_proba(tracer.X_train)
    lab.find_issues(pred_probs=probabilities, issue_types={"label": {}})
    theirs = lab.get_issues("label")
    ours = lt.label_noise(tracer).issues
    assert set(theirs.columns) <= set(ours.columns)


def test_refusals(world):
    tracer, _, _ = world
    lab = Datalab({"y": tracer.y_train[:50]}, label_name="y", verbosity=0)
    manager = leaftrace.integrations.cleanlab.LabelIssues(lab)
    with pytest.raises(lt.InvalidInput, match="400 training rows, and the Datalab 50"):
        manager.find_issues(tracer=tracer)
    with pytest.raises(lt.InvalidInput, match="needs a tracer"):
        manager.find_issues()
    with pytest.raises(lt.InvalidInput, match="needs validation rows"):
        leaftrace.integrations.cleanlab.HarmfulRows(lab).find_issues(tracer=tracer)
