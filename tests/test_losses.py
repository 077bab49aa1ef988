"""Losses against finite differences of their own value, one derivative from the one below it."""

import numpy as np
import pytest

from leaftrace._losses import Logistic, Poisson, Softmax, SquaredError
from oracle import slope

H = 1e-2
TOLERANCE = 1e-6  # of order H^4 times the fifth derivative
CASES = [
    (SquaredError(), np.array([0.3, -2.0, 1.5])),
    (Logistic(), np.array([0.0, 1.0, 0.3])),
    (Poisson(), np.array([0.0, 3.0, 1.0])),
    (Softmax(3), np.array([0.0, 2.0, 1.0])),
]
ids = [type(loss).__name__ for loss, _ in CASES]


def scores(K):
    return np.random.default_rng(1).normal(size=(3, K))


def bump(K, k):
    return np.eye(K)[k]


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
def test_derivatives_in_the_score(loss, y):
    K, A = loss.n_outputs, scores(loss.n_outputs)
    s = np.random.default_rng(2).normal(size=A.shape)
    for k in range(K):
        g = slope(lambda e, k=k: loss.value(A + e * bump(K, k), y), H)
        np.testing.assert_allclose(loss.gradient(loss.state(A), y)[:, k], g, atol=TOLERANCE)
        h = slope(lambda e, k=k: loss.gradient(loss.state(A + e * bump(K, k)), y), H)
        np.testing.assert_allclose(loss.hessian(loss.state(A), y)[:, :, k], h, atol=TOLERANCE)
        hs = slope(lambda e, k=k: np.einsum("nab,nb->na", loss.hessian(loss.state(A + e * bump(K, k)), y), s), H)
        np.testing.assert_allclose(loss.third_dot(loss.state(A), y, s)[:, :, k], hs, atol=TOLERANCE)


@pytest.mark.parametrize(("loss", "y"), CASES[:3], ids=ids[:3])
def test_derivatives_in_a_number_label(loss, y):
    A, s = scores(1), np.full((3, 1), 0.7)
    at = loss.state(A)
    g = slope(lambda e: loss.gradient(at, y + e), H)
    np.testing.assert_allclose(loss.label_gradient(at, y)[..., 0], g, atol=TOLERANCE)
    hs = slope(lambda e: loss.hessian(at, y + e)[..., 0] * s, H)
    np.testing.assert_allclose(loss.label_hessian_dot(at, y, s)[..., 0], hs, atol=TOLERANCE)


def test_softmax_label_is_a_one_hot_row():
    loss, A = Softmax(3), scores(3)
    at = loss.state(A)
    moved = loss.gradient(at, np.array([1.0, 1.0, 1.0])) - loss.gradient(at, np.array([2.0, 2.0, 2.0]))
    slopes = loss.label_gradient(at, np.zeros(3))
    np.testing.assert_allclose(slopes[..., 1] - slopes[..., 2], moved, atol=1e-15)


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
def test_state_moves_without_an_exponential_per_row(loss, y):
    A = scores(loss.n_outputs)
    S = np.random.default_rng(3).normal(size=A.shape)
    np.testing.assert_allclose(loss.moved(loss.state(A), loss.shift(S)), loss.state(A + S), rtol=1e-13)


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_difference_form(loss, y, size):
    """g(A + D) - g(A) to full relative precision, even where the totals would cancel."""
    K, A = loss.n_outputs, scores(loss.n_outputs)
    rng = np.random.default_rng(4)
    D = rng.normal(size=(3, K, 2)) * size
    dg, dh = loss.difference(loss.state(A), D)
    h = loss.hessian(loss.state(A), y)
    for b in range(2):
        if size == 1.0:
            moved = loss.state(A + D[..., b])
            np.testing.assert_allclose(
                dg[..., b], loss.gradient(moved, y) - loss.gradient(loss.state(A), y), rtol=1e-10
            )
            np.testing.assert_allclose(dh[..., b], loss.hessian(moved, y) - h, rtol=1e-10, atol=1e-14)
        else:  # first order: h D, whose error is of relative order 1e-9
            first = np.einsum("nab,nb->na", h, D[..., b])
            np.testing.assert_allclose(dg[..., b], first, rtol=1e-7)


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
def test_the_best_constant_has_no_gradient(loss, y):
    w = np.array([0.5, 2.0, 1.0])
    K = loss.n_outputs
    mean = np.array([w @ y / w.sum()]) if K == 1 else np.array([w[y == k].sum() for k in range(K)]) / w.sum()
    state = loss.state(np.tile(loss.from_mean(mean), (3, 1)))
    np.testing.assert_allclose(w @ loss.gradient(state, y), 0, atol=1e-12)


def test_extreme_scores_stay_finite():
    A = np.array([[-800.0], [800.0]])
    state = Logistic().state(A)
    np.testing.assert_array_equal(state, [[0, 1], [1, 0]])
    assert np.isfinite(Logistic().value(A, np.array([1.0, 0.0]))).all()
    assert np.isfinite(Softmax(2).state(np.array([[900.0, -900.0]]))).all()
