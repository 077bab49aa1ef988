"""Derivatives of users' functions, compared with those on paper."""

import numpy as np
import pytest

from leaftrace._model.further_losses.numeric_derivative import derivative, takes_complex

X = np.random.default_rng(0).normal(size=400) * 2


def column(f):
    """Return f as a function of rows that gives one column."""
    return lambda x, rows: f(x)[:, None]


def test_complex_steps_have_all_digits():
    f = column(lambda x: np.exp(np.sin(3 * x)))
    assert takes_complex(f, X)
    expected = 3 * np.cos(3 * X) * np.exp(np.sin(3 * X))
    np.testing.assert_allclose(derivative(f, X, True)[:, 0], expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("try_complex", [True, False])
def test_functions_that_complex_steps_get_wrong(try_complex):
    """|x| loses the imaginary part, and sign(x) is x / |x| for complex x."""
    f = column(lambda x: np.sign(x) * np.minimum(np.abs(x) ** 2, 0.7 + 0 * np.abs(x)))
    expected = np.where(np.abs(X) ** 2 < 0.7, 2 * np.abs(X), 0.0)
    # A difference over 4e-4 has 1e-16 / 4e-4 of rounding; next to a kink its step is shorter.
    np.testing.assert_allclose(derivative(f, X, try_complex)[:, 0], expected, atol=1e-9)


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("side", [-1, 1])
def test_kinks_nearby(distance, side):
    """At a distance below the smallest step the slope of either side is right."""
    x = np.full(1, 0.3 + side * distance)
    f = column(lambda x: np.where(x > 0.3, 5.0, 2.0) * (x - 0.3) + x**2)
    found = derivative(f, x, False)[0, 0]
    slopes = [slope + 2 * x[0] for slope in (2.0, 5.0)]
    if distance < 1e-6:
        assert min(abs(found - slope) for slope in slopes) < 1e-6
    else:
        assert found == pytest.approx(slopes[int(side > 0)], abs=1e-7)


def test_a_function_that_refuses_complex_numbers():
    assert not takes_complex(column(lambda x: np.asarray(x, float)), X)  # warns and drops i
    assert not takes_complex(column(lambda x: np.arctan2(x, 1.0)), X)  # raises
    f = column(lambda x: np.arctan2(x, 1.0))
    np.testing.assert_allclose(derivative(f, X, False)[:, 0], 1 / (1 + X**2), atol=1e-11)


@pytest.mark.parametrize("rows", [1, 400])
@pytest.mark.parametrize("rounded", ["result", "argument"])
def test_functions_in_float32(rounded, rows):
    """Their values are steps, which short differences would take for slopes."""

    def sigmoid(x):
        x = np.float32(x) if rounded == "argument" else x
        return np.float32(1 / (1 + np.exp(-x))).astype(float)

    x = X[:rows]
    f = column(sigmoid)
    p = 1 / (1 + np.exp(-x))
    # Rounding to 6e-8 of a value, and of an argument up to 7, over a step of 0.01 or so.
    np.testing.assert_allclose(derivative(f, x, False)[:, 0], p * (1 - p), atol=3e-4)


def test_kinks_that_all_rows_are_at():
    """They are not taken for steps of float32."""
    x = np.zeros(300)
    f = column(lambda x: np.where(x > 0, 2 * x, -x) + x**2)
    np.testing.assert_allclose(np.abs(derivative(f, x, False)[:, 0] - 0.5), 1.5, rtol=1e-6)
