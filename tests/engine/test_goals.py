"""Goals: values against definitions, gradients against finite differences, influences against refits."""

import numpy as np
import oracle
import pytest
from contract import accuracy, extreme_and_other_rows, prepared
from sklearn.metrics import roc_auc_score

import leaftrace as lt
from leaftrace import goals
from leaftrace._model.general_losses import ScaledLogistic
from leaftrace._model.goal import GoalRows
from leaftrace._model.losses import Logistic, Poisson, Softmax, SquaredError
from leaftrace._model.reading import Reading
from leaftrace._model.separate_losses import Brier, OneVsAll

PAYOFF2 = [[0.0, -1.0, -0.4], [-8.0, 3.0, 0.5]]  # two classes, three decisions
PAYOFF3 = [[1.0, -1.0, 0.0], [-3.0, 2.0, 0.0], [0.0, -1.0, 4.0]]


# ---- the definitions, written plainly ----


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(A):
    return np.exp(A) / np.exp(A).sum(axis=1, keepdims=True)


def two(p):
    return np.stack([1 - p, p], axis=1)


def auc(score, high, h):
    """Return the mean over all pairs of Laplace's distribution function."""
    total = 0.0
    for a in score[high]:
        for b in score[~high]:
            u = (a - b) / h
            total += 1 - np.exp(-u) / 2 if u > 0 else np.exp(u) / 2
    return total / (high.sum() * (~high).sum())


def gap(p, groups):
    means = [p[groups == g].mean() for g in np.unique(groups)]
    return np.sqrt(np.mean([(a - b) ** 2 for i, a in enumerate(means) for b in means[:i]]))


def profit(P, y, M, T):
    total = 0.0
    for p, label in zip(P, y, strict=True):
        weight = np.exp(p @ M / T)
        total += weight @ M[int(label)] / weight.sum()
    return total / len(y)


# ---- values and gradients ----

rng = np.random.default_rng(0)
M_ROWS = 30
WEIGHTS = rng.random(M_ROWS)
MASK = rng.random(M_ROWS) < 0.4
GROUPS2 = rng.choice(["f", "m"], M_ROWS)
GROUPS3 = rng.choice(["x", "y", "z"], M_ROWS)
CLASSES = {2: np.array(["no", "yes"]), 3: np.array(["a", "b", "c"]), 0: None}
SCORES = {
    1: rng.normal(size=(M_ROWS, 1)),
    2: rng.dirichlet([1, 1], M_ROWS),
    3: rng.normal(size=(M_ROWS, 3)),
}
SCORES[1][:4] = SCORES[1][4:8]  # trees give equal scores, here within a class and across classes


def labels(classes):
    return rng.integers(0, classes, M_ROWS).astype(float) if classes else rng.random(M_ROWS) * 3


# loss, its classes (0: numbers), and the response written plainly
LOSSES = {
    "logistic": (Logistic(), 2, lambda F: two(sigmoid(F[:, 0]))),
    "scaled logistic": (ScaledLogistic(0.7), 2, lambda F: two(sigmoid(0.7 * F[:, 0]))),
    "softmax": (Softmax(3), 3, softmax),
    "one-vs-all": (
        OneVsAll(3, 0.6),
        3,
        lambda F: sigmoid(0.6 * F) / sigmoid(0.6 * F).sum(axis=1, keepdims=True),
    ),
    "forest": (Brier(2), 2, lambda F: F),
    "squared": (SquaredError(), 0, lambda F: F),
    "poisson": (Poisson(), 0, np.exp),
}


def definitions(loss, C, respond, y):
    """Return (goal, its definition) for all goals that make sense with this loss."""
    column = 1
    names = CLASSES[C]
    label = None if C in (0, 2) else "b"
    column = 0 if C == 0 else 1
    parity = goals.DemographicParityGap
    yield goals.MeanLoss(), lambda F: loss.value(F, y).mean()
    yield goals.MeanLoss(WEIGHTS), lambda F: np.average(loss.value(F, y), weights=WEIGHTS)
    yield goals.SliceLoss(MASK), lambda F: loss.value(F, y)[MASK].mean()
    yield (
        goals.SliceLoss(MASK, WEIGHTS),
        lambda F: np.average(loss.value(F, y)[MASK], weights=WEIGHTS[MASK]),
    )
    yield (
        parity(GROUPS2, label),
        lambda F: abs(np.subtract(*(respond(F)[g == GROUPS2, column].mean() for g in "mf"))),
    )
    yield parity(GROUPS3, label), lambda F: gap(respond(F)[:, column], GROUPS3)
    signed = parity(GROUPS3 == "y", label, signed=True)
    yield (
        signed,
        lambda F: (
            respond(F)[GROUPS3 == "y", column].mean() - respond(F)[GROUPS3 != "y", column].mean()
        ),
    )
    if C == 0:
        return
    hit = y == column
    yield (
        goals.EqualOpportunityGap(GROUPS3, label),
        lambda F: gap(respond(F)[hit, column], GROUPS3[hit]),
    )
    payoff = np.array(PAYOFF2 if C == 2 else PAYOFF3)
    yield (
        goals.ExpectedProfit(payoff),
        lambda F: profit(respond(F), y, payoff, 0.05 * np.ptp(payoff)),
    )
    yield goals.ExpectedProfit(payoff, 1.3), lambda F: profit(respond(F), y, payoff, 1.3)
    one = loss.n_outputs == 1
    h = 0.1 if one else 0.01
    yield goals.AUC(label), lambda F: auc(F[:, 0] if one else respond(F)[:, column], hit, h)
    first = y == 0
    other = goals.AUC(names[0], bandwidth=0.3)
    yield other, lambda F: auc(-F[:, 0] if one else respond(F)[:, 0], first, 0.3)


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients(name):
    loss, C, respond = LOSSES[name]
    F = SCORES[loss.n_outputs]
    y = labels(C)
    for ready, plainly in definitions(loss, C, respond, y):
        goal = ready.bind(GoalRows(Reading(loss, CLASSES[C]), y, M_ROWS))
        assert goal.at(F) == pytest.approx(plainly(F), rel=1e-12), ready
        slopes = np.empty_like(F)
        for i in np.ndindex(F.shape):
            e = np.zeros_like(F)
            e[i] = 1.0
            slopes[i] = oracle.slope(lambda d, e=e, f=plainly: f(F + d * e), 1e-5)
        # Where scores are equal, Laplace's density has a kink: its difference quotient is off by the step / bandwidth.
        atol = (1e-4 if ready.name == "auc" else 1e-8) * np.abs(slopes).max()
        np.testing.assert_allclose(
            np.reshape(goal.gradient(F), F.shape), slopes, atol=atol, err_msg=repr(ready)
        )
        assert np.abs(slopes).max() > 0


@pytest.mark.parametrize("signed", [False, True])
def test_a_gap_of_zero(signed):
    """A gap of zero is a minimum, so its gradient is zero, unless the gap has a sign."""
    groups = np.repeat([0, 1], 15)
    test = GoalRows(Reading(Logistic(), CLASSES[2]), None, M_ROWS)
    goal = goals.DemographicParityGap(groups, signed=signed).bind(test)
    F = np.tile(SCORES[1][:15], (2, 1))
    assert goal.at(F) == 0
    assert np.any(goal.gradient(F)) == signed


def test_small_bandwidth_is_the_auc():
    """It equals scikit-learn's AUC, also with ties; sums of scores far apart do not overflow."""
    y = (rng.random(1500) < 0.2).astype(float)
    scores = np.round(rng.normal(size=1500) * 3 + y, 2)
    goal = goals.AUC(bandwidth=1e-5).bind(GoalRows(Reading(Logistic(), CLASSES[2]), y, 1500))
    assert goal.at(scores[:, None]) == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    assert np.isfinite(goal.gradient(scores)).all()
    wide = goals.AUC(bandwidth=0.1).bind(GoalRows(Reading(Logistic(), CLASSES[2]), y, 1500))
    assert wide.at(scores[:, None]) == pytest.approx(auc(scores, y == 1, 0.1), abs=1e-12)
    assert wide.at(scores[:, None]) != pytest.approx(roc_auc_score(y, scores), abs=1e-5)
    proba = softmax(SCORES[3])
    y3 = labels(3)
    several = goals.AUC("b", bandwidth=1e-7).bind(
        GoalRows(Reading(Softmax(3), CLASSES[3]), y3, M_ROWS)
    )
    assert several.at(SCORES[3]) == pytest.approx(roc_auc_score(y3 == 1, proba[:, 1]), abs=1e-9)


def test_low_temperature_is_the_best_decision():
    y = labels(3)
    P = softmax(SCORES[3])
    M = np.array(PAYOFF3)
    goal = goals.ExpectedProfit(M, temperature=1e-6).bind(
        GoalRows(Reading(Softmax(3), CLASSES[3]), y, M_ROWS)
    )
    best = (P @ M).argmax(axis=1)
    assert goal.at(SCORES[3]) == pytest.approx(M[y.astype(int), best].mean(), abs=1e-9)


# ---- influences ----


# How each of these models makes (m, C) probabilities or (m, 1) expected labels from raw predictions.
LINKS = {
    "CatBoost: logloss, weights, class weights": lambda F: two(sigmoid(F[:, 0])),
    "CatBoost: categories one-hot, missing values": lambda F: two(sigmoid(F[:, 0])),
    "LightGBM: binary, sigmoid, is_unbalance": lambda F: two(sigmoid(0.7 * F[:, 0])),
    "LightGBM: multiclassova, weights, scale_pos_weight": lambda F: (
        sigmoid(1.2 * F) / sigmoid(1.2 * F).sum(axis=1)[:, None]
    ),
    "LightGBM: poisson, weights, l2": np.exp,
    "XGBoost: XGBClassifier defaults, multiclass": softmax,
    "XGBoost: baseline": lambda F: F,
    "scikit-learn: ExtraTreesClassifier, multiclass, class weights, weights": lambda F: F,
    "scikit-learn: HistGradientBoostingRegressor, weights": lambda F: F,
}
BINARY, _, _, OVA, POISSON, *_ = LINKS


@pytest.fixture(params=LINKS)
def setting(request):
    return prepared(request.param), LINKS[request.param]


def asked(case, tracer, link):
    """Return (goal, its definition on raw predictions (m, K))."""
    m = len(case.data.y_test)
    y = case.data.test_codes
    groups = np.arange(m) % 3
    if tracer.classes is None:
        yield goals.DemographicParityGap(groups), lambda F: gap(link(F)[:, 0], groups)
        yield goals.Goal(lambda F: float(np.log(np.sum(F**2)))), lambda F: np.log(np.sum(F**2))
        return
    several = len(tracer.classes) > 2
    label = tracer.classes[1] if several else None
    payoff = np.array(PAYOFF3 if several else PAYOFF2)
    yield goals.DemographicParityGap(groups, label=label), lambda F: gap(link(F)[:, 1], groups)
    yield goals.ExpectedProfit(payoff, 0.5), lambda F: profit(link(F), y, payoff, 0.5)
    yield (
        goals.AUC(label, bandwidth=0.5),
        lambda F: auc(link(F)[:, 1] if several else F[:, 0], y == 1, 0.5),
    )


def test_influence_of_goals_is_the_slope_of_a_refit(setting):
    (case, tracer, structure, test_steps), link = setting
    X = case.data.X_test
    y = case.data.y_test

    def scores(w):
        return oracle.predict(structure, oracle.refit(structure, case.data.codes, w), test_steps)

    for goal, plainly in asked(case, tracer, link):
        result = tracer.influence(X, y, of=goal)
        assert result.shape == (len(case.w), 1)
        values = result.values[:, 0]
        for i in extreme_and_other_rows(values, 1):
            one = np.eye(len(case.w))[i]
            slope = oracle.slope(lambda d, one=one, f=plainly: f(scores(case.w + d * one)), 2e-3)
            # More than for the loss: differences of probabilities near 0 and 1 show more of the scores' rounding.
            assert values[i] == pytest.approx(
                slope, abs=30 * accuracy(case) * np.abs(values).max()
            ), goal


def test_refits_of_goals(setting):
    """Compare LeafRefit of a row, and the goal of a refitted model, with the oracle."""
    (case, tracer, structure, test_steps), link = setting
    X = case.data.X_test
    y = case.data.y_test
    n = len(case.w)

    def scores(keep):
        fitted = oracle.refit(structure.rows(keep), case.data.codes[keep], case.w[keep])
        return oracle.predict(structure, fitted, test_steps)

    rows = [3, n // 2]
    every = np.ones(n, bool)
    before = scores(every)
    after = [scores(np.arange(n) != i) for i in rows]
    for goal, plainly in asked(case, tracer, link):
        refit = tracer.influence(X, y, of=goal, method=lt.LeafRefit(), rows=rows)
        assert not refit.derivative
        expected = np.array([plainly(F) - plainly(before) for F in after])
        np.testing.assert_allclose(
            refit.change[:, 0], expected, atol=20 * accuracy(case) * np.abs(expected).max()
        )
        if case.baseline is None:
            value = tracer.refit(without=rows).goal(goal, X, y)
            assert value == pytest.approx(plainly(scores(~np.isin(np.arange(n), rows))), rel=1e-5)


@pytest.mark.parametrize("name", [OVA, POISSON])
def test_retraining_of_goals(name):
    (case, tracer, *_) = prepared(name)
    link = LINKS[name]
    X = case.data.X_test
    y = case.data.y_test
    keep = np.arange(len(case.w)) != 7
    weight = None if case.weight is None else case.weight[keep]
    model = case.fit(case.data.X[keep], case.data.y[keep], weight, None)
    F, before = (case.raw(m, X).reshape(len(y), -1) for m in (model, case.model))
    for goal, plainly in asked(case, tracer, link):
        change = tracer.influence(X, y, of=goal, method=lt.Retrain(), rows=[7]).change[0, 0]
        assert change == pytest.approx(
            plainly(F) - plainly(before), abs=1e-5 * abs(plainly(before))
        )
        assert tracer.retrain(without=[7]).goal(goal, X, y) == pytest.approx(plainly(F), rel=1e-5)


def test_mean_loss_is_the_mean_of_the_losses(setting):
    (case, tracer, *_), _ = setting
    X = case.data.X_test
    y = case.data.y_test
    for method in (lt.LeafInfluence(), lt.LeafRefit()):
        one = tracer.influence(X, y, of=goals.MeanLoss(), method=method, rows=[0, 5]).values
        mean = tracer.influence(X, y, reduce="mean", method=method, rows=[0, 5]).values
        np.testing.assert_allclose(one, mean, atol=1e-9 * np.abs(mean).max())
    mask = np.arange(len(y)) < 8
    some = tracer.influence(X, y, of=goals.SliceLoss(mask)).values[:, 0]
    columns = tracer.influence(X, y).values[:, mask].mean(axis=1)
    np.testing.assert_allclose(some, columns, atol=1e-9 * np.abs(columns).max())


def test_a_goal_of_your_own_with_and_without_gradient(setting):
    (case, tracer, *_), _ = setting
    X = case.data.X_test
    y = case.data.y_test

    def value(F):
        return float(np.sin(F).sum() * np.tanh(F).mean())

    def gradient(F):
        return np.cos(F) * np.tanh(F).mean() + np.sin(F).sum() * (1 - np.tanh(F) ** 2) / F.size

    given = tracer.influence(X, of=goals.Goal(value, gradient)).values
    found = tracer.influence(X, of=goals.Goal(value)).values
    by_array = tracer.influence(X, of=gradient, reduce="sum").values
    np.testing.assert_allclose(given, by_array, rtol=1e-12)
    np.testing.assert_allclose(found, given, atol=1e-6 * np.abs(given).max())
    # labels and candidates use the same code
    more = {"to": tracer.classes[1]} if given.shape and tracer.engine.ensemble.n_outputs > 1 else {}
    for ask in (
        lambda **of: tracer.label_influence(X, y, **of, **more),
        lambda **of: tracer.score_candidates(X[:3], X, y, y[:3], **of),
    ):
        one = ask(of=goals.Goal(value, gradient))
        two_ = ask(of=gradient, reduce="sum")
        np.testing.assert_allclose(one.values, two_.values, rtol=1e-12)
        assert one.values.any()


# ---- words and errors ----


def test_words(tmp_path):
    case, tracer, *_ = prepared(BINARY)
    X = case.data.X_test
    y = case.data.y_test
    groups = np.arange(len(case.data.y_test)) % 2
    gain = tracer.influence(X, y, of=goals.AUC())
    table = gain.top(500)
    assert list(table.columns) == [
        "test_row",
        "test_position",
        "rank",
        "train_row",
        "position",
        "effect",
        "auc_change_if_removed",
        "change_is",
    ]
    assert set(table.test_row) == {"auc"}
    np.testing.assert_array_equal(
        table.effect == "harmful", table.auc_change_if_removed > 0
    )  # higher is better
    assert gain.top(500, effect="helpful").auc_change_if_removed.max() < 0
    np.testing.assert_allclose(
        tracer.top(X, y, 9, of=goals.AUC()).auc_change_if_removed, table.auc_change_if_removed[:9]
    )
    cost = tracer.influence(X, y, of=goals.DemographicParityGap(groups)).top(500)
    np.testing.assert_array_equal(cost.effect == "harmful", cost.parity_gap_change_if_removed < 0)
    signed = tracer.influence(X, y, of=goals.DemographicParityGap(groups, signed=True)).top(500)
    np.testing.assert_array_equal(
        signed.effect == "raises", signed.parity_gap_change_if_removed < 0
    )
    own = goals.Goal(lambda F: F.sum(), np.ones_like, name="total", lower_is_better=False)
    result = tracer.influence(X, of=own)
    assert "queries of total" in repr(result) or "query of total" in repr(result)
    result.save(tmp_path / "x.npz")
    assert lt.Influence.load(tmp_path / "x.npz").top(3).equals(result.top(3))
    assert set(tracer.score_candidates(X, X, y, of=goals.AUC(), reduce=None).top(50).effect) == {
        "harmful",
        "helpful",
    }


def test_errors():
    case, tracer, *_ = prepared(BINARY)
    X = case.data.X_test
    y = case.data.y_test
    m = len(case.data.y_test)
    halves = np.arange(m) % 2

    def refused(goal, match, y=y, tracer=tracer, X=X, **kw):
        with pytest.raises(lt.InvalidInput, match=match):
            tracer.influence(X, y, of=goal, **kw)

    refused(goals.AUC(), "needs the labels of the test rows", y=None)
    refused(goals.MeanLoss(), "needs the labels of the test rows", y=None)
    refused(goals.MeanLoss(), "leave reduce out", reduce="mean")
    refused(goals.MeanLoss(np.ones(3)), "has 3 values")
    refused(goals.SliceLoss(np.zeros(m, bool)), "leaves no test row")
    refused(goals.SliceLoss([0, 1]), r"shape \(2,\).*True or False for each")
    refused(goals.AUC(bandwidth=0.0), "above zero")
    refused(goals.AUC(label="maybe"), "does not know")
    refused(goals.AUC(), "only one side", y=np.zeros(m, int))
    refused(goals.AUC, r"make a goal of it: AUC\(")
    refused(goals.DemographicParityGap(halves[:-1]), "has 19 values")
    refused(goals.DemographicParityGap(np.zeros(m)), "compares groups")
    refused(goals.DemographicParityGap(np.arange(m) % 3, signed=True), "compare one with the rest")
    refused(goals.EqualOpportunityGap(y), "0 of 0, ")  # group 0 has no row of class 1
    refused(goals.ExpectedProfit(PAYOFF3), r"shape \(3, 3\).*each of the 2 classes")
    refused(goals.ExpectedProfit(np.ones((2, 2))), "payoffs must differ")
    refused(goals.Goal(lambda F: F), "expected one number")
    refused(goals.Goal(lambda F: np.nan), "finite number")
    refused(
        goals.Goal(lambda F: 0.0, lambda F: 1.0, name="mine"),
        "gradient of the goal 'mine' returned shape",
    )
    several = prepared("XGBoost: XGBClassifier defaults, multiclass")
    here = {"tracer": several[1], "X": several[0].data.X_test, "y": several[0].data.y_test}
    refused(goals.AUC(), "say with label= which of the classes", **here)
    number = prepared(POISSON)
    here = {"tracer": number[1], "X": number[0].data.X_test, "y": number[0].data.y_test}
    for goal in (goals.AUC(), goals.ExpectedProfit(PAYOFF2), goals.EqualOpportunityGap(halves)):
        refused(goal, "for classifiers", **here)
    refused(goals.DemographicParityGap(halves, label=1), "predicts numbers", **here)
