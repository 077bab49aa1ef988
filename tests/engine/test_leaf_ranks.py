"""Values of given ranks in leaves, and the medians and quantiles that libraries make of them."""

import numpy as np
import pytest

from leaftrace._adapters.catboost.leaf_statistics import QuantileOfResiduals
from leaftrace._adapters.lightgbm.objectives import Percentile
from leaftrace._adapters.sklearn.labels import quantiles
from leaftrace._adapters.xgboost.objectives import Quantile
from leaftrace._model.kernels import kernels
from leaftrace._model.kernels import numpy as twins

rng = np.random.default_rng(0)
N, M = 400, 13
LEVELS = (0.5, 0.05, 0.37, 0.9, 0.999)


def rows(dtype=np.uint8):
    """Leaves of 0, 1, 2, 3 and more rows, and residuals of which some are equal."""
    leaf = np.concatenate([[1], [2] * 2, [3] * 3, rng.integers(4, M - 1, N - 6)]).astype(dtype)
    order = rng.permutation(N)
    return leaf[order], np.round(rng.normal(size=N), 2)[order]


@pytest.mark.parametrize("native", [kernels, twins])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_values_of_all_ranks(native, dtype):
    leaf, x = rows(dtype)
    x[:7] = np.nan, np.inf, -np.inf, 0.0, -0.0, np.nan, 1.0
    count = np.bincount(leaf, minlength=M)
    for rank in range(count.max()):
        low = np.minimum(rank, np.maximum(count - 1, 0))
        out = np.full((M, 2), 7.0)
        native.rank_pairs(leaf, x, low, out)
        for m in range(M):
            ordered = np.sort(x[leaf == m])  # NaN last
            expected = [0.0, 0.0]
            if len(ordered):
                expected = [ordered[low[m]], ordered[min(low[m] + 1, len(ordered) - 1)]]
            np.testing.assert_array_equal(out[m], expected)


@pytest.mark.parametrize("low", [-1, 1])
@pytest.mark.parametrize("native", [kernels, twins])
def test_a_rank_beyond_the_rows_is_refused(native, low):
    leaf = np.array([0, 1, 1], np.uint8)
    with pytest.raises(ValueError, match="a rank beyond the rows of its leaf"):
        native.rank_pairs(leaf, np.zeros(3), np.array([low, 0, 0]), np.zeros((3, 2)))


@pytest.mark.parametrize("level", LEVELS)
def test_of_scikit_learn(level):
    leaf, x = rows()
    found = quantiles(leaf, M, x, level)
    fit = np.median if level == 0.5 else lambda v: np.percentile(v, 100 * level)
    expected = [fit(x[leaf == m]) if (leaf == m).any() else 0.0 for m in range(M)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("version", [(4, 0), (4, 7)])
def test_of_lightgbm(level, version):
    leaf, x = rows()
    percentile = Percentile(level, weighted=False, version=version)
    w = (rng.random(N) < 0.9).astype(float)  # rows of weight zero do not count
    expected = [percentile._of_sorted(np.sort(x[(leaf == m) & (w > 0)]), w) for m in range(M)]
    np.testing.assert_array_equal(percentile(leaf, M, x, x, w), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_of_xgboost(level):
    leaf, x = rows()
    quantile = Quantile(level, weighted=False)
    w = (rng.random(N) < 0.9).astype(float)
    values = x.astype(np.float32).astype(float)
    expected = np.zeros(M)
    for m in np.unique(leaf[w > 0]):
        expected[m] = quantile._of_sorted(np.sort(values[(leaf == m) & (w > 0)]), w)
    np.testing.assert_array_equal(quantile(leaf, M, x, x, w), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_of_catboost(level, delta):
    leaf, x = rows()
    quantile = QuantileOfResiduals(level, delta)
    expected = quantile._quantiles(leaf, M, x.astype(np.float32).astype(float), np.ones(N))
    np.testing.assert_array_equal(quantile(leaf, M, x, x, np.full(N, 3.0)), expected)
