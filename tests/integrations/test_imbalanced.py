"""imbalanced-learn: pipelines whose samplers choose, repeat or make rows."""

import numpy as np
import pandas as pd
import pytest
from imblearn.over_sampling import SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline
from imblearn.under_sampling import RandomUnderSampler, TomekLinks
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.preprocessing import StandardScaler

import leaftrace as lt

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
Y = np.where(X["a"] + 0.5 * rng.normal(size=200) > 0.8, "rare", "usual")
TEST = pd.DataFrame(rng.normal(size=(5, 3)), columns=["a", "b", "c"])
STEP = 1e-4
SAMPLERS = {
    "fewer rows": [RandomUnderSampler(random_state=0)],
    "rows twice": [RandomOverSampler(random_state=0)],
    "one after the other": [TomekLinks(), RandomOverSampler(random_state=0)],
}


def fitted(*samplers):
    model = GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0)
    return make_pipeline(StandardScaler(), *samplers, model).fit(X, Y)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_that_choose_rows(name):
    """A row acts through all its copies; rows that were left out have no effect."""
    pipeline = fitted(*SAMPLERS[name])
    tracer = lt.Tracer(pipeline, X, Y, dtype="float64")
    assert tracer.fidelity.exact
    unchanged = tracer.refit()
    np.testing.assert_allclose(unchanged.predict_proba(TEST), pipeline.predict_proba(TEST))
    refitted = tracer.refit(without=np.arange(50))
    assert type(refitted.model) is type(pipeline)
    expected = refitted.model.predict_proba(TEST)
    np.testing.assert_allclose(refitted.predict_proba(TEST), expected, atol=1e-12)
    effects = tracer.influence(TEST, Y[:5]).values
    (rows,) = tracer.member_rows.values()
    copies = np.bincount(rows, minlength=200)
    assert not effects[copies == 0].any()
    for row in (copies.argmax(), np.flatnonzero(copies == 1)[0]):
        w = np.ones(200)
        w[row] += STEP
        up = tracer.refit(sample_weight=w).loss(TEST, Y[:5])
        w[row] -= 2 * STEP
        slope = (up - tracer.refit(sample_weight=w).loss(TEST, Y[:5])) / (2 * STEP)
        np.testing.assert_allclose(effects[row], slope, rtol=1e-5, atol=1e-9)


def test_samplers_that_make_rows():
    pipeline = fitted(SMOTE(random_state=0))
    with pytest.raises(lt.UnsupportedModel, match=r"'smote' \(SMOTE\) makes rows"):
        lt.Tracer(pipeline, X, Y)
    # What the message advises.
    rows = pipeline[0].transform(X)
    X_new, y_new = SMOTE(random_state=0).fit_resample(rows, Y)
    assert lt.Tracer(pipeline[-1], X_new, y_new).fidelity.exact
