"""pyDVL and OpenDataVal: values of rows as their result types."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import leaftrace as lt
from leaftrace._tracer.exports import as_opendataval


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 3)), index=[f"r{i}" for i in range(120)])
    y = (X[0] > 0).astype(int).to_numpy()
    tracer = lt.Tracer(
        LGBMClassifier(n_estimators=5, min_child_samples=3, verbose=-1).fit(X[:80], y[:80]),
        X[:80],
        y[:80],
    )
    return tracer, X[80:], y[80:]


def test_influence_as_a_result_of_pydvl(world):
    from pydvl.valuation.result import ValuationResult

    tracer, X, y = world
    influence = tracer.influence(X, y, reduce="mean")
    found = influence.to_pydvl()
    assert isinstance(found, ValuationResult)
    np.testing.assert_allclose(found.values, -influence.values[:, 0], rtol=1e-6)
    assert list(found.names[:2]) == ["r0", "r1"]
    worst = found.sort()
    assert worst.names[0] == tracer.train_index[np.argmax(influence.values[:, 0])]


def test_data_values_keep_their_errors(world):
    tracer, X, y = world
    values = lt.data_values(tracer, X, y, members=8, bag=0.3, seed=0)
    found = values.to_pydvl()
    np.testing.assert_allclose(found.values, values.values)
    np.testing.assert_allclose(found.stderr, values.error)
    frame = found.to_dataframe(column="value")
    assert len(frame) == 80


def test_a_finished_evaluator_of_opendataval(world):
    """Its own experiment finds the rows of negative value.

    OpenDataVal pins old versions of NumPy, pandas and torch, so it is tried where it is installed."""
    dataval = pytest.importorskip("opendataval.dataval")
    from opendataval.dataloader import DataFetcher, mix_labels
    from opendataval.experiment.exper_methods import noisy_detection

    tracer, X, y = world
    influence = tracer.influence(X, y, reduce="mean")
    found = influence.to_opendataval()
    assert isinstance(found, dataval.DataEvaluator)
    np.testing.assert_allclose(found.data_values, influence.data_values())
    table = tracer.X_train.to_numpy("float32")
    labels = np.eye(2)[tracer.y_train]
    fetcher = DataFetcher.from_data_splits(
        table[:60], labels[:60], table[60:70], labels[60:70], table[70:], labels[70:], one_hot=True
    )
    fetcher = fetcher.noisify(mix_labels, noise_rate=0.2)
    values = np.ones(60)
    values[fetcher.noisy_train_indices] = -1
    found = as_opendataval(values)
    assert noisy_detection(found, fetcher)["kmeans_f1"] == 1.0
