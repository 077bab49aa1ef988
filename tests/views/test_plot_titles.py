"""Titles of pictures: each is a sentence that is true of the data it is drawn from, and fits the picture."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor

import leaftrace as lt
from leaftrace import plot
from leaftrace._actions.effects import Effect, effects_table

matplotlib.use("Agg")
from dataclasses import replace

from matplotlib import pyplot

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["age", "hours", "pay"])
SCORE = 3 * X["age"].to_numpy() + rng.normal(size=300)
TRAIN, TEST, HOLD = slice(0, 180), slice(180, 240), slice(240, 300)
WRONG = np.arange(12)
SETTINGS = {"n_estimators": 12, "num_leaves": 6, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def classes():
    y = np.where(SCORE > 0, "yes", "no").astype(object)
    y[WRONG] = np.where(y[WRONG] == "yes", "no", "yes")
    model = LGBMClassifier(**SETTINGS).fit(X[TRAIN], y[TRAIN])
    return lt.Tracer(model, X[TRAIN], y[TRAIN], n_jobs=1), y


@pytest.fixture(scope="module")
def numbers():
    y = 1000 * SCORE
    y[WRONG] *= -3
    model = LGBMRegressor(**SETTINGS).fit(X[TRAIN], y[TRAIN])
    return lt.Tracer(model, X[TRAIN], y[TRAIN], n_jobs=1), y


def title(ax):
    """Return the title on one line, after checking that the picture does not cut it."""
    ax.figure.canvas.draw()
    box = ax.title.get_window_extent()
    width, height = ax.figure.canvas.get_width_height()
    assert box.x0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height
    return ax.get_title().replace("\n", " ")


def test_rows(classes):
    tracer, y = classes
    influence = tracer.influence(X[TEST], y[TEST])
    change = -influence.values[:, 4]
    harm = int(change.argmin())
    assert title(plot.top(influence, 4)) == f"Row {harm} harms test row 184 most"
    below = replace(influence, noise=np.full(60, 2 * np.abs(change).max()))
    assert title(plot.top(below, 4)) == (
        "No training row moves test row 184 by more than retraining does"
    )
    assert 2 * abs(change.min()) > change.max() > abs(change.min())
    noisy = replace(influence, noise=np.full(60, -change.min() * 1.0001))  # helpful rows stand out
    assert title(plot.top(noisy, 4)).endswith("most, but no more than retraining moves it")
    only_help = replace(influence, values=-np.abs(influence.values))
    assert title(plot.top(only_help, 4)) == "No training row harms test row 184"


def test_shares(classes):
    tracer, y = classes
    influence = tracer.influence(X[TEST], y[TEST])
    harm = np.sort(np.maximum(influence.values.astype(float), 0).sum(axis=1))[::-1]
    half = int((np.cumsum(harm) < harm.sum() / 2).sum()) + 1
    assert title(plot.distribution(influence)) == (
        f"Half of all harm comes from {half} rows ({100 * half / 180:.2g} %)"
    )
    nothing = replace(influence, values=np.zeros_like(influence.values))
    assert title(plot.distribution(nothing)) == "No training row has any effect"


def test_surprising_labels(classes):
    tracer, _ = classes
    noise = lt.label_noise(tracer)
    flagged = int(noise.is_label_issue.sum())
    assert title(plot.noise(noise)).startswith(f"{flagged} of 180 labels surprise the model")
    found = np.isin(np.argsort(noise.label_score, kind="stable")[:12], WRONG).sum()
    assert title(plot.noise(noise, WRONG)) == (
        f"Of the 12 most surprising labels, {found} are wrong (1 at random)"
    )


def test_curves_are_in_the_unit_of_the_target(numbers):
    tracer, y = numbers
    harm = tracer.influence(X[TEST], y[TEST], reduce="mean")
    curve = lt.removal_curve(tracer, harm, X[HOLD], y[HOLD], counts=[5, 20], draws=1, retrain=False)
    ax = plot.removal_curve(curve)
    rmse = [np.sqrt(2 * loss) for loss in curve.refitted]
    [level] = [x.get_ydata()[0] for x in ax.get_lines() if str(x.get_label()).startswith("_")]
    assert level == pytest.approx(rmse[0])
    best = int(np.argmin(rmse))
    assert best > 0
    fall = f"\u2212{rmse[0] - rmse[best]:,.0f}"
    assert f"first {curve.removed[best]} rows the RMSE changes by {fall}" in title(ax)
    worse = replace(curve, refitted=curve.refitted[0] * np.array([1.0, 1.1, 1.2]))
    assert "is lowest with all rows" in title(plot.removal_curve(worse))
    lucky = replace(curve, refitted=curve.refitted[0] * np.array([1, 0.9, 1]))
    lucky = replace(lucky, random_refitted=curve.refitted[0] * np.array([1, 0.8, 1]))
    assert "refitted, no better than" in title(plot.removal_curve(lucky))


def test_groups(numbers):
    tracer, y = numbers
    parts = np.where(np.arange(180) < 12, "wrong", "right")
    effects = lt.group_effects(tracer, parts, X[HOLD], y[HOLD])
    without = tracer.refit(WRONG).predict(X[HOLD])
    as_it_is = tracer.refit().predict(X[HOLD])
    change = [np.sqrt(((p - y[HOLD]) ** 2).mean()) for p in (as_it_is, without)]
    fall = f"\u2212{change[0] - change[1]:,.0f}"
    assert (
        title(plot.groups(effects)) == f"Without the group wrong (12) the RMSE falls most: {fall}"
    )
    drawn = plot.effects(effects)
    assert title(drawn).startswith("all, without right: +")  # the largest change
    shown = {t.get_text(): i for i, t in enumerate(drawn.get_yticklabels())}
    [line] = [x for x in drawn.get_lines() if x.get_label() == "refitted"]
    assert line.get_xdata()[shown["all, without wrong"]] == pytest.approx(change[1] - change[0])
    helpful = replace(effects, refitted=np.abs(effects.refitted))
    assert title(plot.groups(helpful)).startswith("Every group helps")


def test_effects_name_the_loss_and_whether_first_order_held():
    lines = [Effect("decisions changed", 0.0, 1.0, 2.0), Effect("mean loss", 1.0, -0.1, 0.2, 0.3)]
    assert title(plot.effects(effects_table(lines))) == (
        "mean loss: +0.3, retrained; first order has the wrong sign in 1 of 2"
    )
    lines[1] = Effect("mean loss", 1.0, 0.1, 0.2)
    assert title(plot.effects(effects_table(lines))) == (
        "mean loss: +0.2, refitted; first order has the right sign everywhere"
    )
    assert title(plot.effects(effects_table(lines[:1]))).startswith("decisions changed: +2")


def test_side_by_side(classes):
    tracer, y = classes
    top = tracer.influence(X[184:185], y[184:185]).top(1)
    row = int(top.train_row.iloc[0])
    verb = {"harmful": "harms", "helpful": "helps"}[top.effect.iloc[0]]
    alike = "the same label" if y[row] == y[184] else "another label"
    assert title(plot.side_by_side(tracer, X[184:185], y[184:185])) == (
        f"Row {row} {verb} test row 184 most: {alike}, 0 of the 3 values shown are alike"
    )


def test_features(numbers):
    tracer, _ = numbers
    influence = tracer.influence(X[184:185], of=lt.goals.shap())
    i, j = np.unravel_index(np.abs(influence.change).argmax(), influence.change.shape)
    said = title(plot.features(influence))
    assert said.startswith(f"Row {i} matters most to the effect of {influence.test_index[j]}: ")
