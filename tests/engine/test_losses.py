"""Losses: each derivative against finite differences of the one below it."""

import numpy as np
import pytest
from oracle import slope

from leaftrace._model.general_losses import (
    Fair,
    Gamma,
    Huber,
    PseudoHuber,
    ScaledLogistic,
    SquaredLog,
    Tweedie,
)
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError
from leaftrace._model.separate_losses import Brier, OneVsAll

H = 1e-2
TOLERANCE = 1e-6  # of order H^4 times the fifth derivative
CASES = [
    (SquaredError(), np.array([0.3, -2.0, 1.5])),
    (Logistic(), np.array([0.0, 1.0, 0.3])),
    (Poisson(), np.array([0.0, 3.0, 1.0])),
    (Gamma(), np.array([0.4, 3.0, 1.0])),
    (Tweedie(1.3), np.array([0.0, 3.0, 1.0])),
    (Huber(0.6), np.array([0.3, -2.0, 1.5])),
    (PseudoHuber(0.8), np.array([0.3, -2.0, 1.5])),
    (Fair(1.2), np.array([0.3, -2.0, 1.5])),
    (SquaredLog(), np.array([0.3, 2.0, 1.5])),
    (ScaledLogistic(0.7), np.array([0.0, 1.0, 0.3])),
    (Softmax(3), np.array([0.0, 2.0, 1.0])),
    (OneVsAll(3, 0.7), np.array([0.0, 2.0, 1.0])),
    (Brier(3), np.array([0.0, 2.0, 1.0])),
]
NUMBERS = [case for case in CASES if case[0].n_outputs == 1]
ids = [type(loss).__name__ for loss, _ in CASES]


def scores(K):
    return np.random.default_rng(1).uniform(
        -0.4, 1.5, size=(3, K)
    )  # above -1 for the squared log error


def bump(K, k):
    return np.eye(K)[k]


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
def test_derivatives_in_the_score(loss, y):
    K = loss.n_outputs
    A = scores(loss.n_outputs)
    s = np.random.default_rng(2).normal(size=A.shape)
    for k in range(K):
        g = slope(lambda e, k=k: loss.value(A + e * bump(K, k), y), H)
        np.testing.assert_allclose(loss.gradient(loss.state(A), y)[:, k], g, atol=TOLERANCE)
        h = slope(lambda e, k=k: loss.gradient(loss.state(A + e * bump(K, k)), y), H)
        np.testing.assert_allclose(loss.jacobian(loss.state(A), y)[:, :, k], h, atol=TOLERANCE)
        hs = slope(
            lambda e, k=k: np.einsum(
                "nab,nb->na", loss.hessian(loss.state(A + e * bump(K, k)), y), s
            ),
            H,
        )
        np.testing.assert_allclose(loss.third_dot(loss.state(A), y, s)[:, :, k], hs, atol=TOLERANCE)
        own = slope(lambda e, k=k: loss.hessian_diagonal(loss.state(A + e * bump(K, k)), y), H)
        third = loss.third_diagonal(loss.state(A), y)[:, :, k]
        np.testing.assert_allclose(third, own, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("loss", "y"), NUMBERS, ids=ids[: len(NUMBERS)])
def test_derivatives_in_a_number_label(loss, y):
    A = scores(1)
    s = np.full((3, 1), 0.7)
    at = loss.state(A)
    g = slope(lambda e: loss.gradient(at, y + e), H)
    np.testing.assert_allclose(loss.label_gradient(at, y)[..., 0], g, atol=TOLERANCE)
    hs = slope(lambda e: loss.hessian(at, y + e)[..., 0] * s, H)
    np.testing.assert_allclose(loss.label_hessian_dot(at, y, s)[..., 0], hs, atol=TOLERANCE)


def test_softmax_label_is_a_one_hot_row():
    loss = Softmax(3)
    A = scores(3)
    at = loss.state(A)
    moved = loss.gradient(at, np.array([1.0, 1.0, 1.0])) - loss.gradient(
        at, np.array([2.0, 2.0, 2.0])
    )
    slopes = loss.label_gradient(at, np.zeros(3))
    np.testing.assert_allclose(slopes[..., 1] - slopes[..., 2], moved, atol=1e-15)


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
def test_state_moves_without_an_exponential_per_row(loss, y):
    A = scores(loss.n_outputs)
    S = np.random.default_rng(3).normal(size=A.shape)
    np.testing.assert_allclose(
        loss.moved(loss.state(A), loss.shift(S)), loss.state(A + S), rtol=1e-13
    )


@pytest.mark.parametrize(("loss", "y"), CASES, ids=ids)
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_difference_form(loss, y, size):
    """g(A + D) - g(A) has full relative precision, even where a plain difference would cancel."""
    K = loss.n_outputs
    A = scores(loss.n_outputs)
    rng = np.random.default_rng(4)
    D = rng.normal(size=(3, K, 2)) * size
    dg, dh = loss.difference(loss.state(A), D, y)
    h = loss.hessian(loss.state(A), y)
    for b in range(2):
        if size == 1.0:
            moved = loss.state(A + D[..., b])
            np.testing.assert_allclose(
                dg[..., b], loss.gradient(moved, y) - loss.gradient(loss.state(A), y), rtol=1e-10
            )
            np.testing.assert_allclose(
                dh[..., b], loss.hessian(moved, y) - h, rtol=1e-10, atol=1e-14
            )
        else:  # first order: h D, whose error is of relative order 1e-9
            first = np.einsum("nab,nb->na", loss.jacobian(loss.state(A), y), D[..., b])
            exact = loss.kernel is not None  # the other losses use the difference of totals
            np.testing.assert_allclose(
                dg[..., b], first, rtol=1e-7 if exact else 1e-5, atol=0 if exact else 1e-15
            )


def test_extreme_scores_stay_finite():
    A = np.array([[-800.0], [800.0]])
    state = Logistic().state(A)
    np.testing.assert_array_equal(state, [[0, 1], [1, 0]])
    assert np.isfinite(Logistic().value(A, np.array([1.0, 0.0]))).all()
    assert np.isfinite(Softmax(2).state(np.array([[900.0, -900.0]]))).all()
