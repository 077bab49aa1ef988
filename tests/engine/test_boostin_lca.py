"""BoostInLCA against loops over pairs of rows, with paths read from the library's own trees."""

import numpy as np
import pytest
from contract import prepared
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace.baselines import BoostInLCA

N = 50
RATE = 0.3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + 4, 3))
    y = (X[:, 0] + 0.7 * rng.normal(size=N + 4) > 0).astype(int)
    return X, y, rng.uniform(0.5, 2, N)


@pytest.fixture(scope="module")
def model(data):
    X, y, w = data
    settings = {"n_estimators": 4, "max_depth": 3, "learning_rate": RATE, "base_score": 0.4}
    return XGBClassifier(**settings, reg_lambda=1.5, n_jobs=1).fit(X[:N], y[:N], sample_weight=w)


def paths(table, leaves):
    """Return for each row the names of the nodes it passes in a tree, from the root to its leaf."""
    above = {child: line.ID for line in table.itertuples() for child in (line.Yes, line.No)}
    found = []
    for leaf in leaves:
        path = [f"{table['Tree'].iloc[0]}-{leaf}"]
        while path[0] in above:
            path.insert(0, above[path[0]])
        found.append(path)
    return found


def shared_node(one, other):
    return [a for a, b in zip(one, other, strict=False) if a == b][-1]


def test_against_loops_over_pairs(data, model):
    X, y, w = data
    A = np.full(N, np.log(0.4 / 0.6))
    F = np.full((N, 4), np.log(0.4 / 0.6))
    expected = np.zeros((N, 4))
    every = model.get_booster().trees_to_dataframe()
    leaves = model.apply(X).astype(int)
    for tree, table in every.groupby("Tree"):
        p = 1 / (1 + np.exp(-A))
        g = p - y[:N]
        h = p * (1 - p)
        passed = paths(table, leaves[:, tree])
        last = max(map(len, passed)) - 1  # the depth of the tree
        inside = {node: [node in path for path in passed[:N]] for node in table["ID"]}
        total = {node: (w * h)[rows].sum() + 1.5 for node, rows in inside.items()}
        step = {node: -(w * g)[rows].sum() / total[node] for node, rows in inside.items()}
        for i in range(N):
            for x in range(4):
                node = shared_node(passed[i], passed[N + x])
                deeper = np.exp(passed[i].index(node)) / np.exp(np.arange(last + 1)).sum()
                F[i, x] += RATE * step[node]
                c = 1 / (1 + np.exp(-F[i, x])) - y[N + x]
                slope = -RATE * (g[i] + h[i] * step[node]) / total[node]
                expected[i, x] += deeper * c * slope
        A = A + RATE * np.array([step[path[-1]] for path in passed[:N]])
    tracer = lt.Tracer(model, X[:N], y[:N], w, dtype="float64")
    found = tracer.influence(X[N:], y[N:], method=BoostInLCA())
    np.testing.assert_allclose(found.values, expected, atol=1e-5 * np.abs(expected).max())
    assert found.scored
    mean = tracer.influence(X[N:], y[N:], method=BoostInLCA(), rows=[8, 3], reduce="mean").values
    np.testing.assert_allclose(
        mean[:, 0], expected[[8, 3]].mean(axis=1), atol=1e-5 * np.abs(expected).max()
    )


def test_chunks_and_several_classes(monkeypatch):
    """A few rows at a time give the same values, in a model with a tree for each class."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    wrong = rng.random(120) < 0.1
    given = np.where(wrong, (y + 1) % 3, y)
    tracer = lt.Tracer(XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(X, given), X, given)
    found = tracer.influence(X, y, method=BoostInLCA(), reduce="mean").values[:, 0]
    assert (found[wrong][:, None] > found[~wrong]).mean() > 0.9
    monkeypatch.setattr("leaftrace.baselines._boostin_lca._CHUNK_BYTES", 8 * 120 * 3 * 7)
    again = tracer.influence(X, y, method=BoostInLCA(), reduce="mean").values[:, 0]
    np.testing.assert_allclose(again, found, rtol=1e-6)


def test_models_it_is_not_for(data, model):
    X, y, w = data
    tracer = lt.Tracer(model, X[:N], y[:N], w)
    with pytest.raises(lt.InvalidInput, match=r"BoostInLCA tells .* of='loss' alone"):
        tracer.influence(X[N:], y[N:], method=BoostInLCA(), of="prediction")
    case, penalised, *_ = prepared("XGBoost: penalties and bounds")
    with pytest.raises(lt.UnsupportedModel, match="one plain step for each leaf"):
        penalised.influence(case.data.X_test, case.data.y_test, method=BoostInLCA())
