"""Pictures show the numbers of the results, read back from the artists; and notebook output."""

import io
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pandas as pd
import pytest
from catboost import Pool
from catboost_models import case
from hostile import COLUMNS, STRINGS, hostile

import leaftrace as lt
from leaftrace import plot
from leaftrace._actions.effects import Effect, effects_table
from leaftrace._actions.noise.action import label_noise
from leaftrace._data.tables import notebook

matplotlib.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def drawn(ax):
    """Render a figure; warnings are errors here."""
    out = io.BytesIO()
    ax.figure.savefig(out, format="png", dpi=40)
    assert out.getbuffer().nbytes > 1_000
    return ax


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def line(ax, start):
    """Return the only line whose label starts like this."""
    (found,) = [x for x in ax.get_lines() if str(x.get_label()).startswith(start)]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def traced(name):
    c = case(name)
    return lt.Tracer(c.model, c.X, c.y, c.weight, n_jobs=1), c


@pytest.fixture(scope="module")
def binary():
    return traced("logloss weights")


@pytest.fixture(scope="module", params=["logloss class weights", "multiclass", "rmse weights"])
def any_model(request):
    return traced(request.param)


@pytest.fixture(scope="module")
def groups(binary):
    tracer, c = binary
    rng = np.random.default_rng(0)
    rows = rng.choice(["x", "y", "z"], len(c.y))
    slices = rng.choice(["p", "q"], len(c.y_test))
    return lt.group_effects(tracer, rows, c.X_test, c.y_test, slices)


# ---- rows ----


def bars(ax):
    """Return {label of the bar: length}, from the top."""
    every = [
        (bar.get_y() + bar.get_height() / 2, bar.get_width())
        for box in ax.containers
        for bar in box
    ]
    return dict(zip(tick_labels(ax.yaxis), (width for _, width in sorted(every)), strict=True))


def test_top(any_model):
    tracer, c = any_model
    influence = tracer.influence(c.X_test, c.y_test)
    ax = drawn(plot.top(influence, 3, 4))
    change = -influence.values[:, 3] * tracer.sample_weight  # without the row
    order = np.argsort(change)
    expected = [*order[:4], *order[-4:]]
    labels = [f"{c.y[i]:.6g}" if isinstance(c.y[i], float) else c.y[i] for i in expected]
    assert list(bars(ax)) == [f"row {i} ({x})" for i, x in zip(expected, labels, strict=True)]
    assert ax.get_ylabel() == "training row (label)"
    np.testing.assert_allclose(list(bars(ax).values()), change[expected], rtol=1e-5)
    harmful, helpful = ax.containers
    assert (harmful.get_label(), helpful.get_label()) == ("harmful rows", "helpful rows")
    assert all(b.get_hatch() for b in harmful)
    assert not any(b.get_hatch() for b in helpful)
    assert "test row 3" in ax.get_title()


def test_top_says_raises_and_lowers_of_a_prediction(binary):
    tracer, c = binary
    ax = plot.top(tracer.influence(c.X_test, of="prediction"), 0, 2)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "rows that raise it",
        "rows that lower it",
    ]
    assert ax.get_xlabel() == "change of the prediction without it (first order, trees fixed)"
    refit = tracer.influence(c.X_test[:1], c.y_test[:1], method=lt.LeafRefit(), rows=[4])
    ax = drawn(plot.top(refit))
    assert list(bars(ax)) == [f"row 4 ({c.y[4]:g})"]
    assert ax.get_xlabel() == "change of the loss without it (refitted, trees fixed)"


def test_top_shows_the_noise_of_retraining(binary):
    """Changes that do not stand out of retraining lie in a grey band, once that was measured."""
    tracer, c = binary
    influence = tracer.influence(c.X_test[:3], c.y_test[:3])
    noisy = replace(influence, noise=np.array([0.1, 0.01, np.nan]))
    ax = plot.top(noisy, 1, 3)
    [band] = [p for p in ax.patches if p.get_label() == "noise of retraining"]
    x, width = band.get_x(), band.get_width()
    np.testing.assert_allclose([x, x + width], [-0.01, 0.01])
    assert "noise of retraining" in [t.get_text() for t in ax.get_legend().get_texts()]
    labels = [p.get_label() for p in plot.top(noisy, 2, 3).patches]
    assert "noise of retraining" not in labels


def test_top_of_rows_without_effect(binary):
    tracer, c = binary
    influence = tracer.influence(c.X_test, c.y_test)
    ax = drawn(plot.top(replace(influence, values=np.zeros_like(influence.values))))
    assert [t.get_text() for t in ax.texts] == ["no training row has any effect"]
    assert "the mean of all test rows" in plot.top(influence.mean()).get_title()


def test_side_by_side():
    tracer, c = traced("categories and missing values")
    x = c.X_test.iloc[[5]]
    y = c.y_test[[5]]
    ax = drawn(plot.side_by_side(tracer, x, y, k=3))
    top = tracer.influence(x, y).top(3)
    heads = tick_labels(ax.xaxis)
    assert heads[0] == f"test row {x.index[0]}\nlabel {y[0]}\n"
    for head, row, effect in zip(heads[1:], top["train_row"], top["effect"], strict=True):
        name, label, change = head.splitlines()
        assert name == f"row {row}"
        assert label == f"label {c.y[c.X.index.get_loc(row)]}"
        assert change.startswith(f"{effect} ")
    assert tick_labels(ax.yaxis) == list(c.X.columns)
    cells = {(int(t.get_position()[0]), int(t.get_position()[1])): t.get_text() for t in ax.texts}
    ours = x.iloc[0]
    for i, row in enumerate(top["train_row"], 1):
        for f, column in enumerate(c.X.columns):
            value = c.X.loc[row, column]
            text = cells[i, f]
            if pd.isna(value) or pd.isna(ours[column]):
                sign = "" if pd.isna(value) and pd.isna(ours[column]) else "≠ "
            elif column == "kind":
                sign = "" if value == ours[column] else "≠ "
            else:
                sign = "▲ " if value > ours[column] else "▼ " if value < ours[column] else ""
            assert text == sign + (
                "missing" if pd.isna(value) else value if column == "kind" else f"{value:.6g}"
            )


def test_side_by_side_keeps_few_columns_and_does_without_a_label(binary):
    tracer, c = binary
    ax = drawn(plot.side_by_side(tracer, c.X_test[:1], k=2, columns=7))
    assert len(ax.get_yticks()) == 7
    assert "23 columns that differ less are left out" in ax.get_xlabel()
    assert "raises" in "".join(tick_labels(ax.xaxis)) or "lowers" in "".join(tick_labels(ax.xaxis))


# ---- all rows, all steps ----


def test_distribution(any_model):
    tracer, c = any_model
    influence = tracer.influence(c.X_test, c.y_test)
    ax = drawn(plot.distribution(influence))
    change = -influence.values.astype(float) * tracer.sample_weight[:, None]
    for word, part in (("harmful", np.maximum(-change, 0)), ("helpful", np.maximum(change, 0))):
        size = sorted(part.sum(axis=1), reverse=True)
        x, y = line(ax, word)
        np.testing.assert_allclose(y, [sum(size[: int(k)]) / sum(size) for k in x], rtol=1e-5)
        half = next(k for k in range(1, len(size) + 1) if sum(size[:k]) >= sum(size) / 2)
        assert any(
            f"{word}: half of it from {half:,} row" in t.get_text()
            for t in ax.get_legend().get_texts()
        )
    assert x[0] == 1
    assert x[-1] == tracer.n_rows


def test_distribution_of_one_row_and_of_none(binary):
    tracer, c = binary
    one = tracer.influence(c.X_test[:1], c.y_test[:1], rows=[8])
    ax = drawn(plot.distribution(one))
    words = ["harmful", "helpful"]
    carried = [line(ax, word)[1].tolist() for word in words]
    assert carried == ([[1.0], [0.0]] if one.values[0, 0] > 0 else [[0.0], [1.0]])
    empty = replace(one, values=np.zeros((0, 1)), train_index=np.arange(0), weight=np.ones(0))
    with pytest.raises(lt.InvalidInput, match="0 training rows"):
        plot.distribution(empty)
    with pytest.raises(
        lt.InvalidInput, match="test_row has 1, but positions of test rows go from 0 to 0"
    ):
        plot.top(one, 1)
    assert len(plot.top(empty).containers) == 0


def test_noise(any_model):
    tracer, c = any_model
    noise = label_noise(tracer)
    rng = np.random.default_rng(1)
    wrong = rng.random(len(c.y)) < 0.3
    ax = drawn(plot.noise(noise, wrong))
    ranked = noise.rank()
    x, y = line(ax, "label score")
    np.testing.assert_allclose(y, np.asarray(ranked["label_score"])[x.astype(int) - 1])
    x, y = line(ax, "precision at k")
    positions = np.asarray(ranked["train_row"])
    np.testing.assert_allclose(y, [np.mean(wrong[positions[: int(k)]]) for k in x])
    assert line(ax, "at random")[1][0] == wrong.mean()
    issues = len(noise.issues)
    assert not issues or line(ax, f"{issues} flagged")[0][0] == issues
    again = plot.noise(noise, np.flatnonzero(wrong))
    np.testing.assert_array_equal(line(again, "precision at k")[1], y)
    assert not [x for x in plot.noise(noise).get_lines() if "precision" in str(x.get_label())]
    with pytest.raises(lt.InvalidInput, match="is_noisy is a mask of shape"):
        plot.noise(noise, wrong[1:])


def test_fidelity(any_model):
    tracer, _ = any_model
    ax = drawn(plot.fidelity(tracer))
    (points,) = ax.get_lines()
    np.testing.assert_array_equal(points.get_ydata(), tracer.fidelity.per_step)
    np.testing.assert_array_equal(
        points.get_xdata(), np.arange(1, len(tracer.fidelity.per_step) + 1)
    )
    assert ax.get_title().startswith("The replay is exact")
    low, high = ax.get_ylim()
    assert low == 0  # exact zeros are visible
    assert high > tracer.fidelity.max_error


def test_fidelity_that_is_bad(binary):
    _, c = binary
    wrong = lt.Tracer(c.model, c.X, 1 - c.y, c.weight, fidelity="ignore")
    ax = drawn(plot.fidelity(wrong.fidelity))
    assert "NOT exact" in ax.get_title()
    assert ax.get_ylim()[1] > wrong.fidelity.per_step.max()


def test_removal_curve(binary):
    tracer, c = binary
    half = slice(0, 10), slice(10, None)
    influence = tracer.influence(c.X_test[half[0]], c.y_test[half[0]])
    curve = lt.removal_curve(
        tracer, influence, c.X_test[half[1]], c.y_test[half[1]], counts=[5, 20], draws=1
    )
    ax = drawn(plot.removal_curve(curve))
    assert [x.get_label() for x in ax.get_lines()[:2]] == [
        "random rows, refitted",
        "in order, refitted",
    ]
    for label, losses in (
        ("in order, refitted", curve.refitted),
        ("random rows, refitted", curve.random_refitted),
    ):
        x, y = line(ax, label)
        np.testing.assert_array_equal(x, [0, 5, 20])
        np.testing.assert_array_equal(y, losses)
    stopped = replace(curve, retrained=np.array([curve.refitted[0], 0.3, np.nan]))
    assert line(plot.removal_curve(stopped), "in order, retrained")[1].tolist() == [
        curve.refitted[0],
        0.3,
    ]


# ---- effects ----


def test_effects():
    every = effects_table([Effect("a", 1.0, -0.1, -0.2, -0.3), Effect("b", 1.0, 0.1, np.nan, 0.05)])
    ax = drawn(plot.effects(every))
    assert tick_labels(ax.yaxis) == ["a", "b"]
    for way in ("predicted", "refitted", "retrained"):
        np.testing.assert_array_equal(line(ax, way)[0], every[way])
    apart = drawn(
        plot.effects(effects_table([Effect("a", 1.0, 4.0, 2.0), Effect("b", 1.0, 0.001, -0.002)]))
    )
    assert tick_labels(apart.yaxis) == ["a (1 = 4)", "b (1 = 0.002)"]
    np.testing.assert_allclose(line(apart, "predicted")[0], [1, 0.5])
    np.testing.assert_allclose(line(apart, "refitted")[0], [0.5, -1])
    assert "units of its largest" in apart.get_xlabel()
    still = drawn(
        plot.effects(
            effects_table([Effect("nothing changes", 1.0, 0.0, 0.0), Effect("b", 1.0, 1e-3)])
        )
    )
    assert still.get_xlabel() == "change"
    assert line(still, "predicted")[0].tolist() == [0.0, 1e-3]
    drawn(plot.effects(effects_table([Effect("nothing at all", 1.0, 0.0)])))


def test_effects_of_actions(binary, groups):
    tracer, c = binary
    impact = lt.removal_impact(tracer, [1, 2, 3], c.X_test, c.y_test, retrain=False)
    assert len(plot.effects(impact).get_yticks()) == len(impact.effects)
    ax = drawn(plot.effects(groups))
    assert tick_labels(ax.yaxis)[:4] == [
        "p, without x",
        "p, without y",
        "p, without z",
        "q, without x",
    ]
    np.testing.assert_array_equal(line(ax, "refitted")[0], groups.refitted.T.ravel())
    apart = groups.refitted * np.array([[1.0], [1e-3], [1.0]])  # changes of one loss share a scale
    np.testing.assert_array_equal(
        line(plot.effects(replace(groups, refitted=apart)), "refitted")[0], apart.T.ravel()
    )
    many = effects_table([Effect(str(i), 1.0, float(i)) for i in range(1, 25)])
    ax = plot.effects(many)
    assert tick_labels(ax.yaxis) == [str(i) for i in range(5, 25)]
    assert "the 4 smallest are left out" in ax.get_xlabel()
    with pytest.raises(lt.InvalidInput, match="no effects: nothing was acted on"):
        plot.effects(label_noise(tracer))
    with pytest.raises(lt.InvalidInput, match="no effects to draw"):
        plot.effects(many[:0])
    with pytest.raises(lt.InvalidInput, match="columns of, predicted, refitted, retrained"):
        plot.effects({"of": ["a"]})


def heat(ax):
    return np.asarray(np.ma.filled(ax.images[0].get_array().astype(float), np.nan))


def test_groups(groups):
    ax = drawn(plot.groups(groups))
    np.testing.assert_array_equal(heat(ax), groups.refitted)
    low, high = ax.images[0].get_clim()
    assert -low == high == np.abs(groups.refitted).max()  # zero is the middle
    counts = dict(zip(groups.groups.names, groups.groups.count, strict=True))
    assert tick_labels(ax.yaxis) == [f"{name} ({counts[name]})" for name in "xyz"]
    written = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts}
    assert written[2, 1] == f"{groups.refitted[2, 1]:+.2g}".replace("-", "−")
    np.testing.assert_array_equal(heat(plot.groups(groups, show="predicted")), groups.predicted)
    with pytest.raises(lt.InvalidInput, match="was not asked for it"):
        plot.groups(groups, show="retrained")
    with pytest.raises(lt.InvalidInput, match="show is 'guessed'"):
        plot.groups(groups, show="guessed")
    some = groups.refitted.copy()
    some[1] = np.nan  # interrupted
    ax = drawn(plot.groups(replace(groups, refitted=some)))
    assert [t.get_text() for t in ax.texts].count("–") == 2


def test_groups_of_a_table(binary):
    tracer, c = binary
    rng = np.random.default_rng(0)
    rows = rng.choice(["x", "y", "z"], len(c.y))
    slices = rng.choice(["p", "q"], len(c.y_test))
    influence = tracer.influence(c.X_test, c.y_test)
    change = -influence.values.astype(float) * tracer.sample_weight[:, None]
    expected = [[change[rows == g][:, slices == s].sum(axis=0).mean() for s in "pq"] for g in "xyz"]
    shuffled = influence.by(rows, slices).sample(frac=1, random_state=1)
    ax = drawn(plot.groups(shuffled))
    order = [[t[0] for t in tick_labels(axis)] for axis in (ax.yaxis, ax.xaxis)]
    found = pd.DataFrame(heat(ax), index=order[0], columns=order[1]).loc[list("xyz"), list("pq")]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    few = plot.groups(
        replace(influence, values=influence.values[:, :4], test_index=np.arange(4)).by(rows)
    )
    np.testing.assert_allclose(
        heat(few), [change[rows == g][:, :4].sum(axis=0) for g in "xyz"], rtol=1e-4, atol=1e-9
    )
    with pytest.raises(lt.InvalidInput, match=f"{len(c.y)} groups, and a picture has room for 60"):
        plot.groups(influence.by(np.arange(len(c.y)), slices))
    with pytest.raises(lt.InvalidInput, match="columns group, rows"):
        plot.groups(influence.top(3))
    with pytest.raises(lt.InvalidInput, match="show= is for the result of group_effects"):
        plot.groups(shuffled, show="refitted")


# ---- all of them ----


def test_axes_are_taken_and_returned(binary, groups):
    tracer, c = binary
    influence = tracer.influence(c.X_test, c.y_test)
    figure, places = pyplot.subplots(2, 4, figsize=(24, 12))
    noise = label_noise(tracer)
    places = places.ravel()
    curve = lt.removal_curve(tracer, [1, 2, 3], c.X_test, c.y_test, counts=[2])
    calls = [
        (plot.top, influence), (plot.distribution, influence), (plot.groups, groups), (plot.effects, groups),
        (plot.noise, noise), (plot.removal_curve, curve), (plot.fidelity, tracer.fidelity),
    ]  # fmt: skip
    for (f, result), ax in zip(calls, places, strict=False):
        assert f(result, ax=ax) is ax
        with pytest.raises(
            lt.InvalidInput, match=r"ax is a (Figure|ndarray); pass one matplotlib Axes"
        ):
            f(result, ax=figure if ax is places[0] else places)
        if f is not plot.groups and f is not plot.effects:
            with pytest.raises(lt.InvalidInput, match=r"this draws a \w+, and got a dict"):
                f({"a": 1})
    assert plot.side_by_side(tracer, c.X_test[:1], c.y_test[:1], ax=places[7]) is places[7]
    assert pyplot.get_fignums() == [figure.number]  # no other figure was made
    drawn(places[0])


def test_errors_of_side_by_side(binary):
    tracer, c = binary
    with pytest.raises(lt.InvalidInput, match="x must be one row"):
        plot.side_by_side(tracer, c.X_test, c.y_test)
    with pytest.raises(lt.InvalidInput, match="columns is 0"):
        plot.side_by_side(tracer, c.X_test[:1], c.y_test[:1], columns=0)
    with pytest.raises(lt.InvalidInput, match="k is 0"):
        plot.side_by_side(tracer, c.X_test[:1], c.y_test[:1], k=0)
    with pytest.raises(lt.InvalidInput, match="no cells that can be read"):
        plot.side_by_side(tracer, Pool(c.X_test[:1], c.y_test[:1]))
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        plot.side_by_side(c.model, c.X_test[:1])


@pytest.fixture(scope="module")
def evil():
    model, X, y, X_test, y_test = hostile()
    return lt.Tracer(model, X, y), X_test, y_test


# The font has no tree symbol and warns; there must be no other warning.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_names_from_hell(evil, groups):
    tracer, X_test, y_test = evil
    ax = drawn(plot.side_by_side(tracer, X_test.iloc[[0]], y_test[[0]]))
    assert tick_labels(ax.yaxis)[:2] == COLUMNS[:2]
    names = np.array(["$\\frac{1}$", "$unbalanced", "a" * 500], dtype=object)
    bad = replace(groups, groups=replace(groups.groups, names=names))
    ax = drawn(plot.groups(bad))
    drawn(plot.effects(bad))
    assert max(map(len, tick_labels(ax.yaxis))) < 40
    influence = tracer.influence(X_test, y_test)
    renamed = np.array([*STRINGS, "$x$", "$", "\\$"] * 10, dtype=object)[: tracer.n_rows]
    drawn(plot.top(replace(influence, train_index=renamed), k=8))


def test_matplotlib_is_asked_for():
    code = (
        "import sys; sys.modules['matplotlib'] = None; import leaftrace as lt, numpy as np\n"
        "x = lt.Influence(np.ones((2, 1)), np.arange(2), np.arange(1), weight=np.ones(2))\n"
        "try: lt.plot.top(x)\n"
        "except lt.LeaftraceError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "pictures need matplotlib: pip install leaftrace[plot]"


# ---- notebooks ----


class Page(HTMLParser):
    """A parser that collects tags and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.tags = set()
        self.attributes = []
        self.words = []
        self.feed(page)
        page.encode()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


HARMLESS = {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}


def test_notebook_of_an_influence(binary):
    tracer, c = binary
    influence = tracer.influence(c.X_test, c.y_test)
    page = Page(influence._repr_html_())
    top = influence.top(5)
    for row, change in zip(top["train_row"][:15], top["loss_change_if_removed"][:15], strict=True):
        assert str(row) in page.words
        assert f"{change:.4g}" in page.words
    assert page.words.count("5") >= 3  # rank 5 of three queries
    assert f"... and {len(c.y_test) - 3} more queries; .top(k) has them all" in page.words
    assert page.tags <= HARMLESS
    assert not page.attributes
    empty = replace(
        influence, values=influence.values[:0], train_index=np.arange(0), weight=np.ones(0)
    )
    assert "table" not in Page(empty._repr_html_()).tags


def test_notebooks_are_escaped(evil, groups):
    tracer, X_test, y_test = evil
    influence = tracer.influence(X_test, y_test)
    whole = [
        text for text in STRINGS if "\ud800" not in text
    ]  # pandas rejects lone surrogates when it infers types
    names = np.array([whole[i % len(whole)] for i in range(tracer.n_rows)], dtype=object)
    tests = np.array([whole[-i % len(whole)] for i in range(len(y_test))], dtype=object)
    bad = replace(
        groups, title=STRINGS[0], advice=STRINGS[2], groups=replace(groups.groups, names=names[:3])
    )
    column = pd.DataFrame({name: STRINGS for name in COLUMNS}, dtype=object)
    noise = label_noise(tracer)
    for result in (
        replace(influence, train_index=names, test_index=tests, of=STRINGS[0], method=STRINGS[1]),
        bad,
        noise,
        replace(noise, title="<b>", given_label=names),
    ):
        page = Page(result._repr_html_())
        assert page.tags <= HARMLESS
        assert not page.attributes
    page = Page(notebook("t", column))
    assert page.tags <= HARMLESS
    assert STRINGS[0] in page.words
    assert COLUMNS[-1] in page.words
    assert STRINGS[0] in Page(bad._repr_html_()).words


def test_notebook_tables_are_short(binary):
    tracer, _ = binary
    page = Page(label_noise(tracer)._repr_html_())
    assert f"... and {tracer.n_rows - 20:,} more" in page.words
    plain = notebook(
        "t", {"a": np.array([1.0, np.nan]), "b": np.array(["x", None], dtype=object)}
    )  # without pandas
    framed = pd.DataFrame({"a": [1, np.nan], "b": ["x", None]})
    assert Page(plain).words == Page(notebook("t", framed)).words
    assert Page(plain).words.count("–") == 2
