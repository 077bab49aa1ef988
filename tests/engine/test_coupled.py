"""Losses that couple rows: their derivatives, and the passes over models that have them."""

from dataclasses import replace

import numpy as np
import pytest
import ranking_twins as twins

from leaftrace._model.coupled.columns import QueryColumns
from leaftrace._model.coupled.cox import Cox
from leaftrace._model.coupled.cross_entropy import CrossEntropyNDCG
from leaftrace._model.coupled.group_losses import QuerySoftmax, QuerySquares
from leaftrace._model.coupled.lambdas import LambdaLoss
from leaftrace._model.coupled.loss import CoupledRows, MatrixPoint, SharePoint
from leaftrace._model.coupled.pair_rules import EqualWeights, FirstPlaces, NDCGGap, PrecisionGap
from leaftrace._model.coupled.scalars import OwnLoss, SmoothNDCG, ndcg

SIZES = np.array([4, 1, 7, 5, 2, 6])
N = int(SIZES.sum())
NUMBER = np.repeat(np.arange(len(SIZES)), SIZES)
GAINS = tuple((2.0 ** np.arange(5) - 1).tolist())


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, N).astype(float)
    return y, rng.random(N) + 0.5, rng.normal(size=N), rng


LOSSES = {
    "ndcg, normalised": LambdaLoss(FirstPlaces(3, NDCGGap(GAINS, 3)), sigma=1.5),
    "ndcg, linear gain": LambdaLoss(FirstPlaces(30, NDCGGap(None, np.inf)), hessian_factor=2.0, normaliser="none"),
    "ndcg, plain": LambdaLoss(FirstPlaces(30, NDCGGap(GAINS, 30)), score_normaliser=False, normaliser="none"),
    "pairwise": LambdaLoss(FirstPlaces(4, EqualWeights())),
    "map": LambdaLoss(FirstPlaces(4, PrecisionGap())),
    "pair weights": LambdaLoss(
        FirstPlaces(40, EqualWeights()), score_normaliser=False, normaliser="none", newton=False
    ),
    "squares": QuerySquares(),
    "softmax": QuerySoftmax(beta=1.5, floor=0.1),
    "softmax, Newton": QuerySoftmax(beta=0.7, newton=True),
    "cox": Cox(),
    "cox, no ties": Cox(ties_at_risk=False),
    "cox, mixed up": Cox(ties_at_risk=False, taken_from=lambda n: np.arange(n) % 9),
    "cross entropy": CrossEntropyNDCG(lambda t: np.linspace(0.1, 0.9, N)),
}  # fmt: skip


@pytest.fixture(params=LOSSES)
def setting(request, world):
    """A loss and its rows."""
    y, w, *_ = world
    loss = LOSSES[request.param]
    if loss.whole:
        times = (y + 1) * np.where(np.arange(N) % 3 == 0, -1, 1)
        return loss, CoupledRows(times, w, np.zeros(N, int), np.arange(N))
    return loss, CoupledRows(y, w, NUMBER, np.arange(N))


def test_terms_are_those_of_loops(world):
    y, w, A, _ = world
    loss = LOSSES["ndcg, normalised"]
    point = loss.on(CoupledRows(y, w, NUMBER, np.arange(N))).at(A, 0)
    for rows in twins.queries_of(SIZES):
        q = [A[rows], y[rows], A[rows], np.ones(rows.stop - rows.start)]
        g, h = twins.lambdas(*q, k=3, gain=lambda v: 2.0**v - 1, sigma=1.5, ideal_over=3)
        np.testing.assert_allclose(point.g[rows], w[rows] * g, atol=1e-13)
        np.testing.assert_allclose(point.h[rows], w[rows] * h, atol=1e-13)


def test_changes_are_slopes_of_the_terms(setting, world):
    """The exact jvp in scores and weights, against differences of the terms themselves."""
    _, w, A, rng = world
    loss, rows = setting
    dA = rng.normal(size=N)
    dw = rng.normal(size=N)
    dg, dh = loss.on(rows).at(A, 0).jvp(dA, dw, np.zeros(N), frozen=False)
    e = 1e-6

    def moved(sign):
        return loss.on(replace(rows, w=w + sign * e * dw)).at(A + sign * e * dA, 0)

    up = moved(1)
    down = moved(-1)
    np.testing.assert_allclose(dg, (up.g - down.g) / (2 * e), atol=1e-7 * np.abs(dg).max())
    np.testing.assert_allclose(dh, (up.h - down.h) / (2 * e), atol=1e-7 * np.abs(dh).max())


@pytest.mark.parametrize("frozen", [True, False])
def test_products_are_transposes(setting, world, frozen):
    *_, A, rng = world
    loss, rows = setting
    point = loss.on(rows).at(A, 0)
    gbar, hbar = rng.normal(size=(2, N, 2))
    directions = rng.normal(size=(3, N))
    dg, dh = point.jvp(*directions, frozen=frozen)
    slopes = point.vjp(gbar, hbar, frozen=frozen)
    forwards = gbar.T @ dg + hbar.T @ dh
    backwards = (
        slopes.scores.T @ directions[0]
        + slopes.weights.T @ directions[1]
        + slopes.presences.T @ directions[2]
    )
    np.testing.assert_allclose(forwards, backwards, rtol=1e-11)


def test_ranks_in_a_table_and_in_a_list(world, monkeypatch):
    """Both ways to rank, with equal and infinite scores, against a sort of each query."""
    y, w, A, _ = world
    rows = CoupledRows(y, w, NUMBER, np.arange(N))
    A = np.where(np.arange(N) % 5 == 0, -np.inf, np.round(A))
    expected = np.concatenate(
        [np.argsort(np.argsort(-A[query], kind="stable")) for query in twins.queries_of(SIZES)]
    )
    np.testing.assert_array_equal(rows.ranks(A), expected)
    monkeypatch.setattr("leaftrace._model.coupled.loss.ROOM_FOR_RANKS", 0)
    np.testing.assert_array_equal(rows.ranks(A), expected)


@pytest.mark.parametrize("frozen", [True, False])
def test_matrices_are_products(setting, world, frozen):
    """Matrices of queries, dense or by shares, times x are `vjp` of x times the factors."""
    *_, A, rng = world
    loss, rows = setting
    point = loss.on(rows).at(A, 0)
    g_factor, h_factor = rng.normal(size=(2, N))
    leaf = rng.integers(0, 3, N).astype(np.uint8)
    of_leaf = rng.normal(size=(3, 3))
    x = of_leaf[leaf]
    slopes = point.vjp(g_factor[:, None] * x, h_factor[:, None] * x, frozen)
    if isinstance(point, SharePoint):
        right, own, left = point.shares(g_factor, h_factor)
        sums = rows.spread(rows.sums(right[:, :, None] * x[:, None]))
        found = own[:, :, None] * x[:, None] + np.einsum("nor,nrb->nob", left, sums)
        np.testing.assert_allclose(found[:, 0], slopes.scores, atol=1e-12)
        np.testing.assert_allclose(found[:, 1], slopes.weights, atol=1e-12)
    elif isinstance(point, MatrixPoint):
        columns = QueryColumns.of_leaves(rows, leaf)
        flat = point.score_matrices(g_factor, h_factor, frozen, columns)
        counts = np.diff(columns.edges)
        assert counts.sum() < N  # some rows of a query share a leaf
        parts = np.split(flat, np.cumsum(SIZES * counts)[:-1])
        leaves = np.split(columns.leaf, columns.edges[1:-1])
        queries = np.split(np.arange(N), np.cumsum(SIZES)[:-1])
        for part, of, query in zip(parts, leaves, queries, strict=True):
            found = part.reshape(len(of), len(query)).T @ of_leaf[of]
            np.testing.assert_allclose(found, slopes.scores[query], atol=1e-12)
        weights = point.weight_factors(g_factor, h_factor)[:, None] * x
        np.testing.assert_allclose(weights, slopes.weights, atol=1e-12)
    else:
        assert loss.whole


def test_losses_have_the_gradient(setting, world):
    """The loss of a query, with everything held, has g as its gradient at the point."""
    *_, A, rng = world
    loss, rows = setting
    dA = rng.normal(size=N)
    test = OwnLoss(loss, rows.y, rows.number).at(A)
    e = 1e-6
    slope = (test.values(A + e * dA) - test.values(A - e * dA)) / (2 * e)
    np.testing.assert_allclose(slope.sum(), test.gradient @ dA, rtol=1e-7)


@pytest.mark.parametrize("k", [2, np.inf])
def test_smooth_ndcg(world, k):
    y, _, A, rng = world
    gain = 2.0**y - 1
    soft = SmoothNDCG(gain, NUMBER, k, 0.3)
    at = soft.at(A)
    dA = rng.normal(size=N)
    e = 1e-6
    slope = (at.values(A + e * dA) - at.values(A - e * dA)) / (2 * e)
    np.testing.assert_allclose(slope.sum(), at.gradient @ dA, rtol=1e-7)
    if np.isinf(k):  # with a small bandwidth it is NDCG itself
        sharp = SmoothNDCG(gain, NUMBER, k, 1e-5).at(A).values(A)
        np.testing.assert_allclose(sharp, ndcg(A, gain, NUMBER, k), atol=1e-9)
