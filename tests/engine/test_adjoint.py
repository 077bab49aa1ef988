"""Adjoint, tangent and refit on tiny ensembles of every shape.

They are compared with each other and with finite differences of the oracle."""

import numpy as np
import oracle
from hypothesis import assume, given, settings
from tiny import ensemble_of, leaves_of, tiny, workspace_of

from leaftrace._engine import leaf_space
from leaftrace._engine.backward import (
    expand_candidates,
    expand_labels,
    expand_training,
    leaf_adjoint,
)
from leaftrace._engine.forward import refit, tangent
from leaftrace._engine.methods import AllPoints, SinglePoint
from leaftrace._engine.placed_rows import candidate_rows
from leaftrace._engine.queries import make_queries
from leaftrace._engine.refit import refit_on

STEP = 2e-4  # truncation of order STEP^4, rounding of order 1e-16 / STEP
every = settings(max_examples=150, deadline=None)


def check_path(work, structure):
    """Check that a path of halvings is found from leaf values, if these determine the path."""
    found = [list(step.scale) for step in work.trace.steps]
    assume(found == structure.scales)


def queries_of(work, test_steps, y_test, reduce=None):
    return make_queries(
        work.trace.ensemble, leaves_of(test_steps), None, y_test, "loss", reduce, None
    )


def adjoint_values(work, queries, **kw):
    return expand_training(work, leaf_adjoint(work, queries, slice(None), **kw), None)


def tangent_values(work, queries, update_set):
    changes = tangent(work, np.arange(work.trace.ensemble.n_rows), update_set)
    return queries.slope(changes.score_changes(work.trace.ensemble, queries.leaves)).T


def slopes_of(loss_at, n):
    """Slopes of loss_at(i, .) at 0.

    Where two steps disagree, a bound or an l1 term begins to decide in between. Where the two sides
    disagree, there is a kink at 0 itself: without the only row of a leaf, pooled leaves are equal."""
    fine, coarse = (
        [oracle.slope(lambda e, i=i: loss_at(i, e), h) for i in range(n)] for h in (STEP, 4 * STEP)
    )
    assume(np.allclose(fine, coarse, rtol=1e-4, atol=1e-7))
    left, right = ([one_sided(loss_at, i, h) for i in range(n)] for h in (-STEP, STEP))
    assume(np.allclose(left, right, rtol=1e-3, atol=1e-6))  # their errors are of order STEP^2
    return fine


def one_sided(loss_at, i, h):
    """The slope of loss_at(i, .) at 0 from values on one side, with an error of order h^2."""
    return (4 * loss_at(i, h) - loss_at(i, 2 * h) - 3 * loss_at(i, 0)) / (2 * h)


def mean_loss(structure, fitted, test_steps, y_test):
    return oracle.loss_value(
        structure.loss, oracle.predict(structure, fitted, test_steps), y_test
    ).mean()


@every
@given(tiny())
def test_replay_finds_the_leaf_values(case):
    structure, y, w, *_ = case
    fidelity = workspace_of(ensemble_of(structure, y, w)).trace.fidelity
    assert fidelity.exact, fidelity.verdict
    assert fidelity.max_error <= 1e-9


@every
@given(tiny())
def test_adjoint_is_the_transpose_of_the_tangent(case):
    """<c, J v> = <J' c, v> for every unit vector v, so for all v."""
    structure, y, w, test_steps, y_test = case
    work = workspace_of(ensemble_of(structure, y, w))
    queries = queries_of(work, test_steps, y_test)
    backwards = adjoint_values(work, queries)
    forwards = tangent_values(work, queries, AllPoints())
    np.testing.assert_allclose(backwards, forwards, atol=1e-12 * max(1.0, np.abs(forwards).max()))
    rng = np.random.default_rng(0)
    v = rng.normal(size=len(y))
    c = rng.normal(size=backwards.shape[1])
    left = (forwards.T @ v) @ c
    right = (backwards @ c) @ v
    assert abs(left - right) <= 1e-12 * max(1.0, abs(left))


@every
@given(tiny())
def test_single_point_is_the_same_backwards_and_forwards(case):
    structure, y, w, test_steps, y_test = case
    work = workspace_of(ensemble_of(structure, y, w))
    queries = queries_of(work, test_steps, y_test)
    forwards = tangent_values(work, queries, SinglePoint())
    np.testing.assert_allclose(adjoint_values(work, queries, knock_on=False), forwards, atol=1e-12)


@every
@given(tiny())
def test_influence_is_the_slope_of_a_refit(case):
    structure, y, w, test_steps, y_test = case
    work = workspace_of(ensemble_of(structure, y, w))
    check_path(work, structure)
    values = adjoint_values(work, queries_of(work, test_steps, y_test, "mean"))[:, 0]

    def loss_at(i, dw):
        return mean_loss(
            structure, oracle.refit(structure, y, w + dw * np.eye(len(y))[i]), test_steps, y_test
        )

    slopes = slopes_of(loss_at, len(y))
    np.testing.assert_allclose(values, slopes, atol=1e-8 * max(1.0, np.abs(slopes).max()))


@every
@given(tiny())
def test_label_influence_is_the_slope_of_a_refit(case):
    structure, y, w, test_steps, y_test = case
    if structure.K > 1:
        return  # labels are classes; tested on real models by relabelling
    work = workspace_of(ensemble_of(structure, y, w))
    check_path(work, structure)
    adjoint = leaf_adjoint(work, queries_of(work, test_steps, y_test, "mean"), slice(None))
    values = expand_labels(work, adjoint, work.rows)[:, 0, 0]

    def loss_at(i, dy):
        return mean_loss(
            structure, oracle.refit(structure, y + dy * np.eye(len(y))[i], w), test_steps, y_test
        )

    slopes = slopes_of(loss_at, len(y))
    np.testing.assert_allclose(values, slopes, atol=1e-8 * max(1.0, np.abs(slopes).max()))


@every
@given(tiny())
def test_refit_without_each_row(case):
    """Compare LeafRefit(AllPoints) and the group refit of one row with the oracle without the row."""
    structure, y, w, *_ = case
    if np.count_nonzero(w) < 3 or isinstance(structure.base, str):
        # In tiny sets, a base score may become infinite without a row; it is tested on real models.
        return
    e = ensemble_of(structure, y, w)
    work = workspace_of(e)
    check_path(work, structure)
    changes = refit(work, np.arange(len(y)), AllPoints())
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        _, values = oracle.refit(structure.rows(keep), y[keep], w[keep])
        expected = np.concatenate([v for step in values for v in step])
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(e.values + changes.leaves[..., i], expected, atol=1e-9 * scale)
        group = refit_on(work.trace, e.take(np.flatnonzero(keep)))
        np.testing.assert_allclose(group.values, expected, atol=1e-9 * scale)


@every
@given(tiny())
def test_recomputed_effects_give_the_same_answers(case):
    """If the memory limit is too small to keep anything, everything is recomputed step by step."""
    structure, y, w, test_steps, y_test = case
    e = ensemble_of(structure, y, w)
    kept = workspace_of(e)
    recomputed = workspace_of(e, memory_limit=1)
    assert kept.keeps_effects
    assert not recomputed.keeps_effects
    for fn in (adjoint_values, lambda work, q: tangent_values(work, q, AllPoints())):
        one, two = (fn(work, queries_of(work, test_steps, y_test)) for work in (kept, recomputed))
        np.testing.assert_allclose(one, two, atol=1e-12 * max(1.0, np.abs(one).max()))
    if isinstance(structure.base, str):
        return  # see test_refit_without_each_row
    index = np.arange(len(y))
    one, two = (refit(work, index, AllPoints()).leaves for work in (kept, recomputed))
    np.testing.assert_array_equal(one, two)


@every
@given(tiny())
def test_leaf_space_is_the_row_form(case):
    structure, y, w, test_steps, y_test = case
    work = workspace_of(ensemble_of(structure, y, w))
    assume(leaf_space.has_leaf_form(work.trace.ensemble))
    queries = queries_of(work, test_steps, y_test)
    row = leaf_adjoint(work, queries, slice(None))
    leaf = leaf_space.build_leaf_space(work).adjoint(work, queries, slice(None))
    for name in ("fbar", "base", "lam"):
        one = getattr(row, name)
        two = getattr(leaf, name)
        np.testing.assert_allclose(two, one, atol=1e-12 * max(1.0, np.abs(one).max()))


@every
@given(tiny())
def test_a_candidate_is_a_training_row_of_weight_zero(case):
    structure, y, w, test_steps, y_test = case
    w = w.copy()
    w[0] = 0.0
    if (
        not w.any()
        or (isinstance(structure.base, str) and structure.loss == "softmax")
        or structure.sample is not None
    ):
        return
    e = ensemble_of(structure, y, w)
    work = workspace_of(e)
    adjoint = leaf_adjoint(work, queries_of(work, test_steps, y_test), slice(None))
    candidate = candidate_rows(
        work.trace, e.leaves[:, :1].copy(), e.start()[:1], y[:1], np.ones(1), np.ones(1)
    )
    trained = expand_training(work, adjoint, None)[:1]
    np.testing.assert_allclose(expand_candidates(work, adjoint, candidate), trained, atol=1e-13)
