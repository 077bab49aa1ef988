"""Baselines against loops over the trees of real models, which are read from the libraries alone."""

import numpy as np
import oracle
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from catboost_models import QUIET
from contract import prepared
from oracle_trees import trees_of
from scipy.optimize import minimize

import leaftrace as lt
from leaftrace.baselines import TREX, BoostIn, Detector, Random, RowLoss, SelfInfluence, TreeSim

BOOSTED = [
    "CatBoost: logloss, weights, class weights",
    "CatBoost: logloss, 3 Newton steps with backtracking",
    "CatBoost: default regressor",
    "CatBoost: default classifier of three classes (multiclass)",
    "CatBoost: shrinking model",
    "LightGBM: regression, weights, l1, l2, max_delta_step",
    "LightGBM: multiclass, bagging",
    "LightGBM: DART, weights",
    "LightGBM: path_smooth, l2",
    "XGBoost: scale_pos_weight, weights",
    "XGBoost: multiclass, vector leaves",
    "XGBoost: multiclass, parallel trees",
    "XGBoost: poisson",
    "scikit-learn: HistGradientBoosting, early stopping, weights",
    "scikit-learn: GradientBoosting, multiclass, weights",
]
FORESTS = [
    "scikit-learn: RandomForest, multiclass, balanced_subsample, max_samples",
    "scikit-learn: RandomForestRegressor, min_samples_leaf",
]
WITHOUT_DERIVATIVES = "LightGBM: regression_l1, weights"
TESTED = [0, 7, 11]  # test rows
ALL = [
    BoostIn(),
    TreeSim(),
    TreeSim("path"),
    TREX(),
    TREX("output", 0.1),
    Detector(),
    RowLoss(),
    SelfInfluence(),
]


def asked(name, method, **how):
    case, tracer, *_ = prepared(name)
    X = case.data.X_test
    y = case.data.y_test
    take = X.iloc if hasattr(X, "iloc") else X
    return tracer.influence(take[TESTED], y[TESTED], method=method, **how)


def gradient(structure, A, y):
    return (structure.derivatives or (lambda A, y: oracle.derivatives(structure.loss, A, y)))(A, y)[
        0
    ]


def row_slopes(structure, case, tree, row):
    """Return d(leaf values of one tree)/d(sample weight of a row) (L, O), scores and lam fixed."""
    t, r, ids, L, o, factor, A = tree
    w = case.w * structure.class_weight
    lam = structure.l2 * w.sum() / len(w) if structure.l2_scales else structure.l2
    lam = lam + (0.0 if structure.more_l2 is None else structure.more_l2[t][r])
    one = np.arange(len(w)) == row

    def values(d):
        moved = (case.w + d * one) * structure.class_weight
        moved = moved if structure.sample is None else moved * structure.sample[t][r]
        return oracle.tree_value(
            structure, ids, L, o, structure.scales[t], A, case.data.codes, moved, lam, t, r
        )

    return factor * oracle.slope(values, 1e-3 * case.w[row])


def some(values):
    """Return rows with large values and some others."""
    order = np.argsort(-np.abs(values).max(axis=1))
    return np.r_[order[:2], order[len(order) // 2], order[-1]]


@pytest.mark.parametrize("name", BOOSTED)
def test_boostin(name):
    """BoostIn sums over trees: slope of x's leaf in the row's weight, times gradient of x's loss."""
    case, _, structure, test_steps = prepared(name)
    values = asked(name, BoostIn()).values
    rows = some(values)
    y = case.data.test_codes[TESTED]
    expected = np.zeros((len(rows), len(TESTED)))
    before = -1
    base, leaf_values = oracle.refit(structure, case.data.codes, case.w)
    test = [[(ids[TESTED], L, o) for ids, L, o in step] for step in test_steps]
    A = np.tile(base, (len(TESTED), 1))
    for tree in trees_of(structure, case):
        t, r, _, _, o, *_ = tree
        if t != before:
            A = oracle.move(structure, t, test, base, leaf_values, A)
            before = t
        c = gradient(structure, A, y)[:, o : o + structure.O]  # (m, O)
        for i, row in enumerate(rows):
            expected[i] += (row_slopes(structure, case, tree, row)[test[t][r][0]] * c).sum(axis=1)
    assert np.abs(expected).max() > 0
    # The oracle's differences have nine digits; boosters that round to float32 differ by as much as their leaves.
    np.testing.assert_allclose(
        values[rows], expected, atol=max(1e-7, 30 * case.tolerance) * np.abs(values).max()
    )


def test_boostin_written_out():
    """For one Newton step and output the slope is -eta (g + h s) / (H + lam)."""
    name = "XGBoost: scale_pos_weight, weights"
    case, _, structure, test_steps = prepared(name)
    base, leaf_values = oracle.refit(structure, case.data.codes, case.w)
    w = case.w * structure.class_weight
    x = TESTED[1]
    A = np.full(len(w), base[0])
    F = base[0]
    expected = np.zeros(len(w))
    for t, ((ids, *_),) in enumerate(structure.steps):
        p = oracle.sigmoid(A)
        g = p - case.data.codes
        h = p * (1 - p)
        leaf = test_steps[t][0][0][x]
        H = (w * h)[ids == leaf].sum() + structure.l2
        s = -(w * g)[ids == leaf].sum() / H
        effect = -structure.rate(t) * (g + h * s) / H * structure.class_weight
        expected += np.where(ids == leaf, effect, 0.0) * (
            oracle.sigmoid(F) - case.data.test_codes[x]
        )
        A = A + leaf_values[t][0][ids, 0]
        F = F + leaf_values[t][0][leaf, 0]
    np.testing.assert_allclose(
        asked(name, BoostIn()).values[:, 1], expected, atol=1e-6 * np.abs(expected).max()
    )


def test_boostin_is_single_point_where_the_gradient_does_not_move():
    """BoostIn of a prediction equals SinglePoint, with a given starting score and a fixed l2."""
    name = "XGBoost: penalties and bounds"
    assert prepared(name)[1].engine.ensemble.base_rule is None
    for how in ({}, {"reduce": "mean"}):
        ours = asked(name, BoostIn(), of="prediction", **how).values
        same = asked(name, lt.LeafInfluence(lt.SinglePoint()), of="prediction", **how).values
        np.testing.assert_allclose(ours, same, atol=1e-12 * np.abs(same).max())
    one, other = (asked(name, m).values for m in (BoostIn(), lt.LeafInfluence(lt.SinglePoint())))
    assert np.abs(one - other).max() > 0.1 * np.abs(other).max()


def test_boostin_of_a_goal():
    name = "LightGBM: multiclass, bagging"
    mean = asked(name, BoostIn(), reduce="mean").values
    goal = asked(name, BoostIn(), of=lt.goals.MeanLoss())
    np.testing.assert_allclose(goal.values, mean, atol=1e-12 * np.abs(mean).max())
    assert goal.derivative
    assert not goal.scored


@pytest.mark.parametrize("name", [n for n in BOOSTED if "early" not in n and "shrinking" not in n])
def test_self_influence_is_the_diagonal_of_boostin(name):
    case, tracer, *_ = prepared(name)
    n = 40
    own = tracer.influence(
        case.data.X[:n], case.data.y[:n], method=BoostIn(), rows=np.arange(n)
    ).values
    found = asked(name, SelfInfluence(), rows=np.arange(n)).values
    np.testing.assert_allclose(
        found, np.repeat(-np.diag(own)[:, None], 3, axis=1), atol=1e-9 * np.abs(found).max()
    )


# ---- the tree kernel ----


def dense_embedding(structure, case, steps, weighting):
    """Return phi (rows, all leaves) of the rows in `steps`."""
    values = oracle.refit(structure, case.data.codes, case.w)[1]
    factor = np.ones(len(steps))
    if structure.moves is not None:
        factor[:] = [
            sum(f for moves in structure.moves for r, f in moves if r == t)
            for t in range(len(factor))
        ]
    out = []
    for t, step in enumerate(steps):
        for r, (ids, L, _) in enumerate(step):
            count = np.bincount(structure.steps[t][r][0][trained(structure, case)], minlength=L)
            a = {
                "path": np.ones(L),
                "count": 1 / np.maximum(count, 1),
                "output": np.abs(factor[t]) * np.sqrt((values[t][r] ** 2).sum(axis=1)),
            }[weighting]
            out.append(np.where(ids[:, None] == np.arange(L), a, 0.0))
    return np.concatenate(out, axis=1)


def trained(structure, case):
    """Return which rows (n,) have weight and were not held out."""
    return case.w * structure.class_weight > 0


KERNEL = [*BOOSTED, *FORESTS, WITHOUT_DERIVATIVES, "XGBoost: logistic of fractions"]


def dense_kernel(name, weighting):
    case, _, structure, test_steps = prepared(name)
    test = [[(ids[TESTED], L, o) for ids, L, o in step] for step in test_steps]
    train = (
        dense_embedding(structure, case, structure.steps, weighting)
        * trained(structure, case)[:, None]
    )
    test = dense_embedding(structure, case, test, weighting)
    if "vector leaves" in name and weighting != "output":  # such a tree counts once for each output
        train = np.sqrt(structure.K) * train
        test = np.sqrt(structure.K) * test
    return train, test


@pytest.mark.parametrize("weighting", ["count", "path", "output"])
@pytest.mark.parametrize("name", KERNEL)
def test_treesim(name, weighting):
    case, tracer, structure, test_steps = prepared(name)
    train, test = dense_kernel(name, weighting)
    K = train @ test.T
    y = case.data.codes
    y_test = case.data.test_codes[TESTED]
    F = oracle.predict(structure, oracle.refit(structure, y, case.w), test_steps)[TESTED]
    link = {"poisson": np.exp}.get(
        name.split()[-1], oracle.sigmoid if "fractions" in name else lambda x: x
    )
    agree = y[:, None] == y_test
    if tracer.classes is None:
        agree = (y[:, None] >= link(F[:, 0])) == (y_test >= link(F[:, 0]))
    expected = np.where(agree, -K, K)
    found = asked(name, TreeSim(weighting))
    np.testing.assert_allclose(
        found.values, expected, atol=max(1e-9, 30 * case.tolerance) * K.max()
    )
    assert (expected > 0).any()
    assert (expected < 0).any()


def surrogate_by_scipy(structure, case, train, l2):
    """Return alpha (n, K) that minimises weighted mean loss + l2 |W|^2 with dense W, by L-BFGS."""
    w = case.w * structure.class_weight
    w = w / w.sum()
    y = case.data.codes
    start = oracle.refit(structure, y, case.w)[0] + structure.offset

    def objective(flat):
        W = flat.reshape(-1, structure.K)
        A = start + train @ W
        g = w[:, None] * gradient(structure, A, y)
        return w @ structure.loss_of(A, y) + l2 * (flat @ flat), (train.T @ g + 2 * l2 * W).ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    W = minimize(
        objective,
        np.zeros(train.shape[1] * structure.K),
        jac=True,
        method="L-BFGS-B",
        options=options,
    ).x
    W = W.reshape(-1, structure.K)
    return start, -w[:, None] * gradient(structure, start + train @ W, y) / (2 * l2)


SURROGATES = [
    ("CatBoost: logloss, weights, class weights", TREX()),
    ("CatBoost: logloss, weights, class weights", TREX("path", 0.01)),
    ("CatBoost: default regressor", TREX("output", 0.003)),
    ("LightGBM: multiclass, bagging", TREX("count", 0.0003)),
    ("XGBoost: scale_pos_weight, weights", TREX("path", 0.1)),
    ("XGBoost: poisson", TREX("count", 0.003)),
    ("scikit-learn: GradientBoosting, multiclass, weights", TREX("path", 0.03)),
    ("scikit-learn: RandomForestRegressor, min_samples_leaf", TREX("path", 0.03)),
]


@pytest.mark.parametrize(
    ("name", "method"), SURROGATES, ids=lambda v: v if isinstance(v, str) else repr(v)
)
def test_trex(name, method):
    case, _, structure, _ = prepared(name)
    train, test = dense_kernel(name, method.weighting)
    start, alpha = surrogate_by_scipy(structure, case, train, method.l2)
    K = train @ test.T
    y = case.data.test_codes[TESTED]
    F = start + K.T @ alpha  # (m, K) the representer theorem
    # (n, m, K)
    whole = structure.loss_of(F, y)
    part = alpha[:, None, :] * K[:, :, None]
    expected = np.array([whole - structure.loss_of(F - d, y) for d in part])
    found = asked(name, method).values
    np.testing.assert_allclose(
        found, expected, atol=1e-4 * np.abs(expected).max()
    )  # the accuracy of L-BFGS
    output = 0
    found = asked(name, method, of="prediction", output=output).values
    np.testing.assert_allclose(found, part[..., output], atol=1e-4 * np.abs(part).max())
    mean = asked(name, method, of=lt.goals.MeanLoss(), rows=[3, 1]).values[:, 0]
    np.testing.assert_allclose(
        mean, expected[[3, 1]].mean(axis=1), atol=1e-4 * np.abs(expected).max()
    )


def test_trex_of_squares_has_a_closed_form():
    """It is kernel ridge regression: (K + 2 l2 sum(w) / w_i) alpha = y - start."""
    name = "CatBoost: default regressor"
    case, _, structure, _ = prepared(name)
    train, test = dense_kernel(name, "path")
    n = len(train)
    l2 = 0.05
    start = oracle.refit(structure, case.data.codes, case.w)[0]
    alpha = np.linalg.solve(train @ train.T + 2 * l2 * n * np.eye(n), case.data.codes - start)
    found = asked(name, TREX("path", l2), of="prediction").values
    np.testing.assert_allclose(
        found, alpha[:, None] * (train @ test.T), atol=1e-6 * np.abs(found).max()
    )


def test_scores_given_to_rows():
    """Baselines of training and test rows enter all gradients and the surrogate's predictions."""
    name = "CatBoost: logloss, baseline"
    n = 40
    case, tracer, structure, _ = prepared(name)
    X = case.data.X[:n]
    y = case.data.y[:n]
    given = np.asarray(case.baseline)[:n]
    own = tracer.influence(X, y, method=BoostIn(), rows=np.arange(n), baseline=given).values
    found = asked(name, SelfInfluence(), rows=np.arange(n)).values
    np.testing.assert_allclose(found[:, 0], -np.diag(own), atol=1e-9 * np.abs(found).max())
    train, test = dense_kernel(name, "path")
    alpha = surrogate_by_scipy(structure, case, train, 0.1)[1]
    K = train @ test.T
    y = case.data.test_codes[TESTED]
    given = np.array([[1.0], [-2.0], [0.5]])
    F = oracle.refit(structure, case.data.codes, case.w)[0] + given + K.T @ alpha
    expected = [
        structure.loss_of(F, y) - structure.loss_of(F - K[i][:, None] * alpha[i], y)
        for i in range(len(K))
    ]
    found = asked(name, TREX("path", 0.1), baseline=given[:, 0]).values
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


# ---- the row alone ----


@pytest.mark.parametrize("name", KERNEL)
def test_detector_and_row_loss(name):
    case, tracer, structure, _ = prepared(name)
    y = case.data.codes
    fitted = oracle.refit(structure, y, case.w)
    F = oracle.predict(structure, fitted, structure.steps, structure.offset)
    loss = structure.loss_of(F, y)
    accuracy = max(1e-9, 30 * case.tolerance) * max(1.0, np.abs(F).max())
    np.testing.assert_allclose(
        asked(name, RowLoss()).values, np.repeat(loss[:, None], 3, axis=1), atol=accuracy
    )
    expected = loss
    if tracer.classes is not None:
        one = F.shape[1] == 1
        P = (
            np.c_[oracle.sigmoid(-F), oracle.sigmoid(F)]
            if one
            else F
            if name in FORESTS
            else oracle.softmax(F)
        )
        expected = 1 - P[np.arange(len(y)), y.astype(int)]
    np.testing.assert_allclose(asked(name, Detector()).values[:, 2], expected, atol=accuracy)


def test_random():
    name = BOOSTED[0]
    values = asked(name, Random(3)).values
    assert values.shape == (prepared(name)[1].n_rows, 3)
    np.testing.assert_array_equal(values, asked(name, Random(3)).values)
    np.testing.assert_array_equal(
        values[[9, 2]], asked(name, Random(3), rows=[9, 2], of="prediction").values
    )
    assert (
        np.abs(np.corrcoef(np.c_[values, asked(name, Random(4)).values].T) - np.eye(6)).max() < 0.2
    )
    assert abs(values.mean()) < 0.1
    assert 0.9 < values.std() < 1.1


# ---- what all have in common ----


@pytest.mark.parametrize("method", ALL, ids=repr)
@pytest.mark.parametrize(
    "name", ["CatBoost: logloss, weights, class weights", "LightGBM: multiclass, bagging"]
)
def test_rows_and_reduce(name, method):
    every = asked(name, method)
    scale = np.abs(every.values).max()
    some_rows = asked(name, method, rows=[30, 2, 5])
    np.testing.assert_allclose(some_rows.values, every.values[[30, 2, 5]], atol=1e-12 * scale)
    assert list(some_rows.train_index) == list(every.train_index[[30, 2, 5]])
    assert asked(name, method, rows=[]).shape == (0, 3)
    mean = asked(name, method, reduce="mean").values
    np.testing.assert_allclose(mean, every.values.mean(axis=1, keepdims=True), atol=1e-12 * scale)
    if not isinstance(
        method, (Detector, RowLoss, SelfInfluence)
    ):  # scores of single rows do not depend on `reduce`
        total = asked(name, method, reduce="sum").values
        np.testing.assert_allclose(
            total, every.values.sum(axis=1, keepdims=True), atol=1e-11 * scale
        )
    assert every.method == repr(method)


@pytest.mark.parametrize("method", ALL, ids=repr)
def test_blocks_threads_and_float32(method):
    """Compute many test rows in several blocks, and rows in several chunks."""
    case, exact, *_ = prepared("CatBoost: default regressor")
    # 80 rows
    X = np.repeat(case.data.X_test, 4, axis=0)
    y = np.repeat(case.data.y_test, 4)
    tracer = lt.Tracer(case.model, case.data.X, case.data.y, n_jobs=2, memory_limit=100_000)
    one, other = (t.influence(X, y, method=method).values for t in (exact, tracer))
    assert other.dtype == np.float32
    np.testing.assert_allclose(other, one, atol=2e-5 * np.abs(one).max())
    np.testing.assert_array_equal(other[:, 40], other[:, 43])


@pytest.mark.parametrize("method", ALL, ids=repr)
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_wrong_labels_come_first(method, kind):
    """With a tenth of the labels wrong, a wrong label ranks before a right one in 4 of 5 pairs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    score = X[:, 0] + 0.5 * X[:, 1]
    wrong = rng.random(400) < 0.1
    made = (score > 0).astype(int) if kind == "classes" else np.sign(score) + 0.05 * score
    y = np.where(wrong, 1 - made[:400] if kind == "classes" else -made[:400], made[:400])
    estimator = CatBoostClassifier if kind == "classes" else CatBoostRegressor
    model = estimator(**QUIET, iterations=30, depth=3).fit(X[:400], y)
    found = (
        lt.Tracer(model, X[:400], y)
        .influence(X[400:], made[400:], method=method, reduce="mean")
        .values[:, 0]
    )
    assert (found[wrong][:, None] > found[~wrong]).mean() > 0.8  # the area under the ROC curve


def test_tables_say_score():
    """Only BoostIn's values are changes; the others are called scores."""
    name = BOOSTED[0]
    changes = asked(name, BoostIn())
    scores = asked(name, TreeSim())
    assert "loss_change_if_removed" in changes.top(2)
    top = scores.top(2, effect="harmful")
    assert "loss_change_if_removed" not in top
    assert (top["score"] > 0).all()
    assert set(top["effect"]) == {"harmful"}
    np.testing.assert_allclose(top["score"][0], scores.values[:, 0].max())
    assert "; score +" in repr(scores)
    assert "changes by" not in repr(scores)
    assert list(scores.by(np.arange(scores.shape[0]) % 2).columns)[-1] == "mean"


def test_saved_scores_stay_scores(tmp_path):
    scores = asked(BOOSTED[0], TreeSim())
    scores.save(tmp_path / "scores.npz")
    loaded = lt.Influence.load(tmp_path / "scores.npz")
    assert loaded.scored
    assert "score" in loaded.top(1)


def test_removal_curves_take_them():
    """The most harmful row is removed first."""
    case, tracer, *_ = prepared("CatBoost: default regressor")
    order = tracer.influence(case.data.X_test[:10], case.data.y_test[:10], method=RowLoss())
    curve = lt.removal_curve(
        tracer, order, case.data.X_test[10:], case.data.y_test[10:], counts=[5], draws=1
    )
    gone = np.argsort(-order.values[:, 0])[:5]
    expected = tracer.refit(gone).loss(case.data.X_test[10:], case.data.y_test[10:])
    np.testing.assert_allclose(curve.refitted[1], np.mean(expected))


def test_errors():
    name = BOOSTED[0]
    for method in (TreeSim(), Detector(), RowLoss(), SelfInfluence()):
        for of in ("prediction", lt.goals.MeanLoss()):
            with pytest.raises(
                lt.InvalidInput, match=f"{type(method).__name__} tells .* of='loss' alone"
            ):
                asked(name, method, of=of)
    with pytest.raises(
        lt.InvalidInput, match="BoostIn takes the gradient at the scores before each tree"
    ):
        asked(name, BoostIn(), of=np.ones(3))
    assert asked(name, TREX(), of=np.ones(3)).shape[1] == 3
    for wrong in (TreeSim, TREX):
        with pytest.raises(lt.InvalidInput, match="'count', 'path' or 'output'"):
            wrong("leaves")
    for l2 in (0, -1.0, np.nan, "1"):
        with pytest.raises(lt.InvalidInput, match="a number above zero"):
            TREX(l2=l2)
    with pytest.raises(lt.InvalidInput, match="whole number, 0 or more"):
        Random(-1)
    with pytest.raises(lt.InvalidInput, match=r"lt\.baselines\.BoostIn\(\)"):
        asked(name, BoostIn)  # the class
    case, tracer, *_ = prepared(name)
    with pytest.raises(lt.InvalidInput, match="needs the labels"):
        tracer.influence(case.data.X_test, method=TreeSim())
    with pytest.raises(lt.InvalidInput, match="ensemble_influence"):
        lt.ensemble_influence(
            case.fit, case.data.X, case.data.y, case.data.X_test, case.data.y_test, method=TreeSim()
        )


def test_models_they_are_not_for():
    for method in (BoostIn(), SelfInfluence()):
        with pytest.raises(
            lt.UnsupportedModel, match="the trees of a forest do not read each other"
        ):
            asked(FORESTS[0], method)
        with pytest.raises(lt.UnsupportedModel, match="instead of having a derivative"):
            asked(WITHOUT_DERIVATIVES, method)
    with pytest.raises(lt.UnsupportedModel, match="a loss whose gradient moves"):
        asked(WITHOUT_DERIVATIVES, TREX())


def test_a_surrogate_that_cannot_be_found(monkeypatch):
    monkeypatch.setattr("leaftrace.baselines._trex.STEPS", 1)
    with pytest.raises(lt.LeaftraceError, match="did not settle in 1 steps"):
        asked(BOOSTED[0], TREX("path"))


def test_the_public_names():
    loops = {"BoostIn", "TreeSim", "TREX", "Detector", "RowLoss", "SelfInfluence", "Random"}
    more = {
        "AXIL",
        "BoostInLCA",
        "RFGAP",
        "rf_gap",
        "SubSample",
        "DataBanzhaf",
        "BetaShapley",
        "DataOOB",
    }
    assert set(lt.baselines.__all__) == loops | more
