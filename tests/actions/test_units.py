"""Models of numbers by squared error: what people read is in the unit of the target, as RMSE."""

import re

import numpy as np
import pytest
from lightgbm import LGBMRegressor

import leaftrace as lt
from leaftrace._actions.effects import LossUnit
from leaftrace._actions.statistics import paired_interval

draw = np.random.default_rng(3)
X = draw.normal(size=(400, 4))
y = 1000 * (X[:, 0] + X[:, 1] * X[:, 2]) + draw.normal(0, 300, 400)
y[:20] += 6000  # labels that are wrong
TRAIN, VAL, HOLD = slice(0, 200), slice(200, 300), slice(300, 400)


def light(seed=0):
    return LGBMRegressor(
        n_estimators=15, num_leaves=6, min_child_samples=5, verbose=-1, n_jobs=1, random_state=seed
    )


@pytest.fixture(scope="module")
def model():
    return light().fit(X[TRAIN], y[TRAIN])


@pytest.fixture(scope="module")
def tracer(model):
    return lt.Tracer(model, X[TRAIN], y[TRAIN])


def rmse(model, part):
    return np.sqrt(np.mean((model.predict(X[part]) - y[part]) ** 2))


def number(text):
    return float(text.replace(",", ""))


def test_cleaning(model, tracer):
    found = lt.clean(tracer, X[VAL], y[VAL], X[HOLD], y[HOLD], batch=0.1, max_rounds=3)
    best = [r for r in found.rounds if r.kept][-1]
    without = np.setdiff1d(np.arange(200), best.change.removed)
    again = light().fit(X[without], y[without])
    line = found.effects.iloc[0]
    assert line.of == "RMSE of the 100 hold-out rows"
    assert line.before == pytest.approx(rmse(model, HOLD), rel=1e-6)
    assert line.after == pytest.approx(rmse(again, HOLD), rel=1e-6)
    change, low, high = re.search(
        r"the RMSE of the hold-out rows changes by (\S+) .*interval (\S+) to ([^,]\S*),",
        found.advice,
    ).groups()
    assert number(change) == pytest.approx(rmse(again, HOLD) - rmse(model, HOLD), rel=0.01)
    # The ends of the interval of the paired differences of half squared errors, as roots.
    halves = [(m.predict(X[HOLD]) - y[HOLD]) ** 2 / 2 for m in (model, again)]
    ends = [
        np.sqrt(2 * (halves[0].mean() + end)) - rmse(model, HOLD)
        for end in paired_interval(halves[1] - halves[0])
    ]
    assert [number(low), number(high)] == pytest.approx(ends, rel=0.01)
    kept = found.shown[found.shown.kept].iloc[-1]
    assert kept.validation_RMSE == pytest.approx(rmse(again, VAL), rel=1e-6)
    first = found.rounds[0]
    assert found.shown.judged_change[0] == pytest.approx(
        np.sqrt(2 * (first.judged_before + first.judged)) - np.sqrt(2 * first.judged_before)
    )


def test_fixing(model, tracer):
    x = int(np.abs(model.predict(X[VAL]) - y[VAL]).argmax()) + 200
    rest = np.setdiff1d(np.arange(300, 400), x)
    found = lt.fix(tracer, X[[x]], y[x], X_test=X[rest], y_test=y[rest], max_rows=40)
    without = np.setdiff1d(np.arange(200), found.rows)
    again = light().fit(X[without], y[without])
    assert found.effects.of.tolist()[-1] == "RMSE of the test rows"
    assert found.effects.after.iloc[-1] == pytest.approx(rmse(again, rest), rel=1e-6)
    if found.fixed:
        change = re.search(r"the RMSE of the test rows changes by (\S+) ", found.advice)[1]
        assert number(change) == pytest.approx(rmse(again, rest) - rmse(model, rest), rel=0.01)
    assert "squared" not in found.advice


def test_labels_curves_and_groups(model, tracer):
    noisy = lt.label_noise(tracer).confirm(X[HOLD], y[HOLD])
    assert f"hold-out RMSE of {rmse(model, HOLD):,.0f} changes" in noisy.advice
    assert noisy.effects.before[0] == pytest.approx(rmse(model, HOLD), rel=1e-6)
    harm = tracer.influence(X[VAL], y[VAL], reduce="mean")
    curve = lt.removal_curve(tracer, harm, X[HOLD], y[HOLD], counts=[10], draws=1)
    assert curve.title.startswith("RMSE of 100 held-out rows")
    assert curve.shown.refitted[0] == pytest.approx(rmse(model, HOLD), rel=1e-6)
    assert curve.table.refitted[0] == pytest.approx(rmse(model, HOLD) ** 2 / 2, rel=1e-6)
    groups = lt.group_effects(tracer, np.arange(200) < 20, X[HOLD], y[HOLD])
    assert groups.title.startswith("Change of the RMSE of slices")
    without = tracer.refit(np.arange(20))
    change = rmse(without, HOLD) - rmse(model, HOLD)
    assert f"the RMSE of the slice `all` falls most: {change:+,.0f}" in groups.advice


def test_report(model, tracer):
    """A page shows errors and RMSE; their changes are slopes of the refit by weights."""
    made = lt.report(tracer, X[HOLD], y[HOLD], worst=2, top=2, noise=False)
    errors = np.abs(model.predict(X[HOLD]) - y[HOLD])
    case = made.data["cases"][0]
    assert case["error"] == pytest.approx(errors.max(), rel=1e-6)
    assert made.data["test"]["rmse"] == pytest.approx(rmse(model, HOLD), rel=1e-6)
    assert made.data["test"]["histogram"]["edges"][-1] == pytest.approx(errors.max(), rel=1e-6)
    row = case["training_rows"][0]
    step = np.ones(200)
    step[row["position"]] -= 1e-3
    moved = tracer.refit(sample_weight=step).predict(X[[300 + case["position"]]])[0]
    slope = (abs(moved - y[300 + case["position"]]) - case["error"]) / 1e-3
    assert row["error_change"] == pytest.approx(slope, rel=1e-2)
    assert '<th scope="col" class="n">error</th>' in made.html
    visible = made.html.partition('<script type="application/json"')[0]
    assert not re.search(r">\s*mean loss\s*<|largest loss", visible)


def test_influential_sets(model, tracer):
    """The set is named by RMSE, of one test row by its error; retrained changes are differences of those."""
    found = lt.influential_set(tracer, X[HOLD], y[HOLD], k=3, direction="lower", confirm=5)
    without = tracer.refit(found.rows)
    assert found.of == "RMSE of 100 test rows"
    assert found.before == pytest.approx(rmse(model, HOLD), rel=1e-6)
    assert found.refitted == pytest.approx(rmse(without, HOLD) - rmse(model, HOLD), rel=1e-5)
    assert found.table.refitted_so_far.iloc[-1] == found.refitted
    assert "RMSE_change_if_removed" in found.table
    rng = np.random.default_rng(0)
    others = np.setdiff1d(np.arange(200), np.append(found.rows, found.one_shot))
    changes = []
    for _ in range(5):
        drawn = rng.permutation(others)[:3]
        gone = [np.append(drawn, found.rows), drawn]
        models = [light().fit(np.delete(X[TRAIN], g, 0), np.delete(y[TRAIN], g)) for g in gone]
        changes.append(rmse(models[0], HOLD) - rmse(models[1], HOLD))
    assert found.retrained == pytest.approx(np.mean(changes), rel=1e-6)
    assert found.interval == pytest.approx(paired_interval(np.array(changes)), rel=1e-6)
    one = lt.influential_set(tracer, X[[300]], y[[300]], k=2, direction="raise")
    error = abs(model.predict(X[[300]])[0] - y[300])
    assert one.of == "error of a test row"
    assert one.before == pytest.approx(error, rel=1e-6)
    moved = abs(tracer.refit(one.rows).predict(X[[300]])[0] - y[300])
    assert one.refitted == pytest.approx(moved - error, rel=1e-5)
    assert "error_change_if_removed" in one.table


def test_other_losses_keep_their_name():
    unit = LossUnit(squared=False)
    assert unit.name == "mean loss"
    assert unit.renamed("loss of the 5 rows") == "mean loss of the 5 rows"
    assert (unit.level(2.0), unit.change(2.0, 1.0), unit.slope(2.0, 1.0)) == (2.0, 1.0, 1.0)
