"""One retraining alone is called neither better nor worse: its noise may be all there is."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier

import leaftrace as lt
from leaftrace._actions.effects import (
    NOT_MEASURED,
    WITHIN_NOISE,
    Effect,
    effects_table,
    judged,
    shown_effects,
)

draw = np.random.default_rng(5)
X = draw.normal(size=(300, 3))
y = (X[:, 0] + draw.normal(0, 0.7, 300) > 0).astype(int)


def light(seed=0):
    return LGBMClassifier(
        n_estimators=10,
        num_leaves=5,
        verbose=-1,
        n_jobs=1,
        random_state=seed,
        bagging_freq=1,
        subsample=0.8,
    )


@pytest.fixture(scope="module")
def tracer():
    return lt.Tracer(light().fit(X[:200], y[:200]), X[:200], y[:200])


@pytest.mark.parametrize(
    ("effect", "word"),
    [
        (Effect("loss", 1.0, refitted=-0.1), "better"),  # exact with the trees as they are
        (Effect("loss", 1.0, retrained=-0.1), NOT_MEASURED),
        (Effect("loss", 1.0, retrained=-0.1, above_noise="yes"), "better"),
        (Effect("loss", 1.0, retrained=0.1, above_noise="no"), WITHIN_NOISE),
        (Effect("move", 0.0, retrained=0.1, better=""), ""),
        (judged(Effect("loss", 1.0, retrained=0.1), (0.05, 0.15)), "worse"),
        (judged(Effect("loss", 1.0, retrained=0.1), (-0.05, 0.25)), ""),
    ],
)
def test_words(effect, word):
    assert effects_table([effect])["verdict"][0] == word


def loss_line(found):
    return found.effects[found.effects.of == "mean log loss"].iloc[0]


def test_impact_without_and_with_controls(tracer):
    plain = lt.removal_impact(tracer, [0, 1], X[200:], y[200:])
    assert loss_line(plain).verdict == NOT_MEASURED
    assert f"({NOT_MEASURED})" in plain.advice
    controls = lt.removal_impact(tracer, [0, 1], X[200:], y[200:], controls=4)
    line = loss_line(controls)
    # The bound of the noise floor, from retrainings of the library without random pairs of rows.
    rng = np.random.default_rng(0)
    before = log_loss(light().fit(X[:200], y[:200]))
    random = []
    for _ in range(4):
        keep = np.setdiff1d(np.arange(200), rng.choice(200, 2, replace=False))
        random.append(log_loss(light().fit(X[keep], y[keep])) - before)
    t = 2.776445  # Student's, 4 degrees of freedom, 2.5 % above
    bound = max(t * np.sqrt(np.mean(np.square(random))), np.abs(random).max())
    assert line.above_noise == ("yes" if abs(line.retrained) > bound else "no")
    assert line.above_noise == "no"
    assert line.verdict == WITHIN_NOISE
    assert f"({WITHIN_NOISE})" in controls.advice


def log_loss(model):
    p = model.predict_proba(X[200:])[np.arange(100), y[200:]]
    return -np.log(p).mean()


def test_groups_whose_refit_and_retraining_disagree(tracer):
    found = lt.group_effects(tracer, np.arange(200) % 20, X[200:], y[200:], retrain=True)
    lines = found.table
    assert (lines.verdict == NOT_MEASURED).all()
    against = lines.refitted * lines.retrained < 0
    assert ((lines.effect == "unclear") == against).all()
    assert against.any()


@pytest.mark.parametrize("count", [2, 60])
def test_members_of_an_ensemble_are_several_retrainings(count):
    """Their spread tells whether a change is one: Student's t over the library's own retrainings."""
    test = X[200:], y[200:]
    found = lt.ensemble_influence(
        light, X[:200], y[:200], *test, members=4, n_jobs=1, reduce="mean"
    )
    rows = np.argsort(found.influence.values[:, 0])[:count]
    changes = []
    for member in found.members:
        rest = np.setdiff1d(np.flatnonzero(member.bag), rows)
        again = light(member.seed).fit(X[rest], y[rest])
        changes.append(log_loss(again) - log_loss(member.model))
    half = 3.182446 * np.std(changes, ddof=1) / 2  # Student's t, 3 degrees of freedom
    line = found.confirm(rows).effects.iloc[0]
    assert line.retrained == pytest.approx(np.mean(changes), rel=1e-4)
    told = "" if abs(np.mean(changes)) <= half else "worse" if np.mean(changes) > 0 else "better"
    assert line.verdict == told == {2: "", 60: "worse"}[count]


def test_where_the_refit_contradicts_first_order_the_table_says_so():
    lines = [Effect("mean loss", 1.0, -0.1, 0.2), Effect("other loss", 1.0, 0.1, 0.2)]
    table = effects_table(lines)
    assert table["predicted"].tolist() == [-0.1, 0.1]  # the numbers themselves are kept
    assert shown_effects(table)["change, first order"].tolist() == ["wrong sign", 0.1]
    assert "first_order_holds" not in shown_effects(table)
