"""Effects of rows of several classes: the native kernel against its twin, and against NumPy for a model."""

import copy

import lightgbm as lgb
import numpy as np
import pytest
from catboost import CatBoostClassifier
from kernel_calls import call_of_classes, call_of_output_sums, call_of_separate_outputs

import leaftrace as lt
from leaftrace._engine import placed_rows, row_effects
from leaftrace._model.further_losses.targets import (
    LogisticTargets,
    QuantileTargets,
    SquaredTargets,
)
from leaftrace._model.kernels import is_native, kernels
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.losses import Softmax
from leaftrace._model.separate_losses import Brier, OneVsAll


@pytest.mark.skipif(not is_native(), reason="there is no native kernel to compare")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("newton", [True, False])
@pytest.mark.parametrize("O", [1, 3])
def test_native_against_twin(O, newton, kind):
    name, arguments = call_of_classes(O)
    arguments |= {
        "newton": newton,
        "V": arguments["V"].astype(kind),
        "U": arguments["U"].astype(kind),
    }
    arguments["A"] = 8 * (arguments["A"] - 0.6)  # sure and unsure rows
    found = copy.deepcopy(arguments)
    getattr(twins, name)(**arguments)
    getattr(kernels, name)(**found)
    # Both compute in float64 and round at the end; exponentials may differ in their last bit.
    tolerance = 1e-6 if kind is np.float32 else 1e-13
    for output in ("V", "U", "A"):
        largest = np.abs(arguments[output]).max()
        np.testing.assert_allclose(
            found[output], arguments[output], rtol=tolerance, atol=tolerance * largest
        )
    assert arguments["U"][:, 1:-1].any(axis=(1, 2, 3)).all()
    assert not found["U"][:, [0, -1]].any()  # rows outside of begin .. end


@pytest.mark.skipif(not is_native(), reason="there is no native kernel to compare")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("newton", [True, False])
@pytest.mark.parametrize("O", [1, 3])
def test_separate_outputs_native_against_twin(O, newton, kind):
    name, arguments = call_of_separate_outputs(O)
    outputs = {out: arguments[out].astype(kind) for out in ("V", "U")}
    arguments |= outputs | {"newton": newton}
    found = copy.deepcopy(arguments)
    getattr(twins, name)(**arguments)
    getattr(kernels, name)(**found)
    tolerance = 1e-6 if kind is np.float32 else 1e-14  # sums of O numbers, rounded once
    for out in outputs:
        np.testing.assert_allclose(found[out], arguments[out], rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(not is_native(), reason="there is no native kernel to compare")
@pytest.mark.parametrize("flags", range(16))
@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("O", [1, 3])
def test_sums_native_against_twin(O, draws, flags):
    name, arguments = call_of_output_sums(O)
    arguments["flags"] = flags
    if not draws:
        arguments["drawn"] = arguments["drawn"][:0]
    found = copy.deepcopy(arguments)
    getattr(twins, name)(**arguments)
    getattr(kernels, name)(**found)
    for out in ("G", "H"):  # the same numbers, added in another order
        np.testing.assert_allclose(found[out], arguments[out], rtol=1e-14)
    weights = {key: arguments[key] for key in ("leaf", "w", "drawn")}
    weights["w"] = np.where(np.arange(len(weights["w"])) % 3, weights["w"], 0.0)
    sums = [np.ones((len(arguments["G"]), 2)) for _ in range(2)]
    kernels.weight_sums(**weights, out=sums[0])
    twins.weight_sums(**weights, out=sums[1])
    np.testing.assert_allclose(*sums, rtol=1e-14)


@pytest.fixture(scope="module")
def tracer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.digitize(X[:, 0] + rng.normal(size=300), [-1, 0, 1])
    model = lgb.LGBMClassifier(
        n_estimators=5, num_leaves=5, verbose=-1, bagging_freq=1, bagging_fraction=0.7
    )
    return lt.Tracer(model.fit(X, y), X, y, sample_weight=None)


def test_effects_of_a_model(tracer, monkeypatch):
    """All steps at once, one step, and NumPy for any loss give the same effects."""
    trace = tracer.engine.work.trace
    rows = placed_rows.training_rows(trace)
    dtype = np.dtype(np.float64)

    def effects():
        V, U = row_effects.empty_effects(trace, len(rows), dtype)
        for part in (slice(0, 120), slice(120, 300)):
            row_effects.fill_effects(trace, rows, part, V, U)
        return V, U

    at_once = effects()
    monkeypatch.setattr(row_effects, "_has_native_classes", lambda trace: False)
    for found, expected in zip(at_once, effects(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())
    monkeypatch.undo()
    for t, A in placed_rows.forward_scores(trace, rows):
        trees = trace.ensemble.trees(t)
        V, U = (np.empty_like(full[trees]) for full in at_once)
        row_effects.step_effects(trace, rows, t, A, V, U)
        np.testing.assert_allclose(V, at_once[0][trees], rtol=1e-12)
        np.testing.assert_allclose(U, at_once[1][trees], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    "loss", [Softmax(4), OneVsAll(4, 0.7), Brier(4)], ids=lambda loss: loss.name
)
def test_diagonals_of_second_derivatives(loss):
    rng = np.random.default_rng(0)
    state = loss.state(rng.normal(size=(9, 4)))
    y = rng.integers(0, 4, 9).astype(float)
    diagonal = np.einsum("nkk->nk", loss.hessian(state, y))
    np.testing.assert_array_equal(loss.hessian_diagonal(state, y), diagonal)


LABELS = np.random.default_rng(1).integers(0, 3, 40).astype(float)
TARGETS = np.random.default_rng(2).random((40, 3))


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (OneVsAll(3, 1.3), LABELS),
        (Brier(3), LABELS),
        (SquaredTargets(3), TARGETS),
        (LogisticTargets(3), TARGETS),
        (QuantileTargets((0.1, 0.5, 0.8)), TARGETS),
        (QuantileTargets((0.1, 0.5, 0.8)), LABELS),
    ],
)
def test_own_terms_are_slopes_of_g_and_h(loss, y):
    A = 2 * np.random.default_rng(3).normal(size=(40, 3))
    state = loss.state(A)
    g, j, h, k = loss.own_terms(state, y)
    np.testing.assert_array_equal(g, loss.gradient(state, y))
    np.testing.assert_array_equal(h, np.einsum("naa->na", loss.hessian(state, y)))
    step = 1e-5
    for o in range(3):
        ends = [A + sign * step * np.eye(3)[o] for sign in (1, -1)]
        for derivative, of in ((j, loss.gradient), (k, loss.hessian_diagonal)):
            high, low = (of(loss.state(end), y) for end in ends)
            slope = (high - low) / (2 * step)
            # Central differences: rounding 1e-16 / step, curvature step^2.
            np.testing.assert_allclose(slope[:, o], derivative[:, o], atol=1e-8)
            assert not np.delete(slope, o, axis=1).any()  # outputs do not depend on each other
    assert Softmax(3).own_terms(Softmax(3).state(A), LABELS) is None


@pytest.mark.parametrize("iterations", [1, 3])
def test_effects_of_separate_outputs(iterations, monkeypatch):
    """Each output by itself, and NumPy for any loss, give the same effects."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = np.digitize(X[:, 0] + rng.normal(size=200), [-1, 0, 1])
    model = CatBoostClassifier(
        iterations=4, depth=3, loss_function="MultiClassOneVsAll", verbose=0, thread_count=1,
        leaf_estimation_iterations=iterations, allow_writing_files=False,
    )  # fmt: skip
    trace = lt.Tracer(model.fit(X, y), X, y).engine.work.trace
    rows = placed_rows.training_rows(trace)

    def effects():
        V, U = row_effects.empty_effects(trace, len(rows), np.dtype(np.float64))
        for part in (slice(0, 120), slice(120, 200)):
            row_effects.fill_effects(trace, rows, part, V, U)
        return V, U

    found = effects()
    monkeypatch.setattr(OneVsAll, "own_terms", lambda *_: None)
    for one, other in zip(found, effects(), strict=True):
        assert other.any()
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14 * np.abs(other).max())
