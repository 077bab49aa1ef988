"""skrub: pipelines that it makes for a table."""

import numpy as np
import pandas as pd
from skrub import tabular_pipeline

import leaftrace as lt


def test_tabular_pipeline():
    """Replayed exactly, and predicted as by the pipeline itself, from a table of mixed columns."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=300),
            "town": rng.choice(["Rome", "Oslo", "Lima"], 300),
            "day": pd.date_range("2024-01-01", periods=300),
        }
    )
    y = np.where(X["size"] + (X["town"] == "Rome") > 0.4, "yes", "no")
    pipeline = tabular_pipeline("classification").set_params(
        histgradientboostingclassifier__max_iter=10
    )
    pipeline.fit(X, y)
    tracer = lt.Tracer(pipeline, X, y)
    assert tracer.fidelity.exact
    own = tracer.engine.as_trained
    np.testing.assert_allclose(own.predict_proba(X), pipeline.predict_proba(X), atol=1e-12)
    refitted = tracer.refit(without=[1, 2, 3])
    np.testing.assert_allclose(
        refitted.predict_proba(X), refitted.model.predict_proba(X), atol=1e-12
    )
    assert np.abs(refitted.predict_proba(X) - pipeline.predict_proba(X)).max() > 1e-4
