"""Native changes of every loss, against formulas in more digits, NumPy twins, and real models."""

import numpy as np
import pytest
from contract import prepared
from kernel_arrays import M, N, agree, arrays, ids, sweep_of

import leaftrace as lt
from leaftrace._adapters.catboost.losses import Expectile, LogCosh, Lq, Quantile, RelativeError
from leaftrace._adapters.lightgbm.objectives import AbsoluteError
from leaftrace._adapters.sklearn.losses import Exponential
from leaftrace._adapters.xgboost import objectives as xgboost_objectives
from leaftrace._engine import forward, forward_block
from leaftrace._model.general_losses import (
    Fair,
    Gamma,
    General,
    Hinge,
    Huber,
    Pinball,
    PseudoHuber,
    ScaledLogistic,
    SquaredLog,
    Tweedie,
)
from leaftrace._model.kernels import BLOCKS, is_native, kernels
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError
from leaftrace._model.separate_losses import Brier, OneVsAll, SeparateOutputs

pytestmark = pytest.mark.skipif(not is_native(), reason="native kernels are not in use")

LOSSES = [
    Gamma(), Tweedie(1.3), Exponential(), Huber(0.6), Huber(0.6, flat=False), Expectile(0.3), Hinge(), Pinball(0.3),
    Quantile(0.3, 0.2), Quantile(0.3, 0.0), RelativeError(), AbsoluteError(), AbsoluteError(relative=True),
    PseudoHuber(0.8), Fair(1.2), Lq(2.0), Lq(2.7), Lq(4.0), SquaredLog(), SquaredLog(0.4), ScaledLogistic(0.7),
    LogCosh(), OneVsAll(3, 0.7), Brier(3), xgboost_objectives.AbsoluteError(),
]  # fmt: skip
OWN = [SquaredError(), Logistic(), Poisson(), Softmax(3)]
names = [f"{type(loss).__name__} {loss.changes[0]}" for loss in LOSSES]


def test_every_loss_is_here():
    def below(cls):
        return {cls} if not cls.__subclasses__() else {cls}.union(*map(below, cls.__subclasses__()))

    every = (below(General) | below(SeparateOutputs)) - {General, SeparateOutputs}
    in_numpy = {cls for cls in every if getattr(cls, "changes", None) == ("numpy", ())}
    assert {type(loss) for loss in LOSSES} == every - in_numpy


def rows_of(loss, n, rng):
    """Return scores (n, K) and labels that a loss accepts, with large, small and zero residuals."""
    K = loss.n_outputs
    A = rng.uniform(-0.9, 2, (n, K))
    if K > 1:
        return A, rng.integers(0, K, n).astype(float)
    if isinstance(loss, Hinge | Exponential | ScaledLogistic):
        return A, rng.integers(0, 2, n).astype(float)
    y = rng.uniform(0.1, 3, n)
    y[:20] = np.abs(A[:20, 0])
    return A, y


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_no_digits_are_lost(isa, loss, dtype, size):
    """Compare changes of single rows with differences in 64-bit precision, relative to first order."""
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no numbers with more digits than float64 here")
    rng = np.random.default_rng(5)
    K = loss.n_outputs
    n = 400
    B = 8
    A, y = rows_of(loss, n, rng)
    A = (
        np.abs(A) if isinstance(loss, SquaredLog) else A
    )  # 1 + A + D near zero is ill-conditioned: see below
    D = (rng.uniform(0.3, 1.5, (n, K, B)) * rng.choice([-size, size], (n, K, B))).astype(dtype)
    dG = np.zeros((n, K, B), dtype)
    dH = np.zeros((n, K, K, B), dtype)
    sweep = np.arange(n, dtype=np.uint16)[None], np.zeros(1, np.int32), None, None, None, None
    kernels.change_sums(
        loss, *sweep, 0, A, y, np.ones(n, dtype), None, None, None, D.copy(), None, dG, dH
    )
    dg, dh = loss.difference(
        A.astype(np.longdouble), D.astype(np.longdouble), y.astype(np.longdouble)
    )
    j = loss.jacobian(A, y)
    h = loss.hessian(A, y)
    k = loss.third_dot(A, y, np.ones_like(A))
    first_order = [
        np.abs(np.einsum("nab,nbc->nac", j, D)),
        (np.abs(k) + np.abs(h))[..., None] * np.abs(D)[:, None],
    ]
    tolerance = (
        3e-6 if dtype == np.float32 else 1e-13 + 5e-17 / size
    )  # differences of totals have this many digits
    for found, exact, scale in zip((dG, dH), (dg, dh), first_order, strict=True):
        assert (np.abs(found - exact) <= tolerance * (np.abs(exact) + scale)).all()
    assert np.any(dG != 0) or size < 0.4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_a_squared_log_error_at_their_end(isa, dtype):
    """The loss treats scores below -1 + 1e-6 as that; changes go into, out of and inside that range."""
    loss = SquaredLog()
    A = np.array([-0.5, -0.9, -1.5, -1.5, -2.0, -1 + 1e-6])
    D = np.array([-0.7, -0.9, 0.7, -0.3, 0.5, 0.25])
    y = np.array([0.0, 2.0, 1.0, 0.5, 3.0, -0.5])
    n = 6
    dG = np.zeros((n, 1, 1), dtype)
    dH = np.zeros((n, 1, 1, 1), dtype)
    sweep = np.arange(n, dtype=np.uint8)[None], np.zeros(1, np.int32), None, None, None, None
    scores = (
        A[:, None],
        y,
        np.ones(n, dtype),
        None,
        None,
        None,
        D.astype(dtype)[:, None, None],
        None,
    )
    kernels.change_sums(loss, *sweep, 0, *scores, dG, dH)
    dg, dh = loss.difference(A[:, None], D[:, None, None], y)
    tolerance = (
        1e-5 if dtype == np.float32 else 1e-9
    )  # -1 + 1e-6 itself has an error of 1e-10 in float64
    np.testing.assert_allclose(dG, dg, rtol=tolerance)
    np.testing.assert_allclose(dH, dh, rtol=tolerance)
    assert np.count_nonzero(dg) == 4


def steps_of(loss):
    """Return shapes (R trees, O outputs of a leaf, K outputs): one tree, or several trees."""
    K = loss.n_outputs
    return [(1, K, K), (3, 1, K)]


def first_of(R, K):
    return (np.arange(R) if K > 1 else np.zeros(R)).astype(np.int32)


@pytest.mark.parametrize("B", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [*LOSSES, *OWN], ids=lambda loss: type(loss).__name__)
def test_change_sums(loss, dtype, B):
    rng = np.random.default_rng(3)
    x = arrays(dtype)
    for R, O, K in steps_of(loss):
        A, y = rows_of(loss, N, rng)
        state = loss.state(A).astype(np.float64 if loss.kernel is None else dtype)
        leaf = sweep_of(rng, R, O, np.uint8)[0]
        first = first_of(R, K)
        before = ids(rng, 1, np.uint8), np.zeros(1, np.int32), x(M, K, B)
        extra = (
            loss.shift(x(M, O)).astype(dtype),
            x(M, O, B),
            (rng.random((M, B)) < 0.5).astype(dtype),
        )
        for w in (rng.random(N).astype(dtype), rng.random((R, N)).astype(dtype)):
            for inner, ranking in (((None,) * 3, None), ((None,) * 3, x(M * R, B)), (extra, None)):
                if inner[0] is None or R == 1:
                    inputs = loss, leaf, first, *before, None, 0, state, y, w, *inner
                    outputs = [x(N, K, B), ranking, x(M * R, O, B), x(M * R, O, O, B)]
                    agree("change_sums", inputs, outputs, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [*LOSSES, *OWN], ids=lambda loss: type(loss).__name__)
def test_removal_step(isa, loss, dtype):
    rng = np.random.default_rng(4)
    x = arrays(dtype)
    B = 32
    for R, O, K in steps_of(loss):
        A, y = rows_of(loss, B, rng)
        own = (rng.integers(0, M, (R, B)) + M * np.arange(R)[:, None]).astype(np.uint8)
        rows = rng.integers(0, 3, M * R).astype(float)
        root = rng.normal(size=(M * R, O, O))
        D = (
            root @ root.transpose(0, 2, 1)
            + np.eye(O) * rng.choice([3.0, -9.0], M * R, p=[0.9, 0.1])[:, None, None]
        )
        bounds = (
            np.array([0.2, 0.6, 1.0]),
            rng.normal(size=(M * R, O)),
            rng.random(M * R),
            rng.random(M * R) < 0.2,
            True,
        )
        for newton in (True, False):
            for w in (rng.integers(0, 2, B) * 0.7, rng.random((R, B))):
                for limits in ((), bounds, (*bounds[:4], False)):
                    row = own, first_of(R, K), loss.state(A), rng.normal(size=(R, K, B)) * 0.3, y, w
                    equations = rng.normal(size=(M * R, O)), D, rows, rng.normal(size=B) * 0.1, 0.5
                    inputs = loss, newton, *row, *equations, x(M * R, O, B), x(M * R, O, O, B)
                    mine, twin = np.ones((2, M * R, O, B))
                    kernels.removal_step(*inputs, mine, *limits)
                    twins.removal_step(*inputs, twin, *limits)
                    assert np.any(twin != 1)
                    np.testing.assert_allclose(mine, twin, rtol=1e-9, atol=1e-9)


REAL = [
    "CatBoost: tweedie", "CatBoost: huber", "CatBoost: lq", "CatBoost: expectile", "CatBoost: log-cosh, Newton",
    "CatBoost: one-vs-all, weights", "CatBoost: default classifier of three classes (multiclass)",
    "LightGBM: huber, weights", "LightGBM: fair", "LightGBM: gamma, no starting score", "LightGBM: tweedie, weights",
    "LightGBM: binary, sigmoid, is_unbalance", "LightGBM: multiclassova, weights, scale_pos_weight",
    "XGBoost: gamma", "XGBoost: tweedie", "XGBoost: pseudo-Huber", "XGBoost: squared log error", "XGBoost: hinge",
    "XGBoost: penalties and bounds", "XGBoost: XGBRFClassifier defaults", "XGBoost: subsample, multiclass",
    "scikit-learn: GradientBoosting, exponential, weights", "scikit-learn: HistGradientBoosting, gamma, l2",
    "scikit-learn: ExtraTreesClassifier, multiclass, class weights, weights",
]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_refits_of_real_models(name, monkeypatch):
    """Refits in float32 and float64 with all update sets equal those of the twins in float64."""
    case, tracer, *_ = prepared(name)
    rows = [3, 40, 77]
    single = lt.Tracer(
        case.model, case.data.X, case.data.y, case.weight, baseline=case.baseline, **case.tracer
    )
    for update_set in (lt.AllPoints(), lt.TopKLeaves(2), lt.SinglePoint()):
        found = [
            forward.refit(t.engine.work, np.array(rows), update_set).leaves[..., :3]
            for t in (tracer, single)
        ]
        with monkeypatch.context() as patch:
            for module in (forward, forward_block):
                patch.setattr(module, "kernels", twins)
            expected = forward.refit(tracer.engine.work, np.array(rows), update_set).leaves[..., :3]
        scale = np.abs(expected).max()
        assert scale > 0
        # XGBoost's class probabilities are in float32, and the twin assumes that their sum is 1.
        np.testing.assert_allclose(
            found[0], expected, atol=(1e-7 if "multiclass" in name else 1e-9) * scale
        )
        np.testing.assert_allclose(found[1], expected, atol=1e-5 * scale)
