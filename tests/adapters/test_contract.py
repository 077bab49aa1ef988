"""The contract that every library and setting must meet.

The replay gives the model's own leaf values. Every number of leaftrace equals that of a refit it shares
no code with: the oracle's, and the library's own where there is one."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
from contract import CASES, accuracy, arguments, extreme_and_other_rows, prepared
from raw_scores import raw_scores
from training_sets import take

import leaftrace as lt

STEP = 2e-3  # change of a weight


@pytest.fixture(params=CASES)
def setting(request):
    return prepared(request.param)


@pytest.fixture
def smooth(setting):
    if not setting[0].smooth:
        pytest.skip("its leaves have no derivatives: see test_leaves_without_derivatives")
    return setting


def test_fidelity(setting):
    case, tracer, *_ = setting
    assert tracer.fidelity.exact, tracer.fidelity.verdict
    assert tracer.fidelity.max_error <= case.tolerance


def test_predictions_are_the_models(setting):
    """Predictions of the replayed ensemble and of the oracle, which uses nothing of leaftrace."""
    case, tracer, structure, test_steps = setting
    expected = case.raw(case.model, case.data.X_test).reshape(len(case.data.y_test), -1)
    scale = max(1.0, np.abs(expected).max())
    found = raw_scores(tracer.refit(without=[]), case.data.X_test).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=max(1e-9, 2 * case.tolerance) * scale)
    own = oracle.predict(structure, oracle.refit(structure, case.data.codes, case.w), test_steps)
    np.testing.assert_allclose(
        own, expected, atol=3e-6 * scale
    )  # float32 where the oracle has float64


def oracle_loss(structure, case, test_steps, w):
    F = oracle.predict(structure, oracle.refit(structure, case.data.codes, w), test_steps)
    return structure.loss_of(F, case.data.test_codes)


def test_influence_is_the_slope_of_a_refit(smooth):
    case, tracer, structure, test_steps = smooth
    values = tracer.influence(case.data.X_test, case.data.y_test, reduce="mean").values[:, 0]
    rows = extreme_and_other_rows(values)

    def loss_at(i, dw):
        return oracle_loss(structure, case, test_steps, case.w + dw * np.eye(len(case.w))[i]).mean()

    slopes = [oracle.slope(lambda e, i=i: loss_at(i, e), STEP) for i in rows]
    np.testing.assert_allclose(
        values[rows], slopes, rtol=0, atol=accuracy(case) * np.abs(values).max()
    )


def test_refit_without_a_row(setting):
    """Compare LeafRefit, the group refit of one row, and the library's own refit at weight zero."""
    case, tracer, structure, test_steps = setting
    X = case.data.X_test
    y = case.data.y_test
    n = len(case.w)
    drawn = np.flatnonzero(np.abs(spread(tracer, case)) > 0)
    rows = drawn[np.linspace(0, len(drawn) - 1, 3).astype(int)]
    changes = -tracer.influence(X, y, method=lt.LeafRefit(), rows=rows).values  # (rows, m)
    before = oracle_loss(structure, case, test_steps, case.w)
    scale = max(np.abs(changes).max(), 1e-9)  # if no median moves, all changes are rounding
    for row, change in zip(rows, changes, strict=True):
        keep = np.arange(n) != row
        fitted = oracle.refit(structure.rows(keep), case.data.codes[keep], case.w[keep])
        F = oracle.predict(structure, fitted, test_steps)
        expected = structure.loss_of(F, case.data.test_codes) - before
        np.testing.assert_allclose(change, expected, atol=2 * accuracy(case) * scale)
        altered = raw_scores(tracer.refit(without=[row]), X).reshape(F.shape)
        np.testing.assert_allclose(altered, F, atol=3e-6 * max(1.0, np.abs(F).max()))
        if case.own_refit is not None:
            own = case.own_refit(case, np.where(keep, case.w, 0.0))
            np.testing.assert_allclose(altered, own, atol=3e-6 * max(1.0, np.abs(F).max()))


def spread(tracer, case):
    """Return numbers (n,) that are zero for rows that no tree drew."""
    e = tracer.engine.ensemble
    return e.w if e.sample is None else e.w * np.sum(e.sample, axis=0)


def test_leaves_without_derivatives(setting):
    case, tracer, *_ = setting
    if case.smooth:
        assert np.isfinite(
            tracer.influence(case.data.X_test, case.data.y_test, reduce="mean").values
        ).all()
        return
    for ask in (tracer.influence, tracer.label_influence, tracer.top):
        with pytest.raises(lt.UnsupportedModel, match=r"LeafRefit\(\)"):
            ask(case.data.X_test, case.data.y_test)
    with pytest.raises(lt.InvalidInput, match="update set"):
        tracer.influence(case.data.X_test, case.data.y_test, method=lt.LeafRefit(lt.TopKLeaves(2)))


def test_forward_and_backward_agree(smooth):
    """TopKLeaves with every leaf is AllPoints, by the tangent instead of the adjoint; also in float32."""
    case, tracer, *_ = smooth
    X = case.data.X_test[:3]
    y = case.data.y_test[:3]
    rows = np.arange(0, len(case.w), 40)
    exact = tracer.influence(X, y, rows=rows).values
    forward = tracer.influence(
        X, y, rows=rows, method=lt.LeafInfluence(lt.TopKLeaves(100_000))
    ).values
    scale = np.abs(exact).max() or 1.0
    np.testing.assert_allclose(forward, exact, atol=1e-9 * scale)
    single = lt.Tracer(
        case.model, case.data.X, case.data.y, case.weight, **arguments(case, dtype="float32")
    )
    np.testing.assert_allclose(single.influence(X, y, rows=rows).values, exact, atol=1e-4 * scale)


def drawn_at_random(e):
    """Whether trees drew rows differently, beyond the weights of their classes."""
    if e.sample is None:
        return False
    classes = e.sample_class_weight or [np.ones(1 + int(e.y.max()))] * len(e.sample)
    counts = [s / c[e.y.astype(int)] for s, c in zip(e.sample, classes, strict=True)]
    return bool(np.ptp(counts) > 1e-12)


def test_a_training_row_as_a_candidate_has_its_own_influence(smooth):
    case, tracer, *_ = smooth
    e = tracer.engine.ensemble
    if case.baseline is not None:
        pytest.skip("candidates have no baseline")
    if drawn_at_random(e):
        pytest.skip("a candidate is drawn as often as the average row")
    values = tracer.influence(case.data.X_test, case.data.y_test, reduce="mean").values[:, 0]
    rows = extreme_and_other_rows(values)
    rows = rows[e.w_factor[rows] > 0]  # not held out
    X = take(case.data.X, rows)
    if np.any(tracer.engine.source.rows(X)[0] != e.leaves[:, rows]):
        pytest.skip("training rows sat in other leaves than the finished model puts them in")
    labels = np.asarray(case.data.y)[rows]
    found = tracer.score_candidates(X, case.data.X_test, case.data.y_test, labels, reduce="mean")
    # The same formula on the same numbers; sums run in another order.
    np.testing.assert_allclose(found.values[:, 0], values[rows], atol=1e-12 * np.abs(values).max())


def test_permuting_the_rows_permutes_the_influences(smooth):
    case, tracer, *_ = smooth
    if case.ordered:
        pytest.skip("rows were drawn by their position")
    order = np.random.default_rng(0).permutation(len(case.w))
    weight = None if case.weight is None else case.weight[order]
    baseline = None if case.baseline is None else case.baseline[order]
    again = lt.Tracer(
        case.model,
        take(case.data.X, order),
        case.data.y[order],
        weight,
        **arguments(case, baseline=baseline),
    )
    X = case.data.X_test
    y = case.data.y_test
    values = tracer.influence(X, y, reduce="mean").values
    permuted = again.influence(X, y, reduce="mean").values
    np.testing.assert_allclose(permuted, values[order], atol=accuracy(case) * np.abs(values).max())


def with_weights(case, w):
    """Train the same setting with other weights."""
    return case.fit(case.data.X, case.data.y, w, case.baseline)


def test_weight_zero_is_removal(smooth):
    """Trace a model trained with two rows at weight zero, with and without them.

    This does not hold where a library counts rows."""
    case, *_ = smooth
    if case.ordered or case.counts_rows:
        pytest.skip("a row of weight zero still counts here")
    w = case.w.copy()
    w[[5, 9]] = 0.0
    model = with_weights(case, w)
    kept = w > 0
    baseline = None if case.baseline is None else case.baseline[kept]
    whole = lt.Tracer(model, case.data.X, case.data.y, w, **arguments(case))
    without = lt.Tracer(
        model,
        take(case.data.X, kept),
        case.data.y[kept],
        w[kept],
        **arguments(case, baseline=baseline),
    )
    X = case.data.X_test
    y = case.data.y_test
    values = whole.influence(X, y, reduce="mean").values
    rest = without.influence(X, y, reduce="mean").values
    np.testing.assert_allclose(values[kept], rest, atol=accuracy(case) * np.abs(values).max())
    removed = whole.influence(X, y, method=lt.LeafRefit(), rows=[5, 9]).values
    # Bounds of monotone constraints are averages of leaves, rounded once more.
    np.testing.assert_allclose(removed, 0, atol=1e-15)


@pytest.mark.filterwarnings("ignore::leaftrace.IndexWarning")  # the row has its label twice
def test_a_row_twice_is_a_row_of_weight_two(smooth):
    case, *_ = smooth
    if case.ordered or case.counts_rows:
        pytest.skip("rows are counted here, not only weighed")
    w = np.ones(len(case.w))
    w[5] = 2.0
    model = with_weights(case, w)
    twice = np.r_[np.arange(len(w)), 5]
    baseline = None if case.baseline is None else case.baseline[twice]
    heavy = lt.Tracer(model, case.data.X, case.data.y, w, **arguments(case))
    double = lt.Tracer(
        model,
        take(case.data.X, twice),
        case.data.y[twice],
        np.ones(len(twice)),
        **arguments(case, baseline=baseline),
    )
    X = case.data.X_test
    y = case.data.y_test
    values = heavy.influence(X, y, reduce="mean").values
    doubled = double.influence(X, y, reduce="mean").values
    np.testing.assert_allclose(doubled, values[twice], atol=accuracy(case) * np.abs(values).max())


def test_other_labels_are_noticed(setting):
    """The replay must fail if two labels are exchanged (or, for medians, all shifted)."""
    case, tracer, *_ = setting
    e = tracer.engine.ensemble
    here = np.flatnonzero(np.abs(spread(tracer, case)) > 0)
    differ = np.reshape(case.data.codes[here] != case.data.codes[here[0]], (len(here), -1))
    there = here[differ.any(axis=1)]
    y = case.data.y.copy()
    y[[here[0], there[-1]]] = y[[there[-1], here[0]]]
    if not case.smooth or case.sides_only:  # a median may not move for two labels
        y = np.roll(case.data.y, 1)
    if np.array_equal(e.leaves[:, here[0]], e.leaves[:, there[-1]]):
        pytest.skip("the two rows share all leaves")
    with pytest.raises(lt.FidelityError):
        lt.Tracer(case.model, case.data.X, y, case.weight, **arguments(case))


def test_cross_terms_of_classes():
    """Removing a row of one class changes the scores of the others, because they share a softmax."""
    names = [n for n in CASES if "multiclass" in n.lower() and "all" not in n.lower()]
    assert len(names) >= 4
    for name in names:
        case, tracer, *_ = prepared(name)
        e = tracer.engine.ensemble
        if not case.smooth or e.n_outputs < 3 or e.independent:
            continue
        row = int(np.flatnonzero((case.data.codes == 0) & (spread(tracer, case) > 0))[3])
        moved = [
            np.abs(
                tracer.influence(case.data.X_test, of="prediction", output=k, rows=[row]).values
            ).max()
            for k in range(e.n_outputs)
        ]
        assert min(moved) > 1e-4 * max(moved), name


@pytest.mark.parametrize("name", [name for name in CASES if "monotone" in name])
def test_monotone_constraints_decide_leaves(name):
    """Without the bounds, the oracle gives other predictions: the cases have leaves at bounds."""
    case, _, structure, test_steps = prepared(name)
    free = replace(structure, nodes=None, chains=None)
    F = oracle.predict(free, oracle.refit(free, case.data.codes, case.w), test_steps)
    assert np.abs(F - case.raw(case.model, case.data.X_test).reshape(F.shape)).max() > 1e-3


def test_the_oracle_can_disagree():
    """The comparison fails if the oracle has a wrong learning rate."""
    case, _, structure, test_steps = prepared(next(iter(CASES)))
    wrong = replace(structure, lr=np.asarray(structure.lr) * 1.01)
    F = oracle.predict(wrong, oracle.refit(wrong, case.data.codes, case.w), test_steps)
    assert np.abs(F - case.raw(case.model, case.data.X_test).reshape(F.shape)).max() > 1e-4
